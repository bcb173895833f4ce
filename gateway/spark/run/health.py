"""The job's health, in a small file that the gateway's daemon reads.

The file is replaced every few seconds while the job runs, so its age tells whether the
job lives.  It needs no lock and survives no power cut; it says nothing about the tables
that the tables do not say themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from gateway import __version__
from gateway.figures.reported import BEAT
from gateway.spark.commit.ledger import Ledger
from gateway.spark.commit.sink import Committed
from gateway.store.names import SpoolFile
from gateway.store.readers.lake import health_path, leave_word

_RECENT = 20
_NO_FAILURES: Mapping[str, Any] = {"failures": 0, "last_failure": None}
_KILLED = "it ended without a word; dmesg says whether it was killed for its memory"


def _inherited(before: Mapping[str, Any]) -> Mapping[str, Any]:
    known = {
        name: before[name]
        for name in ("committed_by", "holes", "ended", "complete_unknown_since")
        if name in before
    }
    failures, why = before.get("failures"), before.get("last_failure")
    if not isinstance(failures, int):  # an earlier version
        failures, why = 0, None
    if before.get("state") in ("starting", "running"):
        failures, why = failures + 1, _KILLED
    return {**known, "failures": failures, "last_failure": why}


class Waiting(NamedTuple):
    """Files of the spool whose events are not all in the tables."""

    files: int = 0
    oldest: tuple[SpoolFile, float] | None = None
    """And since when it is there, in seconds since the epoch."""

    @classmethod
    def of(
        cls, files: Collection[SpoolFile], modified: Callable[[SpoolFile], float]
    ) -> Waiting:
        """*modified* is asked for the first of each node: its files come in that order.

        It raises FileNotFoundError for one that is gone.
        """
        first: dict[str, SpoolFile] = {}
        for file in files:
            other = first.setdefault(file.node, file)
            if file.first < other.first:
                first[file.node] = file
        times = []
        for file in first.values():
            with contextlib.suppress(FileNotFoundError):
                times.append((file, modified(file)))
        return cls(len(files), min(times, key=lambda one: one[1], default=None))


class Health:
    """Collects what is to be told, and writes it.

    It goes on with the words of the job before this one.  They say how far the tables were, and
    how often a job has ended since the last batch without being asked to.  So one that fails at each
    start is not taken for one that is starting.
    """

    def __init__(
        self,
        lake: Path,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = health_path(lake)
        self._one_at_a_time = threading.Lock()
        self._started = threading.Event()
        self._clock = clock
        self._monotonic = monotonic
        self._looked = -BEAT
        """When it was written last how far the tables are; the clock may be set."""
        self._batches: deque[dict[str, Any]] = deque(maxlen=_RECENT)
        self._known: dict[str, Any] = {
            "version": __version__,
            "pid": os.getpid(),
            "state": "starting",
            "doing": None,
            "started_at": clock(),
            "last_batch_at": None,
            "last_batch_seconds": None,
            "last_batch_rows": None,
            "batches": 0,
            "rows": 0,
            "misfits": 0,
            "busy": False,
            "last_error": None,
            "failures": 0,
            "last_failure": None,
            **_inherited(self._before()),
        }

    def committed(self, batch: Committed, seconds: float) -> None:
        """A batch is in the tables; it took so long."""
        self._known["last_batch_at"] = self._clock()
        self._known["last_batch_seconds"] = round(seconds, 3)
        self._known["last_batch_rows"] = batch.rows
        self._known["batches"] += 1
        self._known["rows"] += batch.rows
        self._known["misfits"] += batch.misfits
        self._known |= _NO_FAILURES
        self._batches.append(
            {
                "at": self._clock(),
                "seconds": round(seconds, 3),
                "rows": batch.rows,
                "files": batch.files,
            }
        )
        self._known["recent"] = list(self._batches)

    def begin(self) -> None:
        """Write from now on until something other than a start is said.

        Java comes up in a call that can not be looked into.
        """
        self._write()
        self._beat_until(self._started)

    @contextlib.contextmanager
    def at(self, doing: str) -> Iterator[None]:
        """Leave word meanwhile: what takes long is done in the loop that leaves it else."""
        ended = threading.Event()
        self.say(doing=doing)
        self._beat_until(ended)
        try:
            yield
        finally:
            ended.set()
            self.say(doing=None)

    def _beat_until(self, end: threading.Event) -> None:
        def beat() -> None:
            while not end.wait(BEAT):
                with contextlib.suppress(OSError):
                    self._write()

        threading.Thread(target=beat, name="gateway-health", daemon=True).start()

    def ended(self, why: str | None) -> None:
        """Leave word of how it ended; None: it was asked to."""
        if why is None:
            self.say(state="stopped", **_NO_FAILURES)
            return
        failures = self._known["failures"] + 1
        self.say(state="failed", last_error=why, failures=failures, last_failure=why)

    def note(self, **news: Any) -> None:
        """Add to what is known; it is written with the next word."""
        self._known.update(news)

    def say(self, **news: Any) -> None:
        """Add to what is known, and write it."""
        if news.get("state", "starting") != "starting":
            self._started.set()
            news = {"doing": None, **news}
        self.note(**news)
        self._write()

    def beat(
        self,
        ledger: Ledger,
        waiting: Callable[[], Waiting],
        *,
        busy: bool = False,
    ) -> None:
        """Write it if the last time is long ago; *waiting* looks what waits.

        *busy*: a batch is on its way into the tables.
        """
        changed = busy is not self._known["busy"]
        self._known["busy"] = busy
        if self._monotonic() - self._looked >= BEAT:
            self.tables(ledger, waiting())
        elif changed:
            self._write()

    def tables(self, ledger: Ledger, waiting: Waiting) -> None:
        """Write how far the tables are, and which files wait."""
        self._looked = self._monotonic()
        oldest = waiting.oldest
        if not waiting.files:
            self._known |= _NO_FAILURES
        self.say(
            committed_by=ledger.committed.last_by(),
            spool_files=waiting.files,
            oldest_file=oldest and {"name": oldest[0].name, "at": oldest[1]},
            holes=[
                {"node": one.node, "first": one.first, "last": one.last, "why": one.why}
                for one in ledger.holes
            ],
            ended=[
                {**life._asdict(), **asdict(ledger.ends[life])}
                for life in ledger.left_behind()
            ],
        )

    def _before(self) -> Mapping[str, Any]:
        """The last words of the job before this one."""
        try:
            told = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return told if isinstance(told, dict) else {}

    def _write(self) -> None:
        # While it starts, a thread writes, too.
        with self._one_at_a_time:
            said = json.dumps({"at": self._clock(), **self._known})
            leave_word(self._path, said.encode())
