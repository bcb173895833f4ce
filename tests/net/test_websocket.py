"""A byte stream in WebSocket frames, against wsproto's client."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.extensions import PerMessageDeflate

from gateway.interfaces import Refusal
from gateway.net.websocket import Frames, Upgrade, close_frame, message

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
    masked = bytes(byte ^ mask[at & 3] for at, byte in enumerate(payload))
    return bytes((fin << 7 | opcode,)) + length + mask + masked


def client(**request: object) -> tuple[WSConnection, bytes]:
    """wsproto's client and its request."""
    connection = WSConnection(ConnectionType.CLIENT)
    defaults = {"host": "gw", "target": "/rs"}
    return connection, connection.send(Request(**(defaults | request)))  # type: ignore[arg-type]


def refused(upgrade: Upgrade, request: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        upgrade.feed(request)
    return caught.value


# The request


def test_a_request_is_granted_in_any_slicing() -> None:
    """The answer satisfies the client, and the frame right behind is not lost."""
    connection, request = client()
    request += frame(2, b"early")
    for cut in range(len(request)):
        upgrade = Upgrade("/rs")
        first, rest = upgrade.feed(request[:cut]), request[cut:]
        granted = first or upgrade.feed(rest)
        assert granted is not None
        behind = granted.rest + (rest if first else b"")
        assert Frames(LIMIT).feed(behind) == b"early"
    connection.receive_data(granted.answer)
    assert list(connection.events()) == [AcceptConnection()]


def test_byte_by_byte() -> None:
    """The last byte of the head brings the verdict."""
    _, request = client()
    upgrade = Upgrade("/rs")
    for at in range(len(request) - 1):
        assert upgrade.feed(request[at : at + 1]) is None
    assert upgrade.feed(request[-1:]) is not None


def test_the_first_subprotocol_of_ours_is_chosen() -> None:
    """Our order decides; without overlap the client gets none."""
    _, request = client(subprotocols=["x", "b", "a"])
    granted = Upgrade("/rs", subprotocols=["a", "b"]).feed(request)
    assert granted is not None
    assert granted.subprotocol == "a"
    assert b"sec-websocket-protocol: a\r\n" in granted.answer.lower()
    granted = Upgrade("/rs", subprotocols=["c"]).feed(request)
    assert granted is not None
    assert granted.subprotocol is None


def test_compression_is_never_agreed_to() -> None:
    """permessage-deflate is offered and not taken."""
    _, request = client(extensions=[PerMessageDeflate()])
    assert b"permessage-deflate" in request
    granted = Upgrade("/rs").feed(request)
    assert granted is not None
    assert b"xtensions" not in granted.answer


def test_another_path_is_not_found() -> None:
    """404, and a query does not count."""
    _, request = client(target="/other")
    why = refused(Upgrade("/rs"), request)
    assert why.reply.startswith(b"HTTP/1.1 404 ")
    assert why.key == "websocket.path"
    _, request = client(target="/rs?token=1")
    assert Upgrade("/rs").feed(request) is not None


@pytest.mark.parametrize(
    ("allowed", "origin", "granted"),
    [
        ([], None, True),
        ([], b"https://evil.example", False),
        (["https://App.example/"], b"https://app.example", True),
        (["https://app.example"], b"https://app.example.evil.example", False),
        (["https://app.example"], b"http://app.example", False),
        (["https://app.example"], None, True),
        (["*"], b"null", True),
    ],
)
def test_pages_connect_only_from_the_listed_origins(
    allowed: list[str], origin: bytes | None, granted: bool
) -> None:
    """Programs have no Origin and may; a page may if it is listed."""
    headers = [] if origin is None else [(b"Origin", origin)]
    _, request = client(extra_headers=headers)
    upgrade = Upgrade("/rs", allowed)
    if granted:
        assert upgrade.feed(request) is not None
    else:
        why = refused(upgrade, request)
        assert why.reply.startswith(b"HTTP/1.1 403 ")
        assert why.key == "websocket.origins"


def test_plain_http_is_told_to_upgrade() -> None:
    """426 for a request that asks for no WebSocket."""
    why = refused(Upgrade("/rs"), b"GET /rs HTTP/1.1\r\nHost: gw\r\n\r\n")
    assert why.reply.startswith(b"HTTP/1.1 426 ")


@pytest.mark.parametrize(
    "headers",
    [
        b"Upgrade: websocket\r\nConnection: upgrade\r\n",
        (
            b"Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 8\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        ),
        b"Upgrade: websocket\r\nbad header\r\n",
        b"\xff\xfe: \x00\r\nUpgrade: websocket\r\n",
    ],
)
def test_a_bad_upgrade_gets_400(headers: bytes) -> None:
    """Wrong version, missing key, broken HTTP."""
    why = refused(
        Upgrade("/rs"), b"GET /rs HTTP/1.1\r\nHost: gw\r\n" + headers + b"\r\n"
    )
    assert why.reply.startswith(b"HTTP/1.1 400 ")


def test_an_endless_head_is_refused() -> None:
    """8 KiB of headers are enough, in one piece or many."""
    upgrade = Upgrade("/rs")
    assert upgrade.feed(b"GET /rs HTTP/1.1\r\n") is None
    for _ in range(8192 - 18):
        assert upgrade.feed(b"x") is None
    assert refused(upgrade, b"x").reply.startswith(b"HTTP/1.1 431 ")
    _, request = client(extra_headers=[(b"X", b"y" * 9000)])
    assert refused(Upgrade("/rs"), request).reply.startswith(b"HTTP/1.1 431 ")


@given(st.binary(max_size=200))
def test_any_request_is_read_or_refused(data: bytes) -> None:
    """Nothing but a refusal comes out of the request's parser."""
    head = b"GET /rs HTTP/1.1\r\nUpgrade: websocket\r\n"
    with suppress(Refusal):
        Upgrade("/rs").feed(head + data + b"\r\n\r\n")


# The frames


def connected() -> tuple[WSConnection, Frames]:
    connection, request = client()
    granted = Upgrade("/rs").feed(request)
    assert granted is not None
    connection.receive_data(granted.answer)
    list(connection.events())
    return connection, Frames(LIMIT)


def heard(connection: WSConnection, data: bytes) -> list[Event]:
    connection.receive_data(data)
    return list(connection.events())


@given(
    st.lists(st.binary(max_size=1500), max_size=6),
    st.lists(st.integers(1, 700), max_size=30),
)
def test_the_stream_is_the_same_in_any_slicing(
    payloads: list[bytes], cuts: list[int]
) -> None:
    """Messages of wsproto's client, pinging between, come out as their bytes."""
    connection, frames = connected()
    stream = b""
    for payload in payloads:
        half = len(payload) // 2
        stream += connection.send(BytesMessage(payload[:half], message_finished=False))
        stream += connection.send(Ping(b"between"))
        stream += connection.send(BytesMessage(payload[half:]))
    got, at = b"", 0
    for cut in [*cuts, len(stream) + 1]:
        got += frames.feed(stream[at : at + cut])
        at += cut
    assert got == b"".join(payloads)


def test_frames_come_byte_by_byte() -> None:
    """Every head, mask and payload may be cut anywhere."""
    sizes = (0, 1, 125, 126, 127, 600, 65_535, 65_536)
    stream = b"".join(frame(2, bytes((size % 251,)) * size) for size in sizes)
    frames = Frames(LIMIT)
    got = b"".join(frames.feed(stream[at : at + 1]) for at in range(len(stream)))
    assert got == b"".join(bytes((size % 251,)) * size for size in sizes)


def test_text_messages_where_they_are_taken() -> None:
    """They count for their bytes, in parts too; elsewhere they end the connection."""
    stream = frame(1, b"a", fin=False) + frame(0, b"b") + frame(2, b"c")
    assert Frames(LIMIT, text=True).feed(stream) == b"abc"
    with pytest.raises(Refusal, match="text message"):
        Frames(LIMIT).feed(stream)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_our_messages_are_read_by_the_client(size: int) -> None:
    """One write is one binary message of any size."""
    connection, _ = connected()
    payload = bytes(size)
    got = b"".join(
        bytes(event.data)
        for event in heard(connection, message(payload))
        if isinstance(event, BytesMessage)
    )
    assert got == payload


def test_a_ping_is_answered() -> None:
    """With its own payload; of several in one chunk the last (RFC 6455 §5.5.3)."""
    connection, frames = connected()
    pings = connection.send(Ping(b"1")) + connection.send(Ping(b"2"))
    assert frames.feed(pings) == b""
    assert heard(connection, frames.output()) == [Pong(payload=bytearray(b"2"))]
    assert frames.output() == b""
    frames.feed(connection.send(Pong(b"unasked")))
    assert frames.output() == b""


def test_a_close_is_answered_with_its_code() -> None:
    """And nothing behind it is read."""
    connection, frames = connected()
    bye = connection.send(CloseConnection(4000, "done"))
    assert frames.feed(frame(2, b"last") + bye + frame(2, b"late")) == b"last"
    assert frames.closed
    [event] = heard(connection, frames.output())
    assert isinstance(event, CloseConnection)
    assert event.code == 4000


def test_an_empty_close_is_answered_with_an_empty_one() -> None:
    """No status in, no status out."""
    frames = Frames(LIMIT)
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
def test_it_is_refused_with_the_right_code(name: str) -> None:
    """From the head alone; the refusal's reply is a Close that the client reads."""
    data, code = BAD[name]
    connection, frames = connected()
    with pytest.raises(Refusal) as caught:
        frames.feed(data)
    [event] = heard(connection, caught.value.reply)
    assert isinstance(event, CloseConnection)
    assert event.code == code


def test_a_flood_of_pings_is_refused() -> None:
    """A thousand between two ticks; an honest client that pings for hours is fine."""
    frames = Frames(LIMIT)
    for _ in range(5):
        frames.feed(frame(9, b"") * 1000)
        frames.tick()
    with pytest.raises(Refusal, match="flood"):
        frames.feed(frame(9, b"") * 1001)


def test_a_flood_of_empty_messages_is_refused() -> None:
    """They cost as much as pings and carry as little."""
    with pytest.raises(Refusal, match="flood"):
        Frames(LIMIT).feed(frame(2, b"") * 1001)


def test_a_message_costs_no_memory() -> None:
    """Its bytes are handed on as they come; nothing is kept."""
    whole = frame(2, bytes(LIMIT))
    frames = Frames(LIMIT)
    got = 0
    for at in range(0, len(whole), 1000):
        got += len(frames.feed(whole[at : at + 1000]))
        assert len(frames._head) < 14
    assert got == LIMIT


@given(st.binary(max_size=400))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    """Nothing but a refusal comes out, whole or byte by byte, and both agree."""

    def outcome(pieces: list[bytes]) -> tuple[bytes, bool]:
        frames, got = Frames(LIMIT), b""
        try:
            for piece in pieces:
                got += frames.feed(piece)
        except Refusal:
            return b"", True
        return got, False

    single = [data[at : at + 1] for at in range(len(data))]
    assert outcome([data]) == outcome(single)


def test_a_close_reason_is_cut_to_fit() -> None:
    """A control frame holds 125 bytes, and the cut leaves valid UTF-8."""
    connection, _ = connected()
    [event] = heard(connection, close_frame(1008, "é" * 100))
    assert isinstance(event, CloseConnection)
    assert event.reason == "é" * 61


def test_text_of_the_client_is_refused_as_unsupported() -> None:
    """1003, with wsproto's own text message."""
    connection, frames = connected()
    with pytest.raises(Refusal) as caught:
        frames.feed(connection.send(TextMessage("hello")))
    [event] = heard(connection, caught.value.reply)
    assert isinstance(event, CloseConnection)
    assert event.code == 1003


def test_a_refused_request_is_a_rejection_for_the_client() -> None:
    """wsproto's client understands our HTTP."""
    connection, request = client(target="/other")
    events = heard(connection, refused(Upgrade("/rs"), request).reply)
    assert isinstance(events[0], RejectConnection)
    assert events[0].status_code == 404
