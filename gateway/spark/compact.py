"""Rewrites the many small files of a day that is over as a few large ones.

A day's folder is rebuilt beside the table and takes the old one's place in one step
(`gateway.spark.partition`).

Rows of `stats` are added up on the way: one for each window and address is left, or a
few where they are too many to be held at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define

from gateway.spark import stats
from gateway.spark.lakedisk import LakeDisk
from gateway.spark.partition import (
    alone,
    check_room,
    replace,
    restore,
    staged_for,
    visible,
)

__all__ = ["TABLES", "Compacted", "Compactor", "compact"]

TABLES = ("events", "quarantine", "stats")

#: Files of this size stay as they are, and one that has become so large is ended.
LARGE = 256 << 20

_ROWS = 1 << 16
_GROUP_BYTES = 64 << 20

#: Rows of `stats` that are added up in memory.
_COUNTS = 1 << 20

#: Seconds after which what could not be done is tried again.
_AGAIN = 600.0


@dataclass(frozen=True)
class Compacted:
    """What became of a day's folder."""

    folder: str
    """table/protocol=…/date=…"""
    before: int
    """Files."""
    after: int
    rows: int
    """In the files that were rewritten."""


def compact(
    lake: Path,
    disk: LakeDisk,
    *,
    before: date,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Compacted]:
    """Rewrite the folders of days before *before*, one after the other.

    Raises `Busy` and OSError, also where there is no room for what is to be written.
    *stop* is asked between two files.
    """
    with alone(lake):
        restore(lake, disk)
        for table in TABLES:
            for folder in sorted((lake / table).glob("protocol=*/date=*")):
                if stop():
                    return
                if folder.name[len("date=") :] >= before.isoformat():
                    continue
                done = _compact_folder(lake, folder, disk, stop)
                if done is not None:
                    yield done


def _compact_folder(
    lake: Path, folder: Path, disk: LakeDisk, stop: Callable[[], bool]
) -> Compacted | None:
    """None if there is nothing to gain, or files of it were taken away meanwhile."""
    sizes = {path: path.stat().st_size for path in visible(folder)}
    small = [path for path, size in sizes.items() if size < LARGE]
    if len(small) < 2 or any(_has_variant(path) for path in small[:1]):
        return None
    check_room(folder, sum(sizes[path] for path in small), disk)
    staged = staged_for(lake, folder, disk)
    rows = _rewrite(small, staged, stop, fold=folder.parent.parent.name == "stats")
    done = None if rows is None else replace(lake, folder, small, staged, disk)
    disk.remove_tree(staged)
    if rows is None or done is None:
        return None
    return Compacted(str(folder.relative_to(lake)), *done, rows)


def _has_variant(path: Path) -> bool:
    """Whether pyarrow would write it back as a plain struct."""
    schema = pq.read_schema(path)
    return any(
        name in schema.names and pa.types.is_struct(schema.field(name).type)
        for name in ("body", "body_variant")
    )


class _Files:
    """Where rows go: a file, and the next one once it is large."""

    def __init__(self, staged: Path, name: str, schema: pa.Schema) -> None:
        self._staged = staged
        self._name = name
        self._schema = schema
        self._count = 0
        self._path = staged
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Add a row group."""
        if self._writer is None:
            self._path = self._staged / f"{self._name}-{self._count}.parquet"
            self._count += 1
            long = [one for one in ("body", "payload") if one in self._schema.names]
            self._writer = pq.ParquetWriter(
                self._path,
                self._schema,
                compression="zstd",
                use_dictionary=[one for one in self._schema.names if one not in long],
                write_page_checksum=True,
            )
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        if self._path.stat().st_size >= LARGE:
            self.close()

    def close(self) -> None:
        """End the last file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _rewrite(
    files: Sequence[Path], staged: Path, stop: Callable[[], bool], *, fold: bool
) -> int | None:
    """Put the rows of *files* into few; how many they were.  None: told to stop."""
    schema = _schema(files[0])
    for path in files[1:]:
        if stop():
            return None
        if (other := _schema(path)) != schema:
            schema = pa.unify_schemas([schema, other])
    # Named like the newest, so that readers of whole batches take it for one of them.
    name = f"{files[-1].name[: len('part-0123456789')]}-compact-{len(files)}"
    into = _Files(staged, name, schema)
    tables = _tables(files, schema, stop)
    try:
        return _fold(tables, into) if fold else _copy(tables, into)
    except _Stopped:
        return None
    finally:
        into.close()


class _Stopped(Exception):
    """Told to stop."""


def _schema(path: Path) -> pa.Schema:
    return pq.read_schema(path).remove_metadata()


def _tables(
    files: Sequence[Path], schema: pa.Schema, stop: Callable[[], bool]
) -> Iterator[pa.Table]:
    """All rows, some at a time.  Raises `_Stopped`."""
    for path in files:
        if stop():
            raise _Stopped
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(_ROWS, use_threads=False):
                yield _widened(pa.table(batch), schema)


def _copy(tables: Iterable[pa.Table], into: _Files) -> int:
    rows = size = 0
    waiting: list[pa.Table] = []
    for table in tables:
        rows += table.num_rows
        size += table.nbytes
        waiting.append(table)
        if size >= _GROUP_BYTES:
            into.write(pa.concat_tables(waiting))
            waiting, size = [], 0
    if waiting:
        into.write(pa.concat_tables(waiting))
    return rows


def _fold(tables: Iterable[pa.Table], into: _Files) -> int:
    """What is added up is written once it is so much that little more would fit."""
    rows = held = 0
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        held += table.num_rows
        if held < _COUNTS and len(waiting) < _ROWS:
            continue
        waiting = [stats.fold(waiting)]
        held = waiting[0].num_rows
        if held > _COUNTS // 2:
            into.write(waiting.pop())
            held = 0
    if waiting:
        into.write(stats.fold(waiting))
    return rows


def _widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """With nulls in the columns that its file did not have yet."""
    if table.schema.equals(schema):
        return table
    return pa.table(
        {
            field.name: table[field.name].cast(field.type)
            if field.name in table.column_names
            else pa.nulls(table.num_rows, field.type)
            for field in schema
        },
        schema=schema,
    )


@define(eq=False, slots=False)
class Compactor:
    """Compacts by itself once a day is over, on a thread of its own."""

    _lake: Path
    _disk: LakeDisk
    _done: Callable[[Compacted], None]
    _failed: Callable[[Exception], None]
    _today: Callable[[], date] = lambda: datetime.now(UTC).date()
    _clock: Callable[[], float] = time.monotonic

    def __attrs_post_init__(self) -> None:
        self._began_on: date | None = None
        self._again: float | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def tend(self) -> None:
        """Begin if a day has ended since the last time, or since the start, or the last
        time failed some minutes ago.
        """
        today = self._today()
        running = self._thread is not None and self._thread.is_alive()
        again = self._again is not None and self._clock() >= self._again
        if running or (self._began_on == today and not again):
            return
        self._began_on = today
        self._again = None
        self._thread = threading.Thread(
            target=self._run, args=(today,), name="compact", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Give up what is under way; nothing is left half done."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, today: date) -> None:
        try:
            for done in compact(
                self._lake, self._disk, before=today, stop=self._stop.is_set
            ):
                self._done(done)
        except Exception as why:  # the tables are whole; the job must go on
            self._again = self._clock() + _AGAIN
            self._failed(why)
