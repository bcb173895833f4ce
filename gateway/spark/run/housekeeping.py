"""Housekeeping of a job's tables beside the batches, each task on a thread of its own.

Old days go (`expiry`), small files become large ones (`compact`), and tables whose format
asks for it are maintained (`upkeep`).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gateway.sink import Kind
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.sink import Sink
from gateway.spark.later.compact import Compactor
from gateway.spark.later.expiry import Expiry
from gateway.spark.later.upkeep import Upkeep
from gateway.spark.run.background import BackgroundTask
from gateway.spark.run.failure import reason
from gateway.store.node.removal_clock import RemovalClock
from gateway.store.readers.lake import INTERNAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("gateway.spark")

_DAYS = 5.0  # that commits of Delta and Iceberg are kept, unless they are many


class Housekeeping:
    """The housekeeping of the tables of one job, which are of this *kind*."""

    def __init__(
        self,
        config: Any,
        spark: SparkSession,
        kind: Kind,
        sink: Sink,
        disk: Lake,
        clock: RemovalClock,
        *,
        open_day: bool,
    ) -> None:
        """*open_day*: the files of today, too, may be written anew."""
        self._config = config
        self._spark = spark
        self._kind = kind
        self._sink = sink
        self._disk = disk
        self._lake = config.data_dir / "lake"
        self._clock = clock
        self.expiry = Expiry(
            sink.expire,
            config.spark.retention,
            lambda done: _log.info("expired (spark.retention): %s", done),
            lambda why: _log.warning("could not remove what has expired: %s", why),
            lambda: datetime.fromtimestamp(clock(), UTC),
            tables=lambda: sink.ledger.tables,
            own=lambda: sink.ledger.retention,
        )
        asked = kind.abilities if config.spark.compact else frozenset()
        compacts, maintains = "compact" in asked, "maintain" in asked
        self._compactor = self._new_compactor(open_day=open_day) if compacts else None
        self._upkeep = self._new_upkeep() if maintains else None
        tasks = self.expiry, self._compactor, self._upkeep
        self._tasks: list[BackgroundTask] = [one for one in tasks if one is not None]

    def _new_compactor(self, *, open_day: bool) -> Compactor:
        from gateway.spark.later import backfill

        return Compactor(
            self._lake,
            self._disk,
            lambda done: _log.info("rewritten: %s", done),
            lambda why: _log.warning("could not compact: %s", why),
            # The files of the last batch may be on their way to their names.
            upto=(lambda: self._sink.ledger.sequence - 1) if open_day else None,
            filler=lambda: backfill.Folders(
                self._spark, self._config, self._disk, types=self._sink.types
            ),
        )

    def _new_upkeep(self) -> Upkeep:
        return Upkeep(
            self._lake / INTERNAL / "maintained.json",
            self._disk,
            # The settings of the session are those of the batch at hand.
            lambda thorough: self._kind.maintain(
                self._config, self._spark.newSession(), self._disk, _DAYS,
                thorough=thorough,
            ),
            lambda done: _log.info("maintained: %s", done),
            lambda why: _log.warning("could not maintain: %s", reason(why)),
        )  # fmt: skip

    @property
    def busy(self) -> bool:
        """Whether a task is under way."""
        return any(one.busy for one in self._tasks)

    def tend(self) -> None:
        """Begin what it is time for, one task at a time: another one would find days busy."""
        for task in self._tasks:
            if self.busy:
                return
            # Formats ask the clock themselves which files and snapshots are old.
            if task is not self._upkeep or not self._clock.ahead_seconds:
                task.tend()

    def maintain(self) -> None:
        """Maintain the tables of a job that runs on, if it is time."""
        if self._upkeep is not None and not self._clock.ahead_seconds:
            self._upkeep.run()

    def stop(self) -> None:
        """Wait for the steps that are under way, and do no other."""
        for task in self._tasks:
            task.stop()
