"""Puts events through again that were set aside: spool files, and rows of quarantine.

A file of `poison/` that can be read now goes back into the spool, for the job to take, and
into the bucket that this is a copy of.
Rows of `quarantine` whose payload is fine after all, or whose flaw the operator accepts,
become rows of `events`.  All others of such a day are made anew with today's columns (`days`).
Old files go before the new ones get their names: a reader may miss a row for a moment, and
never sees it twice.  A crash in between is finished by the next start of the job, or the next
rewrite of days.  Where such a day was said to be complete, that is taken back before.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.sdk.arrow import footer_of
from gateway.spark.bucket.copies import put_back
from gateway.spark.commit import marks
from gateway.spark.commit.lakedisk import LakeDisk, sync
from gateway.spark.commit.ledger import Broken, Ledger, write_json
from gateway.spark.commit.marks import Marks
from gateway.spark.commit.parquet import publishing
from gateway.spark.commit.partition import staging_of_moves
from gateway.spark.files import footers, heap
from gateway.spark.files.not_taken import FINAL_FLAWS, flaw_of
from gateway.spark.later.days import Change, Day, rewrite
from gateway.spark.rows import stats
from gateway.store.names import parse_file_name
from gateway.store.objects.bucket import Bucket
from gateway.store.readers.complete import requeued_path
from gateway.store.readers.lake import INTERNAL
from gateway.tables import QUARANTINE, STATS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Requeued:
    """The rows of quarantine, put through again."""

    rows: int
    """Rows that were looked at."""
    fine: int
    """Rows of `events` now."""
    taken_back: tuple[str, ...] = ()
    """Days of these that had been said to be complete."""


def files(
    poison: Path, spool: Path, disk: LakeDisk, bucket: Bucket | None = None
) -> tuple[list[str], dict[str, str]]:
    """Move files that can be read now back into *spool*, whose files are copies of those in
    *bucket*: their names; those that stay, and why.

    Raises OSError, `BucketError` for one.
    """
    moved: list[str] = []
    kept: dict[str, str] = {}
    there = disk.names(poison) if disk.exists(poison) else []
    for name in there:
        if not name.endswith(".parquet"):
            continue
        file = parse_file_name(name)
        if file is None or flaw_of(poison / name, file) is not None:
            kept[name] = "still can not be read"
            continue
        if disk.exists(spool / name):
            kept[name] = "a file of this name waits for the job; try again then"
            continue
        if bucket:
            put_back(bucket, name, disk.read(poison / name))
        disk.rename(poison / name, spool / name)
        disk.unlink(poison / f"{name}.json")
        moved.append(name)
    if moved:
        disk.sync_directory(spool)
        disk.sync_directory(poison)
    return moved, kept


def rows(
    spark: SparkSession, config: Any, disk: LakeDisk, accepted: Collection[str] = ()
) -> Requeued:
    """Put all rows of quarantine through again; *accepted* are flaws that are none.

    Raises `Busy`, `Broken`, OSError and what Spark raises.
    """
    from gateway.spark.rows import tables
    from gateway.spark.rows.columns import Columns
    from gateway.spark.source import url

    lake, found = config.data_dir / "lake", Requeued(0, 0)
    window = timedelta(seconds=config.spark.stats_window)
    columns = Columns.of(config.spark)
    known = Ledger.load(disk, lake / INTERNAL / "events.json").tables.by_rule
    if unknown := sorted(set(config.spark.tables).difference(known)):
        raise Broken(
            f"spark.tables: the job has not begun {', '.join(unknown)} yet, so that nobody would"
            " look for rows there: start it with this file first"
        )

    def again(day: Day) -> Change | None:
        nonlocal found
        if not day.files:
            return None
        staged = staging_of_moves(lake)
        disk.remove_tree(staged)
        disk.make_directory(staged)
        heap.fit(spark, footers.row_bytes(day.files))
        read = spark.read.option("basePath", url(lake / QUARANTINE))
        rows = read.option("mergeSchema", "true").parquet(*map(url, day.files))
        made = tables.events(_judged(rows, accepted), config.spark.body, columns)
        written = made.coalesce(1).write.partitionBy(*tables.PARTITIONS)
        written.parquet(url(staged / "data"))
        done, moves = _collect(lake, staged, disk, window)
        before = sum(footer_of(path).num_rows for path in day.files)
        if done.rows != before:
            raise OSError(f"{day.folder} has {before} rows, {done.rows} were made")
        late = found.taken_back
        if done.fine:
            late = tuple(dict.fromkeys((*late, *take_back(lake, disk, day.date))))
        found = Requeued(found.rows + done.rows, found.fine + done.fine, late)
        if done.fine:
            return Change(day.files, before, moves=moves)
        disk.remove_tree(staged)
        return None

    for _ in rewrite(lake, disk, again, (QUARANTINE,)):
        pass
    return found


def take_back(lake: Path, disk: LakeDisk, day: date) -> Iterator[str]:
    """Take back, durably, that a day is complete, whose rows other tables are about to have; the
    day, if it was said to be.
    """
    word = requeued_path(lake, day.toordinal())
    disk.make_directory(word.parent)
    with publishing(lake):  # the job writes marks and looks for such words in it
        write_json(disk, word, {})
        Marks().remove(marks.tables(lake, disk), [day.toordinal()])
    known = Ledger.load(disk, lake / INTERNAL / "events.json").complete
    if known.has(day):
        yield day.isoformat()


def _judged(found: DataFrame, accepted: Collection[str]) -> DataFrame:
    """The events as the spool had them, without the flaws that are none."""
    from pyspark.sql import functions as f

    from gateway.event import SCHEMA
    from gateway.spark.rows.tables import is_json

    body = f.expr("encode(cast(body AS string), 'UTF-8')")
    sent = found.withColumn("payload", f.coalesce(f.col("payload"), body))
    taken = f.col("flaw").isin(*accepted) if accepted else f.lit(False)
    fine = taken | (~f.col("flaw").isin(*FINAL_FLAWS) & is_json(sent))
    judged = sent.withColumn("flaw", f.when(~fine, f.col("flaw")))
    return judged.select(*SCHEMA.names, "incarnation")


def _collect(
    lake: Path, staged: Path, disk: LakeDisk, window: timedelta
) -> tuple[Requeued, list[tuple[str, str]]]:
    """Number and sync what Spark has written; (number, goal) of each file."""
    ledger = Ledger.load(disk, lake / INTERNAL / "events.json")
    sequence, by_rule = ledger.sequence, ledger.tables.by_rule
    name = f"part-{sequence:010d}-requeue{secrets.token_hex(4)}"
    moves: list[tuple[str, str]] = []
    fine: list[tuple[str, str, Path]] = []
    total = 0

    def add(path: Path, folder: str) -> None:
        number = str(len(moves))
        sync(disk, path)
        disk.rename(path, staged / number)
        moves.append((number, f"{folder}/{name}-{number}.parquet"))

    for path in disk.tree(staged / "data"):
        inside = path.relative_to(staged / "data").parts
        if any(part[0] in "._" for part in inside):
            continue
        count = footer_of(path).num_rows
        if not count:
            continue
        total += count
        add(path, "/".join(inside[:-1]).removeprefix("table="))
        if inside[0] != f"table={QUARANTINE}":
            table = inside[0].removeprefix("table=")
            fine.append((table, inside[1], staged / moves[-1][0]))
    flawless = sum(footer_of(path).num_rows for *_, path in fine)
    for partition, table in _counts(fine, window, by_table=bool(by_rule)):
        path = staged / "stats.parquet"
        pq.write_table(table, path, compression="zstd")
        add(path, f"{STATS}/{partition}")
    disk.sync_directory(staged)
    return Requeued(total, flawless), moves


def _counts(
    fine: Sequence[tuple[str, str, Path]], window: timedelta, *, by_table: bool
) -> Iterator[tuple[str, pa.Table]]:
    """Counts for files that are in no quarantine any more, by folder."""
    if not fine:
        return
    plain = stats.count([(place, path) for _, place, path in fine], window)
    if not by_table:
        for folder, table in plain.tables.items():
            yield folder, _flawed_no_more(table)
        return
    files = [(f"{table}/{place}", path) for table, place, path in fine]
    for folder, table in stats.count(files, window).tables.items():
        names = pa.array([QUARANTINE] * len(plain.tables[folder]), pa.string())
        gone = _negative(plain.tables[folder]).append_column("table", names)
        yield folder, stats.fold([table, gone])


def _negative(counted: pa.Table) -> pa.Table:
    """Counts that take these events back, which were flawed."""
    events, octets = pc.negate(counted["events"]), pc.negate(counted["payload_bytes"])
    return _with(counted, events=events, payload_bytes=octets, flawed=events)


def _flawed_no_more(counted: pa.Table) -> pa.Table:
    """Counts that take these events' flaws back and add no event."""
    zero, flaws = pa.array([0] * len(counted)), pc.negate(counted["events"])
    return _with(counted, events=zero, payload_bytes=zero, flawed=flaws)


def _with(counted: pa.Table, **columns: Any) -> pa.Table:
    for name, column in columns.items():
        at = counted.schema.get_field_index(name)
        counted = counted.set_column(at, name, column)
    return counted
