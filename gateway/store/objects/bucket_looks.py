"""A thread that looks at a bucket again and again, for what can wait: whatever fails is
told once, and tried again.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.logger import Logger

from gateway.store.objects.bucket import BucketError
from gateway.store.system.threads import RealThreads, Threads

_AGAIN_SECONDS = 5.0
"""Seconds after a look that failed, if the next one is not due before."""


@define(eq=False, slots=False)
class BucketLooks:
    """Calls *look* every so many *seconds*; *what* can not be done while it fails."""

    _log = Logger()

    _look: Callable[[], object]
    _seconds: float
    _what: str
    _threads: Threads = field(factory=RealThreads)

    def __attrs_post_init__(self) -> None:
        self._condition = self._threads.condition()
        self._stopping = False
        self.problem: str | None = None
        """Why the last look failed, if it did."""

    def start(self) -> None:
        """Look, until `stop`."""
        self._threads.thread("bucket-looks", self._run).start()

    def stop(self) -> None:
        """Look no more; a request that is under way may end by itself."""
        with self._condition:
            self._stopping = True
            self._condition.notify()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._look()
                self.problem = None
            except BucketError as why:
                self._failed(str(why))
            except Exception as why:
                if self.problem is None:
                    self._log.failure("A look at the bucket")
                self._failed(f"{type(why).__name__}: {why}")
            with self._condition:
                if not self._stopping:
                    again = self._seconds if self.problem is None else _AGAIN_SECONDS
                    self._condition.wait(min(self._seconds, again))

    def _failed(self, why: str) -> None:
        text = f"{self._what}: {why}"
        if self.problem is None:
            self._log.error("{text}", text=text)
        self.problem = text
