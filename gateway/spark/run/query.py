"""The streaming query over the spool: one checkpoint, one sink, renewed by itself.

Spark keeps a log of every file that a query has seen, in its checkpoint and in memory,
for ever.  The ledger makes a new checkpoint free: what is in the tables is left out.
So a checkpoint is thrown away once its log is long, and the query begins anew.  It does
so, too, where batches should be limited otherwise, as Spark asks for that only once.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define

from gateway.spark.commit.ledger import Broken
from gateway.spark.commit.prepared import Prepared, Task, compiled_task, parts_of
from gateway.spark.commit.sink import Plan, Sink
from gateway.spark.files import heap, known_files, s3a
from gateway.spark.files.alike import folder_of
from gateway.spark.jvm import checkpoint_files
from gateway.spark.jvm.given import settings_of
from gateway.spark.rows import tables
from gateway.spark.rows.columns import Columns
from gateway.spark.run.checkpoint import Checkpoint
from gateway.spark.source import SCHEMA_DDL, gateway_stream, spool_of, url
from gateway.store.names import SpoolFile
from gateway.tables import TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("gateway.spark")

#: About ten thousand files: Spark reads them all again every tenth batch.
LOG_BYTES = 1 << 20

#: A query that has committed fewer is not renewed.
LEAST_BATCHES = 10

#: Rows of this size are taken a few thousand at a time.
_LARGE_BYTES = 4096

#: Bytes of the spool for which a batch gets one more task, and one more file.
_TASK_BYTES = 8 << 20

#: No batch is written by more, wherever executors come from.
_MANY_TASKS = 1000

_PARALLELISM = "spark.default.parallelism"
_DYNAMIC = "spark.dynamicAllocation"

_LOOK = 0.05
_PATIENCE = 30.0
#: Settings for which a kept plan has files as Spark would write them.
_ALIKE = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.files.maxRecordsPerFile": "0",
}
#: Nodes that a kept plan knows, for it looks each row's up.
_MOST_NODES = 200

_SET_BACK = 5.0  # seconds: what NTP takes off by steps is less


class _Batches:
    """The function that one start of the query calls with its batches.

    None gets into the sink once that start is over, though Spark may have sent it before.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._entering = threading.Lock()
        self._over = False

    def __call__(self, rows: DataFrame, batch: int) -> None:
        with self._entering:
            if self._over:
                raise RuntimeError("the query is stopped: this batch comes again")
            self._sink.busy = True
        self._sink(rows, batch)

    def end(self) -> None:
        """Let no other batch in."""
        with self._entering:
            self._over = True


