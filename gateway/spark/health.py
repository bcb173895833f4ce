"""What the job knows about itself, in a small file that the gateway's daemon reads.

The file is replaced every few seconds while the job runs, so its age tells whether the
job lives.  It needs no lock and survives no power cut; it says nothing about the tables
that the tables do not say themselves.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway import __version__
from gateway.spark.ledger import Ledger, SpoolFile
from gateway.spark.sink import Committed
from gateway.store.lake import BEAT, health_path

__all__ = ["Health"]


_RECENT = 20


class Health:
    """Collects what is to be told, and writes it."""

    def __init__(
        self,
        lake: Path,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """*clock* tells what time it is, and may be set; *steady* how much has passed."""
        self._path = health_path(lake)
        self._clock = clock
        self._steady = steady
        self._looked = -BEAT
        """When it was written last how far the tables are, by *steady*."""
        self._batches: deque[dict[str, Any]] = deque(maxlen=_RECENT)
        self._known: dict[str, Any] = {
            "version": __version__,
            "pid": os.getpid(),
            "state": "starting",
            "started_at": clock(),
            "last_batch_at": None,
            "last_batch_seconds": None,
            "last_batch_rows": None,
            "batches": 0,
            "rows": 0,
            "misfits": 0,
            "busy": False,
            "last_error": None,
        }

    def committed(self, batch: Committed, seconds: float) -> None:
        """A batch is in the tables; it took so long."""
        self._known["last_batch_at"] = self._clock()
        self._known["last_batch_seconds"] = round(seconds, 3)
        self._known["last_batch_rows"] = batch.rows
        self._known["batches"] += 1
        self._known["rows"] += batch.rows
        self._known["misfits"] += batch.misfits
        self._batches.append(
            {
                "at": self._clock(),
                "seconds": round(seconds, 3),
                "rows": batch.rows,
                "files": batch.files,
            }
        )
        self._known["recent"] = list(self._batches)

    def say(self, **news: Any) -> None:
        """Add to what is known, and write it."""
        self._known.update(news)
        self._write()

    def beat(
        self,
        ledger: Ledger,
        waiting: Callable[[], list[tuple[SpoolFile, float]]],
        *,
        busy: bool = False,
    ) -> None:
        """Write it if the last time is long ago; *waiting* are files and their times.

        *busy*: a batch is on its way into the tables.
        """
        changed = busy is not self._known["busy"]
        self._known["busy"] = busy
        if self._steady() - self._looked >= BEAT:
            self.tables(ledger, waiting())
        elif changed:
            self._write()

    def tables(self, ledger: Ledger, waiting: list[tuple[SpoolFile, float]]) -> None:
        """Write how far the tables are, and which files wait."""
        self._looked = self._steady()
        oldest = min(waiting, key=lambda one: one[1], default=None)
        self.say(
            committed_lsn=ledger.committed.last(),
            spool_files=len(waiting),
            oldest_file=oldest and {"name": oldest[0].name, "at": oldest[1]},
            holes=[
                {"node": one.node, "first": one.first, "last": one.last, "why": one.why}
                for one in ledger.holes
            ],
        )

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(f".{self._path.name}.new")
        new.write_text(json.dumps({"at": self._clock(), **self._known}))
        new.replace(self._path)
