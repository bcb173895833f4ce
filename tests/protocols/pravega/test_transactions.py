"""Transactions and large events: rows all at once when they are merged, or never."""

import itertools
import tracemalloc
from typing import Any

import msgspec
import pytest

from gateway.protocols.pravega import container as assembly
from gateway.protocols.pravega import records, segments, snapshot, wire
from gateway.protocols.pravega import wire_segments as ws
from gateway.protocols.pravega.codec import AttributeUpdate
from gateway.protocols.pravega.records import Append, Attribute, Merge
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.wire import AppendBlockEnd, DataAppended
from gateway.protocols.pravega.wire_segments import (
    CreateSegment,
    MergeSegments,
    SegmentsMerged,
)

from .conftest import TXN, W, X

END = "#transaction.0000000000000000000000000000000a"


def begin(store: Any, peer: Any, *segments: str) -> None:
    """A transaction over these segments, which are made first if they are not there."""
    for number, name in enumerate(segments):
        if name not in store.container.state.segments:
            peer.ask(ws.CreateSegment(1, name, 0, 0))
        peer.ask(ws.CreateSegment(1, name + END, 0, 0))
        peer.setup(name + END, writer_of(number))


def writer_of(number: int) -> bytes:
    return bytes([number]) * 16


def write(peer: Any, number: int, data: bytes, events: int, last: int) -> Any:
    [ack] = peer.ask(
        wire.AppendBlockEnd(writer_of(number), len(data), data, events, last, 9)
    )
    return ack


def commit(store: Any, *segments: str) -> None:
    """What a controller does."""
    state = store.container.state
    store.container.submit(state.merge([(name, name + END) for name in segments], 0))


def test_no_row_before_the_commit(peer, store, block):
    """Appends to a transaction are acknowledged, and take no lsn and make no row."""
    begin(store, peer, "s")
    assert write(peer, 0, block(b"a", b"b"), 2, 2).last_event == 2
    assert write(peer, 0, block(b"c"), 1, 3).write_offset == 27
    assert store.rows == []
    assert store.journal.durable_lsn == 0
    assert store.restarted().rows == []
    commit(store, "s")
    assert store.rows == []
    store.store()
    assert store.rows == [("s", b"a"), ("s", b"b"), ("s", b"c")]
    assert store.journal.durable_lsn == 3


def test_no_row_of_an_aborted_one(peer, store, block):
    """Neither now nor after a restart, and its memory is free again."""
    begin(store, peer, "s")
    write(peer, 0, block(b"never"), 1, 1)
    assert peer.ask(ws.DeleteSegment(2, "s" + END)) != []
    assert store.container.state.staged_bytes == 0
    again = store.restarted()
    assert store.rows == again.rows == []
    assert again.container.state.staged_bytes == 0
    late = wire.AppendBlockEnd(writer_of(0), 9, block(b"x"), 1, 2, 9)
    assert peer.ask(late) == [wire.NoSuchSegment(9, "s" + END, "", 2)]
    assert peer.ask(ws.MergeSegments(3, "s", "s" + END)) == [
        wire.NoSuchSegment(3, "s" + END)
    ]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_crash_anywhere(make_store, block, end):
    """After a crash behind any batch, with or without a checkpoint of any earlier
    moment, the transaction is open and can be ended, or it is ended already.
    """
    store = make_store()
    peer = store.peer()
    begin(store, peer, "s", "t")
    snapshots = {0: snapshot.save(Segments())}

    def keep() -> None:
        snapshots[len(store.journal.stored)] = snapshot.save(store.container.state)

    for number, last in itertools.product((0, 1), (1, 2)):
        write(peer, number, block(b"%d-%d" % (number, last)), 1, last)
        keep()
    written = len(store.journal.stored)
    rows = [("s", b"0-1"), ("s", b"0-2"), ("t", b"1-1"), ("t", b"1-2")]
    finish(store, end)
    keep()
    batches = store.journal.stored
    for crash in range(written, len(batches) + 1):
        for covered, data in snapshots.items():
            if covered > crash:
                continue
            again = make_store(state=snapshot.restore(data))
            for stored in batches[:crash]:
                again.container.replay(stored)
            again.container.start()
            ended = crash == len(batches)
            if end == "commit" or crash == written:
                assert again.container.state.staged_bytes == (0 if ended else 4 * 11)
            finish(again, end)
            assert again.rows == ([] if ended or end == "abort" else rows)
            length = 22 if end == "commit" else 0
            for name in ("s", "t"):
                assert again.container.state.find(name).length == length
                assert name + END not in again.container.state.segments


