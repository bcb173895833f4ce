"""Finds batches whose rows all belong into one folder of the tables, by their footers.

Spark writes a row into the folder of its partition by making it once more without the
columns that the folder names.  Most batches are of one protocol, of one day, and have
no flaw: then the folder is known before, and the rows are written as they are.

The footers of spool files say so.  Where one does not, or can not be read, or the batch
is of many small files, nothing is known and Spark looks at each row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from gateway.sdk.arrow import footer_of, statistics_of
from gateway.store.names import SpoolFile
from gateway.tables import EVENTS

#: More files than this are small, and to read their footers costs more than it saves.
MOST_FILES = 64

#: What Spark writes into a folder's name as it is.
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


def folder_of(spool: Path, files: Sequence[SpoolFile]) -> Path | None:
    """`table=…/protocol=…/date=…`, if all events of *files* belong there, else None.

    Dates are those of UTC.
    """
    if not 0 < len(files) <= MOST_FILES:
        return None
    found: set[tuple[str, date] | None] = set()
    for file in files:
        try:
            found |= _of_file(spool / file.name)
        except (OSError, OverflowError, ValueError, pa.ArrowException):
            return None  # the reader of the rows says what is wrong
        if len(found) > 1 or None in found:
            return None
    if not found:
        return None
    ((protocol, day),) = filter(None, found)
    return Path(f"table={EVENTS}", f"protocol={protocol}", f"date={day.isoformat()}")


def _of_file(path: Path) -> set[tuple[str, date] | None]:
    """The values of `_of_group` for each row group."""
    footer = footer_of(path)
    names = footer.schema.names
    places = [names.index(name) for name in ("protocol", "received_at", "flaw")]
    rows = [footer.row_group(one).num_rows for one in range(footer.num_row_groups)]
    return {
        _of_group([statistics_of(footer, group, n) for n in places], count)
        for group, count in enumerate(rows)
        if count
    }


def _of_group(facts: Sequence[Any], rows: int) -> tuple[str, date] | None:
    """Protocol and date of all rows of a row group, if its statistics say them."""
    protocol, received, flaw = facts
    if not all(one is not None and one.has_null_count for one in facts):
        return None
    if flaw.null_count != rows or protocol.null_count or received.null_count:
        return None
    if not (protocol.has_min_max and received.has_min_max):
        return None
    name = protocol.min
    if name != protocol.max or not _PLAIN.fullmatch(str(name)):
        return None
    days = {_day(one) for one in (received.min, received.max)}
    day = days.pop()
    return None if days or day is None else (str(name), day)


def _day(at: object) -> date | None:
    if not isinstance(at, datetime) or at.tzinfo is None:
        return None
    return at.astimezone(UTC).date()
