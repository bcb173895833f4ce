"""The client's side of a WebSocket (RFC 6455), without I/O and without extensions."""

from __future__ import annotations

import base64
import hashlib
import os
import struct

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_HEAD = 1 << 16


class WebSocketFailed(Exception):
    """The server breaks RFC 6455; says how."""


class WebSocket:
    """One connection; *request* is what to send first."""

    def __init__(self, host: str, path: str, subprotocol: str) -> None:
        key = base64.b64encode(os.urandom(16))
        self._accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())  # noqa: S324
        self._subprotocol = subprotocol
        self.request = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key.decode()}\r\n"
            f"Sec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
        ).encode()
        self.opened = False
        self.closed: int | None = None
        """The code that the server closed it with; 1005 if it gave none."""
        self._unread = b""
        self._answer = b""

    # -- write

    def binary(self, data: bytes) -> bytes:
        """A binary message."""
        return self._frame(_BINARY, data)

    def text(self, text: str) -> bytes:
        """A text message."""
        return self._frame(_TEXT, text.encode())

    def answer(self) -> bytes:
        """The answer to pings and a close, once."""
        answer, self._answer = self._answer, b""
        return answer

    def _frame(self, opcode: int, data: bytes) -> bytes:
        size = len(data)
        if size < 126:
            head = struct.pack(">BB", 0x80 | opcode, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack(">BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack(">BBQ", 0x80 | opcode, 0x80 | 127, size)
        mask = os.urandom(4)
        key = int.from_bytes(mask * (size // 4) + mask[: size % 4])
        return head + mask + (int.from_bytes(data) ^ key).to_bytes(size)

    # -- read

    def feed(self, data: bytes) -> bytes:
        """The octets of binary messages.  Raises `WebSocketFailed`."""
        self._unread += data
        if not self.opened and not self._open():
            return b""
        found = []
        while (frame := self._next()) is not None:
            opcode, body = frame
            if opcode in (_BINARY, _CONTINUATION):
                found.append(body)
            elif opcode == _PING:
                self._answer += self._frame(_PONG, body)
            elif opcode == _CLOSE:
                self.closed = int.from_bytes(body[:2]) if len(body) > 1 else 1005
                self._answer += self._frame(_CLOSE, body[:2])
            elif opcode != _PONG:
                raise WebSocketFailed(f"a WebSocket frame of type {opcode}")
        return b"".join(found)

    def _open(self) -> bool:
        head, end, rest = self._unread.partition(b"\r\n\r\n")
        if not end:
            if len(head) > _HEAD:
                raise WebSocketFailed("no end of the answer to a WebSocket's request")
            return False
        lines = head.decode("latin-1").split("\r\n")
        fields = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }
        if lines[0].split(" ")[1:2] != ["101"]:
            raise WebSocketFailed(f"the target accepts no WebSocket: {lines[0]}")
        if fields.get("sec-websocket-accept", "").encode() != self._accept:
            raise WebSocketFailed("a wrong Sec-WebSocket-Accept")
        if fields.get("sec-websocket-protocol") != self._subprotocol:
            raise WebSocketFailed(
                f"does not choose the subprotocol {self._subprotocol}"
            )
        self._unread = rest
        self.opened = True
        return True

    def _next(self) -> tuple[int, bytes] | None:
        data = self._unread
        if len(data) < 2:
            return None
        opcode, size, at = data[0] & 0x0F, data[1], 2
        if data[0] & 0x70 or size & 0x80:
            raise WebSocketFailed("a frame that is masked, or has reserved bits")
        if size >= 126:
            width = 2 if size == 126 else 8
            at += width
            if len(data) < at:
                return None
            size = int.from_bytes(data[2:at])
        if len(data) < at + size:
            return None
        self._unread = data[at + size :]
        return opcode, data[at : at + size]
