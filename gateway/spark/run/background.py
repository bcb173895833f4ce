"""Tasks beside the batches, each on a thread of its own."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

AGAIN_SECONDS = 600.0
"""Time until a task that failed is tried again."""

Work = Callable[[], Iterator[object]]
"""Says what it has done, step by step; may be given up between two."""


class BackgroundTask(ABC):
    """Does one piece of work at a time.

    *done* is told each step; *failed* is told why work failed, which ends nothing: the
    tables are whole, and the job goes on.
    """

    def __init__(
        self,
        name: str,
        done: Callable[[object], None],
        failed: Callable[[Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._done = done
        self._failed = failed
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._again: float | None = None
        """When work that failed is tried again."""
        self.problem: str | None = None
        """Why the last work failed."""

    @abstractmethod
    def due(self, *, again: bool) -> Work | None:
        """The work that it is time for; *again*: the last failed, some minutes ago."""

    @property
    def waits(self) -> bool:
        """Whether work that failed is to be tried again, and not yet."""
        if self._again is None:
            return False
        # A clock that was set back by a year is no reason to wait for a year.
        return 0 < self._again - self._clock() <= AGAIN_SECONDS

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def tend(self) -> None:
        """Begin the work that it is time for, unless it is at work."""
        if not self.busy and (work := self._next()) is not None:
            self._thread = threading.Thread(
                target=self._run, args=[work], name=self._name, daemon=True
            )
            self._thread.start()

    def run(self) -> None:
        """Do the work that it is time for, before this returns."""
        if (work := self._next()) is not None:
            self._run(work)

    def _next(self) -> Work | None:
        again = self._again is not None and not self.waits
        if (work := self.due(again=again)) is not None:
            self._again = None
        return work

    def _run(self, work: Work) -> None:
        try:
            for done in work():
                self._done(done)
                if self._stop.is_set():
                    return
            self.problem = None
        except Exception as why:
            self.problem = str(why)
            self._again = self._clock() + AGAIN_SECONDS
            self._failed(why)

    def join(self) -> None:
        """Wait until it is not at work."""
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        """Give up the work, at its next step; nothing is left half done."""
        self._stop.set()
        self.join()
