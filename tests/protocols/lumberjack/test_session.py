"""Windows: what is a batch, what is acknowledged, what is refused."""

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.lumberjack import wire
from gateway.protocols.lumberjack.events import decode, head
from gateway.protocols.lumberjack.session import Figures, Limits, Session
from gateway.sdk.batches import Ready
from gateway.sdk.interfaces import Refusal
from samples import some_of

_V1, _V2 = b"12"
_BODY = b'{"message":"hi"}'


def _events(*seqs: int) -> bytes:
    return b"".join(wire.json(_V2, seq, _BODY) for seq in seqs)


@given(st.data())
@settings(max_examples=some_of(400, 100), deadline=None)
def test_any_slicing(outcome, strategies, data):
    """However the network slices a stream: same events, same acknowledgements."""
    pieces = data.draw(strategies.sliced(strategies.streams))
    assert outcome(pieces) == outcome([b"".join(pieces)])


@given(st.data())
@settings(max_examples=some_of(400, 100), deadline=None)
def test_any_slicing_of_broken_streams(outcome, strategies, data):
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
@settings(max_examples=some_of(300, 75), deadline=None)
def test_compression_changes_nothing(outcome, strategies, data):
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


def test_compressed_frames_are_stored_as_they_came(many_events):
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


def test_loose_events_share_a_batch():
    """Events without a window that lie together are stored at once, acknowledged each."""
    [ready] = Session(Limits()).received(_events(5, 6, 7))
    assert ready.count == 3
    assert ready.ack == b"".join(wire.ack(_V2, seq) for seq in (5, 6, 7))


def test_loose_events_before_a_refusal_are_kept():
    """What is complete is owed, whatever follows it."""
    for bad in (b"X", wire.window(_V2, 2**32 - 1), wire.compressed(_V2, b"X")):
        windows = Session(Limits()).received(_events(5) + bad)
        assert next(windows).ack == wire.ack(_V2, 5)
        with pytest.raises(Refusal):
            next(windows)


def test_arrays_may_not_flood():
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
        (wire.json(_V2, 1, b"{%s}" % (b" " * 10_000)), "limits.inflated_bytes"),
        (
            wire.window(_V2, 9) + wire.compressed(_V2, wire.json(_V2, 1, b"x" * 9_991)),
            "limits.inflated_bytes",
        ),
        (wire.envelope(_V2, bytes(101)), "options.compressed_bytes"),
    ],
)
def test_limits(stream, key):
    """Windows, events in a compressed frame, bytes of a frame: each has its limit."""
    limits = Limits(window_events=100, inflated_bytes=10_000, compressed_bytes=100)
    with pytest.raises(Refusal) as refused:
        list(Session(limits).received(stream))
    assert refused.value.key == key
    most = 10_000 if key == "limits.inflated_bytes" else 100
    assert refused.value.limit == most


def test_a_frame_that_is_too_large_says_what_to_change():
    """On both sides, as its writer is told nothing and sends it again; with a half and a
    quarter as many events it gets through.
    """
    limits = Limits(compressed_bytes=3000)
    chance = random.Random(7)
    events = [chance.randbytes(500).hex().encode() for _ in range(16)]
    refusals, size, taken = [], len(events), 0
    while taken < len(events):
        some = events[taken : taken + size]
        frames = b"".join(
            wire.json(_V2, seq, b'{"m":"%s"}' % each)
            for seq, each in enumerate(some, 1)
        )
        window = wire.window(_V2, len(some)) + wire.compressed(_V2, frames)
        try:
            found = list(Session(limits).received(window))
        except Refusal as why:
            refusals.append(str(why))
            size //= 2
            continue
        taken += sum(ready.count for ready in found)
    assert taken == 16
    assert len(refusals) == 2
    for said in ("a lower bulk_max_size", "limit 3000"):
        assert said in refusals[0]
    assert refusals[0].endswith("(options.compressed_bytes)")


