"""Frames on the wire, of both protocol versions: a header with type and length.

    frame   type i32 | length u32 (of what follows) | payload         big-endian

A frame of unknown type, or longer than the limit, is refused as soon as its header is
there, before its payload is buffered.  No I/O, no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence

from gateway.sdk.interfaces import Refusal

HEADER = struct.Struct(">iI")
HEADER_BYTES = HEADER.size

#: The protocol's limit: payloads are shorter than 2**24 bytes.
MAX_LENGTH = 0x00FF_FFFF

#: `Frames.feed` gives this type for the bytes that `Frames.raw` announced.
RAW = -(2**31)


def pieces(kind: int, *payload: bytes | memoryview) -> Sequence[bytes | memoryview]:
    """A frame with its header, in pieces, none of which is copied."""
    return HEADER.pack(kind, sum(map(len, payload))), *payload


def frame(kind: int, *payload: bytes | memoryview) -> bytes:
    return b"".join(pieces(kind, *payload))


class Frames:
    """Cuts the byte stream of one connection into frames; it may come in any slices."""

    __slots__ = ("_begun", "_buffer", "_given", "_known", "_most", "_need", "_raw")

    def __init__(self, known: Collection[int], most: int = MAX_LENGTH) -> None:
        """*known* are the types to accept; *most* is the limit of a payload, in bytes."""
        self._known = known
        self._most = min(most, MAX_LENGTH)
        self._buffer: bytes | bytearray = b""
        self._need = HEADER_BYTES
        """The least bytes in the buffer that can complete a frame."""
        self._begun: tuple[int, int] | None = None
        """Type of the frame that is in the buffer, as far as it has come, and where its
        payload begins there; None: its header is not complete."""
        self._given = 0
        """Bytes of a payload that is given and not dealt with yet, and not buffered."""
        self._raw = -1

    @property
    def held_bytes(self) -> int:
        return len(self._buffer) + self._given

    @property
    def begun(self) -> tuple[int, int, bytes] | None:
        """The frame whose payload is not complete: type, size, and the bytes so far."""
        if self._begun is None or not self._buffer:
            return None
        kind, start = self._begun
        return kind, self._need - start, bytes(memoryview(self._buffer)[start:])

    def discard(self) -> None:
        """Forget what is buffered: nothing more will be taken."""
        self._buffer = b""
        self._given = 0

    def raw(self, size: int) -> None:
        """Give the next *size* bytes, which have no frame header, as one of type `RAW`.

        Raises `Refusal` if they are more than a payload may have.
        """
        self._check(size)
        self._raw = size

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Type and payload of each frame that is complete with *data*.

        Exhaust the iterator.  Raises `Refusal` for a bad header, behind the frames
        before it.
        """
        view = memoryview(data)
        missing = self._need - len(self._buffer)
        if not self._buffer:
            self._buffer = data
        elif self._begun is None or missing > len(data):
            if not isinstance(self._buffer, bytearray):
                self._buffer = bytearray(self._buffer)
            self._buffer += data
            if missing > len(data):
                return
            view = memoryview(self._buffer)
        else:  # its payload is put together in one copy
            kind, start = self._begun
            payload = b"".join((memoryview(self._buffer)[start:], view[:missing]))
            self._buffer, self._begun, self._raw = data, None, -1
            self._given = len(payload)
            yield kind, payload
            self._given = 0
            view = view[missing:]
        yield from self._cut(view)

    def _cut(self, view: memoryview) -> Iterator[tuple[int, bytes]]:
        at, end = 0, len(view)
        while True:
            left = end - at
            if self._raw >= 0:
                kind, start, size = RAW, at, self._raw
            elif left >= HEADER_BYTES:
                kind, size = HEADER.unpack_from(view, at)
                if kind not in self._known:
                    raise Refusal(
                        f"unknown message type {kind} "
                        f"(header {view[at : at + HEADER_BYTES].hex()})"
                    )
                self._check(size)
                start = at + HEADER_BYTES
            else:
                self._begun, self._need = None, HEADER_BYTES
                break
            if start + size > end:
                self._begun, self._need = (kind, start - at), start + size - at
                break
            at = start + size
            self._raw = -1
            yield kind, bytes(view[start:at])
        self._buffer = bytes(view[at:])

    def _check(self, size: int) -> None:
        if size > self._most:
            raise Refusal(
                f"message of {size} bytes", limit=self._most, key="limits.message_bytes"
            )
