"""Takes events out of wherever they are, by what is written down of a deletion.

In folders of Parquet files the files concerned are written anew, a day after the other
(`days`).  Delta and Iceberg delete by their own commit.
The archive's files keep their rows, redacted (`redact`).  What waits in the spool is left
out by the job when it comes (`Sink.left_out`).

Counts are taken back by rows of `stats` with what went, negative.  As files they lie beside
what is written down until they get their names, so each does so once.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.event import DELETED
from gateway.sdk.arrow import bounds_of, footer_of
from gateway.spark.commit import partition
from gateway.spark.commit.lakedisk import LakeDisk, sync
from gateway.spark.commit.ledger import Ranges
from gateway.spark.commit.parquet import give_names
from gateway.spark.commit.partition import Busy, alone, check_finished
from gateway.spark.files.pieces import joined, pieces
from gateway.spark.later.days import Change, Day, rewrite, write_by_spark
from gateway.spark.later.deleted_ranges import mask_of, names_of
from gateway.spark.later.redact import redacted
from gateway.store import digests
from gateway.store.names import (
    Life,
    SpoolFile,
    kept_name,
    parse_file_name,
    parse_kept_name,
)
from gateway.store.node import catalog
from gateway.store.node.incarnation import Incarnation
from gateway.store.objects.bucket import ARCHIVE, Bucket, NotThere
from gateway.store.readers import deleted
from gateway.store.readers.deleted import Deletion, Rewritten

NAMES = ("node", "incarnation", "lsn")
"""An event's."""
_LOOKS = 5
"""Files may move while one looks: so often, until none is left with an event."""

Point = Callable[[str], None]


@dataclass(frozen=True)
class Locations:
    """Where events of a job are beside its tables."""

    lake: Path
    spool: Path
    archive: Path
    retained: Path
    poison: Path
    journal: Path
    bucket: Bucket | None = None

    @classmethod
    def of(cls, config: Any) -> Locations:
        from gateway.spark.source import spool_of
        from gateway.store.objects.s3 import bucket_of

        data = config.data_dir
        return cls(
            data / "lake",
            spool_of(config),
            data / "archive",
            data / "retained",
            data / "poison",
            data / config.journal.directory,
            bucket_of(config.spool),
        )

    def given_by(
        self, node: str, first: int, last: int
    ) -> Iterator[tuple[str, int, int]]:
        """The incarnations that gave lsns *first* to *last* of what is retained here of a node,
        as `Incarnation.spans`.
        """
        this = catalog.look(self.journal / node).newest(Incarnation)
        return iter([("", first, last)]) if this is None else this.spans(first, last)


def carry_out(
    locations: Locations,
    disk: LakeDisk,
    record: Deletion,
    *,
    from_tables: Callable[[Deletion], None] | None = None,
    spark: Any = None,
    point: Point = lambda name: None,
) -> Deletion:
    """Do what is written down; may be done again.  What waits in the spool is not done.

    *from_tables* deletes where tables are no folders, *spark* writes files with VARIANT.
    Raises `Busy`, OSError, and what pyarrow and Spark raise.
    """
    wanted = Wanted(Ranges(record.events))
    if from_tables is not None:
        with alone(locations.lake):
            from_tables(record)
    else:
        check_finished(locations.lake)
        _from_folders(locations.lake, disk, wanted, record.id, spark, point)
        _take_back(locations.lake, disk, record, point)
    waiting = True
    for _ in range(_LOOKS):
        # Before the last look: what goes to the archive meanwhile is found there.
        waiting = any(events_of(path, wanted) for path in published(locations.spool))
        waiting = waiting or _waits_in_bucket(locations.bucket, wanted)
        record, count = _from_files(locations, disk, record, wanted, point)
        if not count:
            break
    record = msgspec.structs.replace(record, done=not waiting)
    deleted.save(disk, locations.lake, record)
    point("done")
    return record


