"""Rewrites the many small files of a day as a few large ones.

Of a day that is over all small files become one.  Of the current one so many of a tier
become one of the next tier that there are never many of any.  So each row is written anew
twice until the day is over, and then once more.

Files that differ in their columns stay apart: one that has a column with nothing in it
looks like one whose rows have nothing to put there (`backfill`).

Rows of `stats` are added up on the way: one for each window and address is left, or a
few where they are too many to be held at once.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import takewhile
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.sdk.arrow import schema_of
from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.partition import (
    Busy,
    by_columns,
    folders,
    has_variant,
    start_of_name,
    visible,
    writer,
)
from gateway.spark.files.pieces import joined, pieces
from gateway.spark.later.days import (
    Change,
    Day,
    Rewritten,
    Stopped,
    Transform,
    rewrite,
)
from gateway.spark.rows import stats
from gateway.spark.run.background import BackgroundTask, Work
from gateway.store.readers.lake import tables_of
from gateway.tables import STATS

#: Files of this size stay as they are, and one that has become so large is ended.
LARGE = 256 << 20

#: Rows of `stats` that are added up in memory, and tables of them.
_COUNTS, _TABLES = 1 << 20, 1 << 16

#: So many files of a tier become one of the next, while their day is not over: with a batch
#: a second there are 120 of the first, 24 of the second and 30 of the last at the most.
TIERS = (120, 24)
#: Seconds between looks at the files of the current day.
_LOOK_SECONDS = 5.0
_TIER = re.compile(r"part-(\d{10})-(?:(tier(\d)|compact|backfill))?.*")

Choose = Callable[[Sequence[Path]], Mapping[str, Sequence[Path]]]
"""Files of a day that may become few, by a word for the names of these."""


def compact(
    lake: Path,
    disk: LakeDisk,
    *,
    before: date,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Rewritten]:
    """Compact the days before *before*.

    *stop* is asked between two files.  Raises the same as `rewrite`.
    """
    few = merging(lambda files: {"compact": files})
    tables = tables_of(lake).all
    yield from rewrite(lake, disk, few, tables, lambda _, day: day < before, stop=stop)


def compact_open(
    lake: Path,
    disk: LakeDisk,
    day: date,
    *,
    upto: int,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Rewritten]:
    """Compact small files of *day*, which is not over, of batches up to number *upto*;
    otherwise the same as `compact`.
    """
    few = merging(lambda files: _ripe(files, upto))
    tables = tables_of(lake).all
    yield from rewrite(lake, disk, few, tables, lambda _, one: one == day, stop=stop)


def _ripe(files: Iterable[Path], upto: int) -> dict[str, list[Path]]:
    """Files of each tier that has enough of them, by the name of the next tier."""
    tiers: dict[int, list[Path]] = {tier: [] for tier in range(len(TIERS))}
    for path in files:
        if (found := _TIER.fullmatch(path.name)) is None or int(found[1]) > upto:
            continue
        tier = int(found[3] or 0) if found[2] is None or found[3] else len(TIERS)
        if tier in tiers:
            tiers[tier].append(path)
    ripe = {tier: those for tier, those in tiers.items() if len(those) >= TIERS[tier]}
    return {f"tier{tier + 1}": those for tier, those in ripe.items()}


def merging(choose: Choose) -> Transform:
    """The transform that makes few files of the small ones that *choose* chooses.

    Files that differ in their columns stay apart.
    """

    def merge(day: Day) -> Change | None:
        groups: list[tuple[str, list[Path]]] = []
        for word, files in choose(day.files).items():
            small = [path for path in files if path.stat().st_size < LARGE]
            if len(small) < 2 or has_variant(schema_of(small[0])):
                continue
            looked_at = takewhile(lambda _: not day.stop(), small)
            groups += [(word, group) for group in by_columns(looked_at)]
        groups = [
            (word, group)
            for word, group in groups
            if len(group) > 1 and not has_variant(schema_of(group[0]))
        ]
        going = [path for _, group in groups for path in group]
        if not going or day.stop():
            return None
        staged = day.begin(going)
        fold = day.table == STATS
        return Change(going, _rewrite(groups, staged, day.stop, fold=fold))

    return merge


class _Files:
    """Where rows go: a file, and the next one once it is large."""

    def __init__(self, staged: Path, name: str, schema: pa.Schema, like: Path) -> None:
        self._staged = staged
        self._name = name
        self._schema = schema
        self._like = like
        self._count = 0
        self._path = staged
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Add a row group."""
        if self._writer is None:
            self._path = self._staged / f"{self._name}-{self._count}.parquet"
            self._count += 1
            self._writer = writer(self._path, self._schema, self._like)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        if self._path.stat().st_size >= LARGE:
            self.close()

    def close(self) -> None:
        """End the last file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _rewrite(
    groups: Sequence[tuple[str, Sequence[Path]]],
    staged: Path,
    stop: Callable[[], bool],
    *,
    fold: bool,
) -> int:
    """Put the rows of each group into few files; how many they were.  Raises `Stopped`."""
    rows = 0
    for number, (word, files) in enumerate(groups):
        schema = _schema(files[0])
        name = f"{start_of_name(files)}-{word}-{len(files)}-{number}"
        into = _Files(staged, name, schema, files[-1])
        tables = _tables(files, schema, stop)
        try:
            rows += _fold(tables, into) if fold else _copy(tables, into)
        finally:
            into.close()
    return rows


def _schema(path: Path) -> pa.Schema:
    return schema_of(path).remove_metadata()


def _tables(
    files: Sequence[Path], schema: pa.Schema, stop: Callable[[], bool]
) -> Iterator[pa.Table]:
    """All rows, some at a time.  Raises `Stopped`."""
    for path in files:
        if stop():
            raise Stopped
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for table in pieces(file):
                yield table.select(schema.names).cast(schema)


def _copy(tables: Iterable[pa.Table], into: _Files) -> int:
    rows = 0
    for group in joined(tables):
        rows += group.num_rows
        into.write(group)
    return rows


def _fold(tables: Iterable[pa.Table], into: _Files) -> int:
    """Add up rows, and write them once they are so many that little more would fit."""
    rows = held = 0
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        held += table.num_rows
        if held < _COUNTS and len(waiting) < _TABLES:
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

    def fill_day(self, day: date, stop: Callable[[], bool]) -> Iterator[object]:
        """Make them in the files of a day; says what was done, step by step."""


class Compactor(BackgroundTask):
    """Compacts by itself: days that are over, and the current one.

    *upto* is the number of the last batch whose files may be rewritten before their day is
    over; without it only days that are over are.  *filler* fills today's files of before
    the start.
    """

    def __init__(
        self,
        lake: Path,
        disk: LakeDisk,
        done: Callable[[object], None],
        failed: Callable[[Exception], None],
        today: Callable[[], date] = lambda: datetime.now(UTC).date(),
        clock: Callable[[], float] = time.monotonic,
        upto: Callable[[], int] | None = None,
        filler: Callable[[], Filler] | None = None,
    ) -> None:
        super().__init__("compact", done, failed, clock)
        self._lake = lake
        self._disk = disk
        self._today = today
        self._upto = upto
        self._filler = filler
        self._began_on: date | None = None
        self._look_at = clock()

    def due(self, *, again: bool) -> Work | None:
        """All, once a day has ended since the last time, or since the start; the current day
        where its files are many.
        """
        today = self._today()
        if self._began_on != today or again:
            self._began_on = today
            return lambda: self._all(today)
        if not self.waits and self._many(today):
            return lambda: self._open_day(today)
        return None

    def _many(self, today: date) -> bool:
        if self._upto is None or self._clock() < self._look_at:
            return False
        self._look_at = self._clock() + _LOOK_SECONDS
        upto = self._upto()
        of_today = folders(self._lake, tables_of(self._lake).all, today.isoformat())
        return any(_ripe(visible(one), upto) for one in of_today)

    def _all(self, today: date) -> Iterator[object]:
        stop = self._stop.is_set
        yield from compact(self._lake, self._disk, before=today, stop=stop)
        yield from self._open_day(today)
        if self._filler is not None:
            yield from self._filler().fill_day(today, stop)
            self._filler = None

    def _open_day(self, today: date) -> Iterator[object]:
        if self._upto is None:
            return
        upto, stop = self._upto(), self._stop.is_set
        with contextlib.suppress(Busy):  # files come all the time: another look is soon
            yield from compact_open(self._lake, self._disk, today, upto=upto, stop=stop)
