"""Finds the frames in a stream of Lumberjack bytes, and reads their headers.

`wire` describes the format.  The same code reads a connection's stream and the contents
of a compressed frame.  For speed there is no object for each frame: adjacent frames of
one kind make one `Frames`.  Everything is refused on its declared length, before it is
buffered.
"""

from __future__ import annotations

import re
import struct
from contextlib import suppress
from dataclasses import dataclass

from msgspec import Struct

from gateway.sdk import native
from gateway.sdk.interfaces import Refusal

_VERSIONS = b"12"
A, C, D, J, W = b"ACDJW"
_BRACE = ord("{")

_U32 = struct.Struct(">I")
_NUMBERS = struct.Struct(">II")
#: Version and type, (sequence), size, first byte of the body.
_JSON_HEAD = struct.Struct(">H4xIB")

_OPENS_ARRAY = re.compile(rb"[ \t\n\r]*\[")


@dataclass(slots=True, frozen=True)
class Limits:
    """Limits of one connection; sizes in bytes."""

    message_bytes: int = 16 << 20
    """Bytes of one event; a larger one is stored whole, with a flaw."""
    inflated_bytes: int = 100 << 20
    """Bytes of one frame, inflated."""
    compressed_bytes: int = 64 << 20
    """Bytes of one compressed frame, as sent."""
    window_events: int = 65536
    """Events of one window; frames in one compressed frame."""
    pairs: int = 1024
    """Key-value pairs of one `D` frame."""
    inflate_ratio: int = 400
    """How many times as large as it travels the contents of a `C` frame may be, once they
    are more than `batch_bytes`."""

    @property
    def batch_bytes(self) -> int:
        """Bytes of the frames of one batch, inflated; its rows will take that much memory."""
        return 2 * self.inflated_bytes

    @property
    def piece_bytes(self) -> int:
        """A window that is stored in pieces has so much in each, or one event."""
        return self.inflated_bytes // 4

    def contents_bytes(self, compressed: int) -> int:
        """Bytes that a `C` frame of so many bytes may hold.  Inflating takes no memory."""
        return max(self.batch_bytes, self.inflate_ratio * compressed)


class NoRoom(Exception):
    """The next frame is too much for what its window holds: store that before."""


class Window(Struct):
    """A `W` frame.  It may stand between events, in a `C` too."""

    version: int
    number: int
    inside: bool
    """Whether the frame was in a compressed one."""


class Frames(Struct):
    """Adjacent `D` frames, or `J` frames, of one version; each is one event."""

    version: int
    count: int
    seq: int
    """Sequence number of the last one."""
    not_zero: int
    """The last one that is not 0; 0: none."""
    size: int
    """Bytes of the frames, inflated."""
    frames: bytes | None
    """The frames as they came; None in a compressed frame, whose `Compressed` follows."""
    pairs: int = 0
    """Key-value pairs in all of them."""
    sizes: bytes | None = None
    """Bytes of each body, as u16, little-endian: in a compressed frame of `J` frames only.

    Each body must begin with a brace and have less than 64 KiB."""


class Array(Struct):
    """A `J` frame with a JSON array, whose elements may be events of their own."""

    version: int
    seq: int
    frames: bytes
    """The frame, inflated."""

    @property
    def not_zero(self) -> int:
        """The sequence number: the same as of `Frames`."""
        return self.seq

    @property
    def body(self) -> memoryview:
        return memoryview(self.frames)[10:]


class Compressed(Struct):
    """The end of a compressed frame, checksum verified; its events came before."""

    frame: bytes
    """The frame as it came, header included."""
    inflated: int
    """Size of its contents in bytes."""
    sizes: bytearray | None = None
    """Sizes of the bodies in it, if all of it is `J` frames whose bodies begin with a
    brace: no more than `MOST_SIZES`, each of less than 64 KiB."""


class CompressedHeader(Struct):
    """The header of a compressed frame; its zlib stream follows."""

    head: bytes
    """The six bytes that came."""
    size: int
    """Bytes of the zlib stream."""


def _printable(byte: int) -> str:
    return f"0x{byte:02x} ({chr(byte)})" if 0x20 < byte < 0x7F else f"0x{byte:02x}"


MOST_SIZES = 1 << 14
"""The most events of a compressed frame whose sizes are kept."""

#: A run of `J` frames, and the pairs of a run of `D` frames, end after so many.
_RUN = 8192


