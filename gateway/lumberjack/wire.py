"""Lumberjack frames: bytes in, runs of frames out; and frames to bytes.

    writer -> W(count)            the writer will send so many events, then wait
    writer -> J(seq, size, body)  one event, JSON
    writer -> D(seq, pairs, …)    one event, length-prefixed keys and values
    writer -> C(size, zlib)       any of the above, compressed; never another C
    reader -> A(seq)              everything up to this event is safe

Every frame starts with its version, `1` or `2`, and its type; numbers are unsigned,
32 bits, big-endian.  No I/O, no clock, no policy on windows: that is `session`.

Cost decides the shape.  A window has thousands of events and a connection has a core
to share, so there is no object per frame: `Decoder.next` answers with a *run*, as many
like frames as lie together.  A compressed frame is inflated as its bytes arrive,
`_INFLATE_STEP` bytes at a time, and what was inflated is forgotten once it was walked
over; what is kept is the compressed form, a seventh of the size.  Whoever needs the
inflated bytes after all calls `inflate` on it.

Everything is refused on its declared length, before it is buffered.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from isal import isal_zlib

from gateway.interfaces import Refusal

__all__ = [
    "Array",
    "Compressed",
    "Decoder",
    "Frames",
    "Limits",
    "Token",
    "Window",
    "ack",
    "compressed",
    "data",
    "inflate",
    "inflated",
    "json",
    "window",
]

_ZlibError = cast("type[Exception]", isal_zlib.error)

_VERSIONS = b"12"
_A, _C, _D, _J, _W = b"ACDJW"
_BRACE = ord("{")

_U32 = struct.Struct(">I")
_NUMBERS = struct.Struct(">II")
#: Version and type, (sequence), size, first byte of the body.
_JSON_HEAD = struct.Struct(">H4xIB")
_JSON_FRAME = struct.Struct(">2sII")
_FRAME = struct.Struct(">2sI")

_OPENS_ARRAY = re.compile(rb"[ \t\n\r]*\[")

#: Compressed bytes handed to zlib at once, and inflated bytes taken from it at once.
_DEFLATED_STEP = 1 << 16
_INFLATE_STEP = 1 << 18


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
class _Opened:
    """The header of a compressed frame."""

    header: bytes
    size: int


Token = Window | Frames | Array | Compressed


def _printable(byte: int) -> str:
    return f"0x{byte:02x} ({chr(byte)})" if 0x20 < byte < 0x7F else f"0x{byte:02x}"


class _Stream:
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

    def next(self, room: int, budget: int) -> Window | Frames | Array | _Opened | None:
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
        if kind == _J:
            return self._json(version, room, budget)
        if kind == _D:
            return self._data(version, room, budget)
        if kind == _W:
            return self._window(version)
        if kind == _C:
            return self._compressed()
        if kind == _A:
            raise Refusal("acknowledgement from a writer")
        raise Refusal(f"unknown frame type {_printable(kind)}")

    def _window(self, version: int) -> Window | None:
        if not self._has(6):
            return None
        (size,) = _U32.unpack_from(self._buffer, self._at + 2)
        self._taken(self._at + 6)
        return Window(version, size, self._inside)

    def _compressed(self) -> _Opened | None:
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
        return _Opened(bytes(self._buffer[at : at + 6]), size)

    def _json(self, version: int, room: int, budget: int) -> Frames | Array | None:
        buffer, start = self._buffer, self._at
        expected = version << 8 | _J
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
        kind = bytes((version, _D))
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


class _Inflation:
    """A compressed frame that is arriving."""

    __slots__ = ("_full", "_inflater", "_left", "_limit", "_parts", "_tail", "frames",
                 "inflated")  # fmt: skip

    def __init__(self, opened: _Opened, limits: Limits) -> None:
        self.frames = _Stream(limits, inside=True)
        self.inflated = 0
        self._inflater = isal_zlib.decompressobj()
        self._left = opened.size
        self._limit = limits.inflated_bytes
        self._parts = [opened.header]
        self._tail = b""  # handed to zlib and not consumed, because …
        self._full = False  # … the last step gave all it may

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(map(len, self._parts)) + self.frames.size

    def advance(self, source: _Stream) -> bool:
        """Inflate one step; false if there is nothing to inflate now."""
        deflated = self._tail
        if not deflated and not self._full:
            deflated = source.take(min(self._left, _DEFLATED_STEP))
            if not deflated:
                return False
            self._left -= len(deflated)
            self._parts.append(deflated)
        try:
            inflated = self._inflater.decompress(deflated, _INFLATE_STEP)
        except _ZlibError as why:
            raise Refusal(f"compressed frame is not zlib: {why}") from None
        ended = self._inflater.eof
        self._tail = b"" if ended else self._inflater.unconsumed_tail
        self._full = not ended and len(inflated) == _INFLATE_STEP
        if ended and (self._left or self._inflater.unused_data):
            raise Refusal("compressed frame goes on after the end of its zlib stream")
        self.inflated += len(inflated)
        if self.inflated > self._limit:
            raise Refusal(
                f"compressed frame inflates to {self.inflated} bytes or more",
                limit=self._limit,
                key="limits.inflated_bytes",
            )
        self.frames.append(inflated)
        return True

    def finish(self) -> Compressed | None:
        """The frame, if all of it was inflated and taken; None if more is to come."""
        if self._left:
            return None
        if not self._inflater.eof:
            raise Refusal("compressed frame ends before its zlib stream")
        if not self.frames.empty:
            raise Refusal("compressed frame ends inside a frame")
        return Compressed(b"".join(self._parts), self.inflated)


class Decoder:
    """What a writer sends, in any slicing, as tokens.  Raises `Refusal` only."""

    __slots__ = ("_inflation", "_limits", "_stream")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._stream = _Stream(limits, inside=False)
        self._inflation: _Inflation | None = None

    @property
    def held_bytes(self) -> int:
        """What is buffered."""
        inflation = self._inflation
        return self._stream.size + (inflation.size if inflation else 0)

    @property
    def inside(self) -> bool:
        """A compressed frame has begun and not ended."""
        return self._inflation is not None

    def feed(self, more: bytes) -> None:
        """The stream goes on."""
        self._stream.append(more)

    def next(self, room: int, budget: int) -> Token | None:
        """The next token; None until more is fed.

        A run has at most *room* events: the caller knows where its window ends.
        *budget* is how many bytes of frames the limits leave to this window.
        """
        while True:
            inflation = self._inflation
            if inflation is None:
                token = self._stream.next(room, budget)
                if not isinstance(token, _Opened):
                    if token is None:
                        self._stream.release()
                    return token
                self._inflation = _Inflation(token, self._limits)
                continue
            inner = inflation.frames.next(room, budget)
            if inner is not None:
                assert not isinstance(inner, _Opened), "refused by the inner stream"
                return inner
            if inflation.advance(self._stream):
                continue
            ended = inflation.finish()
            if ended is None:
                self._stream.release()
                inflation.frames.release()
            else:
                self._inflation = None
            return ended


def inflate(frame: bytes | memoryview) -> bytes:
    """What a compressed frame holds; only for one that a `Decoder` has let pass."""
    inflated: bytes = isal_zlib.decompress(memoryview(frame)[6:])
    return inflated


def inflated(frame: bytes | memoryview) -> Iterator[bytes]:
    """As `inflate`, in pieces."""
    inflater = isal_zlib.decompressobj()
    payload = memoryview(frame)[6:]
    for at in range(0, len(payload), _DEFLATED_STEP):
        deflated = bytes(payload[at : at + _DEFLATED_STEP])
        full = True
        while full or deflated:
            piece = inflater.decompress(deflated, _INFLATE_STEP)
            deflated = inflater.unconsumed_tail
            full = len(piece) == _INFLATE_STEP
            yield piece


def ack(version: int, seq: int) -> bytes:
    """An `A` frame: everything up to *seq* is safe.  *version* is `1` or `2` in ASCII."""
    return _FRAME.pack(bytes((version, _A)), seq)


def window(version: int, size: int) -> bytes:
    """A `W` frame."""
    return _FRAME.pack(bytes((version, _W)), size)


def json(version: int, seq: int, body: bytes) -> bytes:
    """A `J` frame."""
    return _JSON_FRAME.pack(bytes((version, _J)), seq, len(body)) + body


def data(version: int, seq: int, pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A `D` frame."""
    items = [item for pair in pairs for item in pair]
    parts = [_JSON_FRAME.pack(bytes((version, _D)), seq, len(items) // 2)]
    for item in items:
        parts += (_U32.pack(len(item)), item)
    return b"".join(parts)


def compressed(version: int, frames: bytes, level: int = 3) -> bytes:
    """A `C` frame; *level* is zlib's, 0 to 9."""
    payload = zlib.compress(frames, level)
    return _FRAME.pack(bytes((version, _C)), len(payload)) + payload
