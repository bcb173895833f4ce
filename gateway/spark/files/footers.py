"""Footers of a batch's spool files: how many rows they have, and in which form.

The file's name says the rest.  One look at each file, before a batch is taken.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.event import SCHEMA_VERSION, SCHEMA_VERSION_KEY
from gateway.sdk.arrow import bounds_of, footer_of
from gateway.spark.commit.ledger import Broken
from gateway.store import digests
from gateway.store.names import Life, SpoolFile
from gateway.store.node import incarnation
from gateway.store.node.incarnation import Record
from gateway.store.readers import complete

_GROUP_BYTES = 32 << 20
_MOST_DAYS = 366
_EPOCH, _MICRO = datetime.fromtimestamp(0, UTC), timedelta(microseconds=1)


class Footers(NamedTuple):
    """The footers of the files of a batch."""

    rows: int
    """Rows in all files that are there."""
    row_bytes: int = 0
    """Bytes that a row may have in memory."""
    records: Mapping[Life, Record] = {}
    """The files' records of their incarnations."""
    days: float = 0
    """Days on which they came, at most; infinite where that is not known."""
    digests: Mapping[str, str] = {}
    """The digest of the events of each file that is there (`gateway.store.digests`), by name."""
    arrived: Mapping[str, Collection[float]] = {}
    """The days on which those of each came, or more, by name; as `days`."""


def read(spool: Path, files: Iterable[SpoolFile]) -> Footers:
    """Read them.

    Raises `Broken` for a form that this job does not know, and what pyarrow raises for a
    file that is damaged.
    """
    rows = row_bytes = 0
    records: dict[Life, Record] = {}
    arrived: dict[str, set[float]] = {}
    said: dict[str, str] = {}
    for file in files:
        try:
            found = footer_of(spool / file.name)
        except FileNotFoundError:
            continue
        words = found.metadata or {}
        version = int(words.get(SCHEMA_VERSION_KEY, b"1"))
        if version > SCHEMA_VERSION:
            raise Broken(
                f"{file.name} has form {version}, this job knows {SCHEMA_VERSION}: a newer"
                " gateway wrote it. Install the same version here"
            )
        first = int(words.get(incarnation.FIRST_KEY, b"0"))
        continues = words.get(incarnation.CONTINUES_KEY, b"").decode("ascii", "replace")
        of = words.get(incarnation.OF_KEY, b"").decode("ascii", "replace")
        said[file.name] = digests.said(words, digests.EVENTS_KEY) or ""
        if first:
            records[file.life] = Record(first, continues, of)
        rows += found.num_rows
        row_bytes = max(row_bytes, _row_bytes(found))
        arrived[file.name] = _days(found)
    days = set[float]().union(*arrived.values())
    spread = math.inf if math.inf in days else len(days)
    return Footers(rows, row_bytes, records, spread, said, arrived)


def _days(found: pq.FileMetaData) -> set[float]:
    """Ordinals of the days on which its rows came, or of more; infinite: it does not say."""
    days: set[float] = set()
    column = found.schema.names.index("received_at")
    for number in range(found.num_row_groups):
        bounds = bounds_of(found, number, column)
        if bounds is None:
            return {math.inf}
        first, last = (complete.day_of((one - _EPOCH) // _MICRO) for one in bounds)
        if last - first > _MOST_DAYS:  # a damaged footer may say ten thousand years
            return {math.inf}
        days.update(range(first, last + 1))
    return days


def is_alone(path: Path) -> bool:
    """Whether there is nothing of a file but its footer: zeros in place of the rest, as
    `gateway.spark.bucket` has them.  Raises FileNotFoundError.
    """
    with path.open("rb") as file:
        return file.read(4) == bytes(4)


def expansion(paths: Iterable[Path]) -> float:
    """How much more these files are in memory than on disk, those that can be read."""
    stored, expanded = sizes(paths)
    return max(1.0, (expanded + 1) / (stored + 1))


def row_bytes(paths: Iterable[Path]) -> int:
    """Bytes that a row of these files may have in memory.  Raises what pyarrow raises."""
    return max((_row_bytes(footer_of(path)) for path in paths), default=0)


def sizes(paths: Iterable[Path]) -> tuple[int, int]:
    """Bytes of these files on disk, and in memory, of those that can be read."""
    stored = expanded = 0
    for path in paths:
        try:
            found, size = footer_of(path), path.stat().st_size
        except (OSError, pa.ArrowException):
            continue
        stored += size
        expanded += sum(_sizes(found))
    return stored, expanded


def _row_bytes(found: pq.FileMetaData) -> int:
    """The rows of a group are taken to be alike.

    But where a group is larger than the gateway makes one of small events, one of them may be
    all of it.
    """
    counts = (
        found.row_group(number).num_rows for number in range(found.num_row_groups)
    )
    each = zip(_sizes(found), counts, strict=True)
    return max(
        (size if size > _GROUP_BYTES else size // max(1, rows) for size, rows in each),
        default=0,
    )


def _sizes(found: pq.FileMetaData) -> Iterator[int]:
    """The sizes of its groups in memory."""
    for number in range(found.num_row_groups):
        yield found.row_group(number).total_byte_size
