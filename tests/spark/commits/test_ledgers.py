"""What a table says of its own commits: carried on, lost, set back."""

from typing import Any

import pytest

from format_tables import (
    MARKS,
    ONLY_DELTA,
    ONLY_ICEBERG,
    SIZE,
    World,
    check_both,
    lost,
)
from gateway.spark.commit.closing import Closing
from gateway.spark.commit.commits import opened
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken, Hole, Ranges
from incarnations import A

pytestmark = MARKS


@pytest.mark.lowest
def test_a_compaction_carries_the_ledger_on(world):
    """So that the next start knows it, with no checkpoint; the job goes on meanwhile, under
    the settings that its session had."""

    def settings() -> dict[str, str | None]:
        return {key: world.spark.conf.get(key, None) for key in world.kind.conf}

    sink = world.sink()
    sink.recover()
    world.run(2, sink=sink)
    before = settings()
    said = list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    assert settings() == before
    assert any("2 data files, now 1" in line for line in said)
    world.run(3, sink=sink)
    list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    world.logs.lose()
    world.run(1, files=3)
    world.check_complete()


def test_a_ledger_that_is_gone_is_made_of_the_rows(world, monkeypatch):
    """Somebody else's maintenance may remove the commits that had it."""
    world.run(2)
    world.logs.lose()
    events = world.events()
    with monkeypatch.context() as patch:
        patch.setattr(type(events), "_newest", lost)
        assert opened(
            events, Closing(world.config.data_dir / "lake", Lake())
        ).committed == Ranges({"gw": {A: [(1, 2 * SIZE)]}})
        sink = world.sink()
        sink.recover()
    world.run(1, files=3, sink=sink)
    world.check_complete()


def test_what_rows_do_not_say_is_in_the_copy(world, monkeypatch):
    """A ledger that is made of the rows has the holes that the last one had, and the
    columns' types: or nobody would know of the ones, and another type would be taken."""
    name = world.spool.names()[2]
    sink = world.sink()
    sink.recover()
    sink.note(Hole("gw", 1 + 2 * SIZE, 3 * SIZE, name, "cut short", 1.0, A))
    world.run(2, sink=sink)
    before = sink.ledger
    with monkeypatch.context() as patch:
        patch.setattr(type(world.events()), "_newest", lost)
        sink = world.sink()
        sink.recover()
        assert sink.ledger.holes == before.holes
        types = {"lsn": "bigint", "event_time": "timestamp", "body": "string"}
        assert types.items() <= sink.ledger.types.items()
        (world.config.data_dir / "lake" / ".gateway" / "events.json").unlink()
        sink.recover()
        assert sink.ledger.holes == ()


@ONLY_DELTA  # its snapshots are in one file
def test_what_was_read_of_a_history_is_not_read_again(world, beside, monkeypatch):
    """However long ago the last commit of a job is that is away."""
    monkeypatch.setattr("gateway.sinks.delta_log._FEW_COMMITS", (1, 2))
    beside.run(1)
    world.run(3)
    events, read = world.events(), list[Any]()
    whole = type(events)._history

    def noted(self: Any, most: int | None) -> list[Any]:
        read.append(most)
        return whole(self, most)

    monkeypatch.setattr(type(events), "_history", noted)
    there = events._newest()
    assert there.keys() == {"", "b"}
    assert read == [1, 2, None]
    assert events._newest() == there
    assert read == [1, 2, None]
    world.spool.events("gw", 1 + 3 * SIZE, SIZE)
    world.run(4)
    read.clear()
    now = events._newest()
    assert (now["b"], now[""]["sequence"]) == (there["b"], 4)
    assert read == [1]
    set_back(world, events.name)
    assert events._newest() == {}
    assert read == [1, 1, 1, 2, None]


def set_back(world: World, name: str, to: int = 0) -> None:
    """To its first commit, or to one behind it."""
    if world.config.spark.sink == "delta":
        world.spark.sql(f"RESTORE TABLE delta.`{name}` TO VERSION AS OF {to}")
        return
    history = f"SELECT snapshot_id FROM {name}.history ORDER BY made_current_at"
    wanted = world.spark.sql(history).collect()[to][0]
    catalog, _, table = name.partition(".")
    world.spark.sql(
        f"CALL {catalog}.system.rollback_to_snapshot('{table}', {wanted})"
    ).collect()