def run(
    buffer: bytes | bytearray, at: int, version: int, most: int
) -> tuple[int, int, int, int, int, bytes | None]:
    """Find adjacent `J` frames from *at* on, *most* of them, that have all arrived.

    Their bodies begin with a brace, so none is an array or empty.  Returns how many these
    are, where they end, the last number, the last that is not 0, the largest body, and all
    bodies' sizes as `Frames` has them.
    """
    expected = version << 8 | J
    head = _JSON_HEAD.unpack_from
    found: list[int] = []
    add = found.append
    stop = at
    # The only loop that runs once for each event.
    try:
        for _ in range(most):
            kind, size, first = head(buffer, stop)
            if first != _BRACE or kind != expected:
                break
            add(size)
            stop += 10 + size
    except struct.error:  # the next head has not all arrived
        pass
    if stop > len(buffer):  # nor has the last body
        stop -= 10 + found.pop()
    if not found:
        return 0, stop, 0, 0, 0, b""
    last = stop - 10 - found[-1]
    (seq,) = (not_zero,) = _U32.unpack_from(buffer, last + 2)
    if not seq:
        for size in found[-2::-1]:
            last -= 10 + size
            (not_zero,) = _U32.unpack_from(buffer, last + 2)
            if not_zero:
                break
    sizes = None
    with suppress(struct.error):  # one is larger
        sizes = struct.pack(f"<{len(found)}H", *found)
    return len(found), stop, seq, not_zero, max(found), sizes


_find = native.kernel.run if native.kernel else run