def _from_folders(
    lake: Path, disk: LakeDisk, wanted: Wanted, name: str, spark: Any, point: Point
) -> None:
    found = 0

    def erase(day: Day) -> Change | None:
        nonlocal found
        going = [path for path in day.files if any(masked([path], wanted, NAMES))]
        if not going:
            return None
        found += 1
        staged = day.begin(going)
        for path in going:
            _write_without(day, path, staged, wanted.events, name, spark)
        return Change(going)

    done = list(rewrite(lake, disk, erase, point=point))
    if len(done) < found:
        raise Busy(f"files of {lake} were taken away meanwhile: try again")


def _write_without(
    day: Day, path: Path, staged: Path, events: Ranges, name: str, spark: Any
) -> None:
    """Write the same rows but those; no file if none is left."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        schema = file.schema_arrow
        if not partition.has_variant(schema):
            target = staged / f"{path.stem.partition('-delete-')[0]}-{name}.parquet"
            parts = (
                rows.filter(pa.array(~mask_of(rows, events))) for rows in pieces(file)
            )
            written = 0
            with partition.writer(target, schema, path) as writer:
                for kept in joined(part for part in parts if part.num_rows):
                    written += kept.num_rows
                    writer.write_table(kept, row_group_size=kept.num_rows)
            if not written:
                target.unlink()
            return
    if spark is None:
        raise Busy(f"{path} has VARIANT, which only Spark can write")
    mine, left = Ranges(), footer_of(path).num_rows
    for part in (rows for _, rows in masked([path], Wanted(events), NAMES)):
        left -= part.num_rows
        mine.update(names_of(part))

    def others(rows: Any) -> Any:
        for condition in as_sql(mine):
            rows = rows.where(f"NOT ({condition})")
        return rows

    count = write_by_spark(spark, day, [path], staged, others, name)
    if count != left:
        raise OSError(f"of {path} {left} rows stay, {count} were made of them")


def _take_back(lake: Path, disk: LakeDisk, record: Deletion, point: Point) -> None:
    """Give the counts their names: each has it once, as it is then here no more."""
    folder = deleted.counts_of(lake, record.id)
    each = ((str(number), goal) for number, goal in enumerate(record.stats))
    here = [(number, goal) for number, goal in each if disk.exists(folder / number)]
    give_names(lake, disk, folder, here, point=lambda _: point("counted"))
    disk.remove_tree(folder)


def _from_files(
    locations: Locations, disk: LakeDisk, record: Deletion, wanted: Wanted, point: Point
) -> tuple[Deletion, int]:
    """Redact in archive, `poison/`, `retained/` and bucket: how many rows that were."""
    total = 0
    aside = [path for path in published(locations.poison) if readable(path)]
    for path in [*published(locations.archive), *aside]:
        with contextlib.suppress(FileNotFoundError):
            lsns = _lsns_of(path, wanted)
            if not len(lsns) or (done := redacted(path, _among(lsns))) is None:
                continue
            data, count = done
            record = _with_file(record, path.name, digests.of_file(path), data)
            deleted.save(disk, locations.lake, record)
            point("link written down")
            _put(disk, path, data)
            point("redacted")
            total += count
    for path in sorted(locations.retained.glob("*/kept-*.parquet")):
        with contextlib.suppress(FileNotFoundError):
            total += _from_kept(locations, disk, path, wanted)
    if locations.bucket is not None:
        record, count = _from_bucket(locations, disk, record, wanted)
        total += count
    return record, total


def _put(disk: LakeDisk, path: Path, data: bytes) -> None:
    """Replace a file in one step, if it is still there; as old as it was.

    Raises FileNotFoundError.
    """
    modified = path.stat().st_mtime
    hidden = path.with_name(f".{path.name}.redacted")
    _write_like(disk, hidden, data, path)
    disk.set_times(hidden, modified)
    if not disk.exists(path):
        disk.unlink(hidden)
        raise FileNotFoundError(str(path))
    disk.rename(hidden, path)
    disk.sync_directory(path.parent)


def _write_like(disk: LakeDisk, hidden: Path, data: bytes, old: Path) -> None:
    """Write a file that the readers of *old* may read: the daemon, though root deletes."""
    hidden.write_bytes(data)
    was = old.stat()
    hidden.chmod(stat.S_IMODE(was.st_mode))
    with contextlib.suppress(PermissionError):  # then its owner runs this
        os.chown(hidden, was.st_uid, was.st_gid)
    sync(disk, hidden)


def _from_kept(locations: Locations, disk: LakeDisk, path: Path, wanted: Wanted) -> int:
    """Redact a file under the name of the next generation: no name ever has other rows."""
    parsed = parse_kept_name(path.name)
    if parsed is None:
        return 0
    first, last, generation = parsed
    node = path.parent.name
    spans = locations.given_by(node, first, last)
    lsns = np.concatenate([wanted.of_node(node, *span) for span in spans])
    if not len(lsns) or (done := redacted(path, _among(lsns))) is None:
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
    locations: Locations, disk: LakeDisk, record: Deletion, wanted: Wanted
) -> tuple[Deletion, int]:
    bucket, total = locations.bucket, 0
    assert bucket is not None
    for name, file in _archived(bucket, wanted):
        with contextlib.suppress(NotThere):
            data = bucket.read(name)
            source = pa.BufferReader(data)
            lsns = wanted.lsns(file)
            if (done := redacted(source, _among(lsns))) is None:
                continue
            new, count = done
            was = digests.of_file(pa.BufferReader(data))
            record = _with_file(record, Path(name).name, was, new)
            deleted.save(disk, locations.lake, record)
            bucket.replace(name, new)
            total += count
    return record, total


def _with_file(record: Deletion, name: str, was: str, data: bytes) -> Deletion:
    now = Rewritten(was, digests.of_file(pa.BufferReader(data)))
    files = {**record.files, name: [*record.files.get(name, []), now]}
    return msgspec.structs.replace(record, files=files)


def _archived(bucket: Bucket, wanted: Wanted) -> Iterator[tuple[str, SpoolFile]]:
    """Objects of the archive whose names have an lsn of these events, and what those say."""
    for one in bucket.list(f"{ARCHIVE}/events-"):
        file = parse_file_name(one.name.removeprefix(f"{ARCHIVE}/"))
        if file and len(wanted.lsns(file)):
            yield one.name, file


def in_bucket(bucket: Bucket | None, wanted: Wanted) -> int:
    """How many of them its archive may have, by the names of its objects."""
    if bucket is None:
        return 0
    return sum(len(wanted.lsns(one)) for _, one in _archived(bucket, wanted))


def _waits_in_bucket(bucket: Bucket | None, wanted: Wanted) -> bool:
    """Whether an object has some that goes to the archive later: the newest of a node stays,
    though the tables have it.
    """
    if bucket is None:
        return False
    return any(
        (file := parse_file_name(one.name)) and len(wanted.lsns(file))
        for one in bucket.list("events-")
    )


def events_of(path: Path, wanted: Wanted) -> int:
    """How many of them a published file has that are not redacted yet."""
    with contextlib.suppress(FileNotFoundError):
        return len(_lsns_of(path, wanted))
    return 0


def in_clear(folder: Path, wanted: Wanted) -> int:
    """How many of them lie in a folder's files as they were sent."""
    return sum(_in_clear(path, wanted) for path in published(folder))


