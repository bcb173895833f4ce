"""Batches for a user's own function: each event comes, under a number that lasts.

Spark is played by this file, as in `test_parquet.py`; "rows" are the plan of a batch.
"""

import json
import shutil
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest

from gateway.audit import audit
from gateway.cli import main
from gateway.spark.commit.handover import HandOver, HandOverFailed, settle
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken, Hole, Ledger, Ranges
from gateway.spark.commit.one_sink import claim
from gateway.spark.commit.sink import Plan
from gateway.spark.own import Context, function_of
from gateway.store.directories import Directories
from gateway.store.names import parse_file_name
from gateway.store.system.lock import lock
from incarnations import A
from played_spark import PowerCut, Stream

SIZE = 10
POINTS = ("intended", "called", "handed over", "in ledger")


@dataclass
class World(Stream):
    """A spool, a checkpoint, and a function that keeps what it got by its number."""

    data: Path
    calls: list[Context] = field(default_factory=list)
    kept: dict[int, list[tuple[str, int]]] = field(default_factory=dict)

    def sink(self) -> HandOver:
        return HandOver(
            self.data / "lake",
            self.spool.path,
            self.checkpoint,
            Lake(),
            read=lambda plan: plan,
            function=self.take,
            point=self.point,
        )

    def take(self, batch: Plan, context: Context) -> None:
        """As a user's would: a number that is there already changes nothing."""
        self.calls.append(context)
        rows = Ranges.of(batch.files).minus(batch.without)
        found = [(life.node, n) for life, a, b in rows for n in range(a, b + 1)]
        assert len(found) == context.rows
        assert rows.plain() == context.names
        assert self.kept.setdefault(context.batch, found) == found
        self.point("called")

    @property
    def received(self) -> Counter[tuple[str, int]]:
        return Counter(event for rows in self.kept.values() for event in rows)


@pytest.fixture
def world(tmp_path, logs, spool, monkeypatch) -> World:
    monkeypatch.setattr("os.fdatasync", lambda fd: None)
    monkeypatch.setattr("os.fsync", lambda fd: None)
    for batch in range(4):
        spool.events("gw", 1 + batch * SIZE, SIZE)
    made = World(logs("events"), spool, tmp_path / "data")
    made.logs.begin()
    claim(made.data / "lake", Lake(), {"sink": "function"})
    return made


def test_each_batch_comes_once_with_its_number(world):
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
    world, point, checkpoint
):
    """Even with another division into batches: so an idempotent function has all once."""
    world.survive(point, 4, lost=checkpoint == "lost")
    assert world.received == world.spool.produced
    again = [one for one in world.calls if one.repeated]
    # In the ledger is in the ledger, and never comes again.
    assert len(again) == (0 if point == "in ledger" else 1)
    assert all(one.batch == 2 for one in again)


def test_a_function_that_raises_is_named_and_gets_the_batch_again(world):
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


def moved_aside(world: World, sink: HandOver, number: int) -> Path:
    """What the job does with a file that can not be read; the file."""
    name = world.spool.names()[number]
    file = parse_file_name(name)
    assert file is not None
    sink.note(Hole("gw", file.first, file.last, name, "cut short", 1.0, A))
    poison = world.data / "poison"
    poison.mkdir(exist_ok=True)
    return (world.spool.path / name).rename(poison / name)


def new_life(world: World) -> HandOver:
    """After a kill, as far as its ledger."""
    sink = world.sink()
    sink.ledger = Ledger.load(Lake(), sink._path)
    return sink


def settled(world: World, batch: int, *, written: bool) -> int:
    lake = world.data / "lake"
    return settle(lake, world.spool.path, Lake(), batch, written=written)


@pytest.mark.parametrize("size", [1, 2])
def test_a_file_that_the_function_could_not_read_is_not_waited_for(world, size):
    """It raised, so it has nothing of that number; the rest comes under it.  The file has
    a number of its own once it is mended."""
    real, failing = world.take, [True]

    def take(batch: Plan, context: Context) -> None:
        if failing:
            raise OSError("a page of it is damaged")
        real(batch, context)

    world.take = take  # type: ignore[method-assign]
    sink = world.started()
    with pytest.raises(HandOverFailed):
        world.run(1, files=size, sink=sink)
    file = moved_aside(world, sink, 0)
    with pytest.raises(HandOverFailed) if size > 1 else nullcontext():
        sink.recover()  # another reason; nothing was written then, either
    failing.clear()
    sink.recover()
    assert [(one.batch, one.rows) for one in world.calls] == [(1, 10)][: size - 1]
    world.logs.lose()
    world.run(1, files=3)
    file.rename(world.spool.path / file.name)
    world.logs.lose()
    world.run(1, files=4)
    assert world.received == world.spool.produced


