"""Cuts a large compressed frame into smaller ones, each for a batch of its own.

A batch is as large as its rows may be in memory, and a `C` frame of some megabytes can
hold gigabytes.  It is kept as it came until its checksum is right.  Then it is inflated
once more, and what comes out is compressed again, in pieces of whole frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from isal import isal_zlib
from msgspec import Struct

from gateway.protocols.lumberjack import events, wire
from gateway.protocols.lumberjack.frames import Array, Frames, Limits, Stream
from gateway.sdk.costs import BYTE, FRAME, inflating

#: As small as zlib's best.  Lower ones are faster, and find nothing that repeats from afar.
_LEVEL = 3
_DEFLATING = 0.0045
"""The cost of one byte, in units of `turn`."""


class Piece(Struct):
    """Adjacent events of a compressed frame."""

    frame: bytes
    """The events, compressed."""
    count: int
    payload_bytes: int
    not_zero: int
    """The last sequence number that is not 0; 0: none."""


class _Making:
    __slots__ = ("_compressor", "_parts", "count", "held", "not_zero", "payload_bytes",
                 "size")  # fmt: skip

    def __init__(self) -> None:
        self._compressor: Any = isal_zlib.compressobj(_LEVEL)
        self._parts: list[bytes] = []
        self.held = self.size = self.count = self.payload_bytes = self.not_zero = 0

    def add(self, frames: bytes, taken: int, count: int, not_zero: int) -> None:
        """Add *taken* frames, which are *count* events."""
        self._keep(self._compressor.compress(frames))
        self.size += len(frames)
        self.count += count
        self.payload_bytes += len(frames) - 10 * taken
        self.not_zero = not_zero or self.not_zero

    def _keep(self, compressed: bytes) -> None:
        if compressed:
            self._parts.append(compressed)
            self.held += len(compressed)

    def piece(self, version: int) -> Piece:
        """The piece, complete."""
        self._keep(self._compressor.flush())
        frame = wire.envelope(version, b"".join(self._parts))
        return Piece(frame, self.count, self.payload_bytes, self.not_zero)


class Cutter:
    """Cuts one compressed frame that a `wire.Decoder` has accepted."""

    def __init__(self, frame: bytes, counts: Sequence[int], limits: Limits) -> None:
        """No piece goes over the end of so many events, as the first of *counts* says, nor over
        that of so many more, as the next one says.
        """
        self._frame = frame
        self._counts = counts
        self._limits = limits
        self._stream = Stream(limits, inside=False)
        self._making = _Making()

    @property
    def held_bytes(self) -> int:
        return len(self._frame) + self._stream.size + self._making.held

    def __iter__(self) -> Iterator[Piece | float]:
        """The pieces, and in between the costs so far."""
        limits, stream = self._limits, self._stream
        counts = iter(self._counts)
        left = next(counts)
        for inflated in wire.inflated(self._frame):
            cost = inflating(0, len(inflated))
            cost += (BYTE + _DEFLATING) * len(inflated)
            stream.append(inflated)
            while True:
                token = stream.next(max(1, left), limits.inflated_bytes)
                if token is None:
                    break
                cost += FRAME
                if not isinstance(token, Frames | Array):
                    continue  # it brings no event
                count = self._add(token)
                left -= count
                making = self._making
                if count and (not left or making.size >= limits.piece_bytes):
                    self._making = _Making()
                    yield making.piece(self._frame[0])
                    while not left:
                        left = next(counts, -1)
            stream.release(much=True)
            yield cost

    def _add(self, token: Frames | Array) -> int:
        """Add events; how many they are."""
        if isinstance(token, Frames):
            assert token.frames is not None
            frames = token.frames
            taken = count = token.count
            not_zero = token.not_zero
        else:
            limit = self._limits.message_bytes
            found = events.elements(token.body, message_bytes=limit)
            frames, taken, not_zero = token.frames, 1, token.seq
            count = 1 if found is None else len(found)
        if count:
            self._making.add(frames, taken, count, not_zero)
        return count
