"""Deletes events on purpose, wherever they are: `gateway spark delete`.

    found        which events a condition means: in the tables, and in files whose events are
                 in no table (spool, `retained/`, `poison/`, what is older than the tables)
    written down their names, and the counts that are taken back, before anything goes
    carried out  by these names, place by place; whatever a crash has cut off goes on with
                 the next call, which needs no more than what is written down

In a folder of Parquet files the files concerned are written anew, and the day's folder takes
the old one's place in one step (`partition`).  Delta and Iceberg delete by their own commit.
The archive's files keep their rows, blotted out (`blot`).  What waits in the spool is left
out by the job when it comes (`Sink.left_out`).

Counts are taken back by rows of `stats` with what went, negative: as files they lie beside
what is written down until they get their names, so each does so once.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.event import DELETED, LOST
from gateway.spark import footers, heap, stats
from gateway.spark.blot import blotted
from gateway.spark.gone import mask_of, names_of
from gateway.spark.lakedisk import LakeDisk, sync
from gateway.spark.ledger import Life, Ranges, SpoolFile
from gateway.spark.parquet import publishing
from gateway.spark.partition import (
    Busy,
    alone,
    check_finished,
    check_room,
    replace,
    restore,
    staged_for,
    visible,
)
from gateway.store import deleted
from gateway.store.bucket import ARCHIVE, Bucket, NotThere
from gateway.store.deleted import Deletion, Rewritten
from gateway.store.lake import INTERNAL
from gateway.store.names import Named, kept_name, parse_file_name, parse_kept_name

_TABLES = ("events", "quarantine")
_LITERAL = re.compile(
    r"""\br(?:'[^']*'|"[^"]*")"""  # where a backslash is one
    r"""|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|\b\d[\w.]*\b""",
    re.DOTALL | re.IGNORECASE,
)
_NAMES = ("node", "incarnation", "lsn")
_LOOKS = 5
"""Files may move while one looks: so often, until none is left with an event."""

Point = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What somebody wants to be deleted."""

    where: str
    """A condition of Spark SQL over the columns of the tables."""
    reason: str
    tables: tuple[str, ...] = _TABLES
    who: str = field(default_factory=lambda: f"{_user()}@{socket.gethostname()}")

    @property
    def shape(self) -> str:
        """The condition without its texts and numbers, which may say whose they are."""
        return _LITERAL.sub("?", self.where)

    @property
    def condition(self) -> str:
        """With the tables that are meant; rows that only hold a place are nobody's."""
        whole = (
            f"({self.where}) AND coalesce(flaw, '') <> '{LOST}'"
            f" AND coalesce(flaw, '') NOT LIKE '{DELETED}%'"
        )
        if set(self.tables) == set(_TABLES):
            return whole
        flawed = "IS NULL" if self.tables == ("events",) else "IS NOT NULL"
        return f"{whole} AND flaw {flawed}"


@dataclass
class Found:
    """Which events that are."""

    events: Ranges = field(default_factory=Ranges)
    counts: dict[str, int] = field(default_factory=dict)
    """How many, by place."""

    def add(self, place: str, events: Ranges) -> None:
        """What one place has."""
        if events:
            self.counts[place] = self.counts.get(place, 0) + len(events)
            self.events.update(events)


@dataclass(frozen=True)
class Places:
    """Where events of a job are beside its tables."""

    lake: Path
    spool: Path
    archive: Path
    retained: Path
    poison: Path
    bucket: Bucket | None = None

    @classmethod
    def of(cls, config: Any) -> Places:
        """Those of a configuration."""
        from gateway.spark.source import spool_of
        from gateway.store.s3 import bucket_of

        data = config.data_dir
        return cls(
            data / "lake",
            spool_of(config),
            data / "archive",
            data / "retained",
            data / "poison",
            bucket_of(config.spool),
        )


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
    from gateway.sink import kind_of
    from gateway.spark.gone import Gone
    from gateway.spark.ledger import Ledger

    kind: Any = kind_of(config.spark.sink)
    folders = "folders" in kind.abilities
    places, lake = Places.of(config), config.data_dir / "lake"
    rewrite = _rewriting(spark)

    def out(record: Deletion) -> Deletion:
        def from_tables(one: Deletion) -> None:
            kind.delete(config, spark, disk, one)

        return carry_out(
            places,
            disk,
            record,
            from_tables=None if folders else from_tables,
            rewrite=rewrite,
        )

    if not dry_run:
        if folders:
            check_finished(lake)
        else:
            if purge:  # before anything is deleted
                kind.check_alone(config, spark)
            kind.check_counted(config, spark)
        for record in deleted.unfinished(lake):
            yield _told(out(record))
    if asked is not None:
        ledger = Ledger.load(disk, lake / INTERNAL / "events.json")
        committed = ledger.committed.minus(Gone(lake)())
        unseen = _unseen(places, ledger.committed)
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
            back = None
            if not folders:
                back = (
                    kind.counts_back(config, spark, found.events)
                    if ledger.committed
                    else []
                )
            yield _told(out(write_down(lake, disk, asked, found, window, back)))
    if purge and not dry_run and not folders:
        for text in kind.purge(config, spark):
            yield text, {"done": text}


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


