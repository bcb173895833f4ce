"""A byte stream in WebSocket frames, against wsproto's client."""

import random
import struct
from itertools import cycle, pairwise
from operator import xor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import events
from wsproto.connection import Connection, ConnectionType

from gateway.net.websocket_frames import (
    FrameDecoder,
    binary_message,
    binary_messages,
    close_frame,
)
from gateway.sdk.interfaces import Refusal

LIMIT = 1 << 20


def frame(
    opcode: int, payload: bytes, *, fin: bool = True, mask: bytes = b"\x11\x22\x33\x44"
) -> bytes:
    """A client's frame, masked."""
    size = len(payload)
    if size < 126:
        length = bytes((0x80 | size,))
    elif size < 1 << 16:
        length = b"\xfe" + struct.pack("!H", size)
    else:
        length = b"\xff" + struct.pack("!Q", size)
    masked = bytes(map(xor, payload, cycle(mask)))
    return bytes((fin << 7 | opcode,)) + length + mask + masked


def connected() -> tuple[Connection, FrameDecoder]:
    """wsproto's client once the upgrade is granted, and what reads it."""
    return Connection(ConnectionType.CLIENT), FrameDecoder(LIMIT)


def heard(connection: Connection, data: bytes) -> list[events.Event]:
    connection.receive_data(data)
    return list(connection.events())


@given(
    st.lists(st.binary(max_size=1500), max_size=6),
    st.lists(st.integers(1, 700), max_size=30),
)
def test_the_stream_is_the_same_in_any_slicing(payloads, cuts):
    """Messages of wsproto's client, pinging between, come out as their bytes."""
    connection, frames = connected()
    stream = b""
    for payload in payloads:
        half = len(payload) // 2
        stream += connection.send(
            events.BytesMessage(payload[:half], message_finished=False)
        )
        stream += connection.send(events.Ping(b"between"))
        stream += connection.send(events.BytesMessage(payload[half:]))
    got, at = b"", 0
    for cut in [*cuts, len(stream) + 1]:
        got += frames.feed(stream[at : at + cut])
        at += cut
    assert got == b"".join(payloads)


def test_frames_come_byte_by_byte():
    """Every head, mask and payload may be cut anywhere."""
    sizes = (0, 1, 125, 126, 127, 600, 65_535, 65_536)
    stream = b"".join(frame(2, bytes((size % 251,)) * size) for size in sizes)
    frames = FrameDecoder(LIMIT)
    got = b"".join(frames.feed(stream[at : at + 1]) for at in range(len(stream)))
    assert got == b"".join(bytes((size % 251,)) * size for size in sizes)


def test_text_messages_where_they_are_taken():
    """They count for their bytes, in parts too; elsewhere they end the connection."""
    stream = frame(1, b"a", fin=False) + frame(0, b"b") + frame(2, b"c")
    assert FrameDecoder(LIMIT, text=True).feed(stream) == b"abc"
    with pytest.raises(Refusal, match="text message"):
        FrameDecoder(LIMIT).feed(stream)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_our_messages_are_read_by_the_client(size):
    """One write is one binary message of any size."""
    connection, _ = connected()
    payload = bytes(size)
    got = b"".join(
        bytes(event.data)
        for event in heard(connection, binary_message(payload))
        if isinstance(event, events.BytesMessage)
    )
    assert got == payload


def test_many_messages_at_once():
    """Each of them is a frame of its own, of any size."""
    sizes = (0, 1, 125, 126, 300, 65_535, 65_536)
    payloads = [bytes(size) for size in sizes]
    assert binary_messages(payloads) == b"".join(map(binary_message, payloads))


def test_a_ping_is_answered():
    """With its own payload; of several in one chunk the last (RFC 6455 §5.5.3)."""
    connection, frames = connected()
    pings = connection.send(events.Ping(b"1")) + connection.send(events.Ping(b"2"))
    assert frames.feed(pings) == b""
    assert heard(connection, frames.output()) == [events.Pong(payload=bytearray(b"2"))]
    assert frames.output() == b""
    frames.feed(connection.send(events.Pong(b"unasked")))
    assert frames.output() == b""


def test_a_close_is_answered_with_its_code():
    """And nothing behind it is read."""
    connection, frames = connected()
    bye = connection.send(events.CloseConnection(4000, "done"))
    assert frames.feed(frame(2, b"last") + bye + frame(2, b"late")) == b"last"
    assert frames.closed
    [event] = heard(connection, frames.output())
    assert isinstance(event, events.CloseConnection)
    assert event.code == 4000


def test_an_empty_close_is_answered_with_an_empty_one():
    """No status in, no status out."""
    frames = FrameDecoder(LIMIT)
    frames.feed(frame(8, b""))
    assert frames.output() == b"\x88\x00"