def _in_clear(path: Path, wanted: Wanted) -> int:
    with contextlib.suppress(FileNotFoundError):
        if len(lsns := _lsns_of(path, wanted)):
            rows = pq.read_table(path, columns=["lsn", "flaw"])
            clear = rows.filter(_among(lsns)(rows))["flaw"].to_pylist()
            return sum(not (flaw or "").startswith(DELETED) for flaw in clear)
    return 0


def _lsns_of(path: Path, wanted: Wanted) -> np.ndarray[Any, Any]:
    """Raises FileNotFoundError."""
    file = parse_file_name(path.name)
    return np.empty(0, np.int64) if file is None else wanted.lsns(file)


class Wanted:
    """The lsns that go, by node and incarnation, to be looked up for thousands of files."""

    def __init__(self, events: Ranges) -> None:
        self.events = events
        self._bounds: dict[Life, np.ndarray[Any, Any]] = {
            life: np.array(list(lsns), np.int64) for life, lsns in events.each()
        }
        every = [*self._bounds.values()]
        self._all = np.concatenate(every) if every else np.empty((0, 2), np.int64)

    def any(self, first: int, last: int) -> bool:
        """Whether one of them is from *first* to *last*, whosever."""
        return bool(((self._all[:, 0] <= last) & (first <= self._all[:, 1])).any())

    def lsns(self, file: SpoolFile) -> np.ndarray[Any, Any]:
        return self._between(file.life, file.first, file.last)

    def of_node(
        self, node: str, incarnation: str, first: int, last: int
    ) -> np.ndarray[Any, Any]:
        """The lsns from *first* to *last* of an incarnation, or, where that is empty, of any."""
        lives = [life for life in self._bounds if life.node == node]
        found = [
            self._between(life, first, last)
            for life in lives
            if incarnation in ("", life.incarnation) or not life.incarnation
        ]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _between(self, life: Life, first: int, last: int) -> np.ndarray[Any, Any]:
        if (bounds := self._bounds.get(life)) is None:
            return np.empty(0, np.int64)
        # Ranges are in order and apart.
        begin = int(np.searchsorted(bounds[:, 1], first))
        end = int(np.searchsorted(bounds[:, 0], last, "right"))
        found = [
            np.arange(max(low, first), min(high, last) + 1)
            for low, high in bounds[begin:end].tolist()
        ]
        return np.concatenate(found) if found else np.empty(0, np.int64)


