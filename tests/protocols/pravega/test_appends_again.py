"""Appends that come again, are cut anywhere, or meet pressure, losses and crashes.

Numbers in the names are those of the list of behaviours in docs/pravega.md.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.pravega import wire
from gateway.protocols.pravega.codec import encode
from gateway.protocols.pravega.wire_segments import (
    CreateSegment,
    MergeSegments,
    ReadSegment,
    SealSegment,
)

from .blocks import bare, content, partial
from .conftest import TXN, W, X


def test_43_same_number_twice(writer, store, block):
    """It is stored once and acknowledged again, now and after a restart."""
    writer.ask(bare(block(b"a"), 1), bare(block(b"b", b"c"), 3, 2))
    again = [wire.DataAppended(W, 3, 1, 9, 27)]
    assert writer.ask(bare(block(b"b", b"c"), 3, 2)) == again
    assert len(store.rows) == 3
    later = store.restarted()
    writer = later.peer()
    assert writer.setup() == 3
    assert writer.ask(bare(block(b"a"), 1)) == [wire.DataAppended(W, 1, 0, 9, 27)]
    assert writer.ask(bare(block(b"b", b"c"), 3, 2)) == again
    assert writer.ask(bare(block(b"d"), 4)) == [wire.DataAppended(W, 4, 3, 9, 36)]
    assert later.rows == [("s", b"d")]


def test_gaps_are_fine(writer, block):
    """Numbers may jump."""
    writer.ask(bare(block(b"1"), 3))
    assert writer.ask(bare(block(b"2"), 10)) == [wire.DataAppended(W, 10, 3, 9, 18)]


def test_too_many_writers(make_store):
    """One connection sets up so many and no more."""
    peer = make_store(writers=1).peer()
    peer.setup()
    peer.send(wire.SetupAppend(1, X, "s"))
    assert "options.writers" in peer.refused


def test_writers_of_ended_transactions_make_room(make_store, block):
    """A client may have any number of them over one connection, one after the other."""
    peer = make_store(writers=2).peer()
    for number in range(5):
        writer, name = bytes([number]) * 16, TXN[:-1] + str(number)
        peer.ask(CreateSegment(1, name, 0, 0))
        peer.setup(name, writer)
        peer.ask(bare(block(b"x"), 1, writer=writer), MergeSegments(2, "s", name))
    assert peer.refused == ""


def test_62_63_bytes_that_stop_anywhere(store, block):
    """A half message stores nothing, however long its peer stays silent."""
    stream = encode(wire.SetupAppend(1, W, "s")) + encode(bare(block(b"abc"), 1))
    for cut in range(len(stream)):
        peer = store.peer()
        peer.connection.deliver(stream[:cut])
        store.store()
        assert store.rows == []
        peer.connection.lose()
    assert store.journal.reserved == 0


@settings(max_examples=60)
@given(st.integers(0, 200), st.integers(0, 255), st.integers(0, 300))
def test_63_flipped_bytes(make_store, block, at, value, cut):
    """Any byte may be wrong: an answer, or a refusal, and never anything else."""
    store = make_store()
    peer = store.peer()
    stream = bytearray(
        encode(wire.SetupAppend(1, W, "s"))
        + encode(wire.AppendBlock(W, block(b"abc") + partial(block(b"defg")[:4])))
        + encode(wire.AppendBlockEnd(W, 11, block(b"defg")[4:], 2, 2, 1))
        + encode(ReadSegment("s", 0, 100, "", 2))
        + encode(CreateSegment(3, "t", 0, 0))
    )
    stream[at % len(stream)] = value
    peer.connection.deliver(bytes(stream[:cut]))
    peer.connection.deliver(bytes(stream[cut:]))
    store.store()
    assert peer.connection.failure is None
    lengths = [
        {name: segment.length for name, segment in one.container.state.segments.items()}
        for one in (store, store.restarted())
    ]
    assert lengths[0] == lengths[1]


def test_56_pressure_of_a_full_journal(store, block):
    """Only who appends is not read, and goes on by itself when there is room; readers,
    metadata and new connections go on meanwhile.
    """
    peer, other = store.peer(), store.peer()
    peer.setup()
    peer.ask(bare(block(b"a"), 1))
    store.journal.full = True
    peer.send(wire.KeepAlive())
    assert peer.got == [wire.KeepAlive()]
    peer.send(bare(block(b"b"), 2))
    assert peer.connection.paused
    peer.send(bare(block(b"c"), 3))
    new = store.peer()
    for each in (other, new):
        assert each.ask(ReadSegment("s", 0, 9, "", 1))[0].data == block(b"a")
        assert each.ask(CreateSegment(2, f"t{id(each)}", 0, 0)) != []
        assert not each.connection.paused
    assert peer.got == [wire.DataAppended(W, 2, 1, 9, 18)]
    store.journal.full = False
    store.store()
    assert peer.got == [wire.DataAppended(W, 3, 2, 9, 27)]


def test_56_metadata_without_end(peer, store):
    """A full journal takes little of a connection that brings no events, either."""
    store.journal.full = True
    for number in range(100):
        peer.send(CreateSegment(number, f"t{number}", 0, 0))
        store.journal.store_all()
    assert not peer.connection.paused
    for number in range(100, 200):
        peer.send(CreateSegment(number, f"t{number}", 0, 0))
        store.journal.store_all()
    assert peer.connection.paused
    store.journal.full = False
    assert not peer.connection.paused


@pytest.mark.parametrize("stored_first", [True, False])
def test_57_connection_lost_around_the_store(writer, store, block, stored_first):
    """Whether it breaks before or after the store, what is sent again is there once."""
    writer.send(bare(block(b"a", b"b"), 2, 2))
    if stored_first:
        store.journal.store()
    writer.connection.lose()
    store.store()
    assert writer.got == []
    again = store.peer()
    assert again.setup() == 2
    again.ask(bare(block(b"a", b"b"), 2, 2), bare(block(b"c"), 3))
    assert [payload for _, payload in store.rows] == [b"a", b"b", b"c"]


def test_58_killed_before_the_ack(writer, store, block):
    """What became durable and was never acknowledged is there once after a restart;
    what did not is asked for again."""
    writer.send(bare(block(b"a"), 1), bare(block(b"b"), 2))
    store.journal.store()
    assert writer.got == []
    later = store.restarted()
    again = later.peer()
    assert again.setup() == 1
    assert again.ask(bare(block(b"b"), 2)) == [wire.DataAppended(W, 2, 1, 9, 18)]
    assert content(later) == block(b"a", b"b")


def test_58_killed_behind_the_ack(writer, store, block):
    """What was acknowledged and is in no file yet is in the journal, and read from it."""
    assert writer.ask(bare(block(b"a", b"b"), 2, 2)) != []
    later = store.restarted()
    assert later.peer().setup() == 2
    assert content(later) == block(b"a", b"b")
    assert later.rows == []


def test_61_much_then_a_reset(writer, store, block):
    """Ten megabytes in the pipeline and a reset: whole blocks are stored, in order."""
    data = block(b"x" * 1000) * 100
    for number in range(1, 101):
        writer.connection.deliver(encode(bare(data, number * 100, 100)))
        if number % 9 == 0:
            store.store()
    writer.connection.deliver(encode(bare(data, 10_100, 100))[:5000])
    writer.connection.lose()
    store.store()
    assert len(store.rows) % 100 == 0
    assert store.peer().setup() == len(store.rows)
    assert store.journal.reserved == 0


@pytest.mark.parametrize("rest", [b"", b"\0\0\0\0\0\0\0\x63b"])
def test_what_is_not_there_is_not_acknowledged(writer, store, block, rest):
    """A block that says it has more than what is stored already must have it."""
    writer.ask(bare(block(b"a"), 1))
    data = rest or block(b"a")
    assert writer.ask(bare(data, 2, 2)) == []
    assert "only those that are stored" in writer.refused
    assert store.peer().setup() == 1


def test_what_has_begun_is_named(writer, block):
    """For the log of a connection that goes no further: the block, and its writer."""
    assert writer.server.begun() == ""
    sent = encode(wire.AppendBlock(W, block(b"one")))
    writer.connection.deliver(sent[:-3])
    told = f"of writer {W.hex()} to 's'"
    size = len(sent) - 8
    assert writer.server.begun() == (
        f"AppendBlock {told}: {size} bytes announced, {size - 3} came"
    )
    writer.connection.deliver(sent[-3:])
    assert writer.server.begun() == (
        f"append block {told}: 11 bytes came, and not its end"
    )
    writer.connection.deliver(encode(wire.AppendBlockEnd(W, 11, b"", 1, 1)))
    assert writer.server.begun() == ""
    writer.ask(
        SealSegment(1, "s"), bare(block(b"a"), 2), wire.AppendBlock(W, block(b"b"))
    )
    assert writer.server.begun() == "append block: 9 bytes came, and not its end"
    # Of a writer that is not set up nothing is known but its message.
    writer.connection.deliver(encode(wire.AppendBlock(X, block(b"one")))[:-3])
    assert writer.server.begun().startswith("AppendBlock: ")
