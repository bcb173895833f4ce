"""Lumberjack frames: limits, memory, encoding."""

import contextlib
import itertools
import random
import zlib
from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.lumberjack import frames, wire
from gateway.protocols.lumberjack.wire import Decoder, Limits
from gateway.sdk.interfaces import Refusal

pytestmark = pytest.mark.usefixtures("each_way")

_V1, _V2 = b"12"
_BODY = b'{"message":"hi"}'


def _drain(decoder: Decoder, data: bytes, room: int = 1 << 20) -> list[wire.Token]:
    decoder.feed(data)
    tokens = []
    while (token := decoder.next(room, 8 << 20)) is not None:
        if not isinstance(token, wire.Inflated):
            tokens.append(token)
    return tokens


def _c(payload: bytes) -> bytes:
    return b"2C" + len(payload).to_bytes(4) + payload


def test_encoding():
    """Frames are what other implementations' tests say they are (research, row 25)."""
    assert wire.ack(_V1, 4).hex() == "314100000004"
    assert wire.window(_V1, 5000).hex() == "315700001388"
    assert wire.json(_V2, 1, _BODY) == b"2J\0\0\0\1\0\0\0\x10" + _BODY
    pairs = [(b"line", b"hi")]
    assert wire.data(_V1, 2, pairs) == b"1D\0\0\0\2\0\0\0\1\0\0\0\4line\0\0\0\2hi"
    inner = wire.json(_V2, 1, _BODY)
    for level in range(10):
        frame = wire.compressed(_V2, inner, level)
        assert zlib.decompress(frame[6:]) == inner
        assert b"".join(wire.inflated(frame)) == inner


def test_a_run_is_one_token():
    """However many like frames lie together, they make one token."""
    frames = b"".join(wire.json(_V2, seq, _BODY) for seq in range(1000))
    [run] = _drain(Decoder(Limits()), frames)
    assert isinstance(run, wire.Frames)
    assert (run.count, run.seq, run.frames) == (1000, 999, frames)


def test_a_run_has_room_for():
    """A run ends where the caller's window does."""
    decoder = Decoder(Limits())
    decoder.feed(b"".join(wire.json(_V2, seq, _BODY) for seq in range(10)))
    counts = []
    while (token := decoder.next(4, 1 << 20)) is not None:
        assert isinstance(token, wire.Frames)
        counts.append((token.count, token.seq))
    assert counts == [(4, 3), (4, 7), (2, 9)]


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (b"2J\0\0\0\1\x00\x80\x00\x00", "limits.inflated_bytes"),
        (b"2J\0\0\0\1\xff\xff\xff\xff", "limits.inflated_bytes"),
        (b"1D\0\0\0\1\0\0\4\1", "options.pairs"),
        (b"1D\0\0\0\1\xff\xff\xff\xff", "options.pairs"),
        (b"1D\0\0\0\1\0\0\0\1\0\x80\0\0", "limits.inflated_bytes"),
        (b"2C\x00\x40\x00\x01", "options.compressed_bytes"),
        (b"2C\xff\xff\xff\xff", "options.compressed_bytes"),
    ],
)
def test_refused_on_the_declared_length(header, key):
    """A length over its limit is refused before a byte of it arrives."""
    decoder = Decoder(Limits(inflated_bytes=8 << 20, compressed_bytes=4 << 20))
    assert not _drain(decoder, header[:-1])
    with pytest.raises(Refusal) as refused:
        _drain(decoder, header[-1:])
    assert refused.value.key == key
    assert decoder.held_bytes < 64


