"""The kit's connections: sockets, and WebSockets written from RFC 6455."""

import base64
import hashlib
import socket
import struct
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived

from making import Make
from rsio_check import (
    TESTS,
    Http2Transport,
    Outcome,
    SocketTransport,
    Target,
    WebSocketTransport,
    run,
)
from rsio_check.websocket import WebSocket, WebSocketFailed
from small_rsio import Connection, Server

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WebSocketLink:
    """A small server behind a WebSocket; frames of *most* octets."""

    def __init__(self, server: Server, close: int, most: int = 100) -> None:
        self._link = server.connect()
        self._close, self._most = close, most
        self._data = b""
        self._out = b""
        self._over = False

    def send(self, data: bytes) -> None:
        self._data += data
        if self._data.startswith(b"GET "):
            head, end, self._data = self._data.partition(b"\r\n\r\n")
            assert end
            key = head.partition(b"Sec-WebSocket-Key: ")[2].split(b"\r\n")[0]
            accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
            self._out += (
                b"HTTP/1.1 101 x\r\nSec-WebSocket-Accept: " + accept
                + b"\r\nSec-WebSocket-Protocol: rsio.v0\r\n\r\n" + b"\x89\x02hi"
            )  # fmt: skip
        while len(self._data) >= 6:
            size, at = self._data[1] & 0x7F, 2
            if size >= 126:
                width = 2 if size == 126 else 8
                size, at = int.from_bytes(self._data[2 : 2 + width]), 2 + width
            opcode, mask = self._data[0] & 15, self._data[at : at + 4]
            body = bytes(
                octet ^ mask[n % 4]
                for n, octet in enumerate(self._data[at + 4 : at + 4 + size])
            )
            self._data = self._data[at + 4 + size :]
            if opcode == 2:
                self._link.send(body)
            elif opcode == 1:
                self._out += b"\x88\x02" + struct.pack(">H", self._close)
                self._over = True

    def receive(self, seconds: float) -> bytes | None:
        if not self._out and not self._over:
            data = self._link.receive(seconds)
            if not data:
                return data
            for at in range(0, len(data), self._most):
                piece = data[at : at + self._most]
                self._out += bytes([0x82, len(piece)]) + piece
        out, self._out = self._out, b""
        return out

    def close(self) -> None:
        self._link.close()

    reset = close


def over_websocket(close: int) -> Target:
    server = Server(Connection)
    target = Target(
        lambda: WebSocketTransport(WebSocketLink(server, close), "gw", "/rsio"),
        patience=0.2,
    )
    target.websocket = True
    return target


@pytest.mark.parametrize(
    ("close", "outcome"), [(1003, Outcome.PASSED), (1000, Outcome.FAILED)]
)
def test_text_messages(close, outcome):
    """A target that answers text with another code than 1003 fails."""
    [result] = run(over_websocket(close), [TESTS["websocket_takes_no_text"]])
    assert result.outcome is outcome, result.why


def test_boundaries_mean_nothing():
    """Tests pass over a WebSocket that cuts messages anywhere."""
    names = (
        "octet_by_octet",
        "large_elements_are_whole",
        "pings_are_answered_in_order",
    )
    target = over_websocket(1003)
    target.publishers = True
    for result in run(target, [TESTS[name] for name in names]):
        assert result.outcome is Outcome.PASSED, result.why


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"HTTP/1.1 404 no\r\n\r\n", "404"),
        (b"HTTP/1.1 101 x\r\n\r\n", "Sec-WebSocket-Accept"),
        (b"x" * 70_000, "no end"),
    ],
)
def test_no_websocket(answer, complaint):
    """A server that is none is told apart."""
    with pytest.raises(WebSocketFailed, match=complaint):
        WebSocket("gw", "/", "rsio.v0").feed(answer)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_frames(size):
    """Messages of any size are masked, and read by whoever unmasks them."""
    data = bytes(n % 251 for n in range(size))
    frame = WebSocket("gw", "/", "x").binary(data)
    mask_at = len(frame) - size - 4
    mask = frame[mask_at : mask_at + 4]
    body = frame[mask_at + 4 :]
    assert bytes(octet ^ mask[n % 4] for n, octet in enumerate(body)) == data
    assert frame[1] & 0x80


def test_both_may_write_at_once():
    """A target that writes and does not read is read while we write."""
    ours, theirs = socket.socketpair()
    link = SocketTransport(ours)
    theirs.setblocking(False)
    sent = 0
    try:
        while True:
            sent += theirs.send(b"x" * 65536)
    except BlockingIOError:
        pass
    theirs.close()
    link.send(b"y" * 10_000_000)  # nobody takes it
    got = 0
    while data := link.receive(5):
        got += len(data)
    assert got == sent
    link.close()


@pytest.fixture
def nobody() -> Make:
    def connect() -> Any:
        raise ConnectionRefusedError("nobody there")

    return connect


def test_nobody_there(nobody):
    """A target that does not listen fails each test with the reason."""
    [result] = run(Target(nobody), [TESTS["hello_is_answered"]])
    assert result.outcome is Outcome.FAILED
    assert "no connection" in result.why


class Http2Link:
    """A server of HTTP/2 that answers a request with *head*, and then echoes."""

    def __init__(self, head: dict[str, str]) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=False))
        self.h2.initiate_connection()
        self.head = head
        self.closed = False

    def send(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, RequestReceived):
                self.h2.send_headers(1, list(self.head.items()))
            elif isinstance(event, DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length or 0, 1)
                self.h2.send_data(1, event.data)

    def receive(self, seconds: float) -> bytes | None:
        return self.h2.data_to_send() or None

    def close(self) -> None:
        self.closed = True

    reset = close


GRANTED = {":status": "200", "content-type": "application/rs-io"}


def test_http2_is_a_stream_of_octets():
    """More than a window of them goes out as the target credits it, and comes whole."""
    link = Http2Link(GRANTED)
    made = Http2Transport(link, "gw", "/rsio", "http")
    sent = bytes(n % 251 for n in range(200_000))
    got = b""
    for at in range(0, len(sent), 50_000):
        made.send(sent[at : at + 50_000])
        while (more := made.receive(0.01)) is not None:
            got += more
    assert got == sent
    link.h2.end_stream(1)
    assert made.receive(1) == b""


@pytest.mark.parametrize(
    ("head", "complaint"),
    [
        (GRANTED | {":status": "404"}, "status 404"),
        (GRANTED | {"content-type": "text/html"}, "type text/html"),
    ],
)
def test_no_stream_of_http2(head, complaint):
    """A target that grants none is told apart, and the connection is closed."""
    link = Http2Link(head)
    with pytest.raises(ConnectionError, match=complaint):
        Http2Transport(link, "gw", "/rsio", "http")
    assert link.closed
