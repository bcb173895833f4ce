"""A spool and a lake as they are after a long time, made in seconds.

Files that only have to be there are one file under many names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Hole, Ledger, Ranges
from gateway.store.names import Life, file_name
from gateway.store.readers.lake import INTERNAL

__all__ = ["many_names", "year"]

NODE = "gw"

#: Of one file; file systems allow some ten thousands.
_LINKS = 30_000


def many_names(template: Path, paths: Sequence[Path]) -> None:
    """*template* under each of these names."""
    for number, path in enumerate(paths):
        if number % _LINKS == 0:
            shutil.copyfile(template, path)
            first = path
        else:
            os.link(first, path)


def spool_names(first: int, rows: int, count: int) -> list[str]:
    """Of *count* files with *rows* events each, from lsn *first* on."""
    return [
        file_name(NODE, "a" * 10, lsn, lsn + rows - 1)
        for lsn in range(first, first + rows * count, rows)
    ]


def year(data: Path, young: Path, *, rows: int, entries: int, archived: int) -> int:
    """A data directory in which the job has run for a year; returns the next lsn.

    *young* is one whose job has run for a moment: its files are those of each day.
    The spool had *entries* files of *rows* events, the newest *archived* of them are in
    the archive; a file a day was poison.  A checkpoint is always young: the job renews
    it.
    """
    lake, disk = data / "lake", Lake()
    before = Ledger.load(disk, young / "lake" / INTERNAL / "events.json")
    today = date(2026, 11, 21)
    days = [(today - timedelta(number)).isoformat() for number in range(1, 366)]
    for table in ("events", "stats"):
        template = next((young / "lake" / table).rglob("*.parquet"))
        folders = [lake / table / "protocol=lumberjack" / f"date={day}" for day in days]
        for folder in folders:
            folder.mkdir(parents=True)
        name = "part-0000000001-compact-86400.parquet"
        many_names(template, [folder / name for folder in folders])
    archive = data / "archive"
    archive.mkdir()
    template = next((young / "archive").iterdir())
    names = spool_names(1 + (entries - archived) * rows, rows, archived)
    many_names(template, [archive / name for name in names])
    each = entries // len(days)
    holes = []
    committed = Ranges()
    for number in range(len(days)):
        first = 1 + number * each * rows
        name = file_name(NODE, "a" * 10, first, first + rows - 1)
        holes.append(Hole(NODE, first, first + rows - 1, name, "cut short", 1.0))
        committed.add(Life(NODE), first + rows, first + each * rows - 1)
    committed.add(Life(NODE), first + rows, entries * rows)
    (lake / INTERNAL).mkdir(parents=True)
    Ledger(
        query="0badcafe-0000-4000-8000-000000000001",
        batch=9_999,
        latest=Ranges({NODE: [(entries * rows, entries * rows)]}),
        committed=committed,
        sequence=entries,
        holes=tuple(holes),
        types=before.types,
    ).save(disk, lake / INTERNAL / "events.json")
    return entries * rows + 1
