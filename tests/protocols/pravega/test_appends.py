"""Appends in version 17: blocks, event numbers, acknowledgements, refusals.

Numbers in the names are those of the list of behaviours in docs/pravega.md.
"""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.pravega import wire
from gateway.protocols.pravega import wire_segments as ws
from gateway.protocols.pravega import wire_tables as wt
from gateway.protocols.pravega.appends import LARGE
from gateway.protocols.pravega.codec import _VIEWED, decode, encode
from gateway.protocols.pravega.errors import Need
from gateway.protocols.pravega.frames import HEADER_BYTES, frame
from gateway.protocols.pravega.wire import (
    NEVER,
    AppendBlock,
    AppendBlockEnd,
    DataAppended,
)

from .blocks import bare, blocked, content, padding, partial
from .conftest import Block, W, X


@pytest.mark.parametrize("versions", [(17, 5), (15, 5), (99, 17), (5, 1)])
def test_hello(store, versions):
    """We say 17 to 5 to whoever shares a version with us."""
    peer = store.peer(hello=False)
    peer.send(wire.Hello(*versions))
    assert peer.got == [wire.Hello(17, 5)]
    assert not peer.refused


@pytest.mark.parametrize("versions", [(4, 1), (20, 18)])
def test_hello_of_another_age(store, versions):
    """Who shares none is told which, and closed."""
    peer = store.peer(hello=False)
    peer.send(wire.Hello(*versions))
    assert peer.got == [wire.Hello(17, 5)]
    assert "limit 5 to 17" in peer.refused


def test_5_bad_frames_close(peer):
    """An unknown type closes the connection, and nothing is said."""
    peer.connection.deliver(struct.pack(">ii", 6, 0))
    assert "unknown message type 6" in peer.refused
    assert peer.got == []


def test_9_append_without_setup(store, block):
    """It closes the connection and stores nothing."""
    for messages in (
        [bare(block(b"a"), 1)],
        blocked(block(b"a"), b"", 9, 1, 1),
        [wire.ConditionalAppend(W, 1, 0, b"a")],
    ):
        peer = store.peer()
        peer.send(*messages)
        assert "not set up" in peer.refused
    assert store.rows == []


def test_10_bare_end(peer, store, block):
    """An end without a block carries everything (Rust and Python clients)."""
    assert peer.setup() == wire.NEVER
    data = block(b"hello", b"", b"world")
    assert peer.ask(bare(data, 3, 3)) == [
        wire.DataAppended(W, 3, wire.NEVER, 9, len(data))
    ]
    assert content(store) == data
    assert store.rows == [("s", b"hello"), ("s", b""), ("s", b"world")]


def test_11_end_for_another_writer(writer, block):
    """It closes."""
    writer.setup(writer=X)
    writer.send(wire.AppendBlock(W, block(b"a")), bare(b"", 1, writer=X))
    assert "another writer's block" in writer.refused


@pytest.mark.parametrize("events", [0, -1])
def test_12_no_events(writer, block, events):
    """Their number must be positive."""
    writer.send(bare(block(b"a"), 1, events))
    assert f"append of {events} events" in writer.refused


def test_12_empty_data_is_acknowledged(writer, store):
    """An append of no bytes counts."""
    assert writer.ask(bare(b"", 1)) == [wire.DataAppended(W, 1, wire.NEVER, 9, 0)]
    assert store.rows == []


def test_13_numbers_go_forward(writer, store, block):
    """A number below one that this connection sent closes it; so does a negative."""
    writer.send(bare(block(b"a"), 5), bare(block(b"b"), 4))
    store.store()
    assert writer.got == [wire.DataAppended(W, 5, wire.NEVER, 9, 9)]
    assert "event number 4 after 5" in writer.refused
    writer = store.peer()
    writer.setup(writer=X)
    writer.send(bare(block(b"a"), -3, writer=X))
    assert "event number -3" in writer.refused


@pytest.mark.parametrize("size", [-1, 10])
def test_14_whole_events_are_in_the_block(writer, store, block, size):
    """Their size is neither negative nor beyond the block."""
    writer.send(*blocked(block(b"a"), b"", size, 1, 1))
    assert "bytes of events in a block of 9" in writer.refused
    assert store.rows == []


