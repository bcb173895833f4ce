"""Batches for a user's own function: each event comes, under a number that lasts.

Spark is played by this file, as in `test_parquet.py`; "rows" are the plan of a batch.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.audit import audit
from gateway.spark.checkpoint import Checkpoint
from gateway.spark.handover import Context, HandOver, HandOverFailed, function_of
from gateway.spark.lakedisk import Lake
from gateway.spark.ledger import Broken, Hole, Ranges
from gateway.spark.sink import Plan
from gateway.spark.sinks import claim
from gateway.store.directories import Directories

SIZE = 10
POINTS = ("intended", "called", "handed over", "in ledger")


class PowerCut(BaseException):
    """Nothing after this happens; no handler may swallow it."""


@dataclass
class World:
    """A spool, a checkpoint, and a function that keeps what it got by its number."""

    data: Path
    logs: Any
    spool: Any
    calls: list[Context] = field(default_factory=list)
    kept: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    cut: str | None = None

    def sink(self) -> HandOver:
        disk = Lake()
        return HandOver(
            self.data / "lake",
            self.spool.path,
            Checkpoint(self.logs.path, disk),
            disk,
            read=lambda plan: plan,
            function=self.take,
            point=self.point,
        )

    def take(self, batch: Plan, context: Context) -> None:
        """As a user's would: a number that is there already changes nothing."""
        self.calls.append(context)
        rows = Ranges.of(batch.files).minus(batch.without)
        found = [(node, n) for node, a, b in rows for n in range(a, b + 1)]
        assert len(found) == context.rows
        assert rows.plain() == context.events
        assert self.kept.setdefault(context.batch, found) == found
        self.point("called")

    def point(self, name: str) -> None:
        if name == self.cut:
            raise PowerCut

    def run(self, batches: int, files: int = 1) -> None:
        """Start, go on after the last commit; a batch takes *files* files."""
        sink = self.sink()
        sink.recover()
        self.logs.begin()
        done = Checkpoint(self.logs.path, Lake()).committed
        for batch in range(done + 1, batches):
            there = self.spool.names()[batch * files : (batch + 1) * files]
            self.logs.source(batch, there)
            self.logs.offset(batch, batch)
            sink(None, batch)
            self.logs.commit(batch)

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.logs.path)
        self.logs.query = "deadbeef-0000-4000-8000-000000000002"

    @property
    def received(self) -> Counter[tuple[str, int]]:
        return Counter(event for rows in self.kept.values() for event in rows)