@define(eq=False, slots=False)
class Query:
    """The query and where it puts its batches.

    *stream* has the events that arrive, *limit* of them in a batch, of which *made* makes the
    rows of the tables; a batch begins at most every *trigger* seconds.
    """

    _spark: SparkSession
    sink: Sink
    checkpoint: Checkpoint
    _spool: Path
    _stream: Callable[[Mapping[str, int]], DataFrame]
    _made: Callable[[DataFrame], DataFrame]
    _limit: Callable[[], Mapping[str, int]]
    _trigger: float

    def __attrs_post_init__(self) -> None:
        self._running: StreamingQuery | None = None
        self._batches = _Batches(self.sink)
        self._available_now = False
        self._limited: Mapping[str, int] = {}
        self._ahead = -math.inf
        """The most that the clock of the day was ahead of one that runs on, since it began."""

    def start(self, *, available_now: bool) -> None:
        """Finish what a crash has left, then begin, or go on where the checkpoint says.

        Raises `Broken`, OSError, and what Spark raises.
        """
        self._available_now = available_now
        self.sink.recover()
        if (
            self.checkpoint.log_bytes() > LOG_BYTES
            or self._waits_for_a_hole()
            or self._was_elsewhere()
            or not self.checkpoint.begun
        ):
            self.checkpoint.retire()
        self._begin()

    def _was_elsewhere(self) -> bool:
        """Whether its log names files of another directory: `data_dir` was copied or moved.

        Spark would look for a batch that was not finished where its files were.
        """
        others = self.checkpoint.directories() - {url(self._spool)}
        if others:
            _log.warning(
                "the checkpoint names files of %s, and the spool is %s now: beginning a"
                " new checkpoint, nothing is lost or doubled",
                *(", ".join(sorted(others)), url(self._spool)),
            )
        return bool(others)

    def _waits_for_a_hole(self) -> bool:
        """Whether its log has a file that was moved aside: it would never be found.

        Such a query was to begin anew, and was killed before.
        """
        aside = {hole.file for hole in self.sink.ledger.holes}
        return bool(aside) and not aside.isdisjoint(self.checkpoint.names())

    def go_on(self) -> None:
        """Begin again where it has ended by itself, for files that came since."""
        self._begin()

    def _begin(self) -> None:
        heap.fit(self._spark, 0)
        self._limited = self._limit()
        arriving = self._stream(self._limited)
        if not self.sink.types:
            schema = self._made(arriving).schema
            self.sink.types = {one.name: one.dataType.simpleString() for one in schema}
        self._check_types(self.sink.types)
        self._batches = _Batches(self.sink)
        # The sink reads the files: Spark plans each batch of a stream anew, with all columns.
        writer = (
            arriving.select("lsn")
            .writeStream.queryName("gateway-events")
            .foreachBatch(self._batches)
            .option("checkpointLocation", url(self.checkpoint.path))
        )
        if self._available_now:
            writer = writer.trigger(availableNow=True)
        else:
            every = f"{int(self._trigger * 1000)} milliseconds"
            writer = writer.trigger(processingTime=every)
        self._running = checkpoint_files.begin(self._spark, writer)
        self._ahead = time.time() - time.monotonic()

    def _check_types(self, types: Mapping[str, str]) -> None:
        """A column with two types is a table that no reader can open."""
        for name, before in self.sink.ledger.types.items():
            now = types.get(name, before)
            if not self.sink.takes(now, before):
                raise Broken(
                    f"column {name} of the tables is {before}, the configuration makes"
                    f" it {now}: take another name or type (spark.columns, spark.body),"
                    f" {self.sink.retype}, or begin new tables"
                )

    @property
    def active(self) -> bool:
        """Whether it runs; if it broke, `failure` says why."""
        return self._running is not None and bool(self._running.isActive)

    @property
    def failure(self) -> Exception | None:
        """Why it stopped by itself."""
        if self.active or self._running is None:
            return None
        return self.sink.failure or self._running.exception()

    def waits_for_the_day(self) -> bool:
        """Whether the clock was set back: Spark begins each batch at a time of the day, and
        waits for that to come again.  So it is to be stopped, and started.
        """
        ahead = time.time() - time.monotonic()
        self._ahead = max(self._ahead, ahead)
        return self._ahead - ahead > _SET_BACK

    @property
    def stale(self) -> bool:
        """Whether it should begin anew, and has come on since it began.

        Its log has become long, or other files wait than its limit was made for.  A
        backlog may be as long as that in its first batch, which must get through.
        """
        if self.checkpoint.committed + 1 < LEAST_BATCHES:
            return False
        return self.checkpoint.log_bytes() > LOG_BYTES or self._limit() != self._limited

    def renew(self) -> None:
        """Begin anew with an empty checkpoint; nothing is lost or doubled."""
        self.stop()
        self.sink.recover()
        self.checkpoint.retire()
        self._begin()

    def stop(self) -> None:
        """Let the batch in the sink finish, then stop.

        A batch that has not come so far is given up; it comes again.  No batch is on its way
        into the tables when this returns: Spark's end does not end what the sink does.
        """
        self._finish()
        self._batches.end()
        self._finish()  # one may have come meanwhile
        if self._running is not None:
            self._running.stop()
        while self.sink.busy:
            time.sleep(_LOOK)

    def _finish(self) -> None:
        """Wait for the end of the batch that is in the sink, for some time."""
        end = time.monotonic() + _PATIENCE
        while self.active and self._finishing() and time.monotonic() < end:
            time.sleep(_LOOK)

    def _finishing(self) -> bool:
        ledger = self.sink.ledger
        mine = ledger.query == self.checkpoint.query
        return self.sink.busy or (mine and self.checkpoint.committed < ledger.batch)


def stream_of(
    config: Any, spark: SparkSession
) -> Callable[[Mapping[str, int]], DataFrame]:
    """Makes the stream of the events that arrive in the spool."""
    return lambda limit: gateway_stream(spark, spool_of(config), **limit)


def reader(
    spark: SparkSession,
    spool: Path,
    body: str,
    columns: Columns,
    folder: str | None = None,
) -> Callable[[Plan], DataFrame]:
    """The reader of a batch's files.

    A file that is gone is an error.  *folder* is where tasks find the files, a URL, if not in
    *spool*, which has their copies.  A column `table` says which table a row is for.
    """

    def part(files: Sequence[SpoolFile], known: Sequence[SpoolFile]) -> DataFrame:
        sizes = {file.name: (spool / file.name).stat().st_size for file in files}
        found = known_files.rows(spark, folder or url(spool), sizes, SCHEMA_DDL)
        return tables.named(found, [*known, *files])

    def read(plan: Plan) -> DataFrame:
        heap.fit(spark, plan.row_bytes)
        if plan.files:
            parts = (part(some, plan.known) for some in tables.layers(plan.files))
            found = reduce(lambda one, other: one.union(other), parts)
        else:
            found = spark.createDataFrame([], f"{SCHEMA_DDL}, incarnation STRING")
        return tables.events(tables.without(found, plan.without), body, columns)

    return read


