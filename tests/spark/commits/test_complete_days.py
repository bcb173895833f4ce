"""Days that are complete, and their marks, at the roots of tables of Delta and Iceberg."""

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pytest
from pydantic import TypeAdapter

from format_tables import MARKS, ONLY_DELTA, SIZE, World
from gateway.audit.remote import Access
from gateway.cli import _complete
from gateway.config.tables import TableByRule
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.later.deletion import Asked, delete
from gateway.spark.run.completing import Completing
from gateway.store.directories import Directories
from gateway.store.names import parse_file_name
from gateway.store.node.through import Through
from gateway.store.objects import node_record
from gateway.store.objects.node_record import NodeRecord
from incarnations import A
from played_spark import PowerCut

pytestmark = MARKS

TABLES = TypeAdapter(dict[str, TableByRule])
DAY = date(2026, 3, 1)
"""The day on which events of these tests came, at noon."""
MARK = "_COMPLETE-2026-03-01"
MIDNIGHT = 1_772_409_600
S = 10**6


@dataclass
class Job:
    """A job of *world*, and what the gateways of its bucket have said."""

    world: World
    now: float = MIDNIGHT + 20
    words: dict[str, node_record.Heard] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at_noon()
        self.sink = self.world.sink()
        self.sink.recover()
        self.completing = Completing(
            Directories.under(self.world.config.data_dir),
            self.sink,
            lambda: (self.now, [*self.words.values()]),
            lambda: (),
            300.0,
            lambda: self.now,
            lambda: self.now,
        )

    def at_noon(self) -> None:
        """Its events came on the day."""
        for name in self.world.spool.names():
            file = parse_file_name(name)
            assert file is not None
            self.world.spool.events(
                file.node, file.first, SIZE, received_at=(MIDNIGHT - 43_200) * S
            )
        self.world.spool.produced = Counter(dict.fromkeys(self.world.spool.produced, 1))

    def says(self, node: str, lsn: int) -> None:
        """All that came until now has lsns up to that one."""
        through = Through(int(self.now * S), lsn)
        word = NodeRecord(A, 1, lsn, self.now, "journal", through=through)
        self.words[node] = node_record.Heard(node, word, "", self.now)

    def look(self) -> dict[str, Any]:
        self.sink._asked_others = -60.0
        found = self.completing.look(now=True)
        assert found is not None
        return found

    def ask(self) -> int:
        """The status of `gateway table complete`."""
        args = argparse.Namespace(day=DAY, wait=False, json=False)
        lake = self.world.config.data_dir / "lake"
        return _complete.run(args, lake, lambda: self.now)


def roots(world: World) -> list[Path]:
    """The folders of events and of stats."""
    found = world.kind.tables(world.config, world.spark)
    return [Path(root.name) for table in found for root in table.roots(Lake())]


def marks(world: World) -> list[list[str]]:
    """Their marks, by table."""
    return [sorted(one.name for one in root.glob("_C*")) for root in roots(world)]


@pytest.mark.lowest
def test_a_day_becomes_complete_once_and_what_comes_late_takes_it_back(world, caplog):
    """By a commit without rows and a mark, of events and of counts; the mark goes before rows
    come late, and comes again behind them."""
    job = Job(world)
    world.run(2, sink=job.sink)
    job.says("gw", 3 * SIZE)
    assert job.look()["complete_day"] is None
    assert job.ask() == 1
    world.run(3, sink=job.sink)
    assert job.look()["complete_day"] == "2026-03-01"
    assert marks(world) == [[MARK], [MARK]]
    assert job.ask() == 0
    mark = json.loads((roots(world)[0] / MARK).read_bytes())
    assert mark == {
        "day": "2026-03-01",
        "through": "2026-03-02 00:00:20 UTC",
        "rows": {"lumberjack": 3 * SIZE},
        "incarnations": {
            "gw": {A: {"last": 3 * SIZE, "through": "2026-03-02 00:00:20 UTC"}}
        },
        "taken_back": 0,
    }
    said = job.sink.ledger.sequence
    job.now += 60
    job.says("gw", 3 * SIZE)
    job.look()
    assert job.sink.ledger.sequence == said == 4
    world.spool.events("late", 1, SIZE)
    job.at_noon()
    world.cut = "taken back"
    with pytest.raises(PowerCut):
        world.run(4, sink=job.sink)
    assert "events have come late, of 2026-03-01" in caplog.text
    assert marks(world) == [[], []]
    world.cut = None
    late = Job(world, job.now, job.words)
    assert not late.sink.ledger.complete.has(DAY)
    assert late.ask() == 1
    world.run(4, sink=late.sink)
    assert late.look()["held_by"][0]["node"] == "late"
    late.says("late", SIZE)
    assert late.look()["days_taken_back"] == 1
    mark = json.loads((roots(world)[0] / MARK).read_bytes())
    assert mark["rows"] == {"lumberjack": 4 * SIZE}
    assert mark["taken_back"] == 1
    world.check_complete()


