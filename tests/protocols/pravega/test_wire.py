"""Wire commands: every one, encoded and decoded, of every version, in any slices.

Numbers in the names are those of the list of behaviours in docs/pravega.md.
"""

import contextlib
import json
import struct
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.pravega import (
    codec,
    modified_utf8,
    wire,
    wire_segments,
    wire_tables,
)
from gateway.protocols.pravega.frames import (
    HEADER_BYTES,
    MAX_LENGTH,
    RAW,
    Frames,
    frame,
)
from gateway.sdk.interfaces import Refusal

VECTORS = Path(__file__).parents[2] / "vectors"
MODULES = (wire, wire_segments, wire_tables)
MESSAGES = sorted(
    {*codec.REQUESTS.values(), *codec.REPLIES.values()}, key=lambda cls: cls.__name__
)
WRITER = bytes(range(16))
BYTES = (bytes, bytes | memoryview)

_longs = st.integers(-(2**63), 2**63 - 1)
_ints = st.integers(-(2**31), 2**31 - 1)
_keys = st.builds(codec.Entry, st.binary(min_size=1, max_size=9), _longs)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    codec.Byte: st.integers(-128, 127),
    codec.Int: _ints,
    codec.Long: _longs,
    codec.Bool: st.booleans(),
    codec.Uuid: st.binary(min_size=16, max_size=16),
    codec.Text: st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    codec.Data: st.binary(max_size=20),
    codec.DataOrView: st.binary(max_size=20),
    codec.EventData: st.binary(max_size=20),
    codec.Rest: st.binary(max_size=20),
    codec.Longs: st.lists(_longs, max_size=3),
    codec.Keys: st.lists(_keys, max_size=3),
    codec.Entries: st.lists(
        st.builds(
            codec.Entry,
            st.binary(min_size=1, max_size=9),
            _longs,
            st.binary(max_size=9),
        ),
        max_size=3,
    ),
    codec.AttributeUpdates: st.lists(
        st.builds(
            codec.AttributeUpdate,
            st.binary(min_size=16, max_size=16),
            st.sampled_from([1, 4]),
            _longs,
            _longs,
        ),
        max_size=3,
    ),
}


def built(cls: type[codec.Message], draw: Any) -> codec.Message:
    hints = get_type_hints(cls, include_extras=True)
    return cls(**{name: draw(VALUES[kind]) for name, kind in hints.items()})


def back(sent: bytes) -> codec.Message:
    [(kind, payload)] = Frames({*codec.REQUESTS, *codec.REPLIES}).feed(sent)
    return codec.decode(kind, payload)


def same(one: codec.Message, other: codec.Message) -> bool:
    def plain(message: codec.Message) -> list[Any]:
        values = [getattr(message, name) for name in get_type_hints(type(message))]
        return [list(v) if isinstance(v, tuple | list) else v for v in values]

    return type(one) is type(other) and plain(one) == plain(other)


def test_there_are_all_of_them():
    """No command of the protocol is missing that a published client sends or is sent."""
    codes = {-127, *range(1, 6), *range(7, 13), 20, 21, *range(28, 32), *range(34, 43)}
    codes |= {50, 51, 52, 53, 55, 56, 57, 58, 59, 60, 61, 68, 69, 70, 71}
    codes |= {*range(74, 90)} | {100}
    assert {*codec.REQUESTS, *codec.REPLIES} == codes


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_1_round_trip(cls, data):
    """What is written is read back as it was."""
    sent = built(cls, data.draw)
    if isinstance(sent, wire.InvalidEventNumber) and sent.event_number == -1:
        sent.event_number = 1
    assert same(back(codec.encode(sent)), sent)


def vectors(file: str) -> pytest.MarkDecorator:
    """Frames, and the message that each is."""
    rows = [json.loads(line) for line in (VECTORS / file).read_text().splitlines()]
    return pytest.mark.parametrize("vector", rows, ids=lambda vector: vector["name"])


def meant(vector: dict[str, Any]) -> codec.Message:
    name, values = vector["message"]
    cls = next(cls for cls in MESSAGES if cls.__name__ == name)
    hints = get_type_hints(cls)
    fields = {
        key: bytes.fromhex(value) if hints[key] in BYTES else value
        for key, value in values.items()
    }
    return cls(**fields)


@vectors("pravega-wire.jsonl")
def test_1_bytes_of_the_real_ones(vector):
    """What Java's segment store and the Python client say, to the byte."""
    raw = bytes.fromhex(vector["hex"])
    assert back(raw) == meant(vector)
    assert codec.encode(meant(vector)) == raw


def q(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}q", *numbers)


@vectors("pravega-wire-old.jsonl")
def test_2_older_layouts(vector):
    """What an older version leaves out has its default."""
    assert same(back(bytes.fromhex(vector["hex"])), meant(vector))


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_3_more_bytes_than_we_know(cls, data):
    """A newer version's fields are skipped."""
    if codec.Rest in get_type_hints(cls, include_extras=True).values():
        return
    sent = built(cls, data.draw)
    raw = codec.encode(sent)
    again = back(frame(*struct.unpack(">i", raw[:4]), raw[HEADER_BYTES:] + b"\1\2\3"))
    assert same(again, back(raw))