def test_15_event_exactly_filling_the_block(writer, store, block):
    """Java then sends a part with nothing of it missing, or no part at all."""
    first, second = block(b"aaaa"), block(b"bbbbbbbb")
    writer.ask(*blocked(first + partial(second), b"", len(first), 2, 2))
    writer.ask(*blocked(first, b"", len(first), 3, 1))
    writer.ask(*blocked(first + partial(b""), second, len(first), 5, 2))
    assert content(store) == first + second + first + first + second


@settings(max_examples=60)
@given(st.data())
def test_16_blocks_cut_anywhere(make_store, block, data):
    """Wherever a block's end cuts its last event, the event is whole again."""
    store = make_store()
    peer = store.peer()
    peer.setup()
    whole = block(b"a" * 20) * data.draw(st.integers(0, 3))
    last = block(b"z" * data.draw(st.integers(0, 40)))
    cut = data.draw(st.integers(0, len(last)))
    peer.ask(*blocked(whole + partial(last[:cut]), last[cut:], len(whole), 4, 4))
    assert content(store) == whole + last
    assert not peer.refused


def test_18_empty_events_in_a_block(writer, store, block):
    data = block(b"", b"a", b"")
    writer.ask(*blocked(data + padding(30), b"", len(data), 3, 3))
    assert [payload for _, payload in store.rows] == [b"", b"a", b""]


@pytest.mark.parametrize("size", [0, 1, 1955])
def test_20_21_22_padding(writer, store, block, size):
    """A block ended early, or exactly at its border, has padding, which is dropped."""
    data = block(b"ev-1", b"ev-2")
    [ack] = writer.ask(*blocked(data + padding(size), b"", len(data), 2, 2))
    assert ack == wire.DataAppended(W, 2, wire.NEVER, 9, 24)
    assert content(store) == data


@pytest.mark.parametrize("rest", [b"\0" * 3, b"\0" * 20, partial(b"x")[:-1]])
def test_rest_of_a_block(writer, block, rest):
    """What is neither a part nor padding closes."""
    data = block(b"a")
    writer.send(*blocked(data + rest, b"", len(data), 1, 1))
    assert "append block ends in neither" in writer.refused


def test_23_several_writers_on_one_connection(peer, store, block):
    """Each has its numbers and its segment; a writer may be set up on another one."""
    peer.ask(ws.CreateSegment(1, "t", 0, 0))
    peer.setup("s", W)
    peer.setup("t", X)
    acks = peer.ask(
        bare(block(b"1"), 1), bare(block(b"2"), 7, writer=X), bare(block(b"3"), 2)
    )
    assert acks == [
        wire.DataAppended(W, 2, wire.NEVER, 9, 18),
        wire.DataAppended(X, 7, wire.NEVER, 9, 9),
    ]
    assert peer.setup("t", W) == wire.NEVER
    peer.ask(bare(block(b"4"), 1))
    assert content(store, "t") == block(b"2", b"4")


def test_24_data_behind_padding(writer, block):
    """It closes."""
    data = block(b"a")
    writer.send(*blocked(data + padding(9), b"x", len(data), 1, 1))
    assert "behind the padding" in writer.refused


def test_25_others_between_block_and_end(writer, store, block):
    """KeepAlive and reads are answered at once, in the middle of a block."""
    writer.ask(bare(block(b"old"), 1))
    writer.send(wire.AppendBlock(W, block(b"new")), wire.KeepAlive(b"x"))
    assert writer.got == [wire.KeepAlive()]
    writer.send(ws.ReadSegment("s", 0, 100, "", 5))
    [read] = writer.got
    assert isinstance(read, ws.SegmentRead)
    assert writer.ask(wire.AppendBlockEnd(W, 11, b"", 1, 2, 9)) == [
        wire.DataAppended(W, 2, 1, 9, 22)
    ]
    assert content(store) == block(b"old", b"new")


@pytest.mark.parametrize(("version", "answer"), [(10, []), (11, [wire.KeepAlive()])])
def test_keep_alive_of_old_clients(store, version, answer):
    """Java's client up to 0.8 (version 10) drops its connection for an answer to it."""
    peer = store.peer(hello=False)
    peer.send(wire.Hello(version, 5))
    assert peer.got == [wire.Hello(17, 5)]
    peer.send(wire.KeepAlive())
    assert peer.got == answer
    assert peer.setup() == wire.NEVER