def test_a_table_that_was_set_back_stops_the_job(world):
    """While it runs, and at its start: what the table lacks is not taken for committed.
    Put back into the spool it is there again, once."""
    sink = world.sink()
    sink.recover()
    world.run(2, sink=sink)
    for table in world.kind.tables(world.config, world.spark):
        set_back(world, table.name)
    with pytest.raises(Broken, match="was set back"):
        world.run(3, sink=sink)
    with pytest.raises(Broken, match=r"older than .*lacks 1 files"):
        world.sink().recover()
    if world.config.spark.sink == "iceberg":  # nothing of it is dropped
        kept = f"SELECT count(*) FROM {world.events().name}.snapshots"
        assert world.spark.sql(kept).collect()[0][0] == 2
    world.logs.lose()
    world.run(1, files=3)
    world.check_complete()
    world.logs.lose()
    world.run(1, files=3)
    world.check_complete()


def test_a_table_of_several_jobs_that_was_set_back(world, beside):
    """Each job goes on with what the table has of its own nodes, whichever starts first: it
    takes no other's rows for its own, and what is put back into the spool is there again.
    """
    both = world, beside
    for each in both:
        each.run(1)
    events = world.events().name
    whole = world.spark.sql(
        f"DESCRIBE HISTORY delta.`{events}`"
        if world.config.spark.sink == "delta"
        else f"SELECT * FROM {events}.history"
    ).count()
    for each in both:
        each.run(2)
    set_back(world, events, whole - 1)
    for each in both:
        for table in each.kind.tables(each.config, each.spark):
            if table.name != events:
                set_back(each, table.name)
    for each in both:
        with pytest.raises(Broken, match=r"older than .*lacks 1 files"):
            each.sink().recover()
        each.logs.lose()
        each.run(1, files=3)
    check_both(world, beside)


@ONLY_ICEBERG  # Delta counts versions
def test_a_table_that_was_set_back_to_a_compaction(world):
    """Where maintenance removed all that was before it."""
    sink = world.sink()
    sink.recover()
    world.run(2, sink=sink)
    list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    events = sink._events
    table = events._table()
    events._expire(table, [*events._line(table)][1:])
    set_to = table.currentSnapshot().snapshotId()
    world.run(3, sink=sink)
    events._table().manageSnapshots().rollbackTo(set_to).commit()
    world.spool.events("gw", 1 + 3 * SIZE, SIZE)
    with pytest.raises(Broken, match="was set back"):
        world.run(4, sink=sink)
    assert events.rows().count() == 2 * SIZE


@ONLY_DELTA  # Iceberg looks as it publishes
def test_a_table_that_is_set_back_as_a_batch_is_committed(world, monkeypatch):
    """The commit says what its writer had seen: the next start believes the rows."""
    sink = world.sink()
    sink.recover()
    world.run(2, sink=sink)
    name = sink._events.name
    set_back(world, name)
    state = type(sink._events)._state

    def earlier(self: Any) -> tuple[int, int | None]:
        version, number = state(self)
        return (1 if self.name == name else version), number

    with monkeypatch.context() as patch:
        patch.setattr(type(sink._events), "_state", earlier)
        world.run(3, sink=sink)
    assert opened(
        world.events(), Closing(world.config.data_dir / "lake", Lake())
    ).committed == Ranges({"gw": {A: [(1, SIZE), (1 + 2 * SIZE, 3 * SIZE)]}})


@ONLY_DELTA  # Iceberg looks as it publishes
def test_a_table_that_is_set_back_just_before_anothers_commit(
    world, beside, monkeypatch
):
    """A job that looks what has come since its last look misses nothing of it, though more
    comes as it looks."""
    sink, other = world.sink(), beside.sink()
    sink.recover()
    world.run(2, sink=sink)
    set_back(world, sink._events.name)
    other.recover()
    whole = type(sink._events)._history

    def late(self: Any, most: int | None) -> list[Any]:
        if self is sink._events and not beside.events()._numbers().get("b"):
            beside.run(1, sink=other)
        return whole(self, most)

    with monkeypatch.context() as patch:
        patch.setattr(type(sink._events), "_history", late)
        with pytest.raises(Broken, match="was set back"):
            world.run(3, sink=sink)
