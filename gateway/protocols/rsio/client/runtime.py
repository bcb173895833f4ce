"""How a coroutine waits, whoever runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

__all__ = [
    "Condition",
    "Disconnected",
    "Runtime",
    "StreamFailed",
    "Transport",
    "Waiter",
]


class Disconnected(ConnectionError):
    """The connection ended before what was waited for."""


class StreamFailed(Exception):
    """The publisher ended its stream with an error, or the subscriber ours."""


#: Something to await, and what ends the waiting; ending it twice does no harm.
Waiter: TypeAlias = tuple[Awaitable[None], Callable[[], None]]


class Runtime(Protocol):
    """An event loop."""

    def waiter(self) -> Waiter:
        """A new one."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call it in the next turn."""

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call it then, unless what is returned is called before."""


class Transport(Protocol):
    """An open connection."""

    def write(self, data: bytes) -> None:
        """Send, or keep until it can be sent."""

    def close(self) -> None:
        """Send what is kept, then FIN."""

    def abort(self) -> None:
        """Drop at once."""


class Condition:
    """Wakes all who wait for something to change; they look whether it did."""

    __slots__ = ("_runtime", "_wakes")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._wakes: list[Callable[[], None]] = []

    async def wait(self) -> None:
        """Until the next `notify_all`."""
        awaitable, wake = self._runtime.waiter()
        self._wakes.append(wake)
        try:
            await awaitable
        finally:
            if wake in self._wakes:  # cancelled, as by a timeout
                self._wakes.remove(wake)

    def notify_all(self) -> None:
        """Wake them."""
        wakes, self._wakes = self._wakes, []
        for wake in wakes:
            wake()
