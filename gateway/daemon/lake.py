"""What the daemon knows of the Spark job and of how far behind the tables are.

The job leaves word in a file beside the tables (`gateway.spark.health`); the times of
our own events are noted here as they become durable.  Both together say how old the
oldest event is that is in no table yet, whether the job runs or not.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.event import Stored
from gateway.protocol import Statistic, Statistics
from gateway.store.finder import spool_files
from gateway.store.lake import BEAT, health_path

__all__ = ["LakeWatch"]

#: A job that has left no word for so long is taken for dead.
SILENT = 6 * BEAT

_MARKS = 4096


class LakeWatch:
    """Of one node; all calls come from the reactor's thread."""

    def __init__(
        self,
        node: str,
        lake: Path,
        spool: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._path = health_path(lake)
        self._spool = spool
        self._clock = clock
        self._told: Mapping[str, Any] = {}
        self._stamp: tuple[int, int] | None = None
        # (lsn, time): events up to this lsn, and after the mark before, are not older.
        self._marks: deque[tuple[int, float]] = deque()

    def begin(self, durable_lsn: int) -> None:
        """Note how old the events are that were there before us.  Raises OSError."""
        self._read()
        if durable_lsn <= self.committed_lsn:
            return
        waiting = [
            file
            for file in spool_files(self._spool).get(self._node, [])
            if file.last > self.committed_lsn
        ]
        at = self._clock()
        for file in waiting[:1]:
            with contextlib.suppress(OSError, pa.ArrowException):
                at = _oldest(file.path)
        self._marks.append((durable_lsn, at))

    def durable(self, group: list[Stored]) -> None:
        """Note when these events came; they are in order of lsn."""
        if not group:
            return
        last = group[-1].lsn + group[-1].batch.count - 1
        oldest = min(stored.batch.received_at for stored in group) / 1e6
        if self._marks and oldest - self._marks[-1][1] < 1.0:
            self._marks[-1] = last, self._marks[-1][1]
            return
        if len(self._marks) >= _MARKS:
            self._thin_out()
        self._marks.append((last, oldest))

    def _thin_out(self) -> None:
        """Let every mark speak for the one after it, too: ages only become greater."""
        marks = list(self._marks)
        lasts = [lsn for lsn, _ in islice(marks, 1, None, 2)]
        times = [at for _, at in islice(marks, 0, None, 2)]
        self._marks = deque(zip(lasts, times, strict=False))
        if len(marks) % 2:
            self._marks.append(marks[-1])

    @property
    def committed_lsn(self) -> int:
        """The newest of our events that is in a table, as the job last said."""
        committed = self._told.get("committed_lsn")
        return int(committed.get(self._node, 0)) if isinstance(committed, dict) else 0

    @property
    def up(self) -> bool:
        """Whether the job has left word lately that it runs."""
        recent = self._clock() - float(self._told.get("at", 0)) < SILENT
        return recent and self._told.get("state") in ("starting", "running")

    def lag_seconds(self) -> float:
        """Age of our oldest event that is in no table; 0 if there is none."""
        committed = self.committed_lsn
        while self._marks and self._marks[0][0] <= committed:
            self._marks.popleft()
        return max(0.0, self._clock() - self._marks[0][1]) if self._marks else 0.0

    def statistics(self) -> Iterator[Statistics]:
        """Sections `lake` and `spark`."""
        self._read()
        lag = round(self.lag_seconds(), 3)
        yield Statistics(
            "lake",
            "Tables",
            [
                Statistic(
                    "lag_seconds",
                    "Age of the oldest event that is in no table.",
                    lag,
                    card="oldest event not in a table, seconds",
                ),
                Statistic(
                    "lag_by_node",
                    "Age of the oldest event that is in no table.",
                    {self._node: lag},
                    "gateway_lake_lag_seconds",
                    label="node",
                ),
                Statistic(
                    "committed_lsn",
                    "The newest event that is in a table.",
                    self.committed_lsn,
                    "gateway_lake_committed_lsn",
                    card="newest lsn in a table",
                ),
            ],
        )
        told = self._told
        yield Statistics(
            "spark",
            "Spark job",
            [
                Statistic(
                    "up",
                    "1 while the Spark job leaves word that it runs.",
                    self.up,
                    "gateway_spark_up",
                    card="running",
                ),
                Statistic(
                    "last_batch_at",
                    "When the job committed last, since the epoch.",
                    told.get("last_batch_at"),
                    "gateway_spark_last_batch_timestamp_seconds",
                    card="last batch",
                    unit="time",
                ),
                Statistic(
                    "last_batch_seconds",
                    "How long the job's last batch took.",
                    told.get("last_batch_seconds"),
                    "gateway_spark_last_batch_seconds",
                    card="it took, seconds",
                ),
                Statistic(
                    "rows",
                    "Rows that the job has committed since its start.",
                    told.get("rows"),
                    "gateway_spark_rows_total",
                    counter=True,
                    card="rows since its start",
                ),
                Statistic(
                    "misfits",
                    "Rows with a value that did not fit its column, since its start.",
                    told.get("misfits"),
                    "gateway_spark_misfits_total",
                    counter=True,
                ),
                Statistic(
                    "holes",
                    "Spool files that the job could not read and moved aside.",
                    len(told.get("holes") or ()),
                    "gateway_spark_holes",
                    card="files moved aside",
                ),
            ],
        )

    def _read(self) -> None:
        """What the job has said last; the file is small and replaced as a whole."""
        with contextlib.suppress(OSError, ValueError):
            found = self._path.stat()
            stamp = found.st_ino, found.st_mtime_ns
            if stamp != self._stamp:
                told = json.loads(self._path.read_bytes())
                self._told = told if isinstance(told, dict) else {}
                self._stamp = stamp


def _oldest(path: Path) -> float:
    """When the first event of a spool file came.  Raises what pyarrow raises."""
    metadata = pq.read_metadata(path)
    column = metadata.schema.names.index("received_at")
    found = metadata.row_group(0).column(column).statistics
    if found is None or not found.has_min_max:
        return path.stat().st_mtime
    return float(found.min.timestamp())
