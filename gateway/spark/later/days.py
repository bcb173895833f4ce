"""The loop that rewrites days of tables; a transform, which is a function, says how.

    compact   small files of a day become few large ones
    backfill  columns are made out of the events' bodies
    erasure   deleted events go
    expiry    the whole day goes
    requeue   rows of quarantine that are fine become rows of events

A transform of Parquet folders gets a `Day`, writes new files, and returns a `Change`, which
names the files that go.  `rewrite` does the rest.  It keeps others from rewriting meanwhile,
and finishes or undoes what a crash cut off.  The change takes its place in one step
(`gateway.spark.commit.partition`).

A function of rows suits all kinds of tables.  `Kind.rewrite` calls it with the rows of each
day, by `by_rows` in folders, and by `overwrite` in tables of Delta and Iceberg, a commit a
day.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from gateway.sdk.arrow import footer_of
from gateway.spark.commit import partition
from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.files import footers, heap
from gateway.spark.source import url
from gateway.store.readers.lake import tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gateway.spark.commit.shared import Table

#: Bytes of files that one task of Spark rewrites at once, and so about the size of one.
_CHUNK_BYTES = 256 << 20


class Stopped(Exception):
    """A transform was told to stop, and gives its day up."""


@dataclass(frozen=True)
class Day:
    """A day of a protocol in a table of Parquet folders."""

    lake: Path
    folder: Path
    """table/protocol=…/date=… below the lake"""
    date: date
    files: Sequence[Path]
    """Files that readers see, by name: the oldest first."""
    disk: LakeDisk
    stop: Callable[[], bool]

    @property
    def name(self) -> str:
        """The folder's path below the lake."""
        return str(self.folder.relative_to(self.lake))

    @property
    def table(self) -> str:
        return self.name.partition("/")[0]

    def begin(self, going: Iterable[Path]) -> Path:
        """An empty folder for new files in the place of *going*.

        Raises OSError, also where the disk lacks room for them.
        """
        size = sum(path.stat().st_size for path in going)
        partition.check_room(self.folder, size, self.disk)
        return partition.staged_for(self.lake, self.folder, self.disk)


@dataclass(frozen=True)
class Change:
    """New files of a day, which the transform has written, and the files that go."""

    going: Sequence[Path]
    rows: int = 0
    """Rows that were rewritten, or went."""
    said: str = ""
    """The change in words; by default the numbers of files."""
    moves: Sequence[tuple[str, str]] = ()
    """Where new files are of other tables, too: the name of each in `staging_of_moves`, and
    its path below the lake."""


RowsMade = Callable[["DataFrame"], "DataFrame"]
"""Makes new rows of those of a day, or of a part of it, with `protocol` and `date` among them."""

Transform = Callable[[Day], Change | None]
"""Returns None, and has begun nothing, where a day may stay as it is.  Raises `Stopped`."""


@dataclass(frozen=True)
class Rewritten:
    """A day that was rewritten."""

    day: str
    """table/protocol=…/date=…, or a table and which of its rows."""
    rows: int
    """Rows that were rewritten, or went."""
    before: int = 0
    """Files of the day before."""
    after: int = 0
    """Files of the day now."""
    said: str = ""

    def __str__(self) -> str:
        return f"{self.day}: {self.said or f'{self.before} files, now {self.after}'}"


