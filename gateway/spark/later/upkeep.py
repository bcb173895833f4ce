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
from gateway.spark.run.background import BackgroundTask, Work

_EVERY_SECONDS = 3600.0
_THOROUGH_TIMES = 24
"""The rounds until it is thorough again."""


class Upkeep(BackgroundTask):
    """*work* maintains, and says what was done step by step; it is told whether to look for
    files of no commit, too.
    """

    def __init__(
        self,
        path: Path,
        disk: LakeDisk,
        work: Callable[[bool], Iterator[object]],
        done: Callable[[object], None],
        failed: Callable[[Exception], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__("maintain", done, failed, clock)
        self._path = path
        self._disk = disk
        self._work = work
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

    def due(self, *, again: bool) -> Work | None:
        """Maintain once an hour; the next one is never further off, unless the clock was set
        back.
        """
        is_time = not 0 < self._due - self._clock() <= _EVERY_SECONDS
        return self._maintain if again or (is_time and not self.waits) else None

    def _maintain(self) -> Iterator[object]:
        yield from self._work(self._times % _THOROUGH_TIMES == 0)
        self._times += 1
        self._due = self._clock() + _EVERY_SECONDS
        write_json(self._disk, self._path, {"at": self._clock(), "times": self._times})