def test_26_setup_between_block_and_end(store, block):
    """Nothing of appends may come between; it closes."""
    for message in (
        wire.SetupAppend(1, X, "s"),
        wire.AppendBlock(W, b""),
        wire.ConditionalAppend(W, 1, 0, b""),
        wire.ConditionalBlockEnd(W, 1, 0, b""),
    ):
        peer = store.peer()
        peer.setup()
        peer.send(wire.AppendBlock(W, block(b"a")), message)
        assert "inside an append block" in peer.refused


def test_27_order_over_sessions(store, block):
    """What was appended earlier lies earlier."""
    for number in range(1, 4):
        peer = store.peer()
        peer.setup()
        peer.ask(bare(block(b"%d" % number), number))
        peer.connection.lose()
    assert content(store) == block(b"1", b"2", b"3")


def test_28_29_setup_says_the_last_number(peer, store, block):
    """NEVER to a new writer; after that what is stored, over restarts too."""
    assert peer.setup() == wire.NEVER
    peer.ask(bare(block(b"a"), 4))
    assert store.peer().setup() == 4
    assert store.restarted().peer().setup() == 4


def test_setup_waits_for_what_it_tells(store, block):
    """A number that is not durable yet is not told: it would be an acknowledgement."""
    peer, other = store.peer(), store.peer()
    peer.setup()
    peer.send(bare(block(b"a"), 4))
    other.send(wire.SetupAppend(1, W, "s"))
    assert other.got == []
    store.store()
    assert other.got == [wire.AppendSetup(1, "s", W, 4)]


def test_30_ack_follows_durability(writer, store, block):
    """Nothing is acknowledged before it is stored; then with what was before it."""
    writer.send(bare(block(b"a"), 1))
    assert writer.got == []
    store.store()
    assert writer.got == [wire.DataAppended(W, 1, wire.NEVER, 9, 9)]
    assert writer.ask(bare(block(b"b"), 5)) == [wire.DataAppended(W, 5, 1, 9, 18)]
    assert writer.connection.counted == 2


def test_31_one_ack_covers_a_group(writer, store, block):
    """Appends that become durable together are acknowledged once, none twice."""
    for number in range(1, 6):
        writer.send(bare(block(b"x"), number, request=number))
    assert writer.got == []
    store.journal.store()
    store.journal.store()
    store.clock.advance(0)
    assert writer.got == [wire.DataAppended(W, 2, wire.NEVER, 2, 18)]
    store.store()
    assert writer.got == [wire.DataAppended(W, 5, 2, 5, 45)]


def test_32_seal_in_the_pipeline(store, block):
    """Acks first, then an error for each append that failed, then it is not set up."""
    peer, other = store.peer(), store.peer()
    peer.setup()
    peer.send(*(bare(block(b"x"), n) for n in range(1, 6)))
    other.send(ws.SealSegment(3, "s"))
    peer.send(bare(block(b"y"), 6), bare(block(b"y"), 7))
    store.store()
    assert peer.got == [
        wire.DataAppended(W, 5, wire.NEVER, 9, 45),
        wire.SegmentIsSealed(9, "s", "", 6),
        wire.SegmentIsSealed(9, "s", "", 7),
    ]
    assert other.got == [ws.SegmentSealed(3, "s")]
    assert not peer.refused
    peer.send(bare(block(b"z"), 8))
    assert "not set up" in peer.refused
    assert content(store) == block(b"x") * 5


def test_33_setup_twice(store, block):
    """On one connection it starts afresh; on two, both know the same number."""
    peer, other = store.peer(), store.peer()
    peer.setup()
    peer.ask(bare(block(b"a"), 3))
    assert peer.setup() == 3
    assert other.setup() == 3
    assert peer.ask(bare(block(b"b"), 4)) == [wire.DataAppended(W, 4, 3, 9, 18)]


def test_34_zombie(store, block):
    """Who was overtaken by a newer connection is told and closed; nothing is stored."""
    old, new = store.peer(), store.peer()
    old.setup()
    old.ask(bare(block(b"1"), 1))
    assert new.setup() == 1
    assert new.ask(bare(block(b"2"), 2)) == [wire.DataAppended(W, 2, 1, 9, 18)]
    old.send(bare(block(b"2"), 2))
    store.store()
    assert old.got == [wire.InvalidEventNumber(W, 9, "", 2)]
    assert "another connection" in old.refused
    assert content(store) == block(b"1", b"2")


