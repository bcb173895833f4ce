"""What a stored Lumberjack batch decodes to."""

import json
import random
from array import array
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.event import Rows
from gateway.protocols.lumberjack import events, wire
from gateway.protocols.lumberjack.events import decode
from gateway.protocols.lumberjack.session import Limits, Session
from gateway.sdk.payload import DEPTH
from samples import some_of

pytestmark = pytest.mark.usefixtures("each_way")

_V1, _V2 = b"12"


def _rows(*bodies: bytes, **limits: int) -> Rows:
    [ready] = Session(Limits(**limits)).received(
        wire.window(_V2, len(bodies))
        + b"".join(wire.json(_V2, seq, body) for seq, body in enumerate(bodies))
    )
    return decode(ready.body)


_ODD = {
    b"{nope": "invalid-json",
    b'{"a":"\xff"}': "invalid-utf8",
    b'{"a":' + b"[" * 4000: "too-deep",
    b'{"a":' + b"[" * DEPTH + b"]" * DEPTH + b"}": "too-deep",
    b'{"a":"' + b"x" * 5000 + b'"}': "oversized",
    b'{"a":"\xed\xa0\x80"}': "invalid-utf8",
    b'{"a":1}}': "invalid-json",
    b'{"a":NaN}': "invalid-json",
    b'\xef\xbb\xbf{"a":1}': "invalid-json",
    b" ": "invalid-json",
    b"": "empty",
    b"null": "not-an-object",
    b"5": "not-an-object",
    b'"text"': "not-an-object",
}
_EVEN = (
    b'{"a":1}',
    '{"ä":"€"}'.encode(),
    b" {} ",
    b'{"a":' + b"[" * (DEPTH - 1) + b"]" * (DEPTH - 1) + b"}",
)


@pytest.mark.parametrize("seed", range(20))
def test_flaws_among_others(seed):
    """An event that is not fine is kept as it was sent, and has the flaw that it has alone,
    whatever comes before and after it.
    """
    chance = random.Random(seed)
    bodies = [chance.choice((*_EVEN, *_EVEN, *_ODD)) for _ in range(40)]
    frames = b"".join(wire.json(_V2, seq, body) for seq, body in enumerate(bodies))
    rows = decode(events.pack(_V2, 1, 5000) + frames)
    assert rows.payloads == bodies
    assert rows.seqs == list(range(40))
    expected = {row: _ODD[body] for row, body in enumerate(bodies) if body in _ODD}
    assert rows.flaws == expected
    assert rows.content_type == "application/json"
    assert not rows.content_types


def test_oversized():
    """An event above the limit in force is whole, and flawed, whatever it holds."""
    fits, over = b'{"a":"%s"}' % (b"x" * 92), b'{"a":"%s"}' % (b"x" * 93)
    rows = _rows(fits, over, b"[" + b" " * 100 + b"]", message_bytes=100)
    assert rows.flaws == {1: "oversized", 2: "oversized"}
    assert rows.payloads[1] == over


def test_deep_arrays_do_not_recurse():
    rows = _rows(b"[" * 100_000 + b"]" * 100_000)
    assert rows.flaws == {0: "too-deep"}
    fine, deep = (b"[" * levels + b"]" * levels for levels in (DEPTH, DEPTH + 1))
    rows = _rows(fine, deep)
    assert rows.payloads == [fine[1:-1], deep]
    assert rows.flaws == {0: "not-an-object", 1: "too-deep"}


@pytest.mark.parametrize("others", [0, 30])
def test_events_that_are_gathered_are_not_too_deep(others):
    """Python and the kernel count the same."""
    for levels in (DEPTH, DEPTH + 1):
        body = b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"
        bodies = [b'{"[":"{"}'] * others + [body, b"{}"]
        frames = b"".join(wire.json(_V2, 1, each) for each in bodies)
        found = events._gather(frames, array("H", map(len, bodies)).tobytes())
        assert (found is None) == (levels > DEPTH)


@pytest.mark.parametrize("place", range(4))
def test_frames_without_an_event_are_skipped(place):
    """Wherever they stand in a compressed frame that is stored as it came."""
    frames = [wire.json(_V2, 1, b"{}"), wire.data(_V2, 2, []), wire.json(_V2, 3, b"5")]
    frames.insert(place, wire.window(_V2, 7))
    rows = decode(events.pack(_V2, 1, 100) + wire.compressed(_V2, b"".join(frames)))
    assert rows.payloads == [b"{}", b"{}", b"5"]
    assert list(rows.seqs or ()) == [1, 2, 3]


def test_frames_of_no_known_type_are_not_taken_for_others():
    """What a decoder does not know is an error, and no event."""
    with pytest.raises(ValueError, match="has a frame 0x58"):
        decode(events.pack(_V2, 1, 100) + b"2X" + bytes(8))


