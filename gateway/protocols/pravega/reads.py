"""Segment reads: the answer to one, where to fetch it from files, or that it must wait.

Readers see durable data only.  A read at the end of an open segment, or beyond it, waits
until there is data or the segment is sealed, truncated or deleted.

No I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct

from gateway.protocols.pravega.cache import TailCache
from gateway.protocols.pravega.segment import Segment
from gateway.protocols.pravega.segments import Segments
from gateway.sdk.interfaces import Refusal

_LEAST_BYTES, _MOST_BYTES = 8, 2 << 20


@dataclass(slots=True, eq=False)
class Read:
    """A request for at most *size* bytes from *offset* on."""

    segment: str
    offset: int
    size: int
    request_id: int = -1

    @property
    def bytes(self) -> int:
        """The limit of the answer: 8 bytes at least, 2 MiB at most."""
        return min(max(self.size, _LEAST_BYTES), _MOST_BYTES)


class Found(Struct):
    """Data, perhaps empty."""

    data: bytes | memoryview
    at_tail: bool = False
    """The data ends where the open segment ends."""
    end: bool = False
    """The data ends where the sealed segment ends."""


class Truncated(Struct):
    """The segment begins at `start`, later than the read."""

    start: int


class Ended(Struct):
    """The read waited, and the segment was sealed."""


class Missing(Struct):
    """There is no such segment, or not any more."""


class Fetch(Struct):
    """The data must be read from files."""

    segment: Segment
    offset: int
    size: int
    lsn: int
    """The lsn of an event at or shortly before the offset."""
    until: int
    """The offset from which on no file is needed: memory has what follows, or nothing
    follows yet."""


Answer: TypeAlias = Found | Truncated | Ended | Missing


def answer_read(
    state: Segments, recent: TailCache, read: Read, *, waited: bool, first_lsn: int = 0
) -> Answer | Fetch | None:
    """The answer to a read, what to fetch for it, or None if it must wait.

    *waited* is whether it has waited before.  Events before *first_lsn* are in no file
    any more.  Raises `Refusal` for a negative offset, and for one beyond the end of a
    sealed segment.
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
    elif segment.kept is not None and offset >= segment.kept.begin:
        data = segment.kept.read(offset, size)
    else:
        data = recent.read(read.segment, offset, size)
    if data is None:
        return _fetch_or_truncated(segment, recent, offset, size, first_lsn)
    return found(segment, offset, data)


def head(segment: Segment, recent: TailCache, first_lsn: int) -> int:
    """The first offset of a segment that is in a file or in the cache."""
    if not first_lsn or segment.staged is not None:
        return segment.start
    kept, begin = segment.first_offset_from(first_lsn), recent.begin(segment.name)
    if segment.kept is not None:
        kept = min(kept, segment.kept.begin)
    return max(segment.start, kept if begin is None else min(kept, begin))


def found(segment: Segment, offset: int, data: bytes | memoryview) -> Found:
    whole = offset + len(data) == segment.readable
    return Found(data, whole and not segment.closed, whole and segment.closed)


def _fetch_or_truncated(
    segment: Segment, recent: TailCache, offset: int, size: int, first_lsn: int
) -> Fetch | Truncated:
    start = head(segment, recent, first_lsn)
    lsn = segment.lsn_near(offset)
    if lsn is None or offset < start:
        return Truncated(start)
    begin = recent.begin(segment.name)
    until = segment.readable if begin is None or begin <= offset else begin
    return Fetch(segment, offset, min(size, until - offset), lsn, until)
