"""A WebSocket carries a byte stream.  RFC 6455, server side, no I/O.

The request is parsed by wsproto; the frames by the code below, because wsproto's
events cost more than our protocols do (docs/adr/0003-websocket.md).  Payload is
handed on as it arrives, never assembled: a message costs no memory, and message
borders mean nothing to what is carried.  Extensions are never agreed to, so there is
no permessage-deflate and no bomb in it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from wsproto import ConnectionType
from wsproto.events import AcceptConnection, Request
from wsproto.handshake import H11Handshake
from wsproto.utilities import RemoteProtocolError

from gateway.interfaces import Refusal
from gateway.net.recognise import http_answer

__all__ = ["Frames", "Upgrade", "Upgraded", "close_frame", "message"]

_LONGEST_HEAD = 8192
_CONTROLS_PER_TICK = 1000
"""Frames without payload for us between two calls of `Frames.tick`."""

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_FIN = 0x80
_LONG = 512
"""From here on four table look-ups beat one exclusive or of big integers."""
_XOR = [bytes(byte ^ mask for byte in range(256)) for mask in range(256)]
_U16 = struct.Struct("!H")
_U64 = struct.Struct("!Q")


class Upgraded(NamedTuple):
    """The request was a WebSocket's and was granted."""

    answer: bytes
    """To be sent before any frame."""
    subprotocol: str | None
    rest: bytes
    """What followed the request."""


class Upgrade:
    """Feed it any slicing of a connection's first bytes until it has `Upgraded`.

    *origins* names the web pages that may connect, `*` means any.  A client that is no
    browser sends no Origin and is let in.
    """

    def __init__(
        self, path: str, origins: Sequence[str] = (), subprotocols: Sequence[str] = ()
    ) -> None:
        self._path = path
        self._origins = [origin.rstrip("/").lower() for origin in origins]
        self._subprotocols = subprotocols
        self._head = b""

    def feed(self, data: bytes) -> Upgraded | None:
        """The verdict, or None if it needs more.

        Raises `Refusal` whose reply is an HTTP response.
        """
        searched = max(0, len(self._head) - 3)
        self._head += data
        end = self._head.find(b"\r\n\r\n", searched)
        if end > _LONGEST_HEAD or (end < 0 and len(self._head) > _LONGEST_HEAD):
            raise _no(
                "431 Request Header Fields Too Large",
                f"HTTP request head of more than {_LONGEST_HEAD} bytes",
            )
        if end < 0:
            return None
        head, rest = self._head[: end + 4], self._head[end + 4 :]
        handshake = H11Handshake(ConnectionType.SERVER)
        try:
            handshake.receive_data(head)
            [request] = handshake.events()
        except (RemoteProtocolError, ValueError) as why:
            raise _not_an_upgrade(head, str(why)) from None
        if not isinstance(request, Request):
            raise _not_an_upgrade(head, "no WebSocket request")
        self._check(request)
        chosen = next(
            (s for s in self._subprotocols if s in request.subprotocols), None
        )
        return Upgraded(handshake.send(AcceptConnection(chosen)), chosen, rest)

    def _check(self, request: Request) -> None:
        path = request.target.partition("?")[0]
        if path != self._path:
            raise _no(
                "404 Not Found",
                f"WebSocket path {path[:200]!r} is not {self._path!r}",
                key="websocket.path",
            )
        for name, value in request.extra_headers:
            if name == b"origin" and not self._admits(value.decode("latin-1")):
                raise _no(
                    "403 Forbidden",
                    f"WebSocket from a page of {value[:200]!r}",
                    key="websocket.origins",
                )

    def _admits(self, origin: str) -> bool:
        return "*" in self._origins or origin.rstrip("/").lower() in self._origins


def _no(status: str, rule: str, *headers: str, key: str | None = None) -> Refusal:
    return Refusal(rule, key=key, reply=http_answer(status, rule + ".", *headers))


def _not_an_upgrade(head: bytes, why: str) -> Refusal:
    if b"\nupgrade:" in head.lower():
        return _no(
            "400 Bad Request",
            f"bad WebSocket request: {why[:200]}",
            "Sec-WebSocket-Version: 13",
        )
    return _no(
        "426 Upgrade Required",
        "HTTP request without upgrade on a WebSocket port",
        "Upgrade: websocket",
    )


def message(payload: bytes) -> bytes:
    """One binary message."""
    return _frame(_BINARY, payload)


def close_frame(code: int, reason: str = "") -> bytes:
    """A Close with its status code (RFC 6455 §7.4)."""
    text = reason.encode()[:123].decode(errors="ignore").encode()
    return _frame(_CLOSE, _U16.pack(code) + text)