def test_compressed_frames_are_inflated_as_they_arrive():
    """Events are seen before a large compressed frame has ended; steps may cut any of
    them.
    """
    noise = random.Random(1)
    bodies = [
        b"{%s}" % noise.randbytes(seq % 500).hex().encode() for seq in range(2000)
    ]
    inner = b"".join(wire.json(_V2, *each) for each in enumerate(bodies))
    assert len(inner) > 2 * wire._INFLATE_STEP
    frame = wire.compressed(_V2, inner)
    assert len(frame) > 2 * wire._GATHERED_BYTES
    decoder = Decoder(Limits())
    seen = _drain(decoder, frame[: len(frame) // 2])
    assert sum(run.count for run in seen if isinstance(run, wire.Frames)) > 500
    assert decoder.inflation
    *_, last = _drain(decoder, frame[len(frame) // 2 :])
    assert isinstance(last, wire.Compressed)
    assert (last.frame, last.inflated) == (frame, len(inner))
    assert last.sizes is not None
    assert [*array("H", last.sizes)] == [*map(len, bodies)]
    assert not decoder.inflation


@pytest.mark.parametrize("behind", [0, 1, 20])
def test_a_compressed_frame_that_goes_on_behind_its_zlib_stream(behind):
    """It is refused, also where a step ends with the stream."""
    body = b"{%s}" % (b" " * (2 * wire._DEFLATED_STEP - 23))
    payload = zlib.compress(wire.json(_V2, 1, body), 0)
    assert len(payload) == 2 * wire._DEFLATED_STEP
    frame = b"2C" + (len(payload) + behind).to_bytes(4) + payload + bytes(behind)
    decoder = Decoder(Limits())
    with contextlib.nullcontext() if not behind else pytest.raises(Refusal):
        assert isinstance(_drain(decoder, frame)[-1], wire.Compressed)


def test_a_bomb_is_not_inflated():
    """A compressed frame over the limit is refused with little in memory."""
    limits = Limits(inflated_bytes=2 << 20)
    flood = b"".join(wire.json(_V2, 1, b"{" + b" " * 100_000 + b"}") for _ in range(80))
    decoder = Decoder(limits)
    frame = wire.compressed(_V2, flood, 9)
    for at in range(0, len(frame), 100):
        try:
            _drain(decoder, frame[at : at + 100])
        except Refusal as why:
            assert decoder.held_bytes < 600_000
            assert why.key == "limits.inflated_bytes"  # noqa: PT017
            return
        assert decoder.held_bytes < 600_000
    pytest.fail("inflated it all")


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_pending_output_is_not_forgotten(data):
    """What zlib still holds when it has eaten all its input comes out too."""
    size = data.draw(st.sampled_from([1 << 18, (1 << 18) - 20, 1 << 19, 700_001]))
    body = b"{" + b" " * (size + data.draw(st.integers(-40, 40))) + b"}"
    frame = wire.compressed(_V2, wire.json(_V2, 7, body), data.draw(st.integers(1, 9)))
    cut = data.draw(st.integers(0, len(frame)))
    decoder = Decoder(Limits())
    tokens = _drain(decoder, frame[:cut]) + _drain(decoder, frame[cut:])
    assert [type(token) for token in tokens] == [wire.Frames, wire.Compressed]


@pytest.mark.parametrize(
    "payload",
    [
        zlib.compress(b"")[:-1],
        zlib.compress(b"") + b"x",
        b"",
        b"\x78",
        b"\x1f\x8b\x08\0\0\0\0\0\0\0",
        b"\x78\xbb\0\0\0\1\3\0\0\0\0\1",  # needs a dictionary
        b"\xff" * 20,
    ],
)
def test_bad_zlib(payload):
    """Truncated, continued, foreign: a compressed frame is one whole zlib stream."""
    with pytest.raises(Refusal):
        _drain(Decoder(Limits()), _c(payload))


def test_a_frame_in_crumbs_is_not_scanned_again():
    """A data frame of many pairs, byte by byte, costs what it has bytes."""
    frame = wire.data(_V1, 3, [(b"k%d" % n, b"v") for n in range(1000)])
    decoder = Decoder(Limits())
    scans = 0
    original = frames.Stream._data_stop

    def counted(self: Any, at: int, budget: int) -> int:
        nonlocal scans
        scans += 1
        return original(self, at, budget)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames.Stream, "_data_stop", counted)
        tokens = [token for byte in frame for token in _drain(decoder, bytes([byte]))]
    assert [(run.count, run.seq) for run in tokens if isinstance(run, wire.Frames)] == [
        (1, 3)
    ]
    assert scans < 4100  # one look per length and per item, not one per byte


@pytest.mark.parametrize("reads", [[1], [10, 70_000], [1000], [1 << 16], [1 << 20]])
def test_a_compressed_frame_is_held_in_few_pieces(reads):
    """However small the reads; asking for its size looks at none of the pieces."""

    class Pieces(list[bytes | bytearray]):
        def __iter__(self) -> Iterator[bytes | bytearray]:
            raise AssertionError("all pieces were looked at")

    noise = random.Random(1).randbytes(300_000).hex().encode()
    frame = wire.compressed(_V2, wire.json(_V2, 1, b"{%b}" % noise))
    decoder = Decoder(Limits())
    _drain(decoder, frame[:6])
    inflation = decoder.inflation
    assert inflation is not None
    at, sizes = 6, itertools.cycle(reads)
    while at < len(frame) - 1:
        stop = min(at + next(sizes), len(frame) - 1)
        _drain(decoder, frame[at:stop])
        at = stop
        held = at + inflation.frames.size
        if inflation._inflater is not None:
            held += wire._INFLATER_BYTES
        parts = inflation._parts
        inflation._parts = Pieces(parts)
        assert decoder.held_bytes == held
        inflation._parts = parts
    assert len(inflation._parts) <= 2 + 2 * len(frame) // wire._PIECE_BYTES
    *_, last = _drain(decoder, frame[at:])
    assert isinstance(last, wire.Compressed)
    assert last.frame == frame


def test_an_inflater_is_not_held_for_little():
    """It is larger than most compressed frames, and a thousand peers may begin one each."""
    frame = wire.compressed(_V2, wire.json(_V2, 1, b"{}") * 1000)
    decoder = Decoder(Limits())
    for at in range(len(frame) - 1):
        assert _drain(decoder, frame[at : at + 1]) == []
        assert decoder.held_bytes <= at + 1
    runs = _drain(decoder, frame[-1:])
    assert sum(run.count for run in runs if isinstance(run, wire.Frames)) == 1000


def test_what_was_taken_is_released():
    """Between windows a connection holds next to nothing."""
    decoder = Decoder(Limits())
    big = wire.json(_V2, 1, b"{" + b" " * 500_000 + b"}")
    for at in range(0, len(big), 65536):
        _drain(decoder, big[at : at + 65536])
    assert decoder.held_bytes == 0
    _drain(decoder, wire.compressed(_V2, big))
    assert decoder.held_bytes == 0


@pytest.fixture(scope="session")
def vectors(read_vectors) -> list[dict[str, Any]]:
    return read_vectors("lumberjack")


def _check(found: Any, vector: dict[str, Any]) -> None:
    want = vector["want"]
    assert found.acks.hex() == want["acks"]
    payloads = [payload.decode("latin-1") for payload, *_ in found.events]
    # An event is spelled as text; bytes that are no UTF-8 as Latin-1.
    spelled = [text.encode().decode("latin-1") for text in want["events"]]
    assert [a in (b, c) for a, b, c in zip(payloads, spelled, want["events"],
                                           strict=True)] == [True] * len(payloads)  # fmt: skip
    flaws = {str(row): event[2] for row, event in enumerate(found.events) if event[2]}
    assert flaws == want.get("flaws", {})
    types = {
        str(row): event[3]
        for row, event in enumerate(found.events)
        if event[3] != "application/json"
    }
    assert types == want.get("content_types", {})
    if "refusal" in want:
        assert want["refusal"] in (found.refusal or "accepted")
    else:
        assert found.refusal is None


def test_whole(outcome, vectors):
    """Each stream, in one piece, is acknowledged, stored or refused as wanted."""
    assert len(vectors) > 70
    for vector in vectors:
        _check(outcome([bytes.fromhex(vector["hex"])]), vector)


def test_byte_by_byte(outcome, vectors):
    """… byte by byte as well."""
    for vector in vectors:
        stream = bytes.fromhex(vector["hex"])
        _check(outcome([stream[at : at + 1] for at in range(len(stream))]), vector)


def test_every_split(outcome, vectors):
    """… and in two pieces, cut anywhere."""
    for vector in vectors:
        stream = bytes.fromhex(vector["hex"])
        for cut in range(len(stream) + 1):
            _check(outcome([stream[:cut], stream[cut:]]), vector)


def test_the_rows_are_all_there(vectors):
    """No row of the research is forgotten (25 is about encoding: test_wire)."""
    rows = {vector["row"] for vector in vectors}
    assert rows >= {str(row) for row in range(1, 25)}
