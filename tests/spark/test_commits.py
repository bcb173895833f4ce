"""Batches for tables that take rows and a ledger in one commit, and their counts.

Tables and Spark are played by this file, as in `test_handover.py`; "rows" are the names of
events.  Delta's and Iceberg's own tables: `commits/`.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.spark.commit.closing import Closing
from gateway.spark.commit.commits import CommitSink, opened
from gateway.spark.commit.lakedisk import Lake, LakeDisk
from gateway.spark.commit.ledger import Broken, Ledger, Ranges
from gateway.spark.commit.marks import Folder, Said
from gateway.spark.commit.shared import Lost
from gateway.store.readers.complete import Completeness
from incarnations import A
from played_spark import PowerCut, Stream

SIZE = 10


class Rows(Ranges):
    """What Spark would have, but for its columns."""

    schema = ()


@dataclass
class Table:
    """All that was committed to it."""

    name: str
    commits: list[Ranges] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    lost: int | None = None
    """The ledger is; commits of ours have numbers up to this."""
    job = ""

    def others(self) -> dict[str, str]:
        return {}

    def open(self) -> Ledger:
        if self.lost is not None:
            raise Lost(self.lost)
        return self.ledger

    def append(
        self,
        rows: Ranges,
        ledger: Ledger,
        count: int | None = None,
        *,
        few: bool = False,
    ) -> None:
        assert count in (None, len(rows))
        assert ledger.sequence > self.ledger.sequence
        self.commits.append(rows)
        self.ledger = ledger

    def rows(self) -> Rows:
        found = Rows()
        for each in self.commits:
            found.update(each)
        return found

    def added(self) -> Ranges:
        return self.commits[-1]

    def spread(self, most: int) -> dict[str, set[str]]:
        return {}

    def state(self) -> dict[str, str]:
        return {}

    def said_by_others(self) -> list[Said]:
        return []

    def roots(self, disk: LakeDisk) -> Iterator[Folder]:
        return iter(())


@dataclass
class World(Stream):
    """A spool, a checkpoint and two tables."""

    data: Path
    events: Table = field(default_factory=lambda: Table("events"))
    stats: Table = field(default_factory=lambda: Table("stats"))

    def sink(self) -> CommitSink:
        return CommitSink(
            self.data / "lake",
            self.spool.path,
            self.checkpoint,
            Lake(),
            events=self.events,
            stats=self.stats,
            read=lambda plan: Ranges.of(plan.files).minus(plan.without),
            count=lambda rows: rows,
            point=self.point,
        )

    def check_complete(self) -> None:
        """Each event is in `events` once, and counted once."""
        produced = len(self.spool.produced)
        for table in (self.events, self.stats):
            assert len(table.rows()) == sum(map(len, table.commits)) == produced


@pytest.fixture
def world(tmp_path, logs, spool, monkeypatch) -> World:
    monkeypatch.setattr("os.fdatasync", lambda fd: None)
    monkeypatch.setattr("os.fsync", lambda fd: None)
    monkeypatch.setattr(
        "gateway.spark.rows.tables.within", lambda rows, wanted: rows.common(wanted)
    )
    monkeypatch.setattr("gateway.spark.rows.tables.ranges", lambda rows: rows)
    for batch in range(3):
        spool.events("gw", 1 + batch * SIZE, SIZE)
    made = World(logs("events"), spool, tmp_path / "data")
    made.logs.begin()
    return made


@pytest.mark.parametrize("point", ["begun", "committed", "counted"])
@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_killed_at_any_point_each_event_is_there_and_counted_once(
    world, point, checkpoint
):
    """Counts that were cut off come at the next start, or by a repeated batch."""
    world.survive(point, 3, lost=checkpoint == "lost")
    world.check_complete()


def test_counts_that_were_cut_off_come_at_the_start(world):
    """No batch has to come for that."""
    world.cut = "committed"
    with pytest.raises(PowerCut):
        world.run(1)
    world.cut = None
    assert (len(world.events.rows()), len(world.stats.rows())) == (SIZE, 0)
    world.sink().recover()
    assert len(world.stats.rows()) == SIZE


def test_no_day_is_said_before_its_events_are_counted(world):
    """Else `stats` would get rows of it behind its mark."""
    for cut, said in (("committed", 0), (None, 1)):
        sink = world.sink()
        world.cut = None
        sink.recover()
        sink.through = Completeness(1_772_409_600_000_000)
        world.cut = cut
        with contextlib.suppress(PowerCut):
            world.run(1, sink=sink)
        sink.say_complete()
        assert bool(sink.ledger.complete.since) is bool(said)


def test_a_file_that_vanished_stops_it(world):
    """Its events are promised by its name; nothing is committed without them."""
    (world.spool.path / world.spool.names()[0]).unlink()
    sink = world.started()
    world.logs.source(0, [f"events-gw_aaaaaaaaaa-{1:020d}-{SIZE:020d}.parquet"])
    world.logs.offset(0, 0)
    with pytest.raises(Broken, match="promise 10 events, Spark made 0 rows"):
        sink(None, 0)
    assert world.events.commits == []


def test_counts_of_events_that_are_not_there_are_refused(world):
    """Somebody has set back one table of the two: counting on would count twice."""
    world.run(3)
    world.events.commits.clear()
    world.events.ledger = Ledger()
    with pytest.raises(Broken, match="stats counts events that events does not have"):
        world.sink().recover()


@pytest.mark.usefixtures("world")
def test_what_was_deleted_on_purpose_stays_so_where_a_ledger_is_lost(tmp_path):
    """It is made of the rows, which say nothing of what is gone: that would come again."""
    table = Table("events", [Ranges({"gw": {A: [(1, 4)]}})], lost=7)
    found = opened(table, Closing(tmp_path, Lake()), gone=Ranges({"gw": {A: [(5, 9)]}}))
    assert found.committed == Ranges({"gw": {A: [(1, 9)]}})
    assert found.sequence == 7


def test_what_was_deleted_on_purpose_is_left_out(world):
    """Also where its file comes again, from an archive."""
    sink = world.started()
    sink.deleted = lambda: Ranges({"gw": {A: [(3, 4)]}})
    world.run(1, sink=sink)
    assert world.events.rows() == Ranges({"gw": {A: [(1, 2), (5, SIZE)]}})
    assert sink.ledger.committed == Ranges({"gw": {A: [(1, SIZE)]}})


def test_what_comes_late_is_taken_back_in_a_commit_before_its_rows(world):
    """So no version of the table has them while its day is said to be complete."""
    world.run(2)
    sink = world.started()
    today = datetime.now(UTC).date().toordinal()
    sink.through = Completeness().saying([today - 1, today, today + 1])
    sink.ledger = replace(sink.ledger, complete=sink.through)
    world.run(3, sink=sink)
    assert [len(rows) for rows in world.events.commits] == [SIZE, SIZE, 0, SIZE]
    assert [*world.events.ledger.complete.taken_back.values()] == [1]
    world.check_complete()


def test_what_other_jobs_say_is_heard_without_a_commit(world):
    """Of a table that others write, too: how far their rows are complete."""
    told: list[dict[str, str]] = []
    world.run(3)
    sink = world.started()
    sink._settle = told.append
    sink.say_complete()
    assert told == []
    sink._asked_others = -math.inf
    world.events.others = lambda: {"n": "north"}
    for _ in range(2):
        sink.say_complete()
    assert told == [{}]