def _rewriting(spark: Any) -> Callable[[Path, Path, Ranges], None]:
    """Writes a file with VARIANT without some events."""

    def rewrite(path: Path, target: Path, events: Ranges) -> None:
        from gateway.spark.source import url

        rows = spark.read.parquet(url(path))
        mine, left = Ranges(), pq.read_metadata(path).num_rows
        for part in _masked_file(path, events):
            left -= part.num_rows
            mine.update(names_of(part))
        for condition in as_sql(mine):
            rows = rows.where(f"NOT ({condition})")
        folder = target.with_name(f".{target.name}.spark")
        rows.coalesce(1).write.option("maxRecordsPerFile", 0).parquet(url(folder))
        made = [one for one in visible(folder) if pq.read_metadata(one).num_rows]
        count = sum(pq.read_metadata(one).num_rows for one in made)
        if count != left or len(made) > 1:
            raise OSError(f"of {path} {left} rows stay, {count} were made of them")
        for one in made:
            one.rename(target)
        shutil.rmtree(folder)

    return rewrite


def _masked_file(path: Path, events: Ranges) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        names = [name for name in _NAMES if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=names, use_threads=False):
            rows = pa.table(batch)
            yield rows.filter(pa.array(mask_of(rows, events)))


# -- what is meant ----------------------------------------------------------------------


def find(config: Any, spark: Any, asked: Asked, committed: Ranges) -> Found:
    """Look for what is meant, in all places; *committed* is what the tables have had.

    Raises what Spark raises, as for a column that is not there.
    """
    from pyspark.sql import functions as f

    from gateway.sink import kind_of
    from gateway.spark import tables

    places, found = Places.of(config), Found()
    kind = kind_of(config.spark.sink)
    if "folders" in kind.abilities:
        for table in asked.tables:
            files = _files(places.lake / table)
            if files:
                rows = _rows(spark, places.lake / table, files)
                found.add(f"lake/{table}", tables.ranges(rows.where(asked.condition)))
    elif committed:
        events, _ = kind.tables(config, spark)  # type: ignore[attr-defined]
        rows = events.rows().where(asked.condition)
        for table, flaw in (
            ("events", "flaw IS NULL"),
            ("quarantine", "flaw IS NOT NULL"),
        ):
            found.add(table, tables.ranges(rows.where(flaw)))
    for place, files in _sources(places, committed).items():
        for incarnation, some in _by_incarnation(files).items():
            rows = _envelope(config, spark, some, incarnation).where(asked.condition)
            names = rows.select("node", f.lit(incarnation).alias("incarnation"), "lsn")
            found.add(place, tables.ranges(names))
    wanted = _Wanted(found.events)
    for place, count in (
        ("archive", sum(_events_of(one, wanted) for one in _published(places.archive))),
        ("_archive", _in_bucket(places.bucket, wanted)),
    ):
        if count:
            found.counts[place] = count
    return found


def _rows(spark: Any, table: Path, files: Sequence[Path]) -> Any:
    from gateway.spark.source import url

    heap.fit(spark, footers.row_bytes(files))
    read = spark.read.option("basePath", url(table)).option("mergeSchema", "true")
    return read.parquet(*[url(path) for path in files])