def _among(lsns: np.ndarray[Any, Any]) -> Callable[[pa.Table], np.ndarray[Any, Any]]:
    return lambda rows: np.isin(rows["lsn"].to_numpy(), lsns)


def as_sql(events: Ranges, most: int = 5000) -> Iterator[str]:
    """Conditions that are true of just these events, of so many single ones at most each."""
    for life, lsns in events.each():
        spans = list(lsns)
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


def readable(path: Path) -> bool:
    """Whether it is a spool file, and what its name promises."""
    from gateway.spark.files.not_taken import flaw_of

    file = parse_file_name(path.name)
    return file is not None and flaw_of(path, file) is None


def published(folder: Path) -> list[Path]:
    """The files there whose names the gateway gives."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(path for path in folder.iterdir() if parse_file_name(path.name))
    return []


def masked(
    files: Iterable[Path], wanted: Wanted, columns: Sequence[str]
) -> Iterator[tuple[Path, pa.Table]]:
    """The rows of these events in *files* of folders, file by file."""
    for path in files:
        if not _may_have(path, wanted):
            continue
        with pq.ParquetFile(path) as file:
            there = [one for one in columns if one in file.schema_arrow.names]
            for rows in pieces(file, there):
                mask = mask_of(rows, wanted.events)
                if mask.any():
                    yield path, rows.filter(pa.array(mask))


def _may_have(path: Path, wanted: Wanted) -> bool:
    """Whether a file may have some, by the least and the greatest lsn of its groups."""
    footer = footer_of(path)
    if "lsn" not in footer.schema.names:
        return True
    column = footer.schema.names.index("lsn")
    for number in range(footer.num_row_groups):
        bounds = bounds_of(footer, number, column)
        if bounds is None or wanted.any(*bounds):
            return True
    return False
