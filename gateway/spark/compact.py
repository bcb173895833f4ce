"""Rewrites the many small files of a day that is over as a few large ones.

A day's folder is rebuilt beside the table and takes the old one's place in one step
(`LakeDisk.exchange`), so a listing shows the old files or the new ones, never both.  A
reader that has listed the old ones and opens them later finds them gone, and lists
again.  Whatever a crash leaves is either not yet in place or no longer in use.

Rows of `stats` are added up on the way: one for each window and address is left, or a
few where they are too many to be held at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define

from gateway.spark import stats
from gateway.spark.lakedisk import LakeDisk, sync
from gateway.spark.parquet import publishing
from gateway.store.lake import INTERNAL

__all__ = ["TABLES", "Busy", "Compacted", "Compactor", "alone", "compact", "finish"]

TABLES = ("events", "quarantine", "stats")

#: Files of this size stay as they are, and one that has become so large is ended.
LARGE = 256 << 20

_ROWS = 1 << 16
_GROUP_BYTES = 64 << 20

#: Rows of `stats` that are added up in memory.
_COUNTS = 1 << 20

#: Seconds after which what could not be done is tried again.
_AGAIN = 600.0


class Busy(Exception):
    """Something else must be finished first; the text says what."""


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
        staging = lake / INTERNAL / "compact"
        _restore(lake, staging, disk)
        disk.remove_tree(staging)
        for table in TABLES:
            for folder in sorted((lake / table).glob("protocol=*/date=*")):
                if stop():
                    return
                if folder.name[len("date=") :] >= before.isoformat():
                    continue
                staged = staging / folder.relative_to(lake)
                done = _compact_folder(lake, folder, staged, disk, stop)
                disk.remove_tree(staged)
                if done is not None:
                    yield done


@contextmanager
def alone(lake: Path) -> Iterator[None]:
    """Held by whoever makes new files of old ones, or those rows would be there twice.

    Raises `Busy` if somebody else does.
    """
    (lake / INTERNAL).mkdir(parents=True, exist_ok=True)
    path = lake / INTERNAL / "compacting"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Busy(
            f"files of {lake} are being rewritten already, by gateway spark compact, gateway"
            " spark requeue, or the job: wait until that is done"
        ) from None
    finally:
        os.close(fd)


def finish(lake: Path, disk: LakeDisk) -> None:
    """Undo what a crash has left half done, unless somebody is at it now.  Raises OSError."""
    if (lake / INTERNAL / "compact").exists():
        with contextlib.suppress(Busy), alone(lake):
            _restore(lake, lake / INTERNAL / "compact", disk)


def _restore(lake: Path, staging: Path, disk: LakeDisk) -> None:
    """Undo a swap that a crash has cut in two, where it takes two steps."""
    for between in staging.glob("*/*/.*.between"):
        name = between.name.removeprefix(".").removesuffix(".between")
        target = lake / between.parent.relative_to(staging) / name
        if not disk.exists(between.with_name(name)):
            continue  # what was made of it is in place
        with publishing(lake):
            if not disk.exists(target):
                disk.rename(between, target)
            else:  # a batch that came since has made a folder of that name
                for path in disk.tree(between):
                    disk.rename(path, target / path.name)
                disk.sync_directory(target)
            disk.sync_directory(target.parent)


def _compact_folder(
    lake: Path, folder: Path, staged: Path, disk: LakeDisk, stop: Callable[[], bool]
) -> Compacted | None:
    """None if there is nothing to gain, or files of it were taken away meanwhile."""
    sizes = {path: path.stat().st_size for path in _visible(folder)}
    small = [path for path, size in sizes.items() if size < LARGE]
    if len(small) < 2 or any(_has_variant(path) for path in small[:1]):
        return None
    _check_room(folder, sum(sizes[path] for path in small), disk)
    disk.make_directory(staged)
    newest = max(path.stat().st_mtime for path in small)
    rows = _rewrite(small, staged, stop, fold=folder.parent.parent.name == "stats")
    if rows is None:
        return None
    for path in _visible(staged):
        # A job that starts looks for the newest rows in the newest files.
        disk.set_times(path, newest)
        sync(disk, path)
    with publishing(lake):
        _check_settled(lake, folder, small)
        now = _visible(folder)
        if not set(small).issubset(now):
            return None
        # Large ones, and those of batches that came late: they stay as they are.
        for path in now:
            if path not in set(small):
                disk.link(path, staged / path.name)
        disk.sync_directory(staged)
        after = len(_visible(staged))
        disk.exchange(staged, folder)
        disk.sync_directory(folder.parent)
        disk.sync_directory(staged.parent)
    return Compacted(str(folder.relative_to(lake)), len(now), after, rows)


def _check_room(folder: Path, size: int, disk: LakeDisk) -> None:
    """The gateway needs the same disk to acknowledge anything."""
    if (free := disk.free(folder)) < 2 * size:
        raise OSError(
            errno.ENOSPC,
            f"{size >> 20} MiB of small files are to be rewritten, which needs twice as"
            f" much room, and {free >> 20} MiB are free",
            str(folder),
        )


def _check_settled(lake: Path, folder: Path, going: Sequence[Path]) -> None:
    """A batch that a crash has cut in two, or that is under way, counts on the names of
    its files, and rows that are put through again on those that they come from.
    """
    names = {str(path.relative_to(lake)) for path in going}
    for path in (lake / INTERNAL / "staging").glob("*/*/manifest"):
        try:
            manifest = json.loads(path.read_bytes())
            counted = {goal for _, goal in manifest["moves"]}
            counted.update(manifest.get("remove", ()))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            counted = names
        if not names.isdisjoint(counted):
            raise Busy(
                f"a batch with files in {folder}, {path.parent}, is not finished: wait"
                " for gateway spark, or start it"
            )


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.parquet") if path.name[0] not in "._")


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
