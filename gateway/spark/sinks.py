"""The sink that the configuration names: what `spark.sink` may say, and makes.

    parquet            folders of Parquet files below `data_dir/lake`
    delta, iceberg     tables in the format that the company reads, anywhere
    module:function    batches for a function of one's own

A data_dir has one sink for good: its ledger is with its tables.  `lake/.gateway/sink.json`
names it, and where the tables are, for those who look for them without Spark.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.spark import handover, parquet, query, s3a, stats, tables
from gateway.spark.checkpoint import Checkpoint
from gateway.spark.columns import Columns
from gateway.spark.commits import CommitSink, Table
from gateway.spark.delta import DeltaTable
from gateway.spark.formats import CATALOG, FORMATS, check
from gateway.spark.iceberg import IcebergTable
from gateway.spark.lakedisk import LakeDisk
from gateway.spark.ledger import Broken, Ranges, write_json
from gateway.spark.sink import Committed, Plan, Sink
from gateway.spark.source import spool_of
from gateway.store.lake import INTERNAL, sink_of
from gateway.store.lock import Locked, lock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["claim", "maintain", "make", "settle", "tables_of"]

#: Numbers that readers look for rows by, beside protocol and date: files are not sorted,
#: so that each has all hosts and channels.
_SEARCHED = ("event_time", "received_at", "lsn")


def make(
    config: Any,
    spark: SparkSession,
    checkpoint: Checkpoint,
    disk: LakeDisk,
    *,
    done: Callable[[Committed], None],
    find_resent: Callable[[list[Path]], Ranges] | None = None,
) -> Sink:
    """The sink of this configuration.  Raises `Broken` where it can not be."""
    lake, spool = config.data_dir / "lake", spool_of(config)
    name = config.spark.sink
    if name == "parquet":
        claim(lake, disk, {"sink": name})
        parquet.check_shared(lake, spark)
        window = timedelta(seconds=config.spark.stats_window)
        columns = Columns.of(config.spark)
        again = query.reader(spark, spool, config.spark.body, columns)
        return parquet.ParquetSink(
            lake,
            spool,
            checkpoint,
            disk,
            write=query.writer(spark, spool, again),
            count=lambda files: stats.count(files, window),
            find_resent=find_resent,
            done=done,
        )
    columns = Columns(config.spark.columns)
    place = s3a.place_for_tasks(config, spark)
    read_all = query.reader(spark, spool, config.spark.body, columns, place)

    def read(plan: Plan) -> DataFrame:
        """One table has all events."""
        return read_all(plan).drop("table")

    if name in FORMATS:
        check(spark, name)
        events, counts = tables_of(config, spark)
        wanted = {"sink": name, "table": events.name}
        claim(lake, disk, wanted)
        return CommitSink(
            lake,
            spool,
            checkpoint,
            disk,
            events=events,
            stats=counts,
            read=read,
            count=lambda rows: tables.counted(rows, config.spark.stats_window),
            settle=lambda state: settle(lake, disk, {**wanted, **state}),
            done=done,
        )
    function = handover.function_of(name)
    claim(lake, disk, {"sink": "function"})
    return handover.HandOver(
        lake, spool, checkpoint, disk, read=read, function=function, done=done
    )


def tables_of(config: Any, spark: SparkSession) -> tuple[Table, Table]:
    """The tables of a format: of events, and `stats`."""
    given = config.spark.table
    if config.spark.sink == "delta":
        url = given or f"{config.data_dir / 'lake' / 'delta' / 'events'}"
        if url.startswith("/"):
            url = f"file://{url}"
        return DeltaTable(spark, url, _SEARCHED), DeltaTable(spark, f"{url}_stats")
    name = given or f"{CATALOG}.gateway.events"
    return (
        IcebergTable(spark, name, order=("event_time", "host")),
        IcebergTable(spark, f"{name}_stats", order=("window_start",)),
    )


def maintain(
    config: Any, spark: SparkSession, disk: LakeDisk, days: float
) -> Iterator[str]:
    """Compact the tables of a format and remove what is no longer of them.

    May run beside the job.  Says what was done; raises `Broken`, and what Spark raises.
    """
    lake = config.data_dir / "lake"
    check(spark, config.spark.sink)
    events, counts = tables_of(config, spark)
    wanted = {"sink": config.spark.sink, "table": events.name}
    claim(lake, disk, wanted)
    for table in (events, counts):
        yield from table.maintain(days=days)
    # A job that runs says so itself, with its next batch.
    with contextlib.suppress(Locked):
        held = lock(lake / INTERNAL / "lock", "gateway spark maintain")
        try:
            settle(lake, disk, {**wanted, **events.state()})
        finally:
            held.release()


def claim(lake: Path, disk: LakeDisk, wanted: Mapping[str, str]) -> None:
    """Make this lake that of a sink, or see that it is.  Raises `Broken`, OSError.

    *wanted* has `sink` and, where there is a choice, `table`.
    """
    path = lake / INTERNAL / "sink.json"
    there = sink_of(lake)
    if there is None:
        if wanted["sink"] != "parquet":
            disk.make_directory(path.parent)
            write_json(disk, path, wanted)
        return
    if any(there.get(key) != wanted.get(key) for key in ("sink", "table")):
        raise Broken(
            f"{lake} is that of spark.sink: {_spelled(there)}, not of"
            f" {_spelled(wanted)}; its ledger counts what is there. To begin with"
            " another sink, wait until the spool is empty, stop the job and the gateway,"
            " and move lake and checkpoint away"
        )


def settle(lake: Path, disk: LakeDisk, wanted: Mapping[str, str]) -> None:
    """Write down where readers without Spark find the table now."""
    path = lake / INTERNAL / "sink.json"
    if not disk.exists(path) or json.loads(disk.read(path)) != wanted:
        write_json(disk, path, wanted)


def _spelled(sink: Mapping[str, str]) -> str:
    table = sink.get("table")
    return f"{sink['sink']} ({table})" if table else sink["sink"]