def _frame(opcode: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        return bytes((_FIN | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((_FIN | opcode, 126)) + _U16.pack(size) + payload
    return bytes((_FIN | opcode, 127)) + _U64.pack(size) + payload


def _wrong(code: int, rule: str, **limit: str | int) -> Refusal:
    return Refusal(rule, reply=close_frame(code, rule), **limit)  # type: ignore[arg-type]


class Frames:
    """Turns a client's frames back into the stream that they carry.

    *text*: text messages are taken as well, for their bytes.
    """

    __slots__ = (
        "_control", "_controls", "_head", "_in_message", "_left", "_limit", "_mask",
        "_opcode", "_output", "_size", "_text", "closed",
    )  # fmt: skip

    def __init__(self, message_bytes: int, *, text: bool = False) -> None:
        self.closed = False
        """The peer sent Close; `output` answers it."""
        self._limit = message_bytes
        self._text = text
        self._head = b""
        self._left = 0
        self._mask = b""
        self._opcode = _CONTINUATION
        self._in_message = False
        self._size = 0
        self._control = b""
        self._controls = 0
        self._output = b""

    def tick(self) -> None:
        """Time has passed: forget how many control frames came."""
        self._controls = 0

    def output(self) -> bytes:
        """What the last `feed` wants sent: a Pong, a Close, or nothing."""
        output, self._output = self._output, b""
        return output

    def feed(self, data: bytes) -> bytes:
        """The payload in any slicing of the stream of frames.

        Raises `Refusal` whose reply is a Close frame.
        """
        if self._head:
            data, self._head = self._head + data, b""
        pieces: list[bytes | bytearray] = []
        at, end = 0, len(data)
        while at < end and not self.closed:
            if not self._left:
                size = self._begin(data, at)
                if not size:
                    self._head = data[at:]
                    break
                at += size
            stop = min(end, at + self._left)
            piece = _unmask(data[at:stop], self._mask)
            self._left -= stop - at
            if self._left:
                turn = (stop - at) & 3
                self._mask = self._mask[turn:] + self._mask[:turn]
            at = stop
            if self._opcode < _CLOSE:
                pieces.append(piece)
            else:
                self._control += piece
                if not self._left:
                    self._controlled()
        return b"".join(pieces)

    def _begin(self, data: bytes, at: int) -> int:
        """Read a frame's head; its size, or 0 if it is not all there."""
        if len(data) - at < 2:
            return 0
        first, second = data[at], data[at + 1]
        self._check(first, second)
        size, head = second & 0x7F, 2
        if size == 126:
            head = 4
        elif size == 127:
            head = 10
        if len(data) - at < head:
            return 0
        if head == 4:
            size = _U16.unpack_from(data, at + 2)[0]
        elif head == 10:
            size = _U64.unpack_from(data, at + 2)[0]
        if (head == 4 and size < 126) or (head == 10 and size < 1 << 16):
            raise _wrong(
                1002, f"frame of {size} bytes with a longer length than needed"
            )
        opcode = first & 15
        self._measure(opcode, size)
        if len(data) - at < head + 4:
            return 0
        self._accept(first, opcode, size)
        self._mask = data[at + head : at + head + 4]
        return head + 4

    def _check(self, first: int, second: int) -> None:
        opcode = first & 15
        if not second & 0x80:
            raise _wrong(1002, "frame without mask")
        if first & 0x70:
            raise _wrong(1002, "frame with reserved bits: no extension was agreed on")
        if opcode == _TEXT and not self._text:
            raise _wrong(1003, "text message: only binary ones are taken")
        if opcode not in (_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG):
            raise _wrong(1002, f"frame with opcode {opcode}")
        if opcode >= _CLOSE:
            if not first & _FIN or second & 0x7F > 125:
                raise _wrong(1002, "control frame in parts or of more than 125 bytes")
        elif (opcode == _CONTINUATION) != self._in_message:
            raise _wrong(1002, "continuation and message do not fit")

    def _measure(self, opcode: int, size: int) -> None:
        if opcode >= _CLOSE:
            return
        whole = size + (self._size if self._in_message else 0)
        if whole > self._limit:
            raise _wrong(
                1009,
                f"WebSocket message of {whole} bytes",
                limit=self._limit,
                key="limits.message_bytes",
            )

    def _accept(self, first: int, opcode: int, size: int) -> None:
        self._opcode = opcode
        self._left = size
        if opcode < _CLOSE:
            self._size = size + (self._size if self._in_message else 0)
            self._in_message = not first & _FIN
            if size:
                return
        self._controls += 1
        if self._controls > _CONTROLS_PER_TICK:
            raise _wrong(
                1008, "flood of frames without payload", limit=_CONTROLS_PER_TICK
            )
        if opcode >= _CLOSE and not size:
            self._controlled()

    def _controlled(self) -> None:
        payload, self._control = self._control, b""
        if self._opcode == _PING:
            self._output = _frame(_PONG, payload)  # the last one answers all (§5.5.3)
        elif self._opcode == _CLOSE:
            self._output = _frame(_CLOSE, _close_payload(payload))
            self.closed = True


def _close_payload(payload: bytes) -> bytes:
    """What answers a Close: its own status code."""
    if not payload:
        return b""
    code = int.from_bytes(payload[:2], "big")
    known = 1000 <= code <= 1014 and code not in (1004, 1005, 1006)
    if len(payload) == 1 or not (known or 3000 <= code <= 4999):
        raise _wrong(1002, f"close frame with code {code}")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise _wrong(1007, "close frame whose reason is not UTF-8") from None
    return payload[:2]


def _unmask(data: bytes, mask: bytes) -> bytes | bytearray:
    size = len(data)
    if size < _LONG:
        key = (mask * (size // 4 + 1))[:size]
        bits = int.from_bytes(data, "little") ^ int.from_bytes(key, "little")
        return bits.to_bytes(size, "little")
    plain = bytearray(data)
    for lane in range(4):
        plain[lane::4] = plain[lane::4].translate(_XOR[mask[lane]])
    return plain
