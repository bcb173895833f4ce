"""Rewrites the many small files of a day as a few large ones.

A day's folder is rebuilt beside the table and takes the old one's place in one step
(`gateway.spark.commit.partition`).  Of a day that is over all small files become one.  Of the
current one so many of a tier become one of the next tier that there are never many of
any: each row is written anew twice until the day is over, and then once more.

Files that differ in their columns stay apart: one that has a column with nothing in it
looks like one whose rows have nothing to put there (`backfill`).

Rows of `stats` are added up on the way: one for each window and address is left, or a
few where they are too many to be held at once.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import takewhile
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define

from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.partition import (
    Busy,
    alone,
    by_columns,
    check_room,
    folders,
    has_variant,
    replace,
    restore,
    staged_for,
    start_of_name,
    visible,
    writer,
)
from gateway.spark.rows import stats
from gateway.spark.run.background import BackgroundTask

TABLES = ("events", "quarantine", "stats")

#: Files of this size stay as they are, and one that has become so large is ended.
LARGE = 256 << 20

_ROWS = 1 << 16
_GROUP_BYTES = 64 << 20

#: Rows of `stats` that are added up in memory.
_COUNTS = 1 << 20

#: Seconds after which what could not be done is tried again.
_AGAIN = 600.0

#: So many files of a tier become one of the next, while their day is not over: with a batch
#: a second there are 120 of the first, 24 of the second and 30 of the last at the most.
TIERS = (120, 24)
#: Seconds between looks at the files of the current day.
_LOOK_SECONDS = 5.0
_TIER = re.compile(r"part-(\d{10})-(?:(tier(\d)|compact|backfill))?.*")


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

    def __str__(self) -> str:
        return f"{self.folder}: {self.before} files, now {self.after}"


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
        for folder in folders(lake, TABLES):
            if stop():
                return
            if folder.name[len("date=") :] >= before.isoformat():
                continue
            done = _rewrite_some(lake, folder, visible(folder), "compact", disk, stop)
            if done is not None:
                yield done


def compact_open(
    lake: Path,
    disk: LakeDisk,
    day: date,
    *,
    upto: int,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Compacted]:
    """Rewrite small files of *day*, which is not over, of batches up to number *upto*.

    As `compact`.
    """
    with alone(lake):
        restore(lake, disk)
        for folder in folders(lake, TABLES, day.isoformat()):
            ripe = _ripe(visible(folder), upto)
            if stop():
                return
            for tier, files in ripe.items():
                done = _rewrite_some(lake, folder, files, f"tier{tier + 1}", disk, stop)
                if done is not None:
                    yield done


def _ripe(files: Iterable[Path], upto: int) -> dict[int, list[Path]]:
    """Those of each tier of which there are enough to become one of the next."""
    tiers: dict[int, list[Path]] = {tier: [] for tier in range(len(TIERS))}
    for path in files:
        if (found := _TIER.fullmatch(path.name)) is None or int(found[1]) > upto:
            continue
        tier = int(found[3] or 0) if found[2] is None or found[3] else len(TIERS)
        if tier in tiers:
            tiers[tier].append(path)
    return {tier: those for tier, those in tiers.items() if len(those) >= TIERS[tier]}


def _rewrite_some(
    lake: Path,
    folder: Path,
    files: Sequence[Path],
    word: str,
    disk: LakeDisk,
    stop: Callable[[], bool],
) -> Compacted | None:
    """None if there is nothing to gain, or files of it were taken away meanwhile."""
    sizes = {path: path.stat().st_size for path in files}
    small = [path for path, size in sizes.items() if size < LARGE]
    if len(small) < 2 or has_variant(pq.read_schema(small[0])):
        return None
    # Files that differ in their columns are not put together.
    looked_at = takewhile(lambda _: not stop(), small)
    groups = [group for group in by_columns(looked_at) if len(group) > 1]
    going = [path for group in groups for path in group]
    if not going or stop():
        return None
    check_room(folder, sum(sizes[path] for path in going), disk)
    staged = staged_for(lake, folder, disk)
    fold = folder.parent.parent.name == "stats"
    rows = _rewrite(groups, staged, word, stop, fold=fold)
    done = None if rows is None else replace(lake, folder, going, staged, disk)
    disk.remove_tree(staged)
    if rows is None or done is None:
        return None
    return Compacted(str(folder.relative_to(lake)), *done, rows)


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
            self._writer = writer(self._path, self._schema)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        if self._path.stat().st_size >= LARGE:
            self.close()

    def close(self) -> None:
        """End the last file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _rewrite(
    groups: Sequence[Sequence[Path]],
    staged: Path,
    word: str,
    stop: Callable[[], bool],
    *,
    fold: bool,
) -> int | None:
    """Put the rows of each group into few files; how many they were.  None: told to stop."""
    rows = 0
    for number, files in enumerate(groups):
        schema = _schema(files[0])
        name = f"{start_of_name(files)}-{word}-{len(files)}-{number}"
        into = _Files(staged, name, schema)
        tables = _tables(files, schema, stop)
        try:
            rows += _fold(tables, into) if fold else _copy(tables, into)
        except _Stopped:
            return None
        finally:
            into.close()
    return rows


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
                yield pa.table(batch).select(schema.names).cast(schema)


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