@pytest.fixture
def world(
    tmp_path: Path,
    logs: Callable[[str], Any],
    spool: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    monkeypatch.setattr("os.fdatasync", lambda fd: None)
    monkeypatch.setattr("os.fsync", lambda fd: None)
    for batch in range(4):
        spool.events("gw", 1 + batch * SIZE, SIZE)
    made = World(tmp_path / "data", logs("events"), spool)
    made.logs.begin()
    claim(made.data / "lake", Lake(), {"sink": "function"})
    return made


def test_each_batch_comes_once_with_its_number(world: World) -> None:
    """1, 2, …: none of them repeated, each with the lsns that it has."""
    world.run(4)
    assert [one.batch for one in world.calls] == [1, 2, 3, 4]
    assert not any(one.repeated for one in world.calls)
    assert world.calls[1].events == {"gw": [(11, 20)]}
    assert world.received == world.spool.produced
    world.run(4)
    assert len(world.calls) == 4


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_killed_at_any_point_the_same_rows_come_under_the_same_number(
    world: World, point: str, checkpoint: str
) -> None:
    """Even with another division into batches: so an idempotent function has all once."""
    world.run(1)
    world.cut = point
    with pytest.raises(PowerCut):
        world.run(2)
    world.cut = None
    if checkpoint == "lost":
        world.lose_checkpoint()
        world.run(1, files=4)
    else:
        world.run(4)
    assert world.received == world.spool.produced
    again = [one for one in world.calls if one.repeated]
    # In the ledger is in the ledger, and never comes again.
    assert len(again) == (0 if point == "in ledger" else 1)
    assert all(one.batch == 2 for one in again)


def test_a_function_that_raises_is_named_and_gets_the_batch_again(world: World) -> None:
    """The job stops with its words; the next start hands the same batch over."""
    real = world.take

    def failing(batch: Plan, context: Context) -> None:
        raise OSError("no route to host")

    world.take = failing  # type: ignore[method-assign]
    with pytest.raises(HandOverFailed, match=r"failing, batch 1: OSError: no route"):
        world.run(1)
    world.take = real  # type: ignore[method-assign]
    world.run(4)
    assert world.calls[0].repeated
    assert world.received == world.spool.produced


def test_a_file_that_was_moved_aside_is_not_waited_for(world: World) -> None:
    """A batch that comes again comes without the file that is a hole by now."""
    world.cut = "intended"
    with pytest.raises(PowerCut):
        world.run(1, files=2)
    world.cut = None
    name = world.spool.names()[0]
    sink = world.sink()
    sink.ledger = type(sink.ledger)()
    sink.note(Hole("gw", 1, 10, name, "cut short", 1.0))
    (world.spool.path / name).unlink()
    sink.recover()
    assert world.received == Counter(("gw", lsn) for lsn in range(11, 21))


def test_the_audit_takes_the_ledgers_word(world: World) -> None:
    """It can not read what the function has written, and says so."""
    world.run(4)
    report = audit(Directories.under(world.data))
    assert report.complete
    assert report.told
    assert [(one.node, one.in_lake, one.in_spool) for one in report.nodes] == [
        ("gw", 40, 0)
    ]


def test_a_file_that_vanished_stops_it(world: World) -> None:
    """Its events are promised by its name; nothing is handed over without them."""
    (world.spool.path / world.spool.names()[0]).unlink()
    world.spool.events("gw", 1, 1)
    sink = world.sink()
    sink.recover()
    world.logs.source(0, [f"events-gw-{1:020d}-{SIZE:020d}.parquet"])
    world.logs.offset(0, 0)
    with pytest.raises(Broken, match="promise 10 events, Spark made 0 rows"):
        sink(None, 0)
    assert world.calls == []


def test_what_spark_has_committed_must_be_in_the_ledger(world: World) -> None:
    """A lake that was deleted under its checkpoint would lose what that has seen."""
    world.run(2)
    shutil.rmtree(world.data / "lake")
    with pytest.raises(Broken, match=r"older than .*lacks 2 files"):
        world.sink().recover()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:function", "No module named 'no_such_module'"),
        ("json:no_such", "module 'json' has no attribute 'no_such'"),
        ("sys:maxsize", "sys:maxsize is no function but int"),
        ("os.path:basename", r"can not be called with \(batch, context\)"),
    ],
)
def test_a_broken_one_is_named_clearly(name: str, words: str) -> None:
    """Before Spark is started, and in terms of the key that names it."""
    with pytest.raises(Broken, match=words) as why:
        function_of(name)
    assert str(why.value).startswith(f"spark.sink: {name}")


def test_a_number_whose_files_were_all_moved_aside_is_not_given_again(
    world: World,
) -> None:
    """The function may have it already, and would pass over what came under it."""
    world.run(1)
    world.cut = "called"
    with pytest.raises(PowerCut):
        world.run(2)
    world.cut = None
    sink = world.sink()
    sink.ledger = type(sink.ledger).load(Lake(), sink._path)
    name = world.spool.names()[1]
    sink.note(Hole("gw", 11, 20, name, "cut short", 1.0))
    (world.spool.path / name).unlink()
    world.lose_checkpoint()
    world.run(3)
    assert [one.batch for one in world.calls] == [1, 2, 3, 4]
    assert not any(one.repeated for one in world.calls)
    assert world.received == world.spool.produced
