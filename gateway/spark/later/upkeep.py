"""Maintains a table of Delta or Iceberg each hour, beside the job and on a thread of its own.

Each batch adds a commit and some files, and each commit reads what is known of all before
it.  So the job compacts what is over, and forgets commits: `Kind.maintain`.  When it did so
last stands in `lake/.gateway/maintained.json`, for a job that runs a minute each hour (`--once`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import write_json
from gateway.spark.run.background import BackgroundTask

_EVERY_SECONDS = 3600.0
_AGAIN_SECONDS = 600.0
"""After one that failed."""
_THOROUGH_TIMES = 24
"""So many until it is thorough again."""


class Upkeep(BackgroundTask):
    """*work* maintains, and says what was done step by step; it is told whether to look for
    files of no commit, too.
    """

    def __init__(
        self,
        path: Path,
        disk: LakeDisk,
        work: Callable[[bool], Iterator[str]],
        done: Callable[[str], None],
        failed: Callable[[Exception], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__("maintain")
        self._path = path
        self._disk = disk
        self._work = work
        self._done = done
        self._failed = failed
        self._clock = clock
        if not disk.exists(path):
            disk.make_directory(path.parent)
            write_json(disk, path, {"at": clock(), "times": 0})
        told = self._told()
        self._times = int(told.get("times", 0))
        self._due = float(told.get("at", 0.0)) + _EVERY_SECONDS

    def _told(self) -> dict[str, float]:
        try:
            found = json.loads(self._disk.read(self._path))
        except ValueError:  # it is only how long ago that was
            return {}
        return found if isinstance(found, dict) else {}

    def tend(self) -> None:
        """Begin, if it is time."""
        if self.busy or not self._is_time:
            return
        self.begin(self.run)

    @property
    def _is_time(self) -> bool:
        """It never is further off than one turn, unless the clock was set back."""
        return not 0 < self._due - self._clock() <= _EVERY_SECONDS

    def run(self) -> None:
        """Do it here, if it is time."""
        if not self._is_time:
            return
        thorough = self._times % _THOROUGH_TIMES == 0
        try:
            for done in self._work(thorough):
                self._done(done)
                if self._stop.is_set():
                    return  # the next start does it anew
        except Exception as why:  # the table is whole; the job must go on
            self._due = self._clock() + _AGAIN_SECONDS
            self._failed(why)
            return
        self._times += 1
        self._due = self._clock() + _EVERY_SECONDS
        write_json(self._disk, self._path, {"at": self._clock(), "times": self._times})
