"""Snapshots are of one moment, however much changes while they are written."""

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.pravega import snapshot
from gateway.protocols.pravega.codec import Entry
from gateway.protocols.pravega.errors import SegmentError
from gateway.protocols.pravega.segment import MARK_BYTES
from gateway.protocols.pravega.segments import Change, Segments
from gateway.protocols.pravega.wire import NEVER

from .conftest import W

TXN = "#transaction.0000000000000000000000000000000a"
NAMES = ["a", "b", "a" + TXN, "b" + TXN, "t"]
EVENT = b"\0\0\0\0\0\0\0\1x"


def facts(state: Segments) -> dict[str, Any]:
    """Everything that a state is, comparable."""
    known: dict[str, Any] = {
        "number": state.number,
        "forgotten": state.writers_forgotten_at,
        "merged": list(state.merged),
        "staged": state.staged_bytes,
        "retained": (state.retained, state.retained_bytes),
    }
    for name, segment in state.segments.items():
        table, staged = segment.table, segment.staged
        known[f"segment {name}"] = {
            each: getattr(segment, each)
            for each in segment.__slots__
            if each
            not in (
                "table",
                "staged",
                "attributes",
                "mark_offsets",
                "mark_lsns",
                "mark_times",
                "marked_at",
                "stored_at",
            )
        } | {
            "found": [
                segment.lsn_near(offset) is not None
                for offset in range(segment.start, segment.readable)
            ],
            "attributes": segment.attributes or None,
            "table": table
            and (table.position, table.bytes, list(table.entries.items())),
            "staged": staged and (bytes(staged.data), staged.rows),
        }
    return known


class Journal:
    """Changes, in order; durable when it is told."""

    def __init__(self, state: Segments) -> None:
        self.state = state
        self.kept: list[tuple[Change, int]] = []
        self.lsn = 1
        self.durable = 0

    def keep(self, change: Change) -> None:
        self.kept.append((change, self.lsn))
        self.lsn += change.count

    def store(self, most: int) -> None:
        for change, lsn in self.kept[self.durable : self.durable + most]:
            list(self.state.stored(change.body, lsn))
            self.durable += 1

    def replay(self, state: Segments) -> Segments:
        for change, lsn in self.kept:
            list(state.replay(change.body, lsn, change.number))
        return state


def act(state: Segments, what: int, name: str) -> Change:
    """One of the changes there are; raises `SegmentError` if it can not be."""
    now = state.number + 1
    match what:
        case 0:
            return (state.create_table if name == "t" else state.create)(name, now)
        case 1:
            return state.delete(name, now)
        case 2:
            return state.merge([(name[:1], name)], now)
        case 3:
            return state.put("t", [Entry(b"k%d" % (now % 3), NEVER, b"v")], now)
        case 4:
            return state.remove("t", [Entry(b"k1", NEVER)], now)
        case 5:
            return state.attribute(name, b"x" * 16, now, state_of(state, name), now)
        case 6:
            return state.truncate(name, state.data(name).length, now)
        case 7:
            return state.forget_idle_writers(now)
        case 8:
            return state.seal(name, now)
    last = state.data(name).number_of(W)
    return state.append(name, W, now, EVENT * what, now, claimed=what, last=last)


def state_of(state: Segments, name: str) -> int:
    return state.data(name).attribute(b"x" * 16)


_STEP, _STORE = 20, 21


