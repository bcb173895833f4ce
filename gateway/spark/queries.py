"""The two queries that read the one spool.

`events` makes rows of every event, `stats` counts them in windows at a slower pace.
Each has its own checkpoint, sink and ledger, so each can fall behind, fail and start
again without the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.spark import tables
from gateway.spark.checkpoint import Checkpoint
from gateway.spark.sinks import Committed, LakeDisk, Sink
from gateway.spark.source import url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Query", "events", "stats"]

_LOOK = 0.05
_PATIENCE = 30.0


@dataclass
class Query:
    """One streaming query and where it puts its batches."""

    sink: Sink
    checkpoint: Checkpoint
    build: Callable[[DataFrame], DataFrame]
    """From events to rows of tables."""
    trigger: float
    """Seconds between starts of batches."""
    running: StreamingQuery | None = None

    def start(self, stream: DataFrame, *, available_now: bool) -> None:
        """Begin, or go on where the checkpoint says.  `sink.recover` comes first."""
        fresh = tables.without(stream, self.sink.ledger.earlier)
        writer = (
            self.build(fresh)
            .writeStream.queryName(f"gateway-{self.sink.name}")
            .foreachBatch(self.sink)
            .option("checkpointLocation", url(self.checkpoint.path))
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        else:
            every = f"{int(self.trigger * 1000)} milliseconds"
            writer = writer.trigger(processingTime=every)
        self.running = writer.start()

    @property
    def active(self) -> bool:
        """Whether it runs; if it broke, `failure` says why."""
        return self.running is not None and bool(self.running.isActive)

    @property
    def failure(self) -> Exception | None:
        """Why it stopped by itself."""
        if self.active or self.running is None:
            return None
        return self.sink.failure or self.running.exception()

    def stop(self) -> None:
        """Let the batch in the sink finish, then stop.

        A batch that has not come so far is given up; it comes again.
        """
        end = time.monotonic() + _PATIENCE
        while self.active and self._finishing() and time.monotonic() < end:
            time.sleep(_LOOK)
        if self.running is not None:
            self.running.stop()

    def _finishing(self) -> bool:
        return self.sink.busy or self.checkpoint.committed < self.sink.ledger.batch


def events(config: Any, disk: LakeDisk, done: Callable[[Committed], None]) -> Query:
    """Every event into `events` or `quarantine`."""
    return _query(
        "events", config, disk, done, tables.events, config.spark.trigger, complete=True
    )


def stats(config: Any, disk: LakeDisk, done: Callable[[Committed], None]) -> Query:
    """Windows that are over into `stats`."""
    window = timedelta(seconds=config.spark.stats_window)
    watermark = timedelta(seconds=config.spark.watermark)
    return _query(
        "stats",
        config,
        disk,
        done,
        lambda stream: tables.counts(stream, window, watermark),
        config.spark.stats_trigger,
        complete=False,
    )


def _query(
    name: str,
    config: Any,
    disk: LakeDisk,
    done: Callable[[Committed], None],
    build: Callable[[DataFrame], DataFrame],
    trigger: float,
    *,
    complete: bool,
) -> Query:
    checkpoint = Checkpoint(config.data_dir / "checkpoint" / name, disk)
    sink = Sink(
        name,
        config.data_dir / "lake",
        checkpoint,
        disk,
        write=_write,
        # A batch that is skipped must still reach the state of the windows.
        drain=_nowhere if not complete else _ignore,
        every_row=complete,
        done=done,
    )
    return Query(sink, checkpoint, build, trigger)


def _write(rows: DataFrame, folder: Path) -> None:
    rows.write.partitionBy(*tables.PARTITIONS).parquet(url(folder))


def _nowhere(rows: DataFrame) -> None:
    rows.write.format("noop").mode("append").save()


def _ignore(rows: DataFrame) -> None:
    pass