def test_data_frames():
    """Pairs become a JSON object; all of them, in order, even keys that are twice."""
    pairs = [(b"line", b'say "hi"\n'), (b"\xc3\xa4", b""), (b"", b"x")]
    twice = [(b"a", b"1"), (b"a", b"2")]
    [ready] = Session(Limits()).received(
        wire.window(_V1, 2) + wire.data(_V1, 1, pairs) + wire.data(_V1, 2, twice)
    )
    rows = decode(ready.body)
    assert json.loads(rows.payloads[0]) == {"line": 'say "hi"\n', "ä": "", "": "x"}
    assert rows.payloads[1] == b'{"a":"1","a":"2"}'
    assert rows.attributes == {"version": "1", "window": "1"}


def test_data_frames_that_are_no_text():
    """Pairs that are not UTF-8 are kept as they were sent."""
    frame = wire.data(_V1, 1, [(b"line", b"\xff\xfe")])
    [ready] = Session(Limits()).received(wire.window(_V1, 1) + frame)
    rows = decode(ready.body)
    assert rows.payloads == [frame[6:]]
    assert rows.flaws == {0: "invalid-utf8"}
    assert rows.content_types == {0: "application/octet-stream"}


@pytest.mark.parametrize("level", [0, 1, 9])
def test_events_larger_than_a_piece(level):
    """Compressed events come back whole however large they are."""
    big = [b'{"a":"%s"}' % (b"%08d" % n * (n // 8)) for n in (9, 300_000, 3_000_000)]
    pairs = [(b"%d" % n, b"v" * 200_000) for n in range(8)]
    frames = [wire.json(_V2, n, body) for n, body in enumerate(big + big[::-1])]
    frames.insert(2, wire.data(_V2, 9, pairs))
    *_, ready = Session(Limits()).received(
        wire.window(_V2, 7) + wire.compressed(_V2, b"".join(frames), level)
    )
    rows = decode(ready.body)
    found = json.loads(rows.payloads.pop(2))
    assert found == {key.decode(): value.decode() for key, value in pairs}
    assert rows.payloads == big + big[::-1]
    assert rows.seqs == [0, 1, 9, 2, 3, 4, 5]
    assert not rows.flaws


@pytest.mark.parametrize("compress", [False, True])
def test_a_body_that_is_cut_off(*, compress):
    """A body that no session made is an error, never an endless loop."""
    frames = wire.json(_V2, 1, b"{}") * 2 + wire.data(_V1, 1, [(b"a", b"b")])
    head = events.pack(_V2, 1, 100)
    for cut in range(1, 12):
        rest = frames[:-cut]
        with pytest.raises(ValueError, match="ends inside a frame"):
            decode(head + (wire.compressed(_V2, rest) if compress else rest))


def test_a_part_of_a_frame():
    """Of a frame that another batch has too, only the events that are meant come."""
    bodies = [b"{}", b"[{},5]", b"", b"{", b'{"a":1}']
    frame = wire.compressed(
        _V2, b"".join(wire.json(_V2, n, body) for n, body in enumerate(bodies))
    )
    head = events.pack(_V2, 1, 100) + wire.json(_V2, 9, b"[]") + wire.json(_V2, 9, b"")
    rows = decode(head + events.part(2, 3) + frame + wire.json(_V2, 8, b"{}"))
    assert rows.payloads == [b"", b"5", b"", b"{", b"{}"]
    assert rows.seqs == [9, 1, 2, 3, 8]
    assert rows.flaws == {0: "empty", 1: "not-an-object", 2: "empty", 3: "invalid-json"}
    with pytest.raises(ValueError, match="not there"):
        decode(head + events.part(2, 5) + frame)


def test_unknown_format():
    """A body of a later form is not guessed at."""
    for form in (0, 2, 9):
        with pytest.raises(ValueError, match=f"unknown form {form}"):
            decode(bytes((form, *bytes(17))))


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"[]", 0),
        (b"[ ]", 0),
        (b"[1]", 1),
        (b'\n[{"a":[1,2]},{}]', 2),
        (b"[1,2,3]", 3),
        (b"[%s]" % b",".join([b"1"] * 32_768), 32_768),
        (b"[%s]" % b",".join([b"1"] * 32_769), None),  # more than there may be
        (b"[1", None),
        (b"[1]x", None),
        (b"[" + b"9" * 80_000 + b"]", None),  # larger than an event may be
    ],
)
def test_elements(body, count):
    """An array is split if it is sound and within bounds."""
    found = events.elements(body, message_bytes=70_000)
    assert (None if found is None else len(found)) == count


def test_elements_are_bounded_before_they_are_split():
    """An array of a million numbers is not even parsed."""
    flood = b"[" + b"{}," * (1 << 17) + b"this is not JSON"
    assert events.elements(flood, message_bytes=1 << 30) is None


@given(st.data())
@settings(max_examples=some_of(400, 100), deadline=None)
def test_a_row_for_every_event(strategies, data):
    """Whatever was submitted decodes, to exactly as many rows as were counted."""
    limits = Limits(
        message_bytes=data.draw(st.sampled_from([4, 30, 1 << 20])),
        window_events=data.draw(st.sampled_from([6, 65536])),
    )
    session = Session(limits)
    try:
        for piece in data.draw(strategies.sliced(strategies.streams)):
            for ready in session.received(piece):
                if ready.count:
                    rows = decode(ready.body)
                    assert rows.count == ready.count
                    assert len(rows.seqs or ()) == ready.count
                    assert all(row < ready.count for row in rows.flaws)
    except events.wire.Refusal as why:
        assert why.key == "options.window_events"  # noqa: PT017