@settings(max_examples=300, deadline=None)
@given(
    before=st.lists(st.tuples(st.integers(0, 12), st.sampled_from(NAMES)), max_size=30),
    unstored=st.integers(0, 10),
    during=st.lists(st.tuples(st.integers(0, 21), st.sampled_from(NAMES)), max_size=30),
)
def test_a_snapshot_is_of_one_moment(before, unstored, during):
    """What changes while it is written is not in it, and the journal brings it back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gateway.protocols.pravega.segment.MARK_BYTES", 20)
        patch.setattr("gateway.protocols.pravega.snapshot._STEP_SEGMENTS", 1)
        patch.setattr("gateway.protocols.pravega.snapshot._STEP_BYTES", 7)
        state = Segments()
        journal = Journal(state)

        def change(what: int, name: str) -> None:
            with contextlib.suppress(SegmentError):
                journal.keep(act(state, what, name))

        for name in NAMES:
            change(0, name)
        for what, name in before:
            change(what, name)
        journal.store(len(journal.kept) - unstored)
        saving = snapshot.SnapshotWriter(state)
        for what, name in during:
            if what == _STEP:
                saving.step()
            elif what == _STORE:
                journal.store(3)
            else:
                change(what, name)
        while saving.step():
            pass
        journal.store(len(journal.kept))
        data = saving.finish()
        assert state.observer is None
        moment = snapshot.restore(data)
        assert moment.number == saving.number
        wanted = Segments()
        for kept, lsn in journal.kept[: saving.number]:
            list(wanted.replay(kept.body, lsn, kept.number))
        assert facts(moment) == facts(wanted)
        assert facts(journal.replay(moment)) == facts(state)


def test_a_step_is_small(monkeypatch):
    """Each writes so many segments, or so many bytes of a transaction, and no more."""
    state = Segments()
    for number in range(2000):
        state.create(f"s/t/{number}", 0)
    name = "s" + TXN
    state.create(name, 0)
    monkeypatch.setattr("gateway.protocols.pravega.snapshot._STEP_BYTES", 1000)
    monkeypatch.setattr("gateway.protocols.pravega.snapshot._STEP_SEGMENTS", 10)
    state.append(name, W, 1, bytes(10_000), 0, claimed=1, last=NEVER)
    saving = snapshot.SnapshotWriter(state)
    sizes = []
    while saving.step():
        sizes.append(saving._out.tell())
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(steps) < 1500
    assert len(steps) > 200
    assert facts(snapshot.restore(saving.finish())) == facts(settled(state))


def settled(state: Segments) -> Segments:
    for segment in state.segments.values():
        segment.readable, segment.closed = segment.length, segment.sealed
    return state


@pytest.mark.parametrize("cut", [0, 3, 20, -1])
def test_half_a_snapshot_is_none(model, cut):
    """Of one that is cut short nothing is believed."""
    with pytest.raises(ValueError, match=r"snapshot|truncated"):
        snapshot.restore(snapshot.save(model.state)[:cut])


def test_a_later_format(model):
    """It is refused, not guessed at."""
    data = bytearray(snapshot.save(model.state))
    assert data[4:7] == b"\x95\x00\x01"
    data[6] = 2
    with pytest.raises(ValueError, match="later version"):
        snapshot.restore(bytes(data))


def test_entries_of_no_table_are_no_snapshot(model):
    """Nothing that a snapshot has is dropped unseen."""
    state = model.state
    state.create_table("t", 1)
    state.put("t", [Entry(b"k", NEVER, b"v")], 1)
    data = snapshot.save(state)
    at = data.index(b"\x93\x04\xa1t")  # a piece of its entries
    broken = data[: at + 3] + b"u" + data[at + 4 :]
    with pytest.raises(ValueError, match="entries of no table: u"):
        snapshot.restore(broken)


def test_a_large_table_is_written_in_small_steps(monkeypatch):
    """As it was in the beginning, though it changes meanwhile; nobody waits for it."""
    monkeypatch.setattr("gateway.protocols.pravega.snapshot._STEP_BYTES", 10_000)
    state = Segments()
    state.create_table("t", 0)
    for number in range(5000):
        state.put("t", [Entry(b"%04d" % number, NEVER, b"x" * 30)], 0)
    wanted = facts(settled(state))
    saving = snapshot.SnapshotWriter(state)
    sizes = [saving._out.tell()]
    state.put("t", [Entry(b"0007", NEVER, b"later")], 0)
    state.remove("t", [Entry(b"0008", NEVER)], 0)
    assert saving._out.tell() == sizes[0]
    while saving.step():
        sizes.append(saving._out.tell())
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(steps) < 20_000
    assert len(steps) > 15
    assert facts(snapshot.restore(saving.finish())) == wanted


def test_connections_do_not_wait_for_it(store):
    """It is written between the turns of the reactor, and given when it is durable."""
    state = store.container.state
    for number in range(2000):
        store.container.submit(state.create(f"s/t/{number}", 0))
    got: list[bytes] = []
    store.container.snapshot().addCallback(got.append)
    store.journal.store_all()
    in_between: list[int] = []
    store.clock.callLater(0, lambda: in_between.append(len(got)))
    store.clock.advance(0)
    assert in_between == [0]
    assert set(snapshot.restore(got[0]).segments) == set(state.segments)


def test_who_asks_meanwhile_gets_the_next(store):
    """A snapshot that is being made holds nothing newer, so another one follows."""
    got: list[bytes] = []
    store.container.snapshot().addCallback(got.append)
    store.container.submit(store.container.state.create("late", 0))
    for _ in range(2):
        store.container.snapshot().addCallback(got.append)
    for _ in range(5):
        store.store()
    first, second, third = got
    assert set(snapshot.restore(first).segments) == {"s"}
    assert set(snapshot.restore(second).segments) == {"s", "late"}
    assert third is second


def test_where_the_newest_lie_is_in_it(model, block):
    """What was on its way to the disk can be found after a restart from a snapshot."""
    state = model.state
    change = state.append("s", W, 1, block(b"x" * MARK_BYTES), 0, claimed=1, last=NEVER)
    saving = snapshot.SnapshotWriter(state)
    while saving.step():
        pass
    list(state.stored(change.body, 77))
    again = snapshot.restore(saving.finish())
    assert again.find("s").lsn_near(0) == 77


def test_marks_of_deleted_events_go_a_bit_in_each_step(model, block):
    """However many segments there are; so snapshots do not grow for ever."""
    state = model.state
    names = [f"s/t/{number}" for number in range(1200)]
    for name in names:
        model.keep(state.create(name, 0))
        for number in (1, 2, 3):
            last = NEVER if number == 1 else number - 1
            data = block(b"x" * MARK_BYTES)
            change = state.append(name, W, number, data, 0, claimed=1, last=last)
            list(state.stored(change.body, number))
    saving = snapshot.SnapshotWriter(state, first_lsn=3)
    dropped = []
    while True:
        dropped.append(sum(len(state.find(name).mark_lsns) == 2 for name in names))
        if not saving.step():
            break
    assert dropped == [0, 499, 999]  # and the one that was there before
    again = snapshot.restore(saving.finish())
    assert all(list(again.find(name).mark_lsns) == [2, 3] for name in names)