@pytest.mark.parametrize("point", ["intended", "called", "handed over"])
@pytest.mark.parametrize("aside", [(0,), (0, 1)])
def test_what_a_crash_has_left_unknown_is_asked(world, point, aside):
    """Fewer rows under the same number would not be written where all of them are, and
    come again under another one once the file is mended: so the job stops, names batch
    and file, and either answer puts it right, mended or not."""
    world.cut = point
    with pytest.raises(PowerCut):
        world.run(1, files=2)
    world.cut = None
    sink = new_life(world)
    files = [moved_aside(world, sink, 0) for _ in aside]
    for _ in range(2):
        with pytest.raises(Broken, match=r"batch 1 may .*settle --batch 1") as why:
            world.sink().recover()
        assert all(file.name in str(why.value) for file in files)
    with pytest.raises(Broken, match="batch 1 waits to be settled, not 2"):
        settled(world, 2, written=True)
    written = point != "intended"
    left = settled(world, 1, written=written)
    assert left == (0 if written else SIZE * len(aside))
    world.logs.lose()
    world.run(1, files=4)
    for file in files:
        file.rename(world.spool.path / file.name)
    world.logs.lose()
    world.run(1, files=4)
    assert world.received == world.spool.produced
    assert not new_life(world).ledger.holes
    with pytest.raises(Broken, match="no batch waits"):
        settled(world, 1, written=True)


@pytest.mark.parametrize("written", [True, False])
def test_a_file_that_is_gone_from_such_a_batch_is_asked_for(world, *, written):
    """On a cluster only its footer was here, and goes when its object is another one: the
    job says which answer it needs."""
    world.cut = "called"
    with pytest.raises(PowerCut):
        world.run(1, files=2)
    world.cut = None
    (world.spool.path / world.spool.names()[0]).unlink()
    with pytest.raises(Broken, match=r"is gone from .*gateway spark settle --batch 1"):
        world.sink().recover()
    assert settled(world, 1, written=written) == (0 if written else SIZE)
    world.kept.clear()  # of another number of rows, if it comes again
    world.sink().recover()
    assert [one.rows for one in world.calls] == ([20] if written else [20, 10])


def test_whoever_begins_anew_often_is_handed_over(world):
    """What the function has is known by incarnation and lsn, however many a node has had."""
    world.run(1, files=4)
    lives = [f"{a}{b}" * 5 for a, b in product("abcdefgh", repeat=2)]
    for life in lives[:-1]:
        world.spool.put("gw-2", 1, [b"{}"] * 2, incarnation=life)
    world.logs.lose()
    world.run(1, files=len(world.spool.names()))
    world.spool.put("gw-2", 1, [b"{}"] * 2, incarnation=lives[-1])
    world.logs.lose()
    world.run(1, files=len(world.spool.names()))
    assert world.calls[-1].names == {"gw-2": {lives[-1]: [(1, 2)]}}
    assert sum(one.rows for one in world.calls) == 4 * SIZE + 2 * len(lives)


def test_a_file_that_is_mended_comes_with_its_batch(world):
    """Without an answer: all rows of the number are there again."""
    world.cut = "called"
    with pytest.raises(PowerCut):
        world.run(1, files=2)
    world.cut = None
    file = moved_aside(world, new_life(world), 1)
    with pytest.raises(Broken, match="may have been written"):
        world.sink().recover()
    file.rename(world.spool.path / file.name)
    world.run(2, files=2)
    assert [(one.batch, one.rows) for one in world.calls] == [(1, 20), (1, 20), (2, 20)]
    assert world.received == world.spool.produced


def test_the_audit_takes_the_ledgers_word(world):
    """It can not read what the function has written, and says so."""
    world.run(4)
    report = audit(Directories.under(world.data))
    assert report.complete
    assert report.told
    assert [(one.node, one.in_lake, one.in_spool) for one in report.nodes] == [
        ("gw", 40, 0)
    ]


def test_a_file_that_vanished_stops_it(world):
    """Its events are promised by its name; nothing is handed over without them."""
    (world.spool.path / world.spool.names()[0]).unlink()
    world.spool.events("gw", 1, 1)
    sink = world.started()
    world.logs.source(0, [f"events-gw_aaaaaaaaaa-{1:020d}-{SIZE:020d}.parquet"])
    world.logs.offset(0, 0)
    with pytest.raises(Broken, match="promise 10 events, Spark made 0 rows"):
        sink(None, 0)
    assert world.calls == []


def test_what_spark_has_committed_must_be_in_the_ledger(world):
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
def test_a_broken_one_is_named_clearly(name, words):
    """Before Spark is started, and in terms of the key that names it."""
    with pytest.raises(Broken, match=words) as why:
        function_of(name)
    assert str(why.value).startswith(f"spark.sink: {name}")


def test_the_command_that_takes_the_answer(world, settings_file, capsys):
    """It says what it did; without a batch that waits, and beside a job, it does nothing."""
    settings = settings_file(sink="json:dumps")
    command = ["spark", "settle", "--config", str(settings), "--batch", "1"]
    assert main(command) == 2  # written, or missing?
    assert main([*command, "--written"]) == 1
    assert "no batch waits to be settled" in capsys.readouterr().out
    world.cut = "called"
    with pytest.raises(PowerCut):
        world.run(1, files=2)
    moved_aside(world, new_life(world), 0)
    held = lock(world.data / "lake" / ".gateway" / "lock", "gateway spark")
    assert main([*command, "--missing"]) == 1
    assert "in use by gateway spark" in capsys.readouterr().out
    held.release()
    assert main([*command, "--missing", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"batch": 1, "written": False, "aside": SIZE}
