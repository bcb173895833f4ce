"""The threads that journal and spool run on, as an interface, and the real ones.

The store waits for another thread by a `Condition` made here, and by nothing else.  So a
simulation runs the same code on one thread and chooses the order of all steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol


class Condition(Protocol):
    """A condition, as `threading.Condition`."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> object: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Let go of the lock until a notification, or for *timeout* seconds."""

    def notify(self, n: int = 1) -> None:
        """Wake one that waits."""


class Thread(Protocol):
    """A thread, as `threading.Thread`."""

    def start(self) -> None:
        """Run it."""

    def is_alive(self) -> bool:
        """Whether it runs."""


class Threads(Protocol):
    """Makes them."""

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        """One that is not started; it ends with the process."""

    def condition(self) -> Condition:
        """A condition with a lock of its own."""


class RealThreads:
    """The operating system's threads."""

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        return threading.Thread(target=run, name=name, daemon=True)

    def condition(self) -> Condition:
        return threading.Condition()


class Alone:
    """One thread at a time, over calls that block: `with alone: …`."""

    def __init__(self, threads: Threads) -> None:
        self._condition = threads.condition()
        self._busy = False

    def __enter__(self) -> None:
        with self._condition:
            while self._busy:
                self._condition.wait()
            self._busy = True

    def __exit__(self, *_: object) -> None:
        with self._condition:
            self._busy = False
            self._condition.notify()
