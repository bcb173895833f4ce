"""The threads that journal and spool run on, as an interface, and the real ones.

Everything in the store that waits for another thread waits on a `Condition` made here,
so that a simulation can run the same code on one thread and choose the order of all steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol


class Condition(Protocol):
    """As `threading.Condition`."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> object: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Let go of the lock until somebody notifies, or for *timeout* seconds."""

    def notify(self, n: int = 1) -> None:
        """Wake one that waits."""


class Thread(Protocol):
    """As `threading.Thread`."""

    def start(self) -> None:
        """Run it."""

    def is_alive(self) -> bool:
        """Whether it runs."""


class Threads(Protocol):
    """Makes them."""

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        """One that is not started; it ends with the process."""

    def condition(self) -> Condition:
        """With a lock of its own."""


class RealThreads:
    """The operating system's threads."""

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        """See `Threads`."""
        return threading.Thread(target=run, name=name, daemon=True)

    def condition(self) -> Condition:
        """See `Threads`."""
        return threading.Condition()
