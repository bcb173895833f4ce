"""Appends whose data are a view of their message, as those of 64 KiB and more are."""

import pytest

from gateway.protocols.pravega.appends import LARGE
from gateway.protocols.pravega.codec import _VIEWED, decode, encode
from gateway.protocols.pravega.frames import HEADER_BYTES, frame
from gateway.protocols.pravega.wire import (
    NEVER,
    AppendBlock,
    AppendBlockEnd,
    DataAppended,
)

from .conftest import Block, W

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
def test_a_writer_repeats_no_whole_events(store, block, size):
    """What is stored already can not be told from the rest: it closes."""
    peer = store.peer()
    peer.setup()
    peer.ask(end(block(b"a"), 1, 1))
    assert peer.ask(end(b"\1" * size, 2, 2)) == []
    assert "not of whole events" in peer.refused
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