def _envelope(config: Any, spark: Any, files: Sequence[Path], incarnation: str) -> Any:
    """Rows as the tables would have them."""
    from pyspark.sql import functions as f

    from gateway.spark import tables
    from gateway.spark.columns import Columns
    from gateway.spark.source import SCHEMA_DDL, url

    heap.fit(spark, footers.row_bytes(files))
    rows = spark.read.schema(SCHEMA_DDL).parquet(*[url(path) for path in files])
    named = rows.withColumn("incarnation", f.lit(incarnation or None).cast("string"))
    return tables.events(named, config.spark.body, Columns.of(config.spark))


def _sources(places: Places, committed: Ranges) -> dict[str, list[Path]]:
    """Files with events that may be in no table."""
    archived = [
        path
        for path in _published(places.archive)
        if not committed.covers(_named(path))
    ]
    return {
        "spool": _here(places.spool),
        "archive": archived,
        "retained": sorted(places.retained.glob("*/kept-*.parquet")),
        "poison": [path for path in _published(places.poison) if _readable(path)],
    }


def _unseen(places: Places, committed: Ranges) -> int:
    """How many of the bucket's files are not here and in no table."""
    if places.bucket is None:
        return 0
    in_tables, here = (
        committed.nameless(),
        {one.name for one in _here(places.spool)},
    )
    there = [SpoolFile.parse(one.name) for one in places.bucket.list("events-")]
    return sum(
        file is not None and file.name not in here and not in_tables.covers(file)
        for file in there
    )


def _readable(path: Path) -> bool:
    from gateway.spark.poison import flaw_of

    file = SpoolFile.parse(path.name)
    return file is not None and flaw_of(path, file) is None