def finish(store: Any, end: str) -> None:
    """End the transaction, as far as that was not done."""
    state = store.container.state
    left = [name for name in ("s", "t") if name + END in state.segments]
    if end == "commit" and left:
        commit(store, *left)
    elif end == "abort":
        for name in left:
            store.container.submit(state.delete(name + END, 0))
    store.store()


def test_reading_an_open_one(store, block):
    """Its bytes are read where they are; who waits there hears of its end."""
    peer, reader = store.peer(), store.peer()
    name = "s" + END
    begin(store, peer, "s")
    data = block(b"first")
    part = wire.AppendBlockEnd(writer_of(0), len(data), data, 1, 1, 9)
    reader.send(ws.ReadSegment(name, 0, 100, "", 1))
    peer.send(part)
    assert reader.got == []
    store.store()
    assert reader.got == [ws.SegmentRead(name, 0, True, False, data, 1)]
    reader.send(ws.ReadSegment(name, 8, 3, "", 2))
    assert reader.got == [ws.SegmentRead(name, 8, True, False, b"first", 2)]
    reader.send(ws.ReadSegment(name, len(data), 3, "", 3))
    assert reader.got == []
    commit(store, "s")
    store.store()
    assert reader.got == [wire.NoSuchSegment(3, name, "", len(data))]
    reader.send(ws.ReadSegment("s", 0, 100, "", 4))
    assert reader.got == [ws.SegmentRead("s", 0, True, False, data, 4)]


def test_memory_has_a_limit(make_store, block):
    """What goes over it is refused by name, what was before it is acknowledged, and
    there is room again when a transaction ends, and after a restart all the same.
    """
    store = make_store(transaction_bytes=30)
    peer, other = store.peer(), store.peer()
    begin(store, peer, "s")
    other.setup("s", X)
    data = block(b"0123456789")
    peer.send(
        wire.AppendBlockEnd(writer_of(0), 18, data, 1, 1, 9),
        wire.AppendBlockEnd(writer_of(0), 18, data, 1, 2, 9),
    )
    store.store()
    assert [type(each) for each in peer.got] == [wire.DataAppended]
    assert peer.refused == (
        "36 bytes in open transactions and large events, limit 30 "
        "(options.transaction_bytes)"
    )
    [ack] = other.ask(wire.AppendBlockEnd(X, 18, data, 1, 1, 9))
    assert ack.last_event == 1
    again = store.restarted()
    assert again.container.state.staged_bytes == 18
    commit(again, "s")
    again.store()
    assert again.container.state.staged_bytes == 0


def test_nobody_merges_what_is_not_his(make_store, block):
    """A token must be good for the source as well: data do not change their owner."""
    store = make_store(
        check=lambda token, segment, need: None if segment[0] in token else 0
    )
    mine, other = store.peer(), store.peer()
    mine.ask(ws.CreateSegment(1, "s" + END, 0, 0, "s"))
    data = block(b"secret")
    mine.ask(
        wire.SetupAppend(1, W, "s" + END, "s"),
        wire.AppendBlockEnd(W, 14, data, 1, 1, 9),
    )
    other.ask(ws.CreateSegment(1, "t", 0, 0, "t"))
    request = ws.MergeSegments(2, "t", "s" + END, "t")
    assert store.peer().ask(request) == [wire.AuthTokenCheckFailed(2, "", 0)]
    assert store.rows == []
    assert mine.ask(ws.MergeSegments(3, "s", "s" + END, "s")) != []
    assert store.rows == [("s", b"secret")]