@given(
    st.lists(st.tuples(st.sampled_from([1, 9, 100]), st.binary(max_size=40))), st.data()
)
def test_4_any_slicing(sent, data):
    """However the network slices the stream, the same frames come out."""
    stream = b"".join(frame(kind, payload) for kind, payload in sent)
    frames = Frames({1, 9, 100})
    got: list[tuple[int, bytes]] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += frames.feed(stream[:size])
        stream = stream[size:]
    assert got == sent
    assert frames.held_bytes == 0


@pytest.mark.parametrize("cut", [0, 4, 8, 12, 100])
def test_a_payload_counts_until_it_is_dealt_with(cut):
    """Also one that came in pieces: who has taken it may wait for the next turn."""
    frames = Frames({9})
    stream = frame(9, bytes(200)) + frame(9, b"next")
    assert not list(frames.feed(stream[:cut]))
    given = frames.feed(stream[cut:])
    next(given)
    assert frames.held_bytes >= 200
    next(given)
    assert not list(given)
    assert frames.held_bytes == 0


def test_raw_bytes_between_frames():
    """Bytes that are asked for come as they are, and frames go on behind them."""
    frames = Frames({9})
    stream = frame(9, b"x") + b"raw!" + frame(9, b"y")
    for cut in range(len(stream)):
        frames = Frames({9})
        got = []
        for piece in (stream[:cut], stream[cut:]):
            for kind, payload in frames.feed(piece):
                got.append((kind, payload))
                if payload == b"x":
                    frames.raw(4)
        assert got == [(9, b"x"), (RAW, b"raw!"), (9, b"y")]


@pytest.mark.parametrize(
    "header",
    [
        struct.pack(">ii", 6, 0),
        struct.pack(">ii", -128, 0),
        struct.pack(">ii", 9, -1),
        struct.pack(">iI", 9, MAX_LENGTH + 1),
    ],
)
def test_5_unknown_negative_oversized(header):
    """They are refused from the header alone."""
    with pytest.raises(Refusal):
        list(Frames(codec.REQUESTS).feed(header))


def test_data_in_pieces_are_not_copied():
    """An answer to a reader is sent from where it lies, and is the same on the wire."""
    data = memoryview(bytes(1 << 20))
    answer = wire_segments.SegmentRead("s", 9, True, False, data, 7)
    pieces = codec.encode_in_pieces(answer)
    assert any(piece is data for piece in pieces)
    assert b"".join(pieces) == codec.encode(answer)


def test_6_conditional_append_of_no_event():
    """What a ConditionalAppend carries must be an event."""
    payload = WRITER + q(1, 0) + b"\0\0\0\1\0\0\0\0" + q(1)
    with pytest.raises(Refusal, match="not an event"):
        codec.decode(5, payload)


@pytest.mark.parametrize("size", [-1, 2, 2**31 - 1])
def test_7_nested_length(size):
    """A length inside a frame never reaches beyond it."""
    nested = struct.pack(">i", size) + b"x"
    for code, payload in (
        (5, WRITER + q(1, 0) + b"\0\0\0\0" + nested),
        (4, WRITER + struct.pack(">i", 0) + nested),
        (74, q(1) + b"\0\1s\0\0" + nested),
    ):
        with pytest.raises(Refusal):
            codec.decode(code, payload)


@pytest.mark.parametrize("code", [74, 76, 78])
def test_7_lists_have_an_end(code):
    """As many as have room would be decoded for a minute."""
    payload = q(1) + b"\0\1s\0\0" + struct.pack(">i", 40_000) + bytes(16 * 40_000)
    with pytest.raises(Refusal, match="list of 40000 items, limit 32768"):
        codec.decode(code, payload)


@given(st.sampled_from(sorted(codec.REQUESTS)), st.binary(max_size=80))
def test_63_any_payload_is_decoded_or_refused(code, payload):
    """No bytes make the decoder raise anything but a Refusal."""
    with contextlib.suppress(Refusal):
        codec.decode(code, payload)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_8_texts_in_both_encodings(value):
    """Java's form and plain UTF-8 are read alike."""
    assert modified_utf8.decode(modified_utf8.encode(value)[2:]) == value
    assert modified_utf8.decode(value.encode()) == value


def test_8_odd_texts():
    """NUL and characters beyond U+FFFF are written as Java does; lengths have an end."""
    assert modified_utf8.encode("") == b"\0\0"
    assert modified_utf8.encode("a\0") == b"\0\3a\xc0\x80"
    assert modified_utf8.encode("\U0001f600") == b"\0\6\xed\xa0\xbd\xed\xb8\x80"
    assert len(modified_utf8.encode("x" * 65535)) == 2 + 65535
    with pytest.raises(Refusal):
        modified_utf8.encode("x" * 65536)
    for bad in (b"\xff", b"\xed\xa0\xbd", b"\xc3"):
        with pytest.raises(Refusal):
            modified_utf8.decode(bad)
    with pytest.raises(Refusal):
        codec.decode(28, q(1) + b"\0\1\xff\0\0")
