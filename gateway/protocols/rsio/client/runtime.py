"""The client's needs of an event loop, and a condition to wait for on any."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias


class Disconnected(ConnectionError):
    """The connection ended, or could not be opened."""


class StreamFailed(Exception):
    """A stream ended with an error, or its subscriber cancelled it."""


class CanNotResume(StreamFailed):
    """The gateway has other elements of this sender than it knows: connecting again is no help."""


class Fenced(CanNotResume):
    """Another sender has the name, and began later: this one may not publish any more.

    What it was told is stored, is; what it was not told of may or may not be.
    """


class TooLarge(ValueError):
    """The subscriber has said that it takes no element of so many octets."""

    def __init__(self, octets: int, most: int) -> None:
        super().__init__(f"an element of {octets} octets; the subscriber takes {most}")
        self.octets = octets
        self.most = most


#: Something to await, and a call that ends the wait; a second call does nothing.
Waiter: TypeAlias = tuple[Awaitable[None], Callable[[], None]]


class Runtime(Protocol):
    """An event loop."""

    def waiter(self) -> Waiter: ...

    def soon(self, call: Callable[[], None]) -> None:
        """Call it in the loop's next turn."""

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call it after so many seconds; returns a call that cancels it."""


async def sleep(runtime: Runtime, seconds: float) -> None:
    awaitable, wake = runtime.waiter()
    cancel = runtime.later(seconds, wake)
    try:
        await awaitable
    finally:
        cancel()


class Transport(Protocol):
    """An open connection."""

    def write(self, data: bytes) -> None:
        """Send, or buffer until it can be sent."""

    def close(self) -> None:
        """Close once everything written is sent."""

    def abort(self) -> None:
        """Close at once."""


class Condition:
    """Wakes all waiting coroutines; each checks whether what it waits for has happened."""

    __slots__ = ("_runtime", "_wakes")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._wakes: list[Callable[[], None]] = []

    async def wait(self) -> None:
        """Wait for the next `notify_all`."""
        awaitable, wake = self._runtime.waiter()
        self._wakes.append(wake)
        try:
            await awaitable
        finally:
            if wake in self._wakes:  # cancelled, as by a timeout
                self._wakes.remove(wake)

    def notify_all(self) -> None:
        wakes, self._wakes = self._wakes, []
        for wake in wakes:
            wake()
