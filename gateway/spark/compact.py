"""Rewrites the many small files of a day that is over as a few large ones.

A day's folder is rebuilt beside the table and takes the old one's place in one step
(`LakeDisk.exchange`), so a listing shows the old files or the new ones, never both.  A
reader that has listed the old ones and opens them later finds them gone, and lists
again.  Whatever a crash leaves is either not yet in place or no longer in use.

Rows of `stats` are added up on the way: one for each window and address is left.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define

from gateway.spark import stats
from gateway.spark.lakedisk import LakeDisk
from gateway.spark.parquet import publishing
from gateway.store.lake import INTERNAL

__all__ = ["TABLES", "Busy", "Compacted", "Compactor", "compact"]

TABLES = ("events", "quarantine", "stats")

#: Files of this size stay as they are.
LARGE = 256 << 20

_ROWS = 1 << 16
_GROUP_BYTES = 64 << 20


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

    Raises `Busy` and OSError.  *stop* is asked between two files.
    """
    with _alone(lake):
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
def _alone(lake: Path) -> Iterator[None]:
    (lake / INTERNAL).mkdir(parents=True, exist_ok=True)
    path = lake / INTERNAL / "compacting"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Busy(f"{lake} is being compacted already") from None
    finally:
        os.close(fd)


def _restore(lake: Path, staging: Path, disk: LakeDisk) -> None:
    """Undo a swap that a crash has cut in two, where it takes two steps."""
    for between in staging.glob("*/*/.*.between"):
        name = between.name.removeprefix(".").removesuffix(".between")
        target = lake / between.parent.relative_to(staging) / name
        if not disk.exists(target):
            disk.rename(between, target)
            disk.sync_directory(target.parent)


def _compact_folder(
    lake: Path, folder: Path, staged: Path, disk: LakeDisk, stop: Callable[[], bool]
) -> Compacted | None:
    """None if there is nothing to gain, or the day was not over after all."""
    files = _visible(folder)
    small = [path for path in files if path.stat().st_size < LARGE]
    if len(small) < 2 or any(_has_variant(path) for path in small[:1]):
        return None
    disk.make_directory(staged)
    rows = _rewrite(small, staged, stop, fold=folder.parent.parent.name == "stats")
    if rows is None:
        return None
    for path in files:
        if path not in small:
            disk.link(path, staged / path.name)
    for path in _visible(staged):
        file = disk.open(path)
        try:
            file.sync()
        finally:
            file.close()
    disk.sync_directory(staged)
    with publishing(lake):
        _check_settled(lake)
        if _visible(folder) != files:
            return None
        after = len(_visible(staged))
        disk.exchange(staged, folder)
        disk.sync_directory(folder.parent)
        disk.sync_directory(staged.parent)
    return Compacted(str(folder.relative_to(lake)), len(files), after, rows)


def _check_settled(lake: Path) -> None:
    """A batch that a crash has cut in two counts on its files' names."""
    staging = lake / INTERNAL / "staging"
    if any(staging.glob("*/*/manifest")):
        raise Busy(f"a batch in {staging} is not finished; start gateway spark first")


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.parquet") if path.name[0] not in "._")


def _has_variant(path: Path) -> bool:
    """Whether pyarrow would write it back as a plain struct."""
    schema = pq.read_schema(path)
    return any(
        name in schema.names and pa.types.is_struct(schema.field(name).type)
        for name in ("body", "body_variant")
    )


def _rewrite(
    files: Sequence[Path], staged: Path, stop: Callable[[], bool], *, fold: bool
) -> int | None:
    """Put the rows of *files* into one; how many they were.  None: told to stop."""
    schema = pa.unify_schemas(
        [pq.read_schema(path) for path in files]
    ).remove_metadata()
    # Named like the newest, so that readers of whole batches take it for one of them.
    name = f"{files[-1].name[: len('part-0123456789')]}-compact-{len(files)}.parquet"
    long = [column for column in ("body", "payload") if column in schema.names]
    rows = 0
    with pq.ParquetWriter(
        staged / name,
        schema,
        compression="zstd",
        use_dictionary=[one for one in schema.names if one not in long],
        write_page_checksum=True,
    ) as writer:
        if fold:
            tables = [pq.ParquetFile(path).read().cast(schema) for path in files]
            writer.write_table(stats.fold(tables))
            return sum(int(table.num_rows) for table in tables)
        waiting: list[pa.Table] = []
        for path in files:
            if stop():
                return None
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                for batch in file.iter_batches(_ROWS, use_threads=False):
                    table = _widened(pa.table(batch), schema)
                    rows += table.num_rows
                    waiting.append(table)
                    if sum(one.nbytes for one in waiting) >= _GROUP_BYTES:
                        _flush(waiting, writer)
        _flush(waiting, writer)
    return rows


def _flush(waiting: list[pa.Table], writer: pq.ParquetWriter) -> None:
    if waiting:
        table = pa.concat_tables(waiting)
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        waiting.clear()


def _widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """With nulls in the columns that its file did not have yet."""
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

    def __attrs_post_init__(self) -> None:
        self._began_on: date | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def tend(self) -> None:
        """Begin if a day has ended since the last time, or since the start."""
        today = self._today()
        running = self._thread is not None and self._thread.is_alive()
        if running or self._began_on == today:
            return
        self._began_on = today
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
            self._failed(why)