class Stream:
    """The part of a stream that has arrived and was not read yet."""

    __slots__ = ("_at", "_buffer", "_inside", "_items", "_limits", "_need", "_scanned")

    def __init__(self, limits: Limits, *, inside: bool) -> None:
        self._limits = limits
        self._inside = inside
        self._buffer: bytes | bytearray = b""
        self._at = 0
        self._need = 1  # so many bytes from `_at` on are needed to read on
        # A `D` frame states no length.  Scanning one that arrives in many pieces goes on
        # where it stopped: how many items are left, and where the next one is.
        self._items = -1
        self._scanned = 0

    @property
    def size(self) -> int:
        return len(self._buffer)

    @property
    def empty(self) -> bool:
        return self._at == len(self._buffer)

    def append(self, more: bytes) -> None:
        buffer, at = self._buffer, self._at
        self._at = 0
        left = len(buffer) - at
        if not left:
            self._buffer = more
            return
        if left <= len(more):
            self._buffer = buffer[at:] + more
            return
        if isinstance(buffer, bytearray):
            del buffer[:at]
        else:
            self._buffer = buffer = bytearray(memoryview(buffer)[at:])
        buffer += more

    def take(self, most: int) -> bytes:
        """The next *most* bytes, or as many as there are, without looking at them."""
        at = self._at
        stop = self._at = min(at + most, len(self._buffer))
        return bytes(self._buffer[at:stop])

    def release(self, *, much: bool = False) -> None:
        """Free the memory of what was read, always or if that is *much* of it."""
        if self._at and (not much or self._at * 4 > len(self._buffer)):
            self._buffer = bytes(self._buffer[self._at :])
            self._at = 0

    def next(
        self, most_events: int, budget: int
    ) -> Window | Frames | Array | CompressedHeader | None:
        """The next token, with at most *most_events* events; None if it has not all arrived.

        *budget* is how many bytes a frame may have beside what its window holds.
        Raises `Refusal`, and `NoRoom`, which changes nothing.
        """
        buffer, at = self._buffer, self._at
        left = len(buffer) - at
        if left < self._need:
            return None
        version = buffer[at]
        if version not in _VERSIONS:
            raise Refusal(f"not Lumberjack: version {_printable(version)}")
        if left < 2:
            return None
        kind = buffer[at + 1]
        if kind == J:
            return self._json(version, most_events, budget)
        if kind == D:
            return self._data(version, most_events, budget)
        if kind in (W, C):
            if left < 6:
                self._need = 6
                return None
            (number,) = _U32.unpack_from(buffer, at + 2)
            if kind == C:
                return self._compressed(number)
            self._at, self._need = at + 6, 1
            return Window(version, number, self._inside)
        if kind == A:
            raise Refusal("acknowledgement from a writer")
        raise Refusal(f"unknown frame type {_printable(kind)}")

    def _compressed(self, size: int) -> CompressedHeader:
        if self._inside:
            raise Refusal("compressed frame inside a compressed frame")
        if size > self._limits.compressed_bytes:
            # Its writer is told nothing, and sends it again: so who reads the log is told
            # what can be changed on either side.
            raise Refusal(
                f"compressed frame of {size} bytes, which its writer sends again until it "
                "is taken, or fewer events go together (Filebeat: a lower bulk_max_size)",
                limit=self._limits.compressed_bytes,
                key="options.compressed_bytes",
            )
        at, self._need = self._at, 1
        self._at = at + 6
        return CompressedHeader(bytes(self._buffer[at : at + 6]), size)

    def _json(
        self, version: int, most_events: int, budget: int
    ) -> Frames | Array | None:
        buffer, start = self._buffer, self._at
        count, stop, seq, not_zero, largest, sizes = _find(
            buffer, start, version, min(most_events, _RUN)
        )
        if not count:
            return self._odd_json(version, budget)
        if stop - start > self._limits.inflated_bytes:
            self._check(10 + largest, budget)
        run = self._run(version, count, seq, stop)
        run.not_zero = not_zero
        if self._inside:
            run.sizes = sizes
        return run

    def _odd_json(self, version: int, budget: int) -> Frames | Array | None:
        """One `J` frame that is incomplete, or whose body begins with no brace."""
        if not self._has(10):
            return None
        at = self._at
        seq, size = _NUMBERS.unpack_from(self._buffer, at + 2)
        self._check(10 + size, budget)
        if not self._has(10 + size):
            return None
        stop = at + 10 + size
        if not _OPENS_ARRAY.match(self._buffer, at + 10, stop):
            return self._run(version, 1, seq, stop)
        self._at, self._need = stop, 1
        frame = bytes(self._buffer[at:stop])
        return Array(version, seq, frame)

    def _data(self, version: int, most_events: int, budget: int) -> Frames | None:
        buffer, start = self._buffer, self._at
        kind = bytes((version, D))
        at = start
        count = pairs = seq = not_zero = 0
        while count < most_events and pairs < _RUN and buffer.startswith(kind, at):
            try:
                stop = self._data_stop(at, budget - (at - start))
            except NoRoom:
                if not count:
                    raise
                break
            if not stop:
                break
            seq, more = _NUMBERS.unpack_from(buffer, at + 2)
            not_zero = seq or not_zero
            pairs += more
            at = stop
            count += 1
        if not count:
            return None
        items, scanned, need = self._items, self._scanned, self._need
        run = self._run(version, count, seq, at)
        run.not_zero = not_zero
        run.pairs = pairs
        self._items, self._scanned, self._need = items, scanned, need
        return run

    def _data_stop(self, at: int, budget: int) -> int:
        """Where the `D` frame at *at* ends; 0 if it has not all arrived."""
        buffer = self._buffer
        have = len(buffer) - at
        items, scanned = self._items, self._scanned
        if items < 0:
            if have < 10:
                self._need = 10
                return 0
            (pairs,) = _U32.unpack_from(buffer, at + 6)
            if pairs > self._limits.pairs:
                raise Refusal(
                    f"data frame of {pairs} pairs",
                    limit=self._limits.pairs,
                    key="options.pairs",
                )
            items, scanned = 2 * pairs, 10
        need = 0
        while items and not need:
            if have < scanned + 4:
                need = scanned + 4
            else:
                after = scanned + 4 + _U32.unpack_from(buffer, at + scanned)[0]
                self._check(after, budget)
                if have < after:
                    need = after
                else:
                    scanned = after
                    items -= 1
        if need:
            self._items, self._scanned, self._need = items, scanned, need
            return 0
        self._items, self._need = -1, 1
        return at + scanned

    def _run(self, version: int, count: int, seq: int, stop: int) -> Frames:
        start = self._at
        self._at, self._need = stop, 1
        frames = None if self._inside else bytes(self._buffer[start:stop])
        return Frames(version, count, seq, seq, stop - start, frames)

    def _check(self, size: int, budget: int) -> None:
        limit = self._limits.inflated_bytes
        if size > limit:
            raise Refusal(
                f"frame of {size} bytes or more",
                limit=limit,
                key="limits.inflated_bytes",
            )
        if size > budget:
            raise NoRoom

    def _has(self, size: int) -> bool:
        if len(self._buffer) - self._at >= size:
            return True
        self._need = size
        return False
