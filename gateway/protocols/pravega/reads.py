"""What a read of a segment comes to: data, an end, or a wait.

Readers see what is durable and nothing else.  A read at or beyond the end of an open
segment waits, for as long as it takes, until something is there or the segment ends.

No I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gateway.interfaces import Refusal
from gateway.protocols.pravega.cache import TailCache
from gateway.protocols.pravega.segment import Segment
from gateway.protocols.pravega.segments import Segments

__all__ = [
    "Answer",
    "Ended",
    "Fetch",
    "Found",
    "Missing",
    "Read",
    "Truncated",
    "head",
    "look",
]

_LEAST, _MOST = 8, 2 << 20


@dataclass(slots=True, eq=False)
class Read:
    """A peer asks for bytes."""

    segment: str
    offset: int
    size: int
    request_id: int = -1

    @property
    def bytes(self) -> int:
        """How many are given at most."""
        return min(max(self.size, _LEAST), _MOST)


@dataclass(slots=True)
class Found:
    """Bytes, perhaps none."""

    data: bytes
    at_tail: bool = False
    """They reach the end of what is there, and more may come."""
    end: bool = False
    """They reach the end of a sealed segment."""


@dataclass(slots=True)
class Truncated:
    """Nothing is left before `start`."""

    start: int


@dataclass(slots=True)
class Ended:
    """It was waited for, and the segment was sealed instead."""


@dataclass(slots=True)
class Missing:
    """There is no such segment (any more)."""


@dataclass(slots=True)
class Fetch:
    """It must be read from files."""

    segment: Segment
    offset: int
    size: int
    lsn: int
    """Of an event at or before the offset, and not long before."""


Answer: TypeAlias = Found | Truncated | Ended | Missing


def look(
    state: Segments, recent: TailCache, read: Read, *, waited: bool, first_lsn: int = 0
) -> Answer | Fetch | None:
    """The answer to a read, where to fetch it, or None if it has to wait.

    *waited* is whether it did so before; what lies before *first_lsn* is in no file
    any more.  Raises `Refusal` for an offset that no segment can have.
    """
    segment = state.segments.get(read.segment)
    offset = read.offset
    if segment is None or segment.table is not None:
        return Missing()
    end, closed = segment.readable, segment.closed
    if offset < 0 or (closed and offset > end):
        raise Refusal(f"read at {offset} of a segment that ends at {end}")
    if offset < segment.start:
        return Truncated(segment.start)
    if offset >= end:
        if not closed:
            return None
        return Ended() if waited else Found(b"", end=True)
    size = min(read.bytes, end - offset)
    if segment.staged is not None:
        data: bytes | None = segment.staged.read(offset, size)
    else:
        data = recent.read(read.segment, offset, size)
    if data is None:
        return _far(segment, recent, offset, size, first_lsn)
    return found(segment, offset, data)


def head(segment: Segment, recent: TailCache, first_lsn: int) -> int:
    """Where what is left of a segment begins: in a file, or in memory."""
    if not first_lsn or segment.staged is not None:
        return segment.start
    kept, begin = segment.first_from(first_lsn), recent.begin(segment.name)
    return max(segment.start, kept if begin is None else min(kept, begin))


def found(segment: Segment, offset: int, data: bytes) -> Found:
    """The answer with these bytes, flags as the segment is now."""
    whole = offset + len(data) == segment.readable
    return Found(data, whole and not segment.closed, whole and segment.closed)


def _far(
    segment: Segment, recent: TailCache, offset: int, size: int, first_lsn: int
) -> Fetch | Truncated:
    start = head(segment, recent, first_lsn)
    lsn = segment.place(offset)
    if lsn is None or offset < start:
        return Truncated(start)
    begin = recent.begin(segment.name)
    if begin is not None and begin > offset:
        size = min(size, begin - offset)
    return Fetch(segment, offset, size, lsn)
