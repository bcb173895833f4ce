"""What the daemon knows of the Spark job and of how far behind the tables are.

The job reports in a file beside the tables (`gateway.spark.run.health`); the times of
our own events are noted here as they become durable.  Both together say how old the
oldest event is that is in no table yet, whether the job runs or not.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.admin.freshness import Job
from gateway.daemon.marks import Marks
from gateway.event import Stored
from gateway.sdk.protocol import Statistic, Statistics
from gateway.store.finder import spool_files
from gateway.store.readers.audited import Audited
from gateway.store.readers.lake import BEAT, health_path

#: A job that has left no word for so long is taken for dead.
SILENT = 6 * BEAT

_MARKS = 4096
_BATCH = ("at", "seconds", "rows", "files")
_MARKS_OF_A_LISTENER = 512
_FILES_AT_START = 100
"""So many are asked how old they are, about; each speaks for those after it, too."""


_LAG = "Age of the oldest event that is in no table."

_OF_TABLES = (
    Statistic("lag_seconds", _LAG, None, card="oldest event not in a table",
              unit="seconds"),
    Statistic("lag_by_node", _LAG, None, "gateway_lake_lag_seconds", "node"),
    Statistic("committed_lsn", "The newest event that is in a table.", None,
              "gateway_lake_committed_lsn", card="newest lsn in a table"),
    Statistic("expired_days", "Days that spark.retention has removed from a table.", None,
              "gateway_lake_expired_days_total", "table", counter=True),
    Statistic("expired_events", "Their events.", None, "gateway_lake_expired_events_total",
              counter=True, card="events expired"),
    Statistic("deleted_events", "Events that gateway spark delete has taken out.", None,
              "gateway_lake_deleted_events_total", counter=True,
              card="events deleted on purpose"),
    Statistic("deletions_unfinished", "Deletions of which something is left.", None,
              "gateway_lake_deletions_unfinished"),
)  # fmt: skip
_OF_JOB = (
    Statistic("up", "1 while the Spark job reports that it runs.", None, "gateway_spark_up",
              card="running"),
    Statistic("starting", "1 while it comes to that.", None),
    Statistic("last_batch_at", "When the job committed last, since the epoch.", None,
              "gateway_spark_last_batch_timestamp_seconds", card="last batch", unit="time"),
    Statistic("last_batch_seconds", "How long the job's last batch took.", None,
              "gateway_spark_last_batch_seconds", card="it took", unit="seconds"),
    Statistic("rows", "Rows that the job has committed since its start.", None,
              "gateway_spark_rows_total", counter=True, card="rows since its start"),
    Statistic("misfits", "Rows with a value that did not fit its column, since its start.",
              None, "gateway_spark_misfits_total", counter=True),
    Statistic("waiting_seconds", "Age of the oldest file that is in no table.", None,
              "gateway_spark_waiting_seconds", card="oldest file not in a table",
              unit="seconds"),
    Statistic("failures", "How often the job ended, unasked, since its last batch.", None,
              "gateway_spark_failures"),
    Statistic("holes", "Spool files that the job could not read and moved aside.", None,
              "gateway_spark_holes", card="files moved aside"),
    Statistic("clock_ahead_seconds", "How far the clock has leapt, while no day expires by that.",
              None, "gateway_spark_clock_ahead_seconds"),
    Statistic("expiry_failed", "1 if days that are too old could not be removed.", None,
              "gateway_spark_expiry_failed"),
)  # fmt: skip


class LakeWatch:
    """Of one node; all calls come from the reactor's thread."""

    def __init__(
        self,
        node: str,
        lake: Path,
        spool: Path,
        clock: Callable[[], float] = time.time,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        has_job: bool = True,
        elsewhere: bool = False,
        is_ours: Callable[[str], bool],
    ) -> None:
        """*has_job*: one is to come; without it nothing is said of a job's silence, and if
        it may run *elsewhere* not before it has reported here.
        *is_ours* says of an incarnation that had the node's name whether it gave lsns of ours.
        """
        self._node = node
        self._is_ours = is_ours
        self._has_job = has_job
        self._elsewhere = elsewhere
        self._lake = lake
        self._path = health_path(lake)
        self._spool = spool
        self._clock = clock
        self._monotonic = monotonic
        self._read_at = monotonic()
        """When what it says changed last."""
        self._told: Mapping[str, Any] = {}
        self._stamp: tuple[int, int] | None = None
        self._marks = Marks(_MARKS)
        self._of_listeners: dict[str, Marks] = {}
        self._begun_at = 0
        """The newest lsn at the start: whose events those up to there are is not known."""

    def begin(self, durable_lsn: int) -> None:
        """Note how old the events are that were there before us.  Raises OSError."""
        self._read()
        self._begun_at = durable_lsn
        if durable_lsn <= self.committed_lsn:
            return
        waiting = [
            file
            for file in spool_files(self._spool).get(self._node, [])
            if file.last > self.committed_lsn
        ]
        at: float | None = None
        each = 1 + len(waiting) // _FILES_AT_START
        for begin in range(0, len(waiting), each):
            some = waiting[begin : begin + each]
            with contextlib.suppress(OSError, pa.ArrowException):
                at = _oldest(some[0].path)
            if at is not None:
                self._marks.add(some[-1].last, at, at)
        at = self._clock() if at is None else at
        self._marks.add(durable_lsn, at, at)

    def durable(self, group: list[Stored]) -> None:
        """Note when these events came; they are in order of lsn."""
        of_listeners: dict[str, list[Stored]] = {}
        for stored in group:
            if stored.batch.count:  # else metadata
                of_listeners.setdefault(stored.batch.origin.listener, []).append(stored)
        if not of_listeners:
            return
        spans: dict[str, tuple[int, int, int]] = {}
        for name, some in of_listeners.items():
            times = [stored.batch.received_at for stored in some]
            last = some[-1].lsn + some[-1].batch.count - 1
            spans[name] = last, min(times), max(times)
        for name, (last, oldest, newest) in spans.items():
            marks = self._of_listeners.get(name)
            if marks is None:
                marks = self._of_listeners[name] = Marks(_MARKS_OF_A_LISTENER)
            marks.add(last, oldest / 1e6, newest / 1e6)
        self._marks.add(
            max(last for last, _, _ in spans.values()),
            min(oldest for _, oldest, _ in spans.values()) / 1e6,
            max(newest for _, _, newest in spans.values()) / 1e6,
        )

    @property
    def committed_lsn(self) -> int:
        """The newest of our events that is in a table, as the job last said."""
        by = _of(_of(self._told, "committed_by"), self._node)
        ours = [int(last) for name, last in by.items() if self._is_ours(name)]
        return max(ours, default=0)

    @property
    def up(self) -> bool:
        """Whether the job has reported lately that it runs."""
        recent = self._silent_seconds < SILENT
        return recent and self._told.get("state") in ("starting", "running")

    @property
    def _silent_seconds(self) -> float:
        silent = self._clock() - (_number(self._told.get("at")) or 0.0)
        if silent > -SILENT:
            return max(0.0, silent)
        # The clock was set back since: what was said then was said before we read it.
        return SILENT + self._monotonic() - self._read_at

    @property
    def has_job(self) -> bool:
        """Whether one is to report here."""
        return self._has_job and not (self._elsewhere and not self._told)

    @property
    def job(self) -> Job:
        """The job, as it last reported."""
        told = self._told
        error, state = told.get("last_error"), told.get("state")
        return Job(
            up=self.up,
            state=str(state or ""),
            doing=str(told.get("doing") or ""),
            silent_seconds=self._silent_seconds,
            batch_seconds=_number(told.get("last_batch_seconds")),
            busy=told.get("busy") is True,
            waiting_seconds=self._waiting_seconds,
            holes=len(told.get("holes") or ()),
            ended=len(told.get("ended") or told.get("anew") or ()),
            last_error=None if error is None else str(error),
            failures=int(_number(told.get("failures")) or 0),
            last_failure=str(told.get("last_failure") or ""),
        )

    @property
    def _waiting_seconds(self) -> float:
        at = _number(_of(self._told, "oldest_file").get("at"))
        return 0.0 if at is None else max(0.0, self._clock() - at)

    @property
    def audited(self) -> Audited:
        """What the last audit found, as it left word beside the tables."""
        return Audited.read(self._lake)

    @property
    def batches(self) -> list[dict[str, float]]:
        """The job's last batches, the newest last: `at`, `seconds`, `rows`, `files`."""
        found = self._told.get("recent")
        return [
            {name: float(one[name]) for name in _BATCH}
            for one in (found if isinstance(found, list) else ())
            if isinstance(one, dict)
            and all(_number(one.get(name)) is not None for name in _BATCH)
        ]

    def lag_seconds(self) -> float:
        """Age of our oldest event that is in no table; 0 if there is none."""
        self._marks.forget(self.committed_lsn)
        return self.age_behind(self.committed_lsn) or 0.0

    def age_behind(self, lsn: int) -> float | None:
        """Age of our oldest event behind *lsn*; None: there is none."""
        return self._age(self._marks.oldest_behind(lsn))

    def newest_age(self, lsn: int) -> float | None:
        """Age of our newest event up to *lsn*; None: none of this run's is known."""
        return self._age(self._marks.newest_until(lsn))

    def listener_ages(self, lsn: int, names: Iterable[str]) -> dict[str, float | None]:
        """Age of each listener's oldest event behind *lsn*: 0 if there is none, None
        while events of the last run are behind it, which may be anybody's.
        """
        ages: dict[str, float | None] = {}
        for name in names:
            marks = self._of_listeners.get(name)
            if lsn < self._begun_at:
                ages[name] = None
            elif marks is None:
                ages[name] = 0.0
            else:
                marks.forget(lsn)
                ages[name] = self._age(marks.oldest_behind(lsn)) or 0.0
        return ages

    def _age(self, at: float | None) -> float | None:
        return None if at is None else max(0.0, self._clock() - at)

    def statistics(self) -> Iterator[Statistics]:
        """Sections `lake` and `spark`."""
        self._read()
        if figures := [*self.audited.figures(self._clock())]:
            yield Statistics("audit", "Audit", figures)
        if not self.has_job:
            return
        lag = round(self.lag_seconds(), 3)
        committed, told = self.committed_lsn, self._told
        yield _section(
            "lake",
            "Tables",
            _OF_TABLES,
            {
                **told,
                "lag_seconds": lag,
                "lag_by_node": {self._node: lag},
                "committed_lsn": committed,
            },
        )
        holes = len(told.get("holes") or ())
        known = {
            **told,
            "up": self.up,
            "starting": self.up and told.get("state") == "starting",
            "holes": holes,
            "waiting_seconds": round(self._waiting_seconds, 3),
            "expiry_failed": told.get("expiry_problem") is not None,
        }
        yield _section("spark", "Spark job", _OF_JOB, known)

    def _read(self) -> None:
        """What the job has said last; the file is small and replaced as a whole."""
        with contextlib.suppress(OSError, ValueError):
            found = self._path.stat()
            stamp = found.st_ino, found.st_mtime_ns
            if stamp != self._stamp:
                told = json.loads(self._path.read_bytes())
                self._told = told if isinstance(told, dict) else {}
                self._stamp, self._read_at = stamp, self._monotonic()


def _section(
    name: str, title: str, rows: Iterable[Statistic], values: Mapping[str, Any]
) -> Statistics:
    """What is known, as these *rows* tell it."""
    known = [replace(row, value=values.get(row.name)) for row in rows]
    return Statistics(name, title, known)


def _of(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = told.get(name)
    return found if isinstance(found, dict) else {}


def _number(told: object) -> float | None:
    return float(told) if isinstance(told, (int, float)) else None


def _oldest(path: Path) -> float:
    """When the first event of a spool file came.  Raises what pyarrow raises."""
    metadata = pq.read_metadata(path)
    column = metadata.schema.names.index("received_at")
    found = metadata.row_group(0).column(column).statistics
    if found is None or not found.has_min_max:
        return path.stat().st_mtime
    return float(found.min.timestamp())
