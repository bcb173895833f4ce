"""Removes days that are over for longer than `spark.retention` says, table by table.

What goes is written down first, by the names of its events (`gateway.store.readers.deleted`), so
that the audit knows why they are in no table, and no archive brings them back.

In folders of Parquet files the folder of a protocol's day goes in one step: it gets a name
that no reader looks at, and then its files go.  So a listing has all of it or nothing; a
crash in between leaves files that nobody sees, and the next time removes them.  Delta and
Iceberg delete the rows by a commit of their own (`commits.CommitSink.expire`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from attrs import define

from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import Ranges
from gateway.spark.commit.parquet import publishing
from gateway.spark.commit.partition import (
    alone,
    check_settled,
    restore,
    staged_for,
    visible,
)
from gateway.spark.later.gone import events_in
from gateway.spark.run.background import BackgroundTask
from gateway.store.lsns import Lsns
from gateway.store.readers.deleted import EXPIRED, Deletion, load, save

_AGAIN_SECONDS = 600.0
"""After which what could not be done is tried again."""


@dataclass(frozen=True)
class Expired:
    """What has gone."""

    what: str
    """A day's folder, or the rows of a table before a day."""
    events: int


def limits(retention: Any, now: datetime) -> dict[str, date]:
    """By table the first day that stays; *retention* is the configuration's section.

    A day goes once its last event is as old as that.
    """
    return {
        table: (now - timedelta(seconds=seconds)).date()
        for table in ("events", "quarantine", "stats")
        if (seconds := getattr(retention, table)) is not None
    }


def expire(
    lake: Path,
    disk: LakeDisk,
    before: Mapping[str, date],
    *,
    stop: Callable[[], bool] = lambda: False,
    point: Callable[[str], None] = lambda name: None,
) -> Iterator[Expired]:
    """Remove the folders of days before those of *before*, the oldest first.

    Raises `Busy`, OSError, ValueError, and what pyarrow raises.
    *stop* is asked between two folders; *point* is called at each step, by name.
    """
    with alone(lake):
        restore(lake, disk)
        for day, folder in sorted(_folders(lake, before)):
            if stop():
                return
            events = _remove(lake, folder, day, disk, point)
            yield Expired(str(folder.relative_to(lake)), events)


def _folders(lake: Path, before: Mapping[str, date]) -> Iterator[tuple[date, Path]]:
    for table, first in before.items():
        for folder in (lake / table).glob("protocol=*/date=*"):
            try:
                day = date.fromisoformat(folder.name[len("date=") :])
            except ValueError:  # none of ours
                continue
            if day < first:
                yield day, folder


def _remove(
    lake: Path, folder: Path, day: date, disk: LakeDisk, point: Callable[[str], None]
) -> int:
    table = folder.relative_to(lake).parts[0]
    known: set[Path] = set()
    total = 0
    while True:
        new = [path for path in visible(folder) if path not in known]
        events = Ranges()
        for path in new if table != "stats" else ():
            events.update(events_in(path))
        known.update(new)
        total += len(events)
        written_down(lake, disk, {table: [day]}, events)
        point("written down")
        with publishing(lake):
            # A batch may have come late, and what is not written down must not go.
            if not known.issuperset(visible(folder)):
                continue
            check_settled(lake, folder, known)
            aside = staged_for(lake, folder, disk)
            disk.rename(folder, aside)
            disk.sync_directory(folder.parent)
        point("aside")
        disk.remove_tree(aside)
        point("removed")
        return total


def written_down(
    lake: Path, disk: LakeDisk, days: Mapping[str, list[date]], events: Ranges
) -> None:
    """Note durably that these *events* of these *days* expire.  Raises OSError, ValueError."""
    at = time.time()
    found = load(disk, lake, EXPIRED) or Deletion(
        EXPIRED, "expired", "gateway spark", at, "spark.retention"
    )
    all_of_them = Ranges(found.events)
    all_of_them.update(events)
    gone = dict(found.days)
    for table, some in days.items():
        ordinals = [(day.toordinal(), day.toordinal()) for day in some]
        gone[table] = list(Lsns([*gone.get(table, []), *ordinals]))
    after = msgspec.structs.replace(found, events=all_of_them.plain(), days=gone)
    if after != found:
        save(disk, lake, after)


@define(eq=False, slots=False)
class Expiry(BackgroundTask):
    """Expires by itself when a day has ended, on a thread of its own.

    *work* removes what is older than its first argument says; the second tells when to stop.
    """

    _work: Callable[[Mapping[str, date], Callable[[], bool]], Iterator[Expired]]
    _retention: Any
    _done: Callable[[Expired], None]
    _failed: Callable[[Exception], None]
    _now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _clock: Callable[[], float] = time.monotonic

    def __attrs_post_init__(self) -> None:
        self.problem: str | None = None
        """Why the last time failed."""
        self._began_with: Mapping[str, date] = {}
        self._again: float | None = None
        super().__init__("expiry")

    def tend(self) -> None:
        """Begin if more is too old than the last time, or at the start, or the last time
        failed some minutes ago.
        """
        wanted = limits(self._retention, self._now())
        again = self._again is not None and self._clock() >= self._again
        if self.busy or (wanted == self._began_with and not again):
            return
        self._began_with, self._again = wanted, None
        self.begin(lambda: self._run(wanted))

    def finish(self) -> None:
        """All that is too old now, before this returns."""
        self.join()
        self._began_with = {}
        self.tend()
        self.join()

    def _run(self, wanted: Mapping[str, date]) -> None:
        try:
            for done in self._work(wanted, self._stop.is_set):
                self._done(done)
            self.problem = None
        except Exception as why:  # the tables are whole; the job must go on
            self.problem = str(why)
            self._again = self._clock() + _AGAIN_SECONDS
            self._failed(why)
