"""Marks of complete days, at the roots of tables that are folders of Parquet files.

    lake/TABLE/_COMPLETE-2026-11-28    JSON; readers of the table pass it over

The ledger says first that the day is complete, and then the mark is written.  A mark goes
before a file of that day gets its name that came late.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import Ledger, write_json
from gateway.store.names import Life
from gateway.store.readers.complete import MARKER, moment, spelled

_LATELY = 31
"""Days of which a mark that is missing is written again: a crash may have kept it back."""


def tables(lake: Path) -> Iterator[Path]:
    """The roots of the tables of a lake."""
    for path in sorted(lake.iterdir()):
        if not path.name.startswith((".", "_")) and path.is_dir():
            yield path


def path_of(table: Path, day: int) -> Path:
    """The mark of a day, by `date.toordinal`."""
    return table / f"{MARKER}{spelled(day)}"


def write(table: Path, ledger: Ledger, disk: LakeDisk) -> None:
    """Write the marks of days that are complete, and have none."""
    days = ledger.complete.days
    first = max(days.last - _LATELY, ledger.complete.since)
    for day in range(first, days.last + 1) if days else ():
        path = path_of(table, day)
        if days.covers(day, day) and not disk.exists(path):
            write_json(disk, path, _content(table, day, ledger))


def remove(table: Path, days: Collection[int], disk: LakeDisk) -> None:
    """Remove the marks of these days, durably."""
    there = [path for day in days if disk.exists(path := path_of(table, day))]
    for path in there:
        disk.unlink(path)
    if there:
        disk.sync_directory(table)


def _content(table: Path, day: int, ledger: Ledger) -> dict[str, Any]:
    known = ledger.complete
    ends: dict[str, dict[str, Any]] = {}
    for life, lsns in ledger.committed.open():
        ends.setdefault(life.node, {})[life.incarnation] = _end(life, lsns.last, ledger)
    return {
        "day": spelled(day),
        "through": None if known.through is None else moment(known.through),
        "rows": _rows(table, day),
        "incarnations": ends,
        "taken_back": known.taken_back.get(day, 0),
    }


def _end(life: Life, last: int, ledger: Ledger) -> dict[str, Any]:
    """The last lsn that is in the tables, and how far that one has told all, if it goes on."""
    through = ledger.complete.of_lives.get(life)
    goes_on = {} if through is None else {"through": moment(through)}
    return {"last": last, **goes_on}


def _rows(table: Path, day: int) -> dict[str, int]:
    """The number of rows of a day, by protocol."""
    found: dict[str, int] = {}
    for path in table.glob(f"protocol=*/date={spelled(day)}/[!._]*.parquet"):
        protocol = path.parts[-3].removeprefix("protocol=")
        with contextlib.suppress(FileNotFoundError):  # compacted meanwhile
            rows = pq.read_metadata(path).num_rows
            found[protocol] = found.get(protocol, 0) + rows
    return found