def test_34_acks_before_the_end(store, block):
    """What a connection was owed before its violation it still gets, in order."""
    peer, other = store.peer(), store.peer()
    peer.setup()
    peer.send(bare(block(b"1"), 1))
    peer.send(bare(block(b"1"), 0))
    assert not peer.refused
    store.store()
    assert peer.got == [wire.DataAppended(W, 1, wire.NEVER, 9, 9)]
    assert "event number 0" in peer.refused
    assert other.setup() == 1


def test_35_conditional(writer, store, block):
    """At the wrong length it fails and nothing else happens; then the right one."""
    writer.ask(bare(block(b"0"), 0))
    assert writer.ask(wire.ConditionalAppend(W, 1, 5, b"a", 7)) == [
        wire.ConditionalCheckFailed(W, 1, 7)
    ]
    assert writer.ask(wire.ConditionalAppend(W, 1, 9, b"a", 8)) == [
        wire.DataAppended(W, 1, 0, 8, 18)
    ]
    assert writer.ask(wire.ConditionalBlockEnd(W, 2, 18, b"raw bytes", 9)) == [
        wire.DataAppended(W, 2, 1, 9, 27)
    ]
    assert content(store) == block(b"0", b"a") + b"raw bytes"
    assert store.rows == [("s", b"0"), ("s", b"a"), ("s", b"raw bytes")]


def test_35_each_is_answered(writer, store, block):
    """Conditional appends that become durable together are acknowledged one by one,
    whatever comes behind them: who made them waits for each answer.
    """
    writer.send(
        bare(block(b"a"), 1, request=5),
        wire.ConditionalBlockEnd(W, 2, 9, b"large", 6),
        wire.ConditionalBlockEnd(W, 3, 14, b"event", 7),
        bare(block(b"b"), 4, request=8),
        bare(block(b"c"), 5, request=9),
    )
    store.store()
    assert writer.got == [
        wire.DataAppended(W, 2, wire.NEVER, 6, 14),
        wire.DataAppended(W, 3, 2, 7, 19),
        wire.DataAppended(W, 5, 3, 9, 37),
    ]


def test_36_what_can_not_be_stored(store, block):
    """It closes every connection that waits, acknowledges nothing, and ends it all."""
    peer, other = store.peer(), store.peer()
    peer.setup()
    peer.send(bare(block(b"a"), 1))
    store.journal.refuse()
    assert peer.connection.closed
    assert peer.got == []
    assert peer.server.held_bytes == 0
    other.send(wire.SetupAppend(1, X, "s"))
    assert "nothing can be stored" in other.refused


def test_37_accounts_return_to_nothing(store, block):
    """Whatever happens to a connection, no byte stays counted for it."""
    peers = [store.peer() for _ in range(4)]
    for number, peer in enumerate(peers):
        peer.setup(writer=bytes([number]) * 16)
        writer = bytes([number]) * 16
        peer.send(
            bare(block(b"a" * 500), 1, writer=writer), wire.AppendBlock(writer, b"x")
        )
        peer.connection.deliver(encode(wire.KeepAlive(b"y" * 90))[:50])
        assert peer.server.unacknowledged_bytes > 500
    assert store.journal.reserved > 0
    peers[0].connection.lose()
    peers[1].connection.deliver(b"\xff" * 100)
    peers[2].server.drain()
    store.store()
    peers[3].connection.lose()
    assert store.journal.reserved == 0
    assert [peer.server.unacknowledged_bytes for peer in peers] == [0, 0, 0, 0]


def test_38_append_after_sealed(writer, block):
    """It is refused with the number of the event."""
    writer.ask(ws.SealSegment(1, "s"))
    assert writer.ask(bare(block(b"a"), 1)) == [wire.SegmentIsSealed(9, "s", "", 1)]


def test_39_setup_on_sealed(peer):
    """It succeeds."""
    peer.ask(ws.SealSegment(1, "s"))
    assert peer.setup() == wire.NEVER


def test_setup_and_append_on_nothing(peer, block):
    """A segment that is not there, or not any more, is said so."""
    assert peer.ask(wire.SetupAppend(1, W, "t")) == [wire.NoSuchSegment(1, "t")]
    peer.setup()
    peer.ask(ws.DeleteSegment(2, "s"))
    assert peer.ask(bare(block(b"a"), 4)) == [wire.NoSuchSegment(9, "s", "", 4)]


