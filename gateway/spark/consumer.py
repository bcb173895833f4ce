"""A consumer of the spool: a query of your own that gets all events, each batch once.

    from gateway.spark.consumer import consume

    def work(events, context):
        path = f"/lake/mine/batch={context.batch}"
        events.where("flaw IS NULL").write.mode("overwrite").parquet(path)

    query = consume(spark, "gateway.yaml", "mine", work).option("checkpointLocation", "/lake/mine-checkpoint").start()

`mine` is one of `spool.consumers`: files stay in the archive, or in the bucket, until its
mark has them (`gateway.store.readers.consumers`).  Nothing here asks Java, so it runs over Spark
Connect, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config import Config, load
from gateway.spark.own import Context, Function
from gateway.spark.source import gateway_stream
from gateway.store.directories import Directories
from gateway.store.readers.consumers import Mark, Marks, events_of, marks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_FILE = "file_name"
"""The column that says which file a row is from; *work* does not see it."""


def consume(
    spark: SparkSession,
    config: Config | str | os.PathLike[str],
    name: str,
    work: Function,
    *,
    max_files: int | None = None,
    max_bytes: int | None = None,
) -> DataStreamWriter:
    """The query of consumer *name*, to be given a checkpoint, and a trigger, and started.

    *work* is called with the events of each batch and its context (`gateway.spark.own`).  A
    batch that was not committed comes again under its number, with the same events: what is
    written over by number is there once.  *config* is the gateway's, or its path; limits are
    those of `gateway_stream`.  Raises ValueError, `gateway.config.Invalid`.
    """
    settings = config if isinstance(config, Config) else load(os.fspath(config))
    marks = marks_of(settings, name)
    events = gateway_stream(
        spark, source_of(settings), max_files=max_files, max_bytes=max_bytes
    )
    rows = events.select("*", f"_metadata.{_FILE}")
    return rows.writeStream.foreachBatch(_step(marks, work))


def source_of(config: Config) -> str | Path:
    """The place that consumers read: the archive, or the bucket of the spool."""
    if config.spool.bucket is not None:
        return str(config.spool.bucket)
    return Directories.of(config).archive


def _step(marks: Marks, work: Function) -> Callable[[DataFrame, int], None]:
    """The function for Spark: nothing is said of a batch before its work is done."""

    def step(rows: DataFrame, batch: int) -> None:
        before = marks.read() or Mark()
        begun = max(before.batch, before.begun)
        marks.change(lambda mark: mark.with_begun(batch))
        names = [name for (name,) in rows.select(_FILE).distinct().collect()]
        context = Context.of(batch, events_of(names), repeated=begun >= batch)
        work(rows.drop(_FILE), context)
        marks.change(lambda mark: mark.with_worked(batch, names))

    return step
