"""Windows: what is a batch, what is acknowledged, what is refused."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.interfaces import Refusal
from gateway.protocols.lumberjack import wire
from gateway.protocols.lumberjack.events import decode, head
from gateway.protocols.lumberjack.session import Limits, Session

_V1, _V2 = b"12"
_BODY = b'{"message":"hi"}'


def _events(*seqs: int) -> bytes:
    return b"".join(wire.json(_V2, seq, _BODY) for seq in seqs)


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_any_slicing(
    outcome: Callable[..., Any], strategies: Any, data: st.DataObject
) -> None:
    """However the network slices a stream: same events, same acknowledgements."""
    pieces = data.draw(strategies.sliced(strategies.streams))
    assert outcome(pieces) == outcome([b"".join(pieces)])


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_any_slicing_of_broken_streams(
    outcome: Callable[..., Any], strategies: Any, data: st.DataObject
) -> None:
    """… same refusal too, when bytes of it are wrong."""
    stream = bytearray(data.draw(strategies.streams))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(stream)))
        stream[at : at + 1] = data.draw(st.binary(max_size=3))
    pieces = data.draw(strategies.sliced(st.just(bytes(stream))))
    limits = Limits(inflated_bytes=1 << 20, compressed_bytes=1 << 20)
    sliced, whole = outcome(pieces, limits), outcome([bytes(stream)], limits)
    assert (sliced.acks, sliced.events) == (whole.acks, whole.events)
    assert (sliced.refusal is None) == (whole.refusal is None)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_compression_changes_nothing(
    outcome: Callable[..., Any], strategies: Any, data: st.DataObject
) -> None:
    """A window comes to the same events compressed, bare, or half and half."""
    frames = data.draw(st.lists(strategies.frames, min_size=1, max_size=8))
    cut = data.draw(st.integers(0, len(frames)))
    first, second = b"".join(frames[:cut]), b"".join(frames[cut:])
    announced = wire.window(_V2, len(frames))
    bare = outcome([announced, first, second])
    assert bare.refusal is None
    for stream in (
        announced + wire.compressed(_V2, first + second),
        announced + wire.compressed(_V2, first) + wire.compressed(_V1, second),
        announced + first + wire.compressed(_V2, second),
        wire.compressed(_V2, announced + first) + second,
        wire.compressed(_V2, announced + first + second + announced + first + second),
    ):
        found = outcome([stream])
        times = 2 if len(found.acks) == 2 * len(bare.acks) else 1
        assert found.acks == bare.acks * times
        assert found.events == bare.events * times


def test_compressed_frames_are_stored_as_they_came(many_events: list[bytes]) -> None:
    """A window of whole compressed frames costs the journal their bytes, no more."""
    frames = [wire.json(_V2, n + 1, event) for n, event in enumerate(many_events)]
    first = wire.compressed(_V2, b"".join(frames[:1000]))
    second = wire.compressed(_V2, b"".join(frames[1000:2000]))
    bare = b"".join(frames[2000:])
    *_, ready = Session(Limits()).received(
        wire.window(_V2, 3000) + first + second + bare
    )
    assert ready.body[head(ready.body)[-1] :] == first + second + bare
    assert ready.payload_bytes == sum(map(len, many_events))
    rows = decode(ready.body)
    assert rows.payloads == many_events
    assert rows.seqs == list(range(1, 3001))
    assert not rows.flaws


def test_a_window_waits_for_the_checksum() -> None:
    """The last event of a window may be there: it counts when its frame is verified."""
    stream = wire.window(_V2, 1) + wire.compressed(_V2, _events(1))
    session = Session(Limits())
    assert not list(session.received(stream[:-1]))
    [ready] = session.received(stream[-1:])
    assert ready.ack == wire.ack(_V2, 1)


def test_loose_events_share_a_batch() -> None:
    """Events without a window that lie together are stored at once, acknowledged each."""
    [ready] = Session(Limits()).received(_events(5, 6, 7))
    assert ready.count == 3
    assert ready.ack == b"".join(wire.ack(_V2, seq) for seq in (5, 6, 7))


def test_loose_events_before_a_refusal_are_kept() -> None:
    """What is complete is owed, whatever follows it."""
    for bad in (b"X", wire.window(_V2, 2**32 - 1), wire.compressed(_V2, b"X")):
        windows = Session(Limits()).received(_events(5) + bad)
        assert next(windows).ack == wire.ack(_V2, 5)
        with pytest.raises(Refusal):
            next(windows)


def test_arrays_may_not_flood() -> None:
    """The events of arrays count as those of the window, and of the compressed frame."""
    limits = Limits(window_events=12)
    six = wire.json(_V2, 1, b"[" + b",".join([b"{}"] * 6) + b"]")
    [ready] = Session(limits).received(wire.window(_V2, 2) + six * 2)
    assert decode(ready.body).payloads == [b"{}"] * 12
    for stream in (
        wire.window(_V2, 3) + six * 3,
        wire.compressed(_V2, (wire.window(_V2, 1) + six) * 3),
    ):
        with pytest.raises(Refusal, match=r"limit 12 \(options\.window_events\)"):
            list(Session(limits).received(stream))


@pytest.mark.parametrize(
    ("stream", "key"),
    [
        (wire.window(_V2, 101), "options.window_events"),
        (wire.compressed(_V2, wire.window(_V2, 0) * 101), "options.window_events"),
        (wire.compressed(_V2, wire.json(_V2, 1, b"") * 101), "options.window_events"),
        (
            wire.window(_V2, 100) + wire.json(_V2, 1, b"{%s}" % (b" " * 900)) * 20,
            "limits.inflated_bytes",
        ),
        (
            wire.window(_V2, 100)
            + wire.compressed(_V2, wire.json(_V2, 1, b"{%s}" % (b" " * 900)) * 9) * 3,
            "limits.inflated_bytes",
        ),
        (wire.compressed(_V2, b" " * 20_001), "limits.inflated_bytes"),
    ],
)
def test_limits(stream: bytes, key: str) -> None:
    """Windows, events in a compressed frame, bytes of a window: each has its limit."""
    limits = Limits(window_events=100, inflated_bytes=10_000)
    with pytest.raises(Refusal) as refused:
        list(Session(limits).received(stream))
    assert refused.value.key == key
    whole_frame = stream.endswith(wire.compressed(_V2, b" " * 20_001))
    most = 20_000 if whole_frame else 10_000
    assert refused.value.limit == (100 if key == "options.window_events" else most)


def test_compressed_padding_counts() -> None:
    """Compressed bytes that inflate to next to nothing do not pile up unseen."""
    limits = Limits(inflated_bytes=100_000)
    empty_blocks = b"\0\0\0\xff\xff" * 10_000
    padded = b"\x78\x01" + empty_blocks + wire.zlib.compress(_events(1), 0)[2:]
    session = Session(limits)
    frame = b"2C" + len(padded).to_bytes(4) + padded
    list(session.received(wire.window(_V2, 1000) + frame))
    with pytest.raises(Refusal, match=r"limits\.inflated_bytes"):
        list(session.received(frame * 2))


def test_a_window_of_four_billion_allocates_nothing() -> None:
    """Announcing much costs nothing."""
    session = Session(Limits(window_events=2**32 - 1))
    tracemalloc.start()
    list(session.received(wire.window(_V2, 2**32 - 1) + _events(1)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_bomb_holds_little_memory() -> None:
    """A megabyte that would inflate to a gigabyte is cut off near the limit."""
    limits = Limits(inflated_bytes=8 << 20)
    squeeze = wire.zlib.compressobj(9)
    head = b"2J\0\0\0\1" + (1000).to_bytes(4) + b"{" + b" " * 998 + b"}"
    payload = b"".join(squeeze.compress(head * 1000) for _ in range(40))
    payload += squeeze.flush()
    stream = wire.window(_V2, 60_000) + b"2C" + len(payload).to_bytes(4) + payload
    session = Session(limits)
    tracemalloc.start()
    with pytest.raises(Refusal, match=r"limits\.inflated_bytes"):
        list(session.received(stream))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_window_counts_as_it_is_stored() -> None:
    """What Filebeat sends of long lines: more than `inflated_bytes` once inflated."""
    line = b'{"message":"%s"}' % (b"0123456789" * 1000)
    frames = b"".join(wire.json(_V2, n, line) for n in range(1, 1301))
    limits = Limits(inflated_bytes=10 << 20)  # a tenth of the default, as the lines are
    *_, ready = Session(limits).received(
        wire.window(_V2, 1300) + wire.compressed(_V2, frames)
    )
    assert ready.count == 1300
    assert len(ready.body) < len(frames) // 10


def test_windows_that_share_a_compressed_frame_are_stored_once() -> None:
    """Those that end in it are one batch; what goes on after it refers to its part."""
    frame = wire.compressed(
        _V2,
        _events(3)  # the end of a window, …
        + (wire.window(_V2, 2) + _events(4, 5)) * 1000  # … whole ones, …
        + wire.window(_V2, 0)
        + wire.window(_V2, 3)
        + _events(6),  # … and the beginning of one
    )
    more = wire.compressed(_V2, _events(7, 8) + wire.window(_V1, 9))
    session = Session(Limits())
    found = [
        ready
        for piece in (wire.window(_V2, 2) + _events(2) + frame, more)
        for ready in session.received(piece)
        if ready.ack
    ]
    assert [ready.count for ready in found] == [2002, 3]
    acks = [wire.ack(_V2, 3), *[wire.ack(_V2, 5)] * 1000, wire.ack(_V2, 0)]
    assert found[0].ack == b"".join(acks)
    assert found[1].ack == wire.ack(_V2, 8)
    first, second = (decode(ready.body) for ready in found)
    assert first.seqs == [2, 3, *[4, 5] * 1000]
    assert second.seqs == [6, 7, 8]
    assert second.attributes == {"version": "2", "window": "1002"}
    assert sum(len(ready.body) for ready in found) < 3 * (len(frame) + len(more))
    assert session.held_bytes == 0


def test_held_bytes() -> None:
    """What is buffered for the open window is known, bare or compressed."""
    session = Session(Limits())
    assert session.held_bytes == 0
    list(session.received(wire.window(_V2, 3) + _events(1)))
    assert session.held_bytes == len(_events(1))
    frame = wire.compressed(_V2, _events(2, 3))
    list(session.received(frame[:-1]))
    assert session.held_bytes >= len(_events(1)) + len(frame) - 1
    assert len(list(session.received(frame[-1:]))) == 1
    assert session.held_bytes == 0


def test_windows_are_numbered() -> None:
    """Each window of a connection has an id, in its events' attributes."""
    session = Session(Limits())
    stream = (wire.window(_V2, 1) + _events(1)) * 3
    ids = [
        decode(ready.body).attributes["window"] for ready in session.received(stream)
    ]
    assert ids == ["1", "2", "3"]