def whole_reader(config: Any, spark: SparkSession) -> Callable[[Plan], DataFrame]:
    """The reader of a batch for tables that are one, wherever its tasks run.

    Rows have the column `table` only where rules divide them.
    """
    folder, section = s3a.folder_for_tasks(config, spark), config.spark
    configured = Columns.of(section)

    def read(plan: Plan) -> DataFrame:
        rules = section.tables if plan.rules is None else plan.rules
        columns, spool = configured.ruled_by(rules), spool_of(config)
        made = reader(spark, spool, section.body, columns, folder)(plan)
        made = made.coalesce(_tasks(spark, plan, _size_of(spool, plan.files)))
        return made if rules else made.drop(TABLE)

    return read


class Writer:
    """The writer of a batch: a file for each partition of a table, unless it is large.

    *read* reads its files.  *alike*: rows of a batch may be known to be of one folder before
    they are made.  Those are written by one plan for all batches.
    """

    def __init__(
        self,
        spark: SparkSession,
        spool: Path,
        read: Callable[[Plan], DataFrame],
        *,
        alike: bool = True,
    ) -> None:
        self._spark, self._spool, self._read = spark, spool, read
        self._alike = alike and all(
            spark.conf.get(name) == value for name, value in _ALIKE.items()
        )
        self._known: dict[str, SpoolFile] = {}
        """The nodes that the plan knows, each by a file."""
        self._room = heap.Room(spark)
        self._prepared: Prepared | None = None
        self._task: Task | None = None
        """The task of all plans; None: there was no plan yet."""

    def __call__(self, rows: DataFrame, folder: Path, plan: Plan) -> None:
        """Write a batch; *rows* are those of the stream, of the same files."""
        size = _size_of(self._spool, plan.files)
        self._room.fit(size)
        tasks = _tasks(self._spark, plan, size)
        if (one := self._folder_of(plan)) is not None:
            self._plan_of(plan).write(parts_of(rows), folder / one, tasks)
            return
        fresh = self._read(plan)
        if plan.resent:
            fresh = tables.resent(fresh, plan.resent)
        fresh.coalesce(tasks).write.partitionBy(*tables.PARTITIONS).parquet(url(folder))

    def _folder_of(self, plan: Plan) -> Path | None:
        """Where all rows of a batch go, if that is known and a plan for any files makes them."""
        if not self._alike or plan.row_bytes > _LARGE_BYTES:
            return None
        if plan.resent or plan.without or len(tables.layers(plan.files)) > 1:
            return None
        return folder_of(self._spool, plan.files)

    def _plan_of(self, plan: Plan) -> Prepared:
        """The plan that knows the nodes of these files, and all others before them."""
        new = {file.node: file for file in plan.files}
        before = self._known
        if self._prepared is None or any(
            node not in before or before[node].life != file.life
            for node, file in new.items()
        ):
            self._known = (before if len(before) < _MOST_NODES else {}) | new
            known = [*self._known.values()]
            made = self._read(replace(plan, known=known, row_bytes=0))
            made = made.drop(*tables.PARTITIONS)
            self._task = self._task or compiled_task(self._spark)
            self._prepared = Prepared(self._spark, made, self._task)
        return self._prepared


def _tasks(spark: SparkSession, plan: Plan, size: int) -> int:
    """How many write a batch, whose files have *size* bytes."""
    if plan.row_bytes > heap.ALONE_BYTES:
        return 1
    return min(_most_tasks(spark), 1 + size // _TASK_BYTES)


def _size_of(spool: Path, files: Sequence[SpoolFile]) -> int:
    return sum((spool / file.name).stat().st_size for file in files)


def _most_tasks(spark: SparkSession) -> int:
    """The most tasks at once.

    Where Spark starts executors by the tasks that wait, this is as many as it may start: by
    those that it has it would start none.
    """
    # Of the executors of this moment.
    now = max(1, int(spark.sparkContext.defaultParallelism))
    given = settings_of(spark)
    if _PARALLELISM in given or given.get(f"{_DYNAMIC}.enabled") != "true":
        return now
    executors = int(given.get(f"{_DYNAMIC}.maxExecutors", str(_MANY_TASKS)))
    cores = int(given.get("spark.executor.cores", "1"))
    return max(now, min(executors * cores, _MANY_TASKS))