#: Bodies of which several together may look like as many others.
_BRACED = st.sampled_from(
    [
        b'{"a":1}',
        b"{}",
        b"{},{}",
        b"{}\n,\n{}",
        b"{} ",
        b"{\n}",
        b'{"a":[{}',
        b"{}]}",
        b'{"a":"',
        b'{"":"}',
        b'{"a":{}',
        b"{}}",
        b"{}]",
        b'{"a":"\xc3\xa4"}',
        b'{"a":"\xff"}',
        b'{"a":"\n"}',
        b'{"a":"' + b"b" * 100 + b'"}',
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ]
) | st.binary(max_size=9).map(lambda rest: b"{" + rest)


@given(st.lists(_BRACED, min_size=1, max_size=9), st.integers(0, 2**32 - 9))
@example([b'{"a":[{}', b"{}]}", b"{}\n,\n{}"], 1)  # three elements, and not these
@settings(max_examples=some_of(400, 100), deadline=None)
def test_events_that_are_checked_at_once(bodies, first):
    """They are what they are when each is checked alone, flaws included."""
    frames = b"".join(
        wire.json(_V2, seq, body) for seq, body in enumerate(bodies, first)
    )
    frame = wire.compressed(_V2, frames)
    pack = events.pack(_V2, 1, 60)
    at_once = decode(
        pack + events.sized(array("H", map(len, bodies)).tobytes()) + frame
    )
    alone = decode(pack + frame)
    assert list(at_once.each()) == list(alone.each()) == bodies
    assert list(at_once.seqs or ()) == alone.seqs
    assert at_once.flaws == alone.flaws
    assert bool(at_once.ends) <= (not alone.flaws)


def test_a_window_of_many_events_is_one_piece(many_events):
    """However its compressed frame is cut on its way; few, or large ones, are not."""
    frames = b"".join(wire.json(_V2, n + 1, e) for n, e in enumerate(many_events))
    stream = wire.window(_V2, len(many_events)) + wire.compressed(_V2, frames)
    for cut in (1, 8, 1000, len(stream) - 1):
        session = Session(Limits())
        *_, ready = [*session.received(stream[:cut]), *session.received(stream[cut:])]
        rows = decode(ready.body)
        assert (rows.payloads, rows.block) == ([], b"".join(many_events))
        assert list(rows.each()) == many_events
        assert list(rows.seqs or ()) == list(range(1, len(many_events) + 1))
    large = b'{"a":"%s"}' % (b"b" * (1 << 16))
    for few in (many_events[:9], [*many_events, large], [b"{}"] * 20_000):
        frames = b"".join(wire.json(_V2, n, event) for n, event in enumerate(few))
        stream = wire.window(_V2, len(few)) + wire.compressed(_V2, frames)
        *_, ready = Session(Limits()).received(stream)
        assert decode(ready.body).payloads == few


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_windows_of_many_events_in_any_frames(data):
    """What shares a compressed frame with them, or follows it, changes none of them."""
    count = data.draw(st.integers(64, 90))
    windows = data.draw(st.integers(1, 2))
    odd = data.draw(st.sampled_from([b"{}", b"[{},{}]", b"5", b"{,}", b'{"a":"\n"}']))
    events_ = [b'{"n":%d}' % at for at in range(count)]
    events_[data.draw(st.integers(0, count - 1))] = odd
    one = wire.window(_V2, count) + b"".join(map(partial(wire.json, _V2, 7), events_))
    stream = one * windows + wire.json(_V2, 8, b"{}")
    parts = []
    for cut in sorted(data.draw(st.sets(st.integers(0, 3 * count), max_size=3))):
        at = _frame_behind(stream, cut)
        parts.append(stream[:at])
        stream = stream[at:]
    sent = b"".join(
        wire.compressed(_V2, part) if part and data.draw(st.booleans()) else part
        for part in [*parts, stream]
    )
    found = []
    session = Session(Limits())
    at = data.draw(st.integers(0, len(sent)))
    for piece in (sent[:at], sent[at:]):
        for ready in session.received(piece):
            if ready.count:
                rows = decode(ready.body)
                assert rows.count == ready.count
                found += rows.each()
    split = [b"{}"] * 2 if odd.startswith(b"[") else [odd]
    each = [part for event in events_ for part in (split if event is odd else [event])]
    assert found == [*each * windows, b"{}"]


def _frame_behind(stream: bytes, number: int) -> int:
    """Where so many frames of a stream end."""
    at = 0
    while number and at < len(stream):
        kind = stream[at + 1]
        at += 6 if kind == ord("W") else 10 + int.from_bytes(stream[at + 6 : at + 10])
        number -= 1
    return at