def test_compressed_padding_does_not_pile_up():
    """Compressed bytes that inflate to next to nothing are stored before they are many."""
    limits = Limits(inflated_bytes=100_000)
    empty_blocks = b"\0\0\0\xff\xff" * 10_000
    padded = b"\x78\x01" + empty_blocks + wire.zlib.compress(_events(1), 0)[2:]
    session = Session(limits)
    frame = wire.envelope(_V2, padded)
    list(session.received(wire.window(_V2, 1000)))
    for _ in range(3):
        assert sum(ready.count for ready in session.received(frame)) == 1
        assert session.held_bytes == 0


def test_a_window_of_four_billion_allocates_nothing():
    """Announcing much costs nothing."""
    session = Session(Limits(window_events=2**32 - 1))
    tracemalloc.start()
    list(session.received(wire.window(_V2, 2**32 - 1) + _events(1)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_bomb_holds_little_memory():
    """A megabyte that would inflate to a gigabyte is cut off near the limit."""
    limits = Limits(inflated_bytes=8 << 20)
    squeeze = wire.zlib.compressobj(9)
    head = b"2J\0\0\0\1" + (100_000).to_bytes(4) + b"{" + b" " * 99_998 + b"}"
    begin, again = (
        squeeze.compress(head * 10) + squeeze.flush(wire.zlib.Z_FULL_FLUSH)
        for _ in range(2)
    )
    payload = begin + again * 999 + squeeze.flush()
    stream = wire.window(_V2, 60_000) + wire.envelope(_V2, payload)
    session = Session(limits)
    tracemalloc.start()
    with pytest.raises(Refusal, match=r"options\.inflate_ratio"):
        list(session.received(stream))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_window_counts_as_it_is_stored():
    """What Filebeat sends of long lines: more than `inflated_bytes` once inflated."""
    line = b'{"message":"%s"}' % (b"0123456789" * 1000)
    frames = b"".join(wire.json(_V2, n, line) for n in range(1, 1301))
    limits = Limits(inflated_bytes=10 << 20)  # a tenth of the default, as the lines are
    *_, ready = Session(limits).received(
        wire.window(_V2, 1300) + wire.compressed(_V2, frames)
    )
    assert ready.count == 1300
    assert len(ready.body) < len(frames) // 10


def test_windows_that_share_a_compressed_frame_are_stored_once():
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


# Windows that are not whole


def _pause(session: Session) -> list[Ready]:
    return [ready for ready in session.pause() if ready.ack]


def test_a_pause_ends_what_came():
    """What came of a window is stored and acknowledged by its last number, then the rest."""
    session = Session(Limits())
    assert not _pause(session)
    assert not list(session.received(wire.window(_V2, 5)))
    assert not _pause(session)
    assert not list(session.received(_events(1, 2)))
    assert session.may_pause
    [part] = _pause(session)
    assert (part.count, part.ack) == (2, wire.ack(_V2, 2))
    assert decode(part.body).seqs == [1, 2]
    assert session.held_bytes == 0
    assert not session.may_pause
    assert not _pause(session)
    [rest] = session.received(_events(3, 4, 5))
    assert (rest.count, rest.ack) == (3, wire.ack(_V2, 5))
    windows = [decode(ready.body).attributes["window"] for ready in (part, rest)]
    assert windows == ["1", "2"]


@pytest.mark.parametrize(
    "begun",
    [
        _events(3)[:-1],
        _events(3)[:1],
        wire.data(_V1, 3, [(b"key", b"value")])[:-1],
        wire.compressed(_V2, _events(3, 4))[:-1],
        wire.compressed(_V2, _events(3, 4))[:5],
        wire.window(_V2, 9)[:-1],
    ],
)
def test_nobody_pauses_inside_a_frame(begun):
    """Of a window whose next frame has begun nothing is stored until that is here."""
    session = Session(Limits())
    list(session.received(wire.window(_V2, 5) + _events(1, 2) + begun))
    assert not session.may_pause
    assert not _pause(session)
    assert session.held_bytes >= len(_events(1, 2) + begun)


def test_a_compressed_frame_is_a_part_of_its_window():
    """It is stored as it came, whole, when the writer pauses behind it."""
    frame = wire.compressed(_V2, _events(1, 2, 3))
    session = Session(Limits())
    assert not any(ready.ack for ready in session.received(wire.window(_V2, 5) + frame))
    [part] = _pause(session)
    assert (part.count, part.ack) == (3, wire.ack(_V2, 3))
    assert part.body[head(part.body)[-1] :] == frame


def test_a_part_that_makes_no_event():
    """It is acknowledged in a pause, too; nothing is stored."""
    session = Session(Limits())
    list(session.received(wire.window(_V2, 5) + wire.json(_V2, 7, b"[]")))
    [part] = _pause(session)
    assert (part.count, part.body, part.ack) == (0, b"", wire.ack(_V2, 7))


def test_zeros_are_counted_over_pauses():
    """In v2 `A 0` is the keepalive: the writer hears how much came of all that it said."""
    session = Session(Limits())
    list(session.received(wire.window(_V2, 4) + _events(0, 0)))
    [part] = _pause(session)
    [rest] = session.received(_events(0, 0))
    assert (part.ack, rest.ack) == (wire.ack(_V2, 2), wire.ack(_V2, 4))
    list(session.received(wire.window(_V2, 3) + _events(9, 0)))
    [part] = _pause(session)
    [rest] = session.received(_events(0))
    assert part.ack == rest.ack == wire.ack(_V2, 9)


@given(st.data())
@settings(max_examples=some_of(200, 50), deadline=None)
def test_pauses_change_no_event(outcome, strategies, data):
    """Wherever a writer pauses: same events, and the same acknowledgement at the end."""
    pieces = data.draw(strategies.sliced(strategies.streams))
    found, whole = outcome(pieces, pauses=True), outcome(pieces)
    assert found.events[: len(whole.events)] == whole.events
    assert len(found.acks) >= len(whole.acks)
    if len(found.events) == len(whole.events):
        assert found.acks[-6:] == whole.acks[-6:]


def test_what_a_cut_line_doubles_is_counted():
    """Events of parts count if the rest of their window does not come; parts always do."""
    figures = Figures()
    for more in (b"", _events(3), _events(3, 4), wire.window(_V2, 1)):
        session = Session(Limits(), figures)
        list(session.received(wire.window(_V2, 4) + _events(1, 2)))
        _pause(session)
        list(session.received(more))
        session.end()
    assert figures == Figures(parts=4, cut_events=4)


# Windows that are too large for one batch


def _long_events(count: int, size: int = 1000) -> bytes:
    body = b'{"message":"%s"}' % (b"0123456789" * (size // 10))
    return b"".join(wire.json(_V2, n, body) for n in range(1, count + 1))


def test_bare_windows_are_stored_in_parts():
    """However much a window has, no more is held of it than a part, or one frame."""
    limits = Limits(inflated_bytes=40_000)
    session = Session(limits)
    frames = wire.window(_V2, 1000) + _long_events(1000)
    found = []
    for at in range(0, len(frames), 700):
        found += [r for r in session.received(frames[at : at + 700]) if r.ack]
        assert session.held_bytes < 10_000 + 2 * 1100
    assert sum(ready.count for ready in found) == 1000
    assert 90 < len(found) < 110
    assert found[-1].ack == wire.ack(_V2, 1000)
    seqs = [seq for ready in found for seq in decode(ready.body).seqs or ()]
    assert seqs == list(range(1, 1001))
    assert [ready.ack for ready in found] == [
        wire.ack(_V2, (decode(ready.body).seqs or [0])[-1]) for ready in found
    ]


def test_a_large_frame_needs_its_window_stored():
    """One that does not fit beside what is held goes after that; alone it does."""
    limits = Limits(inflated_bytes=40_000)
    for version, large in (
        (_V2, wire.json(_V2, 2, b"x" * 39_000)),
        (_V1, wire.data(_V1, 2, [(b"k", b"x" * 19_000)] * 2)),
    ):
        small = wire.json(version, 1, b'{"a":"%s"}' % (b"x" * 5000))
        stream = wire.window(version, 3) + small + large + small
        for pieces in ([stream], [stream[at : at + 1] for at in range(len(stream))]):
            session = Session(limits)
            found = [r for piece in pieces for r in session.received(piece) if r.ack]
            assert [r.ack for r in found][-1] == wire.ack(version, 1)
            assert sum(r.count for r in found) == 3
            assert len(found) == 3


@pytest.mark.parametrize("slices", [1, 50])
def test_large_compressed_frames_are_cut(slices):
    """Nothing of one is stored before its checksum; then no batch is larger than a piece."""
    limits = Limits(inflated_bytes=4 << 20)
    frames = _long_events(10_000)
    stream = wire.window(_V2, 10_000) + wire.compressed(_V2, frames)
    session = Session(limits)
    size = -(-len(stream) // slices)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    for piece in pieces[:-1]:
        assert not any(ready.count for ready in session.received(piece))
    found = [ready for ready in session.received(pieces[-1]) if ready.count]
    rows = [decode(ready.body) for ready in found]
    assert all(row.count * 1026 < (1 << 20) + (1 << 18) for row in rows)
    assert [seq for row in rows for seq in row.seqs or ()] == list(range(1, 10_001))
    assert b"".join(b"".join(row.each()) for row in rows) == b"".join(
        frames[at + 10 : at + 1024] for at in range(0, len(frames), 1024)
    )
    assert sum(ready.payload_bytes for ready in found) == len(frames) - 100_000
    assert [ready.ack for ready in found] == [
        wire.ack(_V2, (row.seqs or [0])[-1]) for row in rows
    ]
    assert {row.attributes["window"] for row in rows} == {"1"}
    assert session.held_bytes == 0


def test_a_large_frame_of_v1_is_acknowledged_at_its_end():
    """Some v1 writers take whatever comes for the acknowledgement of all."""
    limits = Limits(inflated_bytes=40_000)
    frames = wire.data(_V1, 3, [(b"line", b"x" * 990)]) * 200
    stream = wire.window(_V1, 200) + wire.compressed(_V1, frames)
    found = [ready for ready in Session(limits).received(stream) if ready.count]
    assert [ready.ack for ready in found[:-1]] == [b""] * (len(found) - 1)
    assert found[-1].ack == wire.ack(_V1, 3)
    assert sum(ready.count for ready in found) == 200


def test_what_shares_a_large_frame():
    """Windows before, inside and behind it, arrays, what makes no event: all is there."""
    limits = Limits(inflated_bytes=40_000)
    array = wire.json(_V2, 8, b'[{"a":1},2]')
    nothing = wire.json(_V2, 7, b"[]")
    inner = (
        _events(2)  # the end of the first window
        + nothing  # outside of any
        + wire.window(_V2, 0)
        + wire.window(_V2, 101)
        + _long_events(100)
        + array
        + wire.window(_V2, 3)
        + nothing
        + array
    )
    stream = wire.window(_V2, 2) + _events(1) + wire.compressed(_V2, inner)
    session = Session(limits)
    found = [r for r in session.received(stream) if r.count or r.ack]
    acks = [wire.ack(_V2, seq) for seq in (2, 7, 0, 8)]
    ended = [at for at, ready in enumerate(found) if ready.ack == b"".join(acks)]
    assert len(ended) == 1
    before, after = found[: ended[0]], found[ended[0] + 1 :]
    assert not any(ready.ack for ready in before)
    assert [(ready.count, ready.ack) for ready in after] == [(2, wire.ack(_V2, 8))]
    seqs = [seq for ready in found for seq in decode(ready.body).seqs or ()]
    assert seqs == [1, 2, *range(1, 101), 8, 8, 8, 8]
    [last] = session.received(_events(9))
    assert (last.count, last.ack) == (1, wire.ack(_V2, 9))


def test_windows_over_many_large_frames():
    """A window of several compressed frames is stored frame by frame."""
    limits = Limits(inflated_bytes=40_000)
    one = wire.compressed(_V2, _long_events(70))
    session = Session(limits)
    found = [r for r in session.received(wire.window(_V2, 210) + one * 3) if r.ack]
    assert sum(ready.count for ready in found) == 210
    assert all(decode(ready.body).count <= 2 * 39 for ready in found)
    assert found[-1].ack == wire.ack(_V2, 70)
