"""Deletes events on purpose, wherever they are: `gateway spark delete`.

First it finds the events that a condition means: in the tables, and in files whose events are
in no table (spool, `retained/`, `poison/`, files older than the tables).  Then it writes down
their names, and the counts that are taken back.  By these names they go, place by place
(`erasure`).  A deletion that a crash has cut off goes on with the next call, by what is
written down.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.event import DELETED
from gateway.sink import kind_of
from gateway.spark.commit import closing
from gateway.spark.commit.lakedisk import LakeDisk, sync
from gateway.spark.commit.ledger import Ranges
from gateway.spark.commit.partition import Busy, check_finished, files_of, visible
from gateway.spark.files import footers, heap
from gateway.spark.later.adopt import check_removed
from gateway.spark.later.deleted_ranges import DeletedRanges, named_in
from gateway.spark.later.erasure import (
    NAMES,
    Locations,
    Wanted,
    carry_out,
    events_of,
    in_bucket,
    in_clear,
    masked,
    published,
    readable,
)
from gateway.spark.rows import stats
from gateway.spark.source import SCHEMA_DDL, url
from gateway.spoken import many
from gateway.store.lsns import Lsns
from gateway.store.names import Life, SpoolFile, parse_file_name
from gateway.store.readers import deleted
from gateway.store.readers.deleted import Deletion
from gateway.store.readers.lake import somebody, tables_of
from gateway.tables import EVENTS, QUARANTINE, STATS, TABLE

_LITERAL = re.compile(
    r"""\br(?:'[^']*'|"[^"]*")"""  # where a backslash is one
    r"""|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|\b\d[\w.]*\b""",
    re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True)
class Asked:
    """A deletion that an operator asks for."""

    where: str
    """A condition of Spark SQL over the columns of the tables."""
    reason: str
    tables: tuple[str, ...] = ()
    """None: all."""
    who: str = field(default_factory=somebody)

    @property
    def shape(self) -> str:
        """The condition without its texts and numbers, which may say whose they are."""
        return _LITERAL.sub("?", self.where)

    @property
    def condition(self) -> str:
        """The condition with the tables that are meant; rows that only hold a place are left out."""
        whole = f"({self.where}) AND coalesce(flaw, '') NOT LIKE '{DELETED}%'"
        flawed = {table == QUARANTINE for table in self.tables}
        if len(flawed) != 1:
            return whole
        return f"{whole} AND flaw {'IS NOT NULL' if True in flawed else 'IS NULL'}"


@dataclass
class Found:
    """The events that a condition means."""

    events: Ranges = field(default_factory=Ranges)
    counts: dict[str, int] = field(default_factory=dict)
    """How many, by place."""

    def add(self, place: str, events: Ranges) -> None:
        if events:
            self.counts[place] = self.counts.get(place, 0) + len(events)
            self.events.update(events)


