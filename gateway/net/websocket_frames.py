"""WebSocket frames, server side, without I/O (RFC 6455): a client's frames as a byte stream.

Not wsproto's, because its events cost more than our protocols do
(docs/adr/0003-websocket.md).  Payload is handed on as it arrives, never assembled: a
message costs no memory, and message borders mean nothing to what is carried.
Extensions are never agreed to, so there is no permessage-deflate and no bomb in it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

from gateway.sdk.interfaces import Refusal

_MAX_EMPTY_FRAMES = 1000
"""Control and empty frames between two calls of `FrameDecoder.tick`."""

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_FIN = 0x80
_LONG_BYTES = 640
"""The size from which on numpy's exclusive or beats that of big integers."""
_WORD = np.dtype(np.uint32)
"""A mask, in whatever order of bytes: it is the same on both sides."""
_U16 = struct.Struct("!H")
_U64 = struct.Struct("!Q")
_SHORT = [bytes((_FIN | _BINARY, size)) for size in range(126)]
"""The head of a short binary message, by its size."""


def binary_message(payload: bytes) -> bytes:
    """*payload* in one frame."""
    return _frame(_BINARY, payload)


def binary_messages(payloads: Iterable[bytes | memoryview]) -> bytes:
    """Each of *payloads* in a frame of its own."""
    frames: list[bytes | memoryview] = []
    for payload in payloads:
        size = len(payload)
        if size < 126:
            frames += (_SHORT[size], payload)
        else:
            frames.append(_frame(_BINARY, payload))
    return b"".join(frames)


def close_frame(code: int, reason: str = "") -> bytes:
    """A Close with its status code (RFC 6455 §7.4)."""
    text = reason.encode()[:123].decode(errors="ignore").encode()
    return _frame(_CLOSE, _U16.pack(code) + text)


def _frame(opcode: int, payload: bytes | memoryview) -> bytes:
    size = len(payload)
    if size < 126:
        return bytes((_FIN | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((_FIN | opcode, 126)) + _U16.pack(size) + payload
    return bytes((_FIN | opcode, 127)) + _U64.pack(size) + payload


def _violation(code: int, rule: str, **limit: str | int) -> Refusal:
    return Refusal(rule, reply=close_frame(code, rule), **limit)  # type: ignore[arg-type]


class FrameDecoder:
    """Takes the payload out of a client's frames.

    *message_bytes* is the longest message; *text*: text messages are taken as well, for
    their bytes.
    """

    __slots__ = (
        "_control", "_empty", "_head", "_in_message", "_left", "_limit", "_mask",
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
        self._empty = 0
        self._output = b""

    def tick(self) -> None:
        """Time has passed: forget how many control and empty frames came."""
        self._empty = 0

    def output(self) -> bytes:
        """The answer to the last `feed`: a Pong, a Close, or nothing."""
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
                size = self._read_head(data, at)
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
                    self._end_control()
        return b"".join(pieces)

    def _read_head(self, data: bytes, at: int) -> int:
        """Read a frame's head; its size, or 0 if it is not all there."""
        if len(data) - at < 2:
            return 0
        first, second = data[at], data[at + 1]
        self._check_head(first, second)
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
            raise _violation(
                1002, f"frame of {size} bytes with a longer length than needed"
            )
        opcode = first & 15
        self._check_size(opcode, size)
        if len(data) - at < head + 4:
            return 0
        self._begin_frame(first, opcode, size)
        self._mask = data[at + head : at + head + 4]
        return head + 4

    def _check_head(self, first: int, second: int) -> None:
        opcode = first & 15
        if not second & 0x80:
            raise _violation(1002, "frame without mask")
        if first & 0x70:
            raise _violation(
                1002, "frame with reserved bits: no extension was agreed on"
            )
        if opcode == _TEXT and not self._text:
            raise _violation(1003, "text message: only binary ones are taken")
        if opcode not in (_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG):
            raise _violation(1002, f"frame with opcode {opcode}")
        if opcode >= _CLOSE:
            if not first & _FIN or second & 0x7F > 125:
                raise _violation(
                    1002, "control frame in parts or of more than 125 bytes"
                )
        elif (opcode == _CONTINUATION) != self._in_message:
            raise _violation(1002, "continuation and message do not fit")

    def _check_size(self, opcode: int, size: int) -> None:
        if opcode >= _CLOSE:
            return
        whole = size + (self._size if self._in_message else 0)
        if whole > self._limit:
            raise _violation(
                1009,
                f"WebSocket message of {whole} bytes",
                limit=self._limit,
                key="limits.message_bytes",
            )

    def _begin_frame(self, first: int, opcode: int, size: int) -> None:
        self._opcode = opcode
        self._left = size
        if opcode < _CLOSE:
            self._size = size + (self._size if self._in_message else 0)
            self._in_message = not first & _FIN
            if size:
                return
        self._empty += 1
        if self._empty > _MAX_EMPTY_FRAMES:
            raise _violation(
                1008, "flood of frames without payload", limit=_MAX_EMPTY_FRAMES
            )
        if opcode >= _CLOSE and not size:
            self._end_control()

    def _end_control(self) -> None:
        payload, self._control = self._control, b""
        if self._opcode == _PING:
            self._output = _frame(_PONG, payload)  # the last one answers all (§5.5.3)
        elif self._opcode == _CLOSE:
            self._output = _frame(_CLOSE, _answer_to_close(payload))
            self.closed = True


def _answer_to_close(payload: bytes) -> bytes:
    """The answer to a Close: its own status code."""
    if not payload:
        return b""
    code = int.from_bytes(payload[:2], "big")
    known = 1000 <= code <= 1014 and code not in (1004, 1005, 1006)
    if len(payload) == 1 or not (known or 3000 <= code <= 4999):
        raise _violation(1002, f"close frame with code {code}")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise _violation(1007, "close frame whose reason is not UTF-8") from None
    return payload[:2]


def _unmask(data: bytes, mask: bytes) -> bytes | bytearray:
    size = len(data)
    if size < _LONG_BYTES:
        key = (mask * (size // 4 + 1))[:size]
        bits = int.from_bytes(data, "little") ^ int.from_bytes(key, "little")
        return bits.to_bytes(size, "little")
    plain = bytearray(data)
    words = np.frombuffer(plain, _WORD, size >> 2)
    np.bitwise_xor(words, np.frombuffer(mask, _WORD), words)
    for at in range(size & ~3, size):
        plain[at] ^= mask[at & 3]
    return plain