@pytest.mark.parametrize("size", [1, 3 * LARGE])
def test_a_table_in_the_place_of_a_segment(writer, block, size):
    """The writer of that is told that it is gone, also for an append that takes turns."""
    writer.ask(ws.DeleteSegment(1, "s"), wt.CreateTableSegment(2, "s"))
    answer = writer.ask(bare(block(bytes(size)), 4))
    assert answer == [wire.NoSuchSegment(9, "s", "", 4)]


def test_40_bad_token(make_store):
    """What is not allowed is refused with its code, and closes."""
    store = make_store(
        check=lambda token, segment, need: (
            None if (token, segment) == ("good", "s") else 0
        )
    )
    peer = store.peer()
    [setup] = peer.ask(wire.SetupAppend(1, W, "s", "good"))
    assert isinstance(setup, wire.AppendSetup)
    assert peer.ask(wire.SetupAppend(2, W, "s", "bad")) == [
        wire.AuthTokenCheckFailed(2, "", 0)
    ]
    assert "token not good for 's'" in peer.refused


def test_40_a_token_expires(make_store, block):
    """A writer's token ends while it is connected: nothing more of it is stored."""
    ends = 1_700_000_060

    def check(token: str, segment: str, need: Need) -> int | None:
        return 1 if store.clock.seconds() >= ends else None

    store = make_store(check=check)
    peer = store.peer()
    peer.setup()
    peer.send(bare(block(b"in time"), 1))
    store.clock.advance(60)
    peer.send(bare(block(b"late"), 2))
    assert peer.got == []
    store.store()
    ack, failed = peer.got
    assert ack.last_event == 1
    assert failed == wire.AuthTokenCheckFailed(9, "", 1)
    assert "token expired for 's'" in peer.refused
    assert store.rows == [("s", b"in time")]


#: Of an append's data: bytes, a view, and a view that is looked through in turns.
sizes = pytest.mark.parametrize("size", [_VIEWED - 1, _VIEWED, 3 * LARGE])


def end(data: bytes, last: int, events: int, whole: int = 0) -> AppendBlockEnd:
    return AppendBlockEnd(W, whole, data, events, last, 9)


def filled(block: Block, size: int) -> list[bytes]:
    """Three events with *size* bytes of data."""
    events = [b"1" * 100, b"2" * (size // 2)]
    return [*events, b"3" * (size - len(block(*events, b"")))]


@sizes
def test_what_is_a_view(size):
    """All that is large, and nothing else: so the tests below have both."""
    message = encode(end(bytes(size), 1, 1))
    kind = memoryview if size >= _VIEWED else bytes
    assert type(decode(4, message[HEADER_BYTES:]).data) is kind  # type: ignore[attr-defined]


@sizes
@pytest.mark.parametrize("repeated", [0, 1, 2])
def test_a_writer_repeats_events(store, block, size, repeated):
    """Of a large append that is stored in part, the rest is stored."""
    events = filled(block, size)
    data = block(*events)
    assert len(data) == size
    peer = store.peer()
    peer.setup()
    if repeated:
        peer.ask(end(block(*events[:repeated]), repeated, repeated))
    last = repeated or NEVER
    assert peer.ask(end(data, 3, 3)) == [DataAppended(W, 3, last, 9, size)]
    assert [payload for _, payload in store.rows] == events
    assert store.container.recent.read("s", 0, 1 << 24) == data


@sizes
def test_a_writer_repeats_no_whole_events(writer, store, block, size):
    """What is stored already can not be told from the rest: it closes."""
    writer.ask(end(block(b"a"), 1, 1))
    assert writer.ask(end(b"\1" * size, 2, 2)) == []
    assert "not of whole events" in writer.refused
    assert store.rows == [("s", b"a")]


@sizes
@pytest.mark.parametrize("cut", [0, 1, 8, 100])
def test_the_end_of_a_block(store, block, size, cut):
    """A large end makes the event whole of which the block has the first bytes, or none."""
    first, last = b"first", b"x" * (size + cut - 8)
    before, event = block(first), block(last)
    part = frame(-2, event[:cut]) if cut else b""
    peer = store.peer()
    peer.setup()
    [ack] = peer.ask(
        AppendBlock(W, before + part), end(event[cut:], 2, 2, whole=len(before))
    )
    assert ack == DataAppended(W, 2, NEVER, 9, len(before + event))
    assert store.rows == [("s", first), ("s", last)]