def rewrite(
    lake: Path,
    disk: LakeDisk,
    transform: Transform,
    tables: Iterable[str] | None = None,
    wanted: Callable[[str, date], bool] = lambda table, day: True,
    *,
    stop: Callable[[], bool] = lambda: False,
    point: Callable[[str], None] = lambda name: None,
) -> Iterator[Rewritten]:
    """Rewrite the *wanted* days of Parquet folders, the oldest first.

    They are those of *tables*, by default of all with events.  *wanted* is asked by table and day,
    *stop* between two days; *point* is called at each step, by name.  Raises `Busy`, OSError, and what *transform* raises.  A day with a damaged
    file, or without room for new ones, is left, and raises OSError after the others.
    """
    failures: list[OSError] = []
    with partition.alone(lake):
        partition.restore(lake, disk)
        names = tables_of(lake).of_events if tables is None else tables
        for day, folder in sorted(_folders(lake, names)):
            if stop():
                return
            if not wanted(folder.relative_to(lake).parts[0], day):
                continue
            files = partition.visible(folder)
            one = Day(lake, folder, day, files, disk, stop)
            try:
                change = transform(one)
            except Stopped:
                return
            except (OSError, pa.ArrowException) as why:
                told = isinstance(why, OSError) and why.errno
                failures.append(why if told else OSError(f"{one.name}: {why}"))
                continue
            if change is None:
                continue
            point("staged")
            if change.moves:
                moves = change.moves
                done = partition.move(lake, folder, change.going, moves, disk)
            else:
                done = partition.replace(lake, folder, change.going, disk)
            if done is None:  # files that go were taken away meanwhile
                continue
            point("replaced")
            partition.forget(lake, folder, disk)
            point("removed")
            yield Rewritten(one.name, change.rows, *done, change.said)
    if failures:
        raise failures[0]


def _folders(lake: Path, tables: Iterable[str]) -> Iterator[tuple[date, Path]]:
    for folder in partition.folders(lake, tables):
        try:
            yield date.fromisoformat(folder.name.removeprefix("date=")), folder
        except ValueError:  # another program's
            continue


def by_rows(spark: SparkSession, make: RowsMade, word: str) -> Transform:
    """The transform that puts what *make* makes of a day's rows into their place.

    Names of the new files have *word* in them.
    """

    def transform(day: Day) -> Change | None:
        if not day.files:
            return None
        staged = day.begin(day.files)
        rows = write_by_spark(spark, day, day.files, staged, make, word)
        return Change(day.files, rows, f"{rows} rows, {word}")

    return transform


def write_by_spark(
    spark: SparkSession,
    day: Day,
    files: Iterable[Path],
    staged: Path,
    make: RowsMade,
    word: str,
) -> int:
    """Write what *make* makes of the rows of *files* into *staged*; how many rows that are.

    *make* is called for files with the same columns, and of some size, at a time.
    """
    from pyspark.sql import functions as f

    protocol = unquote(day.folder.parent.name.removeprefix("protocol="))
    data, token, count = staged / "data", secrets.token_hex(4), 0
    for number, chunk in enumerate(_chunks(files)):
        heap.fit(spark, footers.row_bytes(chunk))
        rows = spark.read.parquet(*map(url, chunk))
        rows = rows.withColumns({"protocol": f.lit(protocol), "date": f.lit(day.date)})
        made = make(rows).drop("protocol", "date").coalesce(1)
        made.write.option("maxRecordsPerFile", 0).parquet(url(data))
        start = partition.start_of_name(chunk)
        for piece, path in enumerate(partition.visible(data)):
            if rows_there := footer_of(path).num_rows:
                name = f"{start}-{word}{token}-{number}-{piece}.parquet"
                day.disk.rename(path, staged / name)
            count += rows_there
        day.disk.remove_tree(data)
    return count


def _chunks(files: Iterable[Path]) -> Iterator[list[Path]]:
    """Files with the same columns, not too many bytes together."""
    for group in partition.by_columns(files):
        chunk: list[Path] = []
        for path in group:
            size = sum(one.stat().st_size for one in [*chunk, path])
            if chunk and size > _CHUNK_BYTES:
                yield chunk
                chunk = []
            chunk.append(path)
        yield chunk


def overwrite(spark: SparkSession, table: Table, make: RowsMade) -> Iterator[Rewritten]:
    """Put what *make* makes of the rows of each day of *table*, one of Delta or Iceberg, into
    their place, a commit a day.

    Raises `Broken`, and what Spark raises.
    """
    from pyspark.sql import functions as f

    found = table.rows().groupBy("date").agg(f.count("*"), f.max("payload_bytes"))
    sizes: dict[str, Any] = {
        str(day): more for day, *more in found.collect() if day is not None
    }
    for day, (rows, largest) in sorted(sizes.items()):
        heap.fit(spark, 2 * int(largest or 0))
        table.overwrite(day, make)
        yield Rewritten(f"{table.name}: {day}", rows, said=f"{rows} rows")