BAD = {
    "unmasked": (b"\x82\x01x", 1002),
    "reserved bit": (b"\xc2" + frame(2, b"x")[1:], 1002),
    "text": (frame(1, b"hello"), 1003),
    "unknown opcode": (frame(3, b"x"), 1002),
    "unknown control": (frame(11, b""), 1002),
    "continuation of nothing": (frame(0, b"x"), 1002),
    "message in a message": (frame(2, b"x", fin=False) + frame(2, b"y"), 1002),
    "ping in parts": (frame(9, b"x", fin=False), 1002),
    "long ping": (frame(9, bytes(126)), 1002),
    "2^62 bytes": (b"\x82\xff" + struct.pack("!Q", 1 << 62), 1009),
    "2^64 - 1 bytes": (b"\x82\xff" + b"\xff" * 8, 1009),
    "1 GiB": (b"\x82\xff" + struct.pack("!Q", 1 << 30), 1009),
    "too long in parts": (
        frame(2, b"x", fin=False) + b"\x80\xff" + struct.pack("!Q", LIMIT),
        1009,
    ),
    "needlessly long 16 bit length": (b"\x82\xfe\0\x05", 1002),
    "needlessly long 64 bit length": (b"\x82\xff" + struct.pack("!Q", 300), 1002),
    "close with one byte": (frame(8, b"\x03"), 1002),
    "close with code 1005": (frame(8, b"\x03\xed"), 1002),
    "close with code 999": (frame(8, b"\x03\xe7"), 1002),
    "close with bad UTF-8": (frame(8, b"\x03\xe8\xff"), 1007),
}


@pytest.mark.parametrize("name", BAD)
def test_it_is_refused_with_the_right_code(name):
    """From the head alone; the refusal's reply is a Close that the client reads."""
    data, code = BAD[name]
    connection, frames = connected()
    with pytest.raises(Refusal) as caught:
        frames.feed(data)
    [event] = heard(connection, caught.value.reply)
    assert isinstance(event, events.CloseConnection)
    assert event.code == code


def test_a_flood_of_pings_is_refused():
    """A thousand between two ticks; an honest client that pings for hours is fine."""
    frames = FrameDecoder(LIMIT)
    for _ in range(5):
        frames.feed(frame(9, b"") * 1000)
        frames.tick()
    with pytest.raises(Refusal, match="flood"):
        frames.feed(frame(9, b"") * 1001)


def test_a_flood_of_empty_messages_is_refused():
    """They cost as much as pings and carry as little."""
    with pytest.raises(Refusal, match="flood"):
        FrameDecoder(LIMIT).feed(frame(2, b"") * 1001)


def test_a_message_costs_no_memory():
    """Its bytes are handed on as they come; nothing is kept."""
    whole = frame(2, bytes(LIMIT))
    frames = FrameDecoder(LIMIT)
    got = 0
    for at in range(0, len(whole), 1000):
        got += len(frames.feed(whole[at : at + 1000]))
        assert len(frames._head) < 14
    assert got == LIMIT


@given(st.binary(max_size=400))
def test_any_bytes_are_frames_or_refused(data):
    """Nothing but a refusal comes out, whole or byte by byte, and both agree."""

    def outcome(pieces: list[bytes]) -> tuple[bytes, bool]:
        frames, got = FrameDecoder(LIMIT), b""
        try:
            for piece in pieces:
                got += frames.feed(piece)
        except Refusal:
            return b"", True
        return got, False

    single = [data[at : at + 1] for at in range(len(data))]
    assert outcome([data]) == outcome(single)


@given(
    st.binary(min_size=4, max_size=4),
    st.integers(0, 1 << 14),
    st.lists(st.integers(0, 1 << 14), max_size=4),
    st.randoms(use_true_random=False),
)
def test_a_long_message_is_unmasked_wherever_it_is_cut(mask, size, cuts, chance):
    """Of any length, with any mask, each byte is what the client meant."""
    payload = chance.randbytes(size)
    whole = frame(2, payload, mask=mask)
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    frames = FrameDecoder(LIMIT)
    got = b"".join(frames.feed(whole[at:end]) for at, end in pairwise(edges))
    assert got == payload


@pytest.mark.parametrize("turn", range(4))
def test_every_length_is_unmasked_from_every_byte_of_the_mask(turn):
    """Where long pieces begin to be unmasked in another way, too."""
    payload = random.Random(turn).randbytes(turn + 1400)
    whole = frame(2, payload)
    head = len(whole) - len(payload)
    for size in range(1400):
        frames = FrameDecoder(LIMIT)
        got = frames.feed(whole[: head + turn])
        got += frames.feed(whole[head + turn : head + turn + size])
        assert got == payload[: turn + size]


def test_a_close_reason_is_cut_to_fit():
    """A control frame holds 125 bytes, and the cut leaves valid UTF-8."""
    connection, _ = connected()
    [event] = heard(connection, close_frame(1008, "é" * 100))
    assert isinstance(event, events.CloseConnection)
    assert event.reason == "é" * 61