class Filler(Protocol):
    """Makes columns in rows that came before they were configured: `backfill.Folders`."""

    def fill_day(self, day: str, stop: Callable[[], bool]) -> Iterator[object]:
        """In the files of a day; says what was done, step by step."""


@define(eq=False, slots=False)
class Compactor(BackgroundTask):
    """Compacts by itself, on a thread of its own: days that are over, and the current one.

    *upto* is the number of the last batch whose files may be rewritten before their day is
    over; without it only days that are over are.  *filler* fills today's files of before
    the start.
    """

    _lake: Path
    _disk: LakeDisk
    _done: Callable[[object], None]
    _failed: Callable[[Exception], None]
    _today: Callable[[], date] = lambda: datetime.now(UTC).date()
    _clock: Callable[[], float] = time.monotonic
    _upto: Callable[[], int] | None = None
    _filler: Callable[[], Filler] | None = None

    def __attrs_post_init__(self) -> None:
        self._began_on: date | None = None
        self._again: float | None = None
        self._look_at = self._clock()
        super().__init__("compact")

    def tend(self) -> None:
        """Begin if a day has ended since the last time, or since the start, or the last
        time failed some minutes ago, or today's files are many.
        """
        if self.busy:
            return
        today, now = self._today(), self._clock()
        again = self._again is not None and now >= self._again
        if self._began_on != today or again:
            work: Callable[[date], None] = self._all
            self._began_on = today
        elif self._again is None and self._many(today, now):
            work = self._open_day
        else:
            return
        self._again = None
        self.begin(lambda: self._run(work, today))

    def _many(self, today: date, now: float) -> bool:
        if self._upto is None or now < self._look_at:
            return False
        self._look_at = now + _LOOK_SECONDS
        upto = self._upto()
        of_today = folders(self._lake, TABLES, today.isoformat())
        return any(_ripe(visible(one), upto) for one in of_today)

    def _run(self, work: Callable[[date], None], today: date) -> None:
        try:
            work(today)
        except Exception as why:  # the tables are whole; the job must go on
            self._again = self._clock() + _AGAIN
            self._failed(why)

    def _all(self, today: date) -> None:
        stop = self._stop.is_set
        for done in compact(self._lake, self._disk, before=today, stop=stop):
            self._done(done)
        self._open_day(today)
        if self._filler is not None:
            for filled in self._filler().fill_day(today.isoformat(), stop):
                self._done(filled)
            self._filler = None

    def _open_day(self, today: date) -> None:
        if self._upto is None:
            return
        upto, stop = self._upto(), self._stop.is_set
        with contextlib.suppress(
            Busy
        ):  # files come all the time: soon there is another look
            for done in compact_open(
                self._lake, self._disk, today, upto=upto, stop=stop
            ):
                self._done(done)