def test_a_large_event(peer, store, block):
    """It is written in parts aside, and is one row when it is merged on a condition."""
    [made] = peer.ask(ws.CreateTransientSegment(1, W, "s"))
    name = made.segment
    peer.setup(name)
    data = block(b"x" * 100)
    for number, at in enumerate(range(0, len(data), 27), 1):
        [ack] = peer.ask(wire.ConditionalBlockEnd(W, number, at, data[at : at + 27], 9))
        assert ack.last_event == number
    assert store.rows == []
    wrong = [AttributeUpdate(W, 4, 7, 3)]
    assert peer.ask(ws.MergeSegments(2, "s", name, "", wrong)) == [
        ws.SegmentAttributeUpdated(2, success=False)
    ]
    assert store.rows == []
    right = [AttributeUpdate(W, 4, 7, wire.NEVER)]
    merged = ws.SegmentsMerged(3, "s", name, 108)
    assert peer.ask(ws.MergeSegments(3, "s", name, "", right)) == [merged]
    assert store.rows == [("s", b"x" * 100)]
    assert peer.ask(ws.MergeSegments(4, "s", name, "", right)) == [
        ws.SegmentsMerged(4, "s", name, 108)
    ]
    assert store.rows == [("s", b"x" * 100)]
    assert peer.setup() == 7


def test_a_large_event_for_a_segment_that_was_sealed(peer, store, block):
    """Its client is told, and writes it anew elsewhere: nothing of it stays until then."""
    [made] = peer.ask(ws.CreateTransientSegment(1, W, "s"))
    peer.setup(made.segment)
    peer.ask(wire.ConditionalBlockEnd(W, 1, 0, block(b"large"), 9))
    peer.ask(ws.SealSegment(2, "s"))
    told = peer.ask(ws.MergeSegments(3, "s", made.segment))
    assert told == [wire.SegmentIsSealed(3, "s")]
    assert store.container.state.staged_bytes == 0


def test_an_event_that_is_larger_than_all_room(make_store, block):
    """Its writer is told at once, with the reason and by a reply that says not to try
    again; what had come of it is gone, and there is room for others.
    """
    store = make_store(transaction_bytes=100)
    peer = store.peer()
    [made] = peer.ask(ws.CreateTransientSegment(1, W, "s"))
    peer.setup(made.segment)
    data = block(b"x" * 200)
    parts = [
        wire.ConditionalBlockEnd(W, number, at, data[at : at + 40], 9 + number)
        for number, at in enumerate(range(0, len(data), 40))
    ]
    peer.send(*parts[:4])
    store.store()
    first, second, refused, gone = peer.got
    assert [type(first), type(second)] == [wire.DataAppended, wire.DataAppended]
    why = "a large event of 120 bytes or more, limit 100 (options.transaction_bytes)"
    assert refused == wire.OperationUnsupported(11, why, why)
    assert list(map(str, peer.connection.reported)) == [why]
    assert gone == wire.NoSuchSegment(12, made.segment, "", 3)
    assert store.container.state.staged_bytes == 0
    assert peer.refused == ""
    small = store.peer()
    [made] = small.ask(ws.CreateTransientSegment(1, X, "s"))
    small.setup(made.segment, X)
    small.ask(wire.ConditionalBlockEnd(X, 0, 0, block(b"small"), 9))
    small.ask(ws.MergeSegments(2, "s", made.segment))
    assert store.rows == [("s", b"small")]
    peer.connection.lose()
    store.store()
    assert store.restarted().container.state.staged_bytes == 0


EVENT = (1000).to_bytes(8) + b"x" * 1000


