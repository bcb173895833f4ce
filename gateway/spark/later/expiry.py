"""Removes days that are over for longer than `spark.retention` says, table by table.

What goes is written down first, by the names of its events (`gateway.store.readers.deleted`), so
that the audit knows why they are in no table, and no archive brings them back.

In folders of Parquet files the folder of a protocol's day goes in one step (`days.rewrite`).
Delta and Iceberg delete the rows by a commit of their own (`commits.CommitSink.expire`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import Ranges
from gateway.spark.later.days import Change, Day, Rewritten, rewrite
from gateway.spark.later.deleted_ranges import events_in
from gateway.spark.run.background import BackgroundTask, Work
from gateway.store.lsns import Lsns
from gateway.store.readers.deleted import EXPIRED, Deletion, load, save
from gateway.tables import EVENTS, STATS, Tables


def limits(
    retention: Any,
    now: datetime,
    tables: Tables = Tables(),  # noqa: B008 - it is never changed
    own: Mapping[str, float] | None = None,
) -> dict[str, date]:
    """The first day that stays, by table; *retention* is the configuration's section.

    A day goes once its last event is as old as that.  A table by rule has its *own*, or that of
    events.
    """
    found = {}
    for table in tables.all:
        usual = getattr(retention, EVENTS if table in tables.by_rule else table)
        seconds = (own or {}).get(table, usual)
        if seconds is not None:
            found[table] = (now - timedelta(seconds=seconds)).date()
    return found


def expire(
    lake: Path,
    disk: LakeDisk,
    before: Mapping[str, date],
    *,
    stop: Callable[[], bool] = lambda: False,
    point: Callable[[str], None] = lambda name: None,
) -> Iterator[Rewritten]:
    """Remove the folders of days before those of *before*, by table.

    Raises ValueError for a damaged record of deletions, and the same as `rewrite`.
    """

    def expired(day: Day) -> Change:
        events = Ranges()
        for path in day.files if day.table != STATS else ():
            events.update(events_in(path))
        written_down(lake, disk, {day.table: [day.date]}, events)
        point("written down")
        return Change(day.files, len(events), f"{len(events)} events")

    again = True
    while again:  # files that came late go, too
        again = False
        for done in rewrite(
            *(lake, disk, expired, before),
            lambda table, day: day < before[table],
            stop=stop, point=point,
        ):  # fmt: skip
            again = True
            yield done


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


class Expiry(BackgroundTask):
    """Expires by itself when a day has ended.

    *work* removes what is older than its first argument says; the second tells when to stop.
    """

    def __init__(
        self,
        work: Callable[[Mapping[str, date], Callable[[], bool]], Iterator[object]],
        retention: Any,
        done: Callable[[object], None],
        failed: Callable[[Exception], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
        tables: Callable[[], Tables] = Tables,
        own: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        super().__init__("expiry", done, failed, clock)
        self._tables = tables
        self._own = own
        self._work = work
        self._retention = retention
        self._now = now
        self._began_with: Mapping[str, date] = {}

    def due(self, *, again: bool) -> Work | None:
        """Begin if more is too old than the last time, or at the start."""
        wanted = limits(self._retention, self._now(), self._tables(), self._own())
        if wanted == self._began_with and not again:
            return None
        self._began_with = wanted
        return lambda: self._work(wanted, self._stop.is_set)

    def finish(self) -> None:
        """Remove all that is too old now, before this returns."""
        self.join()
        self._began_with = {}
        self.run()
