"""Large merges: their bodies are put together in turns, and are what they would be at once."""

import tracemalloc
from typing import Any

import msgspec
import pytest

from gateway.protocols.pravega import container as assembly
from gateway.protocols.pravega import records, segments
from gateway.protocols.pravega.codec import AttributeUpdate
from gateway.protocols.pravega.records import Append, Attribute, Merge
from gateway.protocols.pravega.wire import AppendBlockEnd, DataAppended
from gateway.protocols.pravega.wire_segments import (
    CreateSegment,
    MergeSegments,
    SegmentsMerged,
)

from .conftest import W

TXN = "s#transaction.0000000000000000000000000000000a"
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
def store(make_store, monkeypatch) -> Any:
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


def test_a_large_merge_takes_turns(store):
    """Nothing is submitted before it, and what comes meanwhile is behind it; in the end
    all is as if it had been done at once, after a crash too.
    """
    merger, writer = store.peer(), store.peer()
    writer.setup()
    before = len(store.journal.submitted)
    merger.send(MergeSegments(2, "s", TXN, "", [AttributeUpdate(b"a" * 16, 1, 5, 0)]))
    assert TXN not in store.container.state.segments
    writer.send(AppendBlockEnd(W, len(EVENT), EVENT, 1, 1, 7))
    turns = 0
    while len(store.journal.submitted) == before:
        turn(store)
        turns += 1
    assert turns == 11
    assert [batch.count for batch in store.journal.submitted[before:]] == [100, 1]
    assert merger.got == writer.got == []
    store.store()
    assert merger.got == [SegmentsMerged(2, "s", TXN, 100_800)]
    assert [type(one) for one in writer.got] == [DataAppended]
    assert store.rows == [("s", b"x" * 1000)] * 101
    again = store.restarted().container.state.segments["s"]
    assert again.length == 100_800 + 1008
    assert again.attribute(b"a" * 16) == 5


def test_what_waits_for_a_large_merge_may_be_lost(store):
    """All whose changes can not be stored any more are told."""
    merger, writer = store.peer(), store.peer()
    writer.setup()
    other = store.peer()
    other.setup(writer=b"o" * 16)
    other.send(AppendBlockEnd(b"o" * 16, len(EVENT), EVENT, 1, 1, 7))
    merger.send(MergeSegments(2, "s", TXN))
    writer.send(AppendBlockEnd(W, len(EVENT), EVENT, 1, 1, 7))
    store.journal.refuse("disk full")
    store.clock.advance(0)
    for peer in (other, merger, writer):
        assert peer.connection.closed
    assert not store.journal.pending
