"""Lumberjack's wire format: decodes bytes to runs of frames, encodes frames to bytes.

    writer -> W(count)            the writer will send so many events, then wait
    writer -> J(seq, size, body)  one event, JSON
    writer -> D(seq, pairs, …)    one event, length-prefixed keys and values
    writer -> C(size, zlib)       any of the above, compressed; never another C
    reader -> A(seq)              everything up to this event is safe

Every frame starts with its version, `1` or `2`, and its type; numbers are unsigned,
32 bits, big-endian.  No I/O, no clock, no policy on windows: that is `session`.

A window has thousands of events, so there is no object for each frame: `Decoder.next`
returns a *run*, all adjacent frames of one kind, which `frames` finds.

A compressed frame is inflated as its bytes arrive, `_INFLATE_STEP` bytes at most in each
call of `next`.  The inflated bytes are dropped once their frames were found; the compressed
form is kept, a seventh of the size.  Inflating begins when much of the frame has arrived, or
all.  An inflater takes more memory than many a frame, and each of a thousand senders may be
in the middle of one.

Everything is refused on its declared length, before it is buffered.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from isal import igzip_lib, isal_zlib

from gateway.protocols.lumberjack.frames import (
    MOST_SIZES,
    A,
    Array,
    C,
    Compressed,
    CompressedHeader,
    D,
    Frames,
    J,
    Limits,
    Stream,
    W,
    Window,
)
from gateway.sdk.costs import inflating
from gateway.sdk.interfaces import Refusal

_ZlibError = cast("type[Exception]", isal_zlib.error)

_U32 = struct.Struct(">I")
_JSON_FRAME = struct.Struct(">2sII")
_FRAME = struct.Struct(">2sI")

#: Compressed bytes handed to an inflater at once, and inflated bytes taken from it at once:
#: so much that the first make less than the second as a rule, as each step costs something.
_DEFLATED_STEP = 1 << 14
_INFLATE_STEP = 3 << 16
#: An inflater's own memory, as measured: its window and tables.
_INFLATER_BYTES = 92 << 10
#: So much of a larger compressed frame arrives before it is inflated.
_GATHERED_BYTES = 1 << 18
#: Work of inflating that is told before a frame is complete, in units of `turn`.
_WORTH_TELLING = 250.0
#: Smaller pieces of a compressed frame are gathered to pieces of this size: an object
#: of a few bytes would take more memory than is counted.
_PIECE_BYTES = 1 << 16


@dataclass(slots=True)
class Inflated:
    """No frame, but work: much was inflated of a compressed frame."""


_INFLATED = Inflated()

Token = Window | Frames | Array | Compressed | Inflated


_inflater = partial(igzip_lib.IgzipDecompressor, igzip_lib.DECOMP_ZLIB)
"""Inflates a zlib stream; the inflater of `isal_zlib` takes its steps in four smaller ones."""


class _Inflation:
    """A compressed frame that is arriving."""

    __slots__ = ("_gathered", "_have", "_inflater", "_left", "_limits", "_parts",
                 "_size", "_sizes", "frames", "inflated")  # fmt: skip

    def __init__(self, header: CompressedHeader, limits: Limits) -> None:
        self.frames = Stream(limits, inside=True)
        self.inflated = 0
        self._inflater: Any = None
        """None: too little has arrived."""
        self._gathered = memoryview(b"")
        """Bytes that arrived before the inflater was made, and are not inflated yet."""
        self._left = header.size
        self._limits = limits
        self._size = header.size
        self._parts: list[bytes | bytearray] = [bytearray(header.head)]
        self._have = len(header.head)  # bytes in `_parts`
        self._sizes: bytearray | None = bytearray()

    @property
    def size(self) -> int:
        sizes = self._sizes
        size = self._have + self.frames.size + (len(sizes) if sizes else 0)
        return size if self._inflater is None else size + _INFLATER_BYTES

    def _keep(self, deflated: bytes) -> None:
        self._have += len(deflated)
        last = self._parts[-1]
        if len(deflated) >= _PIECE_BYTES:
            self._parts.append(deflated)
        elif isinstance(last, bytearray) and len(last) < _PIECE_BYTES:
            last += deflated
        else:
            self._parts.append(bytearray(deflated))

    def next(self, most_events: int, budget: int) -> Window | Frames | Array | None:
        """The next token in it; None if more must be inflated first."""
        token = self.frames.next(most_events, budget)
        if token is None:
            return None
        assert not isinstance(token, CompressedHeader), "refused inside"
        known = self._sizes
        if known is not None:
            sizes = token.sizes if isinstance(token, Frames) else None
            if sizes is None or len(known) + len(sizes) > 2 * MOST_SIZES:
                self._sizes = None
            else:
                known += sizes
        return token

    def advance(self, source: Stream) -> float | None:
        """Inflate one step, at this cost; None if nothing has arrived for it."""
        deflated: bytes | memoryview = b""
        if self._inflater is None or self._inflater.needs_input:
            deflated = self._next_deflated(source)
            if not deflated:
                return None
        inflater = self._inflater
        if inflater.eof:
            return None
        try:
            inflated = inflater.decompress(deflated, _INFLATE_STEP)
        except _ZlibError as why:
            raise Refusal(f"compressed frame is not zlib: {why}") from None
        if inflater.eof and (self._left or self._gathered or inflater.unused_data):
            raise Refusal("compressed frame goes on after the end of its zlib stream")
        self.inflated += len(inflated)
        if self.inflated > self._limits.inflated_bytes:
            self._check()
        self.frames.append(inflated)
        return inflating(len(deflated), len(inflated))

    def _check(self) -> None:
        """Refuse a frame that has inflated to too much."""
        limit = self._limits.contents_bytes(self._size)
        if self.inflated > limit:
            ratio = limit > self._limits.batch_bytes
            raise Refusal(
                f"compressed frame inflates to {self.inflated} bytes or more",
                limit=limit,
                key="options.inflate_ratio" if ratio else "limits.inflated_bytes",
            )

    def _next_deflated(self, source: Stream) -> bytes | memoryview:
        """Bytes to inflate next; empty if too little has arrived."""
        if self._inflater is None:
            self._take(source, _GATHERED_BYTES)
            if self._left and self._have < _GATHERED_BYTES:
                return b""
            gathered = b"".join(self._parts)
            self._parts = [gathered]
            self._gathered = memoryview(gathered)[_FRAME.size :]
            self._inflater = _inflater()
        more = self._gathered[:_DEFLATED_STEP] or self._take(source, _DEFLATED_STEP)
        self._gathered = self._gathered[_DEFLATED_STEP:]
        return more

    def _take(self, source: Stream, most: int) -> bytes:
        deflated = source.take(min(self._left, most))
        self._left -= len(deflated)
        self._keep(deflated)
        return deflated

    def finish(self) -> Compressed | None:
        """The frame, if all of it was inflated and read; None if more is to come."""
        if self._left:
            return None
        if not self._inflater.eof:
            raise Refusal("compressed frame ends before its zlib stream")
        if not self.frames.empty:
            raise Refusal("compressed frame ends inside a frame")
        return Compressed(b"".join(self._parts), self.inflated, self._sizes)


class Decoder:
    """Decodes what a writer sends, in any slicing.  Raises `Refusal` only."""

    __slots__ = ("_limits", "_stream", "inflating", "inflation")

    def __init__(self, limits: Limits) -> None:
        self.inflating = 0.0
        """The cost of inflating; its user takes it and sets it back to 0."""
        self._limits = limits
        self._stream = Stream(limits, inside=False)
        self.inflation: _Inflation | None = None
        """The compressed frame that has begun and not ended."""

    @property
    def held_bytes(self) -> int:
        inflation = self.inflation
        return self._stream.size + (inflation.size if inflation else 0)

    @property
    def between(self) -> bool:
        """No frame has begun and not ended."""
        return self.inflation is None and self._stream.empty

    def feed(self, more: bytes) -> None:
        self._stream.append(more)

    def release(self) -> None:
        """Hold hardly more than is needed, until the next token is asked for."""
        self._stream.release(much=True)
        if self.inflation is not None:
            self.inflation.frames.release(much=True)

    def next(self, most_events: int, budget: int) -> Token | None:
        """The next token; None until more is fed.

        A run has at most *most_events* events, because the caller knows where its window ends.
        *budget* is how many bytes a frame may have beside what its window holds; one that
        has more raises `NoRoom`, which changes nothing.
        """
        while True:
            inflation = self.inflation
            if inflation is None:
                token = self._stream.next(most_events, budget)
                if not isinstance(token, CompressedHeader):
                    if token is None:
                        self._stream.release()
                    return token
                self.inflation = _Inflation(token, self._limits)
                continue
            inner = inflation.next(most_events, budget)
            if inner is not None:
                return inner
            step = inflation.advance(self._stream)
            if step is not None:
                self.inflating += step
                if self.inflating >= _WORTH_TELLING:
                    return _INFLATED
                continue
            ended = inflation.finish()
            if ended is None:
                self._stream.release()
                inflation.frames.release()
            else:
                self.inflation = None
            return ended


def inflated(frame: bytes | memoryview) -> Iterator[bytes]:
    """The contents of a compressed frame that a `Decoder` has accepted, in pieces."""
    inflater = _inflater()
    payload = memoryview(frame)[_FRAME.size :]
    for at in range(0, len(payload), _DEFLATED_STEP):
        yield inflater.decompress(payload[at : at + _DEFLATED_STEP], _INFLATE_STEP)
        while not (inflater.needs_input or inflater.eof):
            yield inflater.decompress(b"", _INFLATE_STEP)


def inflated_at_once(frame: bytes | memoryview, size: int) -> bytes:
    """The same in one piece, where there are *size* bytes.  Raises ValueError.

    Its sum is not looked at again: that was done when it came, and a journal has sums of its own.
    """
    stream = memoryview(frame)[8:-4]  # without our head, zlib's, and its sum
    try:
        found = isal_zlib.decompress(stream, -15, size + 1)
    except _ZlibError as why:
        raise ValueError(f"a compressed frame is not zlib: {why}") from None
    if len(found) != size:
        raise ValueError(f"{len(found)} bytes in a compressed frame, not {size}")
    return found


def ack(version: int, seq: int) -> bytes:
    """An `A` frame: everything up to *seq* is safe.  *version* is `1` or `2` in ASCII."""
    return _FRAME.pack(bytes((version, A)), seq)


def window(version: int, size: int) -> bytes:
    """A `W` frame."""
    return _FRAME.pack(bytes((version, W)), size)


def json(version: int, seq: int, body: bytes) -> bytes:
    """A `J` frame."""
    return _JSON_FRAME.pack(bytes((version, J)), seq, len(body)) + body


def data(version: int, seq: int, pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A `D` frame."""
    items = [item for pair in pairs for item in pair]
    parts = [_JSON_FRAME.pack(bytes((version, D)), seq, len(items) // 2)]
    for item in items:
        parts += (_U32.pack(len(item)), item)
    return b"".join(parts)


def compressed(version: int, frames: bytes, level: int = 3) -> bytes:
    """A `C` frame; *level* is zlib's, 0 to 9."""
    return envelope(version, zlib.compress(frames, level))


def envelope(version: int, payload: bytes) -> bytes:
    """A `C` frame of a zlib stream."""
    return _FRAME.pack(bytes((version, C)), len(payload)) + payload