def delete(
    config: Any,
    spark: Any,
    disk: LakeDisk,
    asked: Asked | None,
    *,
    dry_run: bool = False,
    purge: bool = False,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Finish what was begun, and then do what is *asked*; says what, as text and as data.

    No batch is under way meanwhile, unless it is a *dry_run*.  Raises `Busy`, `Broken`, OSError,
    ValueError, and what Spark raises.
    """
    kind: Any = kind_of(config.spark.sink)
    folders = "folders" in kind.abilities
    locations, lake = Locations.of(config), config.data_dir / "lake"

    def out(record: Deletion) -> Deletion:
        of_tables = None if folders else partial(kind.delete, config, spark, disk)
        return carry_out(locations, disk, record, from_tables=of_tables, spark=spark)

    if not dry_run:
        if folders:
            check_finished(lake)
        else:
            check_removed(disk, lake)
            if purge:  # before anything is deleted
                kind.check_alone(config, spark)
            kind.check_counted(config, spark)
        begun = deleted.unfinished(lake)
        for record in begun:
            yield _told(out(record))
        if asked is None:
            yield from _came_again(locations, begun)
    if asked is not None:
        ledger = closing.load(lake, disk, locations.bucket)
        committed = ledger.committed.minus(DeletedRanges(lake)())
        unseen = _unseen(locations, ledger.committed)
        found = find(config, spark, asked, committed)
        total = len(found.events)
        if unseen:
            text = (
                f"{unseen:,} files wait in the bucket and are not looked into: call this"
                " again once the job has taken them"
            )
            yield text, {"not_looked_into": unseen}
        if dry_run or not total:
            word = "would be deleted" if dry_run else "there is nothing to delete"
            text = f"{total:,} events: {totals(found.counts)}; {word}"
            yield text, {"events": total, "counts": found.counts, "dry_run": dry_run}
        else:
            window = timedelta(seconds=config.spark.stats_window)
            back: list[Any] | None = None if folders else []
            if not folders and ledger.committed:
                back = kind.counts_back(config, spark, found.events)
            yield _told(out(write_down(lake, disk, asked, found, window, back)))
    if purge and not dry_run and not folders:
        for text in kind.purge(config, spark):
            yield text, {"done": text}


def _came_again(
    locations: Locations, begun: Sequence[Deletion]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Say that there was nothing to go on with; raises `Busy` if deleted events wait."""
    asked = [one for one in deleted.deletions(locations.lake) if one.kind == "asked"]
    if left := in_clear(locations.spool, Wanted(named_in(asked))):
        raise Busy(
            f"Of {many(left, 'deleted event')} what was sent lies in {locations.spool}, in files"
            " that came again: the job leaves them out of the tables and redacts them in the "
            "archive; start it (gateway spark), and call this again"
        )
    if not begun:
        yield "no deletion has been cut off", {"events": 0, "done": True}


def _told(record: Deletion) -> tuple[str, dict[str, Any]]:
    total = len(Ranges(record.events))
    text = f"{record.id}: {total:,} events deleted: {totals(record.counts)}"
    if not record.done:
        text += (
            "; some wait in the spool, and the job leaves them out of the tables: call"
            " this again once it has taken them, for their file in the archive, unless it runs"
            " on: then it does so itself"
        )
    data = {"id": record.id, "events": total, "counts": record.counts}
    return text, {**data, "done": record.done}


# -- what is meant ----------------------------------------------------------------------


def find(config: Any, spark: Any, asked: Asked, committed: Ranges) -> Found:
    """Look for what is meant, in all locations; *committed* is what the tables have had.

    Raises what Spark raises, as for a column that is not there.
    """
    from pyspark.sql import functions as f

    from gateway.spark.rows import tables

    locations, found = Locations.of(config), Found()
    kind = kind_of(config.spark.sink)
    if "folders" in kind.abilities:
        for table in asked.tables or tables_of(locations.lake).of_events:
            if files := files_of(locations.lake, table):
                rows = _rows(spark, locations.lake / table, files)
                found.add(f"lake/{table}", tables.ranges(rows.where(asked.condition)))
    elif committed:
        events, _ = kind.tables(config, spark)  # type: ignore[attr-defined]
        rows = events.rows().where(asked.condition)
        conditions = {EVENTS: "flaw IS NULL", QUARANTINE: "flaw IS NOT NULL"}
        if TABLE in rows.columns:
            names = asked.tables or tables_of(locations.lake).of_events
            conditions = {name: f"`{TABLE}` = '{name}'" for name in names}
        for table, mine in conditions.items():
            found.add(table, tables.ranges(rows.where(mine)))
    for place, files in _sources(locations, committed).items():
        for incarnation, some in _by_incarnation(files).items():
            rows = _envelope(config, spark, some, incarnation).where(asked.condition)
            if asked.tables:
                rows = rows.where(f.col(TABLE).isin(*asked.tables))
            names = rows.select("node", f.lit(incarnation).alias("incarnation"), "lsn")
            found.add(place, tables.ranges(names))
    if kept := sorted(locations.retained.glob("*/kept-*.parquet")):
        rows = _envelope(config, spark, kept, "").where(asked.condition)
        found.add("retained", _by_who_gave(locations, tables.ranges(rows), found))
    wanted = Wanted(found.events)
    for place, count in (
        (
            "archive",
            sum(events_of(one, wanted) for one in published(locations.archive)),
        ),
        ("_archive", in_bucket(locations.bucket, wanted)),
    ):
        if count:
            found.counts[place] = count
    return found


def _rows(spark: Any, table: Path, files: Sequence[Path]) -> Any:
    heap.fit(spark, footers.row_bytes(files))
    read = spark.read.option("basePath", url(table)).option("mergeSchema", "true")
    return read.parquet(*[url(path) for path in files])


def _envelope(config: Any, spark: Any, files: Sequence[Path], incarnation: str) -> Any:
    """Rows as the tables would have them."""
    from pyspark.sql import functions as f

    from gateway.spark.rows import tables
    from gateway.spark.rows.columns import Columns

    heap.fit(spark, footers.row_bytes(files))
    rows = spark.read.schema(SCHEMA_DDL).parquet(*[url(path) for path in files])
    named = rows.withColumn("incarnation", f.lit(incarnation or None).cast("string"))
    return tables.events(named, config.spark.body, Columns.of(config.spark))


def _sources(locations: Locations, committed: Ranges) -> dict[str, list[Path]]:
    """Files with events that may be in no table."""
    archived = [
        path
        for path in published(locations.archive)
        if not committed.covers(_named(path))
    ]
    return {
        "spool": _here(locations.spool),
        "archive": archived,
        "poison": [path for path in published(locations.poison) if readable(path)],
    }


def _by_who_gave(locations: Locations, kept: Ranges, found: Found) -> Ranges:
    """Rows that are retained, by the incarnations that gave them.  Where that is not known,
    what was found elsewhere is left out.
    """
    named = Ranges()
    for life, first, last in kept:
        for by, low, high in locations.given_by(life.node, first, last):
            lsns = Lsns([(low, high)])
            for other, known in found.events.each():
                if not by and other.node == life.node:
                    lsns = lsns - known
            named.add_all(Life(life.node, by), lsns)
    return named


def _unseen(locations: Locations, committed: Ranges) -> int:
    """How many of the bucket's files are not here and in no table."""
    if locations.bucket is None:
        return 0
    here = {one.name for one in _here(locations.spool)}
    there = [parse_file_name(one.name) for one in locations.bucket.list("events-")]
    return sum(
        file is not None and file.name not in here and not committed.covers(file)
        for file in there
    )


def _by_incarnation(files: Iterable[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = defaultdict(list)
    for path in files:
        found[_named(path).incarnation].append(path)
    return found


def _here(spool: Path) -> list[Path]:
    """Files of which more than their footer is here (`gateway.spark.bucket`)."""
    found = []
    for path in published(spool):
        with contextlib.suppress(FileNotFoundError):
            if not footers.is_alone(path):
                found.append(path)
    return found


def _named(path: Path) -> SpoolFile:
    file = parse_file_name(path.name)
    assert file is not None
    return file


# -- what is written down ---------------------------------------------------------------


def write_down(
    lake: Path,
    disk: LakeDisk,
    asked: Asked,
    found: Found,
    window: timedelta,
    back: Sequence[tuple[str, pa.Table]] | None = None,
) -> Deletion:
    """Make it durable which events go, and by what the counts change; None: those of folders.

    *window* is the width of a window of counts.  Raises OSError.
    """
    salt = secrets.token_hex(8)
    name = f"delete-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{salt[:6]}"
    if back is None:
        back = list(_counts(lake, found.events, window))
    folder = deleted.counts_of(lake, name)
    goals = []
    if back:
        disk.make_directory(folder)
    for number, (partition, counts) in enumerate(back):
        path = folder / str(number)
        pq.write_table(counts, path, compression="zstd")
        sync(disk, path)
        goals.append(f"{partition}/part-{0:010d}-{name}-{number}.parquet")
    if back:
        disk.sync_directory(folder)
    hashed = hashlib.sha256(f"{salt}{asked.where}".encode()).hexdigest()
    record = Deletion(
        name,
        "asked",
        asked.who,
        time.time(),
        asked.reason,
        where=asked.shape,
        where_hash=hashed,
        salt=salt,
        events=found.events.plain(),
        counts=dict(found.counts),
        stats=goals,
        done=False,
    )
    deleted.save(disk, lake, record)
    return record


def _counts(
    lake: Path, events: Ranges, window: timedelta
) -> Iterator[tuple[str, pa.Table]]:
    """Counts that are taken back, by folder of `stats`, of days that are still counted there."""
    found: dict[str, list[pa.Table]] = defaultdict(list)
    columns, tables = [*NAMES, *stats.COUNTED], tables_of(lake)
    for path, rows in masked(
        files_of(lake, *tables.of_events), Wanted(events), columns
    ):
        protocol, day = path.parent.parent.name, path.parent
        width = _width(lake / STATS / protocol / day.name) or window
        table = path.relative_to(lake).parts[0] if tables.by_rule else ""
        for date, counts in stats.taken_back(rows, width, table).items():
            found[f"{STATS}/{protocol}/{date}"].append(counts)
    for folder, counts in sorted(found.items()):
        if any(visible(lake / folder)):
            yield folder, stats.fold(counts)


def _width(folder: Path) -> timedelta | None:
    """The width of the windows of a day's counts, if all have one."""
    widths: set[timedelta] = set()
    for path in visible(folder):
        rows = pq.read_table(
            path, columns=["window_start", "window_end"], partitioning=None
        )
        for start, end in zip(
            *(rows[n].to_pylist() for n in rows.column_names), strict=True
        ):
            widths.add(end - start)
        if len(widths) > 1:
            return None
    return next(iter(widths), None)


def totals(counts: Mapping[str, int]) -> str:
    """The counts by place, for people."""
    return (
        ", ".join(f"{count:,} in {place}" for place, count in counts.items()) or "none"
    )