@pytest.mark.parametrize("sizes", [(1 << 16,), (70_000, 3, 0, 1 << 20), (65_535,)])
@pytest.mark.parametrize("updates", [0, 2])
def test_pieces_are_the_body(sizes, updates):
    """Byte for byte."""
    made: list[Any] = [
        Merge("s", f"{TXN}{n}", n * 1000, n, n, memoryview(b"m" * size))
        for n, size in enumerate(sizes)
    ]
    made += [Attribute("s", W, n) for n in range(updates)]
    for number in (1, 1 << 40):
        whole = msgspec.msgpack.encode(records.Body(1, number, made))
        assert b"".join(records.pieces(number, made)) == whole
        assert records.pack(number, made) == whole


def test_as_many_records_as_there_may_be():
    """The number of records before them has other sizes, too."""
    for count in (1, 15, 16, 1000, 70_000):
        made: list[Any] = [Attribute("s", W, 1)] * count
        assert b"".join(records.pieces(7, made)) == records.pack(7, made)


@pytest.mark.parametrize("size", [20_000, 131_072])
def test_a_body_takes_no_more_memory_than_its_bytes(size):
    """Thousands of them are kept for readers at the tail."""
    made: list[Any] = [Append("s", 0, b"w" * 16, 1, 1, 1, memoryview(b"m" * size))]
    tracemalloc.start()
    try:
        bodies = [records.pack(number, made) for number in range(100)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1.02 * sum(map(len, bodies))


@pytest.fixture
def staged(make_store, monkeypatch) -> Any:
    """Where 50 KB are large, and 10 KB are copied in a turn."""
    monkeypatch.setattr(segments, "_WHOLE_BYTES", 50_000)
    monkeypatch.setattr(assembly, "STEP_BYTES", 10_000)
    made = make_store(
        unacknowledged_bytes=1 << 25, transaction_bytes=1 << 25, recent_bytes=1 << 20
    )
    peer = made.peer()
    peer.ask(CreateSegment(1, TXN, 0, 0))
    peer.setup(TXN)
    data = EVENT * 100
    peer.ask(AppendBlockEnd(W, len(data), data, 100, 100, 1))
    return made


def turn(store: Any) -> None:
    """The next thing that the event loop does."""
    call = store.clock.calls[0]
    store.clock.calls.remove(call)
    call.called = 1
    call.func(*call.args, **call.kw)


def test_a_large_merge_takes_turns(staged):
    """Nothing is submitted before it, and what comes meanwhile is behind it; in the end
    all is as if it had been done at once, after a crash too.
    """
    merger, writer = staged.peer(), staged.peer()
    writer.setup()
    before = len(staged.journal.submitted)
    merger.send(MergeSegments(2, "s", TXN, "", [AttributeUpdate(b"a" * 16, 1, 5, 0)]))
    assert TXN not in staged.container.state.segments
    writer.send(AppendBlockEnd(W, len(EVENT), EVENT, 1, 1, 7))
    turns = 0
    while len(staged.journal.submitted) == before:
        turn(staged)
        turns += 1
    assert turns == 11
    assert [batch.count for batch in staged.journal.submitted[before:]] == [100, 1]
    assert merger.got == writer.got == []
    staged.store()
    assert merger.got == [SegmentsMerged(2, "s", TXN, 100_800)]
    assert [type(one) for one in writer.got] == [DataAppended]
    assert staged.rows == [("s", b"x" * 1000)] * 101
    again = staged.restarted().container.state.segments["s"]
    assert again.length == 100_800 + 1008
    assert again.attribute(b"a" * 16) == 5


def test_what_waits_for_a_large_merge_may_be_lost(staged):
    """All whose changes can not be stored any more are told."""
    merger, writer = staged.peer(), staged.peer()
    writer.setup()
    other = staged.peer()
    other.setup(writer=b"o" * 16)
    other.send(AppendBlockEnd(b"o" * 16, len(EVENT), EVENT, 1, 1, 7))
    merger.send(MergeSegments(2, "s", TXN))
    writer.send(AppendBlockEnd(W, len(EVENT), EVENT, 1, 1, 7))
    staged.journal.refuse("disk full")
    staged.clock.advance(0)
    for peer in (other, merger, writer):
        assert peer.connection.closed
    assert not staged.journal.pending