def _by_incarnation(files: Iterable[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = defaultdict(list)
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            found[footers.incarnation_of(path)].append(path)
    return found


def _here(spool: Path) -> list[Path]:
    """Those files of which more than their footer is here (`gateway.spark.inbox`)."""
    found = []
    for path in _published(spool):
        with contextlib.suppress(FileNotFoundError):
            if not footers.is_alone(path):
                found.append(path)
    return found


def _published(folder: Path) -> list[Path]:
    """The files there whose names the gateway gives."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(path for path in folder.iterdir() if parse_file_name(path.name))
    return []


def _named(path: Path) -> SpoolFile:
    file = SpoolFile.parse(path.name)
    assert file is not None
    with contextlib.suppress(FileNotFoundError):
        return SpoolFile(*_parts(file), footers.incarnation_of(path))
    return file


def _parts(file: SpoolFile) -> tuple[str, str, int, int]:
    return file.name, file.node, file.first, file.last


def _files(table: Path) -> list[Path]:
    return [
        path
        for folder in sorted(table.glob("protocol=*/date=*"))
        for path in visible(folder)
    ]


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


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number that has no name
        return f"uid {os.getuid()}"


def _counts(
    lake: Path, events: Ranges, window: timedelta
) -> Iterator[tuple[str, pa.Table]]:
    """What is taken back, by folder of `stats`, of days that are still counted there."""
    found: dict[str, list[pa.Table]] = defaultdict(list)
    for path, rows in _masked(lake, events, [*_NAMES, *stats.COUNTED]):
        protocol, day = path.parent.parent.name, path.parent
        width = _width(lake / "stats" / protocol / day.name) or window
        for date, counts in stats.taken_back(rows, width).items():
            found[f"stats/{protocol}/{date}"].append(counts)
    for folder, counts in sorted(found.items()):
        if any(visible(lake / folder)):
            yield folder, stats.fold(counts)


def _width(folder: Path) -> timedelta | None:
    """Of the windows of a day's counts, if all have one."""
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


def _masked(
    lake: Path, events: Ranges, columns: Sequence[str]
) -> Iterator[tuple[Path, pa.Table]]:
    """The rows of these events in folders, file by file."""
    wanted = _Wanted(events)
    for table in _TABLES:
        for path in _files(lake / table):
            if not _may_have(path, wanted):
                continue
            with pq.ParquetFile(path) as file:
                there = [one for one in columns if one in file.schema_arrow.names]
                for batch in file.iter_batches(columns=there, use_threads=False):
                    rows = pa.table(batch)
                    mask = mask_of(rows, events)
                    if mask.any():
                        yield path, rows.filter(pa.array(mask))


def _may_have(path: Path, wanted: _Wanted) -> bool:
    """By the least and the greatest lsn of a file's groups."""
    metadata = pq.read_metadata(path)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        known = [
            group.column(n).statistics
            for n in range(group.num_columns)
            if group.column(n).path_in_schema == "lsn"
        ]
        if not known or known[0] is None or not known[0].has_min_max:
            return True
        if wanted.any(known[0].min, known[0].max):
            return True
    return False


# -- what is done -----------------------------------------------------------------------


def carry_out(
    places: Places,
    disk: LakeDisk,
    record: Deletion,
    *,
    from_tables: Callable[[Deletion], None] | None = None,
    rewrite: Callable[[Path, Path, Ranges], None] | None = None,
    point: Point = lambda name: None,
) -> Deletion:
    """Do what is written down; may be done again.  What waits in the spool is not done.

    *from_tables* deletes where tables are no folders, *rewrite* writes a file with VARIANT
    without some events.  Raises `Busy`, OSError, and what pyarrow raises.
    """
    events = Ranges(record.events)
    with alone(places.lake):
        if from_tables is not None:
            from_tables(record)
        else:
            check_finished(places.lake)
            _from_folders(places.lake, disk, events, record.id, rewrite, point)
            _take_back(places.lake, disk, record, point)
    wanted = _Wanted(events)
    waiting = True
    for _ in range(_LOOKS):
        # Before the last look: what goes to the archive meanwhile is found there.
        waiting = any(_events_of(path, wanted) for path in _published(places.spool))
        waiting = waiting or _waits_in_bucket(places.bucket, wanted)
        record, count = _from_files(places, disk, record, wanted, point)
        if not count:
            break
    record = msgspec.structs.replace(record, done=not waiting)
    deleted.save(disk, places.lake, record)
    point("done")
    return record


def _from_folders(
    lake: Path,
    disk: LakeDisk,
    events: Ranges,
    name: str,
    rewrite: Callable[[Path, Path, Ranges], None] | None,
    point: Point,
) -> None:
    restore(lake, disk)
    concerned: dict[Path, set[Path]] = defaultdict(set)
    for path, _ in _masked(lake, events, _NAMES):
        concerned[path.parent].add(path)
    for folder, paths in sorted(concerned.items()):
        going = sorted(paths)
        check_room(folder, sum(path.stat().st_size for path in going), disk)
        staged = staged_for(lake, folder, disk)
        for path in going:
            stem = path.stem.partition("-delete-")[0]
            _write_without(path, staged / f"{stem}-{name}.parquet", events, rewrite)
        point("staged")
        if replace(lake, folder, going, staged, disk) is None:
            raise Busy(f"files of {folder} were taken away meanwhile: try again")
        point("replaced")
        disk.remove_tree(staged)
        point("removed")


def _write_without(
    path: Path,
    target: Path,
    events: Ranges,
    rewrite: Callable[[Path, Path, Ranges], None] | None,
) -> None:
    """The same rows in the same groups, but those; no file if none is left."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        schema = file.schema_arrow
        if any(
            name in schema.names and pa.types.is_struct(schema.field(name).type)
            for name in ("body", "body_variant")
        ):
            if rewrite is None:
                raise Busy(f"{path} has VARIANT, which only Spark can write")
            rewrite(path, target, events)
            return
        long = [name for name in ("body", "payload") if name in schema.names]
        written = 0
        with pq.ParquetWriter(
            target,
            schema,
            compression="zstd",
            use_dictionary=[name for name in schema.names if name not in long],
            write_page_checksum=True,
        ) as writer:
            for number in range(file.num_row_groups):
                rows = file.read_row_group(number, use_threads=False)
                kept = rows.filter(pa.array(~mask_of(rows, events)))
                if kept.num_rows:
                    written += kept.num_rows
                    writer.write_table(kept, row_group_size=kept.num_rows)
    if not written:
        target.unlink()


def _take_back(lake: Path, disk: LakeDisk, record: Deletion, point: Point) -> None:
    """Give the counts their names: each has it once, as it is then here no more."""
    folder = deleted.counts_of(lake, record.id)
    with publishing(lake):
        for number, goal in enumerate(record.stats):
            source, target = folder / str(number), lake / goal
            if disk.exists(source):
                disk.make_directory(target.parent)
                disk.rename(source, target)
                disk.sync_directory(target.parent)
                point("counted")
    disk.remove_tree(folder)


def _from_files(
    places: Places, disk: LakeDisk, record: Deletion, wanted: _Wanted, point: Point
) -> tuple[Deletion, int]:
    """Blot out in archive, `poison/`, `retained/` and bucket: how many rows that were."""
    total = 0
    aside = [path for path in _published(places.poison) if _readable(path)]
    for path in [*_published(places.archive), *aside]:
        with contextlib.suppress(FileNotFoundError):
            lsns = _lsns_of(path, wanted)
            if not len(lsns) or (done := blotted(path, _among(lsns))) is None:
                continue
            data, count = done
            was = hashlib.sha256(path.read_bytes()).hexdigest()
            record = _with_file(record, path.name, was, data)
            deleted.save(disk, places.lake, record)
            point("link written down")
            _put(disk, path, data)
            point("blotted")
            total += count
    for path in sorted(places.retained.glob("*/kept-*.parquet")):
        with contextlib.suppress(FileNotFoundError):
            total += _from_kept(disk, path, wanted)
    if places.bucket is not None:
        record, count = _from_bucket(places, disk, record, wanted)
        total += count
    return record, total


def _put(disk: LakeDisk, path: Path, data: bytes) -> None:
    """In one step, if it is still there; as old as it was.  Raises FileNotFoundError."""
    modified = path.stat().st_mtime
    hidden = path.with_name(f".{path.name}.blotted")
    _write_like(disk, hidden, data, path)
    disk.set_times(hidden, modified)
    if not disk.exists(path):
        disk.unlink(hidden)
        raise FileNotFoundError(str(path))
    disk.rename(hidden, path)
    disk.sync_directory(path.parent)


def _write_like(disk: LakeDisk, hidden: Path, data: bytes, old: Path) -> None:
    """For whoever may read *old*: the daemon, though root has rows deleted."""
    hidden.write_bytes(data)
    was = old.stat()
    hidden.chmod(stat.S_IMODE(was.st_mode))
    with contextlib.suppress(PermissionError):  # then whoever owns it runs this
        os.chown(hidden, was.st_uid, was.st_gid)
    sync(disk, hidden)


def _from_kept(disk: LakeDisk, path: Path, wanted: _Wanted) -> int:
    """Under the name of the next generation: no name ever has other rows."""
    parsed = parse_kept_name(path.name)
    if parsed is None:
        return 0
    first, last, generation = parsed
    lsns = wanted.lsns(path.parent.name, None, first, last)
    if not len(lsns) or (done := blotted(path, _among(lsns))) is None:
        return 0
    data, count = done
    target = path.with_name(kept_name(first, last, generation + 1))
    hidden = path.with_name(f".{target.name}")
    _write_like(disk, hidden, data, path)
    disk.rename(hidden, target)
    disk.sync_directory(path.parent)
    disk.unlink(path)
    return count


def _from_bucket(
    places: Places, disk: LakeDisk, record: Deletion, wanted: _Wanted
) -> tuple[Deletion, int]:
    bucket, total = places.bucket, 0
    assert bucket is not None
    for name, file in _archived(bucket, wanted):
        with contextlib.suppress(NotThere):
            data = bucket.read(name)
            source = pa.BufferReader(data)
            by = footers.incarnation_of(pa.BufferReader(data))
            lsns = wanted.lsns(file.node, by, file.first, file.last)
            if (done := blotted(source, _among(lsns))) is None:
                continue
            new, count = done
            was = hashlib.sha256(data).hexdigest()
            record = _with_file(record, Path(name).name, was, new)
            deleted.save(disk, places.lake, record)
            bucket.replace(name, new)
            total += count
    return record, total


def _with_file(record: Deletion, name: str, was: str, data: bytes) -> Deletion:
    now = Rewritten(was, hashlib.sha256(data).hexdigest())
    files = {**record.files, name: [*record.files.get(name, []), now]}
    return msgspec.structs.replace(record, files=files)


def _archived(bucket: Bucket, wanted: _Wanted) -> Iterator[tuple[str, Named]]:
    """Objects of the archive whose names have an lsn of these events, and what those say."""
    for one in bucket.list(f"{ARCHIVE}/events-"):
        file = parse_file_name(one.name.removeprefix(f"{ARCHIVE}/"))
        if file and len(wanted.lsns(file.node, None, file.first, file.last)):
            yield one.name, file


def _in_bucket(bucket: Bucket | None, wanted: _Wanted) -> int:
    """How many of them its archive may have, by the names of its objects."""
    if bucket is None:
        return 0
    return sum(
        len(wanted.lsns(one.node, None, one.first, one.last))
        for _, one in _archived(bucket, wanted)
    )


def _waits_in_bucket(bucket: Bucket | None, wanted: _Wanted) -> bool:
    """Whether an object has some that goes to the archive later: the newest of a node stays,
    though the tables have it.
    """
    if bucket is None:
        return False
    for one in bucket.list("events-"):
        file = parse_file_name(one.name)
        if file and len(wanted.lsns(file.node, None, file.first, file.last)):
            with contextlib.suppress(NotThere):
                by = footers.incarnation_of(pa.BufferReader(bucket.read(one.name)))
                if len(wanted.lsns(file.node, by, file.first, file.last)):
                    return True
    return False


def _events_of(path: Path, wanted: _Wanted) -> int:
    """How many of them a published file has that are not blotted out yet."""
    with contextlib.suppress(FileNotFoundError):
        return len(_lsns_of(path, wanted))
    return 0


def _lsns_of(path: Path, wanted: _Wanted) -> np.ndarray[Any, Any]:
    """Raises FileNotFoundError."""
    file = parse_file_name(path.name)
    if file is None:
        return np.empty(0, np.int64)
    if not len(wanted.lsns(file.node, None, file.first, file.last)):
        return np.empty(0, np.int64)  # as nearly all: without a look into it
    by = footers.incarnation_of(path)
    return wanted.lsns(file.node, by, file.first, file.last)


class _Wanted:
    """The lsns that go, by node and incarnation, to be looked up for thousands of files."""

    def __init__(self, events: Ranges) -> None:
        spans: dict[str, dict[str, list[tuple[int, int]]]] = defaultdict(dict)
        for life, first, last in events:
            spans[life.node].setdefault(life.incarnation, []).append((first, last))
        self._bounds = {
            node: {each: np.array(some, np.int64) for each, some in lives.items()}
            for node, lives in spans.items()
        }
        every = [some for lives in self._bounds.values() for some in lives.values()]
        self._all = np.concatenate(every) if every else np.empty((0, 2), np.int64)

    def any(self, first: int, last: int) -> bool:
        """Whether one of them is from *first* to *last*, whosever."""
        return bool(((self._all[:, 0] <= last) & (first <= self._all[:, 1])).any())

    def lsns(
        self, node: str, incarnation: str | None, first: int, last: int
    ) -> np.ndarray[Any, Any]:
        """Those of a file, by its incarnation; of one that does not say (""), or that is not
        asked for (None), whosever.
        """
        found = []
        for each, bounds in self._bounds.get(node, {}).items():
            if incarnation and each not in ("", incarnation):
                continue
            # Ranges are in order and apart.
            begin = int(np.searchsorted(bounds[:, 1], first))
            end = int(np.searchsorted(bounds[:, 0], last, "right"))
            found += [
                np.arange(max(low, first), min(high, last) + 1)
                for low, high in bounds[begin:end].tolist()
            ]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _among(lsns: np.ndarray[Any, Any]) -> Callable[[pa.Table], np.ndarray[Any, Any]]:
    return lambda rows: np.isin(rows["lsn"].to_numpy(), lsns)


def as_sql(events: Ranges, most: int = 5000) -> Iterator[str]:
    """Conditions that are true of just these events, of so many single ones at most each."""
    by: dict[Life, list[tuple[int, int]]] = defaultdict(list)
    for life, first, last in events:
        by[life].append((first, last))
    for life, spans in by.items():
        whose = (
            f"node = '{life.node}' AND coalesce(incarnation, '') = '{life.incarnation}'"
        )
        for at in range(0, len(spans), most):
            some = spans[at : at + most]
            single = [str(first) for first, last in some if first == last]
            terms = [f"lsn IN ({', '.join(single)})"] if single else []
            terms += [
                f"lsn BETWEEN {first} AND {last}"
                for first, last in some
                if first < last
            ]
            yield f"{whose} AND ({' OR '.join(terms)})"


def totals(counts: Mapping[str, int]) -> str:
    """By place, for people."""
    return (
        ", ".join(f"{count:,} in {place}" for place, count in counts.items()) or "none"
    )