def test_nobody_minds_a_mark_and_nothing_removes_it(world):
    """Readers without Spark and with; compaction, removal of what no commit names, deletion,
    retention, and what is left of earlier versions."""
    world.config.spool.s3 = None
    job = Job(world)
    world.run(3, sink=job.sink)
    job.says("gw", 3 * SIZE)
    job.look()
    events, _ = world.kind.tables(world.config, world.spark)
    for root in roots(world):
        os.utime(root / MARK, (MIDNIGHT, MIDNIGHT))
    assert events.rows().count() == 3 * SIZE
    files = _files(world)
    assert len(files) == 3
    found = duckdb.sql(f"SELECT count(*) FROM read_parquet({files})").fetchall()
    assert found == [(3 * SIZE,)]
    list(world.kind.maintain(world.config, world.spark, Lake(), 0))
    for name in world.spool.names():
        (world.spool.path / name).unlink()
    asked = Asked("lsn <= 5", "case 1")
    list(delete(world.config, world.spark, Lake(), asked, purge=True))
    assert events.rows().count() == 3 * SIZE - 5
    sink = world.sink()
    sink.recover()
    list(sink.expire({"events": DAY + timedelta(1)}, lambda: False))
    list(world.kind.maintain(world.config, world.spark, Lake(), 0))
    list(world.kind.purge(world.config, world.spark))
    assert events.rows().count() == 0
    assert marks(world) == [[MARK], [MARK]]
    assert sink.ledger.complete.has(DAY)
    assert job.ask() == 0


def _files(world: World) -> list[str]:
    """The table's files, as a reader without Spark finds them."""
    lake = world.config.data_dir / "lake"
    if world.config.spark.sink == "delta":
        root, _ = roots(world)
        return [str(one) for one in deltalake.DeltaTable(root).file_uris()]
    told = json.loads((lake / ".gateway" / "sink.json").read_bytes())
    found = world.kind.files(lake, told, Access())
    return [str(one).removeprefix("file://") for one, _ in found]


def test_of_several_jobs_the_least_counts_and_one_that_stopped_is_named(world, beside):
    """A day has its mark once all have said it; each takes it back for all."""
    one, other = Job(world), Job(beside)
    world.run(3, sink=one.sink)
    beside.run(3, sink=other.sink)
    one.says("gw", 3 * SIZE)
    found = one.look()
    assert one.sink.ledger.complete.has(DAY)
    assert found["complete_day"] is None
    assert (found["complete_through"], marks(world)[0]) == (None, [])
    assert [(held["node"], held["why"]) for held in found["held_by"]] == [
        ("job b", "has not said through which moment its rows are complete")
    ]
    assert one.ask() == 1
    other.says("far", 3 * SIZE)
    assert other.look()["complete_through"] == MIDNIGHT + 20
    assert marks(world) == [[MARK], []]
    mark = json.loads((roots(world)[0] / MARK).read_bytes())
    assert mark["rows"] == {"lumberjack": 6 * SIZE}
    assert sorted(mark["incarnations"]) == ["far", "gw"]
    one.now += 3600
    one.says("gw", 3 * SIZE)
    found = one.look()
    assert one.ask() == other.ask() == 0
    assert found["complete_through"] == MIDNIGHT + 20
    [held] = found["held_by"]
    assert held["node"] == "job b"
    assert "complete through 2026-03-02 00:00:20 UTC" in held["why"]
    beside.spool.events("late", 1, SIZE)
    other.at_noon()
    beside.run(4, sink=other.sink)
    assert marks(world)[0] == []
    one.look()
    assert marks(world) == [[], []]
    assert one.ask() == other.ask() == 1
    other.now += 3600
    for node, lsn in (("late", SIZE), ("far", 3 * SIZE)):
        other.says(node, lsn)
    other.look()
    assert marks(world)[0] == [MARK]


def test_tables_by_rule_have_marks_too(world):
    """Each at its own root, once it has rows; the rows of the day there are counted."""
    rule = {"where": {"path": "message", "matches": "[02468]$"}}
    world.config.spark.tables = TABLES.validate_python({"even": rule})
    job = Job(world)
    world.run(3, sink=job.sink)
    job.says("gw", 3 * SIZE)
    job.look()
    assert marks(world) == [[MARK], [MARK], [MARK]]
    rows = [json.loads((root / MARK).read_bytes())["rows"] for root in roots(world)]
    assert rows[:2] == [{"lumberjack": 3 * SIZE // 2}] * 2


@pytest.fixture
def in_bucket(world, server) -> Callable[[str], bytes | None]:
    """Its storage's object of that name."""
    return lambda name: server.objects.get(f"bucket/{name}")


def test_marks_in_a_bucket(world, in_bucket):
    """They are put, found and removed by the table's own way to its storage."""
    world.run(1)
    root = world.events()._objects("s3a://bucket/some", dict)
    assert not root.has(MARK)
    root.put(MARK, b"{}")
    assert (in_bucket(f"some/{MARK}"), root.has(MARK)) == (b"{}", True)
    root.remove(MARK)
    root.remove(MARK)
    assert (in_bucket(f"some/{MARK}"), root.has(MARK)) == (None, False)


@ONLY_DELTA
def test_a_mark_lies_where_the_table_does(world, in_bucket):
    """A table in a bucket has it there; where that refuses, batches go on."""
    world.config.spark.table = "s3a://bucket/tables/events"
    job = Job(world)
    world.run(3, sink=job.sink)
    job.says("gw", 3 * SIZE)
    job.look()
    for table in ("events", "events_stats"):
        mark = in_bucket(f"tables/{table}/{MARK}")
        assert mark is not None
        assert json.loads(mark)["day"] == "2026-03-01"
