"""One stream of Lumberjack frames: where each begins and ends, what it says.

`wire` has the format.  The stream of a connection and what a compressed frame holds
are walked over by the same code; there is no object per frame, but one for as many
like frames as lie together.  Everything is refused on its declared length, before it
is buffered.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from gateway.interfaces import Refusal

__all__ = [
    "A",
    "Array",
    "C",
    "Compressed",
    "D",
    "Frames",
    "J",
    "Limits",
    "Opened",
    "Stream",
    "W",
    "Window",
]

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
    """What one connection may ask for; sizes in bytes."""

    message_bytes: int = 16 << 20
    """An event above this is stored whole, but flawed."""
    inflated_bytes: int = 100 << 20
    """Of the frames of one window, and of one compressed frame."""
    compressed_bytes: int = 64 << 20
    """Of one compressed frame, as sent."""
    window_events: int = 65536
    """Of one window, and frames in one compressed frame."""
    pairs: int = 1024
    """Key-value pairs of one `D` frame."""


@dataclass(slots=True)
class Window:
    """A `W` frame."""

    version: int
    size: int
    inside: bool
    """It came in a compressed frame."""


@dataclass(slots=True)
class Frames:
    """A run of `D` or of `J` frames of one version, each of them one event."""

    version: int
    count: int
    seq: int
    """Of the last one."""
    start: int
    """Where the run begins and ends: in the inflated bytes of its compressed frame,
    or in the stream."""
    stop: int
    frames: bytes | None
    """As they came; None inside a compressed frame, which hands itself over later."""


@dataclass(slots=True)
class Array:
    """A `J` frame whose body opens a JSON array: as many events as it has elements."""

    version: int
    seq: int
    start: int
    stop: int
    frames: bytes
    """The frame, wherever it came from."""

    @property
    def body(self) -> bytes:
        """The JSON text."""
        return self.frames[10:]


@dataclass(slots=True)
class Compressed:
    """A compressed frame has ended, checksum verified: its runs were given before."""

    frame: bytes
    """As it came, header included."""
    inflated: int
    """Size of what it holds."""


@dataclass(slots=True)
class Opened:
    """The header of a compressed frame."""

    header: bytes
    size: int


def _printable(byte: int) -> str:
    return f"0x{byte:02x} ({chr(byte)})" if 0x20 < byte < 0x7F else f"0x{byte:02x}"


class Stream:
    """A stream of frames, as far as it arrived and was not taken yet."""

    __slots__ = ("_at", "_base", "_buffer", "_inside", "_items", "_limits", "_need",
                 "_scanned")  # fmt: skip

    def __init__(self, limits: Limits, *, inside: bool) -> None:
        self._limits = limits
        self._inside = inside
        self._buffer: bytes | bytearray = b""
        self._at = 0
        self._base = 0  # position of the buffer's first byte in the stream
        self._need = 1  # bytes from `_at` on without which looking again is useless
        # A `D` frame states no length.  So that a frame that arrives in crumbs is
        # not scanned from its start each time: items left, and where the next is.
        self._items = -1
        self._scanned = 0

    @property
    def size(self) -> int:
        """Bytes held."""
        return len(self._buffer)

    @property
    def empty(self) -> bool:
        """Everything was taken."""
        return self._at == len(self._buffer)

    def append(self, more: bytes) -> None:
        """The stream goes on."""
        buffer, at = self._buffer, self._at
        self._base += at
        self._at = 0
        if at == len(buffer):
            self._buffer = more
            return
        if isinstance(buffer, bytearray):
            del buffer[:at]
        else:
            self._buffer = buffer = bytearray(memoryview(buffer)[at:])
        buffer += more

    def take(self, most: int) -> bytes:
        """The next bytes, whatever they are."""
        at = self._at
        stop = self._at = min(at + most, len(self._buffer))
        return bytes(self._buffer[at:stop])

    def release(self) -> None:
        """Let go of what was taken: nothing comes for a while."""
        if self._at:
            self._base += self._at
            self._buffer = bytes(self._buffer[self._at :])
            self._at = 0

    def next(self, room: int, budget: int) -> Window | Frames | Array | Opened | None:
        """The next token, of at most *room* events; None if it is not all there.

        *budget* is how many bytes of frames the limits leave to this window.
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
            return self._json(version, room, budget)
        if kind == D:
            return self._data(version, room, budget)
        if kind == W:
            return self._window(version)
        if kind == C:
            return self._compressed()
        if kind == A:
            raise Refusal("acknowledgement from a writer")
        raise Refusal(f"unknown frame type {_printable(kind)}")

    def _window(self, version: int) -> Window | None:
        if not self._has(6):
            return None
        (size,) = _U32.unpack_from(self._buffer, self._at + 2)
        self._taken(self._at + 6)
        return Window(version, size, self._inside)

    def _compressed(self) -> Opened | None:
        if self._inside:
            raise Refusal("compressed frame inside a compressed frame")
        if not self._has(6):
            return None
        at = self._at
        (size,) = _U32.unpack_from(self._buffer, at + 2)
        if size > self._limits.compressed_bytes:
            raise Refusal(
                f"compressed frame of {size} bytes",
                limit=self._limits.compressed_bytes,
                key="options.compressed_bytes",
            )
        self._taken(at + 6)
        return Opened(bytes(self._buffer[at : at + 6]), size)

    def _json(self, version: int, room: int, budget: int) -> Frames | Array | None:
        buffer, start = self._buffer, self._at
        expected = version << 8 | J
        end = len(buffer)
        last = end - 11
        head = _JSON_HEAD.unpack_from
        before = at = start
        count = 0
        # The one loop that runs once per event: whole frames whose body is plainly
        # an object, so that it can neither be an array nor empty.
        for count in range(room):  # noqa: B007
            if at > last:
                break
            kind, size, first = head(buffer, at)
            if first != _BRACE or kind != expected or size > last - at + 1:
                break
            before = at
            at += 10 + size
        else:
            count = room
        if not count:
            return self._odd_json(version, budget)
        (seq,) = _U32.unpack_from(buffer, before + 2)
        return self._run(version, count, seq, at)

    def _odd_json(self, version: int, budget: int) -> Frames | Array | None:
        """One `J` frame that is incomplete, or is not plainly an object."""
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
        self._taken(stop)
        frame = bytes(self._buffer[at:stop])
        return Array(version, seq, self._base + at, self._base + stop, frame)

    def _data(self, version: int, room: int, budget: int) -> Frames | None:
        buffer, start = self._buffer, self._at
        kind = bytes((version, D))
        before = at = start
        count = 0
        while count < room and buffer.startswith(kind, at):
            stop = self._data_stop(at, budget - (at - start))
            if not stop:
                break
            before, at = at, stop
            count += 1
        if not count:
            return None
        (seq,) = _U32.unpack_from(buffer, before + 2)
        items, scanned, need = self._items, self._scanned, self._need
        run = self._run(version, count, seq, at)
        self._items, self._scanned, self._need = items, scanned, need
        return run

    def _data_stop(self, at: int, budget: int) -> int:
        """Where the `D` frame at *at* ends; 0 if it is not all there."""
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
        self._taken(stop)
        frames = None if self._inside else bytes(self._buffer[start:stop])
        base = self._base
        return Frames(version, count, seq, base + start, base + stop, frames)

    def _check(self, size: int, budget: int) -> None:
        if size > budget:
            raise Refusal(
                f"frame of {size} bytes or more, {budget} left to its window",
                limit=self._limits.inflated_bytes,
                key="limits.inflated_bytes",
            )

    def _has(self, size: int) -> bool:
        if len(self._buffer) - self._at >= size:
            return True
        self._need = size
        return False

    def _taken(self, stop: int) -> None:
        self._at = stop
        self._need = 1
