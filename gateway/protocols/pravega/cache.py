"""The newest bytes of segments, for those who read at the tail.

What was stored stays here until newer data needs its room.  A chunk is a view of its
batch and nothing is copied, unless it is so small that to keep the batch would cost
more: then it joins what came before it.  Oldest goes first, whosever it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

__all__ = ["TailCache"]

#: A chunk costs this much beside its bytes, and so does a segment that has one.
_CHUNK_BYTES = 512
_SEGMENT_BYTES = 512

#: Chunks of small pieces are no longer than this, or a sixteenth of all.
_JOIN_BYTES = 1 << 13


class _Chunks:
    """One segment's, contiguous; those before `first` are gone."""

    __slots__ = ("chunks", "first", "offsets")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.chunks: list[memoryview | bytearray | None] = []
        self.first = 0


class TailCache:
    """At most *most* bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = 0
        self._join = min(_JOIN_BYTES, most >> 4)
        self._segments: dict[str, _Chunks] = {}
        self._order: deque[tuple[str, _Chunks]] = deque()
        self._dropped = 0
        """Places in the order that stand for nothing."""

    def add(self, name: str, offset: int, data: memoryview) -> None:
        """Bytes of a segment; what does not follow the last ones replaces them.

        What has no room here, however much goes, pushes nothing out.
        """
        size = len(data)
        if not size:
            return
        if size + _CHUNK_BYTES + _SEGMENT_BYTES > self.most:
            self.drop(name)
            return
        found = self._segments.get(name)
        if found is not None:
            last = found.chunks[-1]
            assert last is not None
            if found.offsets[-1] + len(last) != offset:
                self.drop(name)
                found = None
            elif isinstance(last, bytearray) and len(last) + size <= self._join:
                last += data
                self._grow(size)
                return
        if found is None:
            found = self._segments[name] = _Chunks()
            self.bytes += _SEGMENT_BYTES
        found.offsets.append(offset)
        found.chunks.append(bytearray(data) if 2 * size <= self._join else data)
        self._order.append((name, found))
        self._grow(size + _CHUNK_BYTES)

    def _grow(self, size: int) -> None:
        self.bytes += size
        while self.bytes > self.most:
            self._evict()

    def drop(self, name: str) -> None:
        """The segment is gone."""
        found = self._segments.pop(name, None)
        if found is not None:
            for chunk in found.chunks[found.first :]:
                assert chunk is not None
                self.bytes -= len(chunk) + _CHUNK_BYTES
            self.bytes -= _SEGMENT_BYTES
            self._dropped += len(found.chunks) - found.first
            found.chunks.clear()
            found.offsets.clear()
            found.first = 0
            if 2 * self._dropped > len(self._order):
                self._order = deque(each for each in self._order if each[1].chunks)
                self._dropped = 0

    def _evict(self) -> None:
        name, found = self._order.popleft()
        at = found.first
        if at >= len(found.chunks):
            self._dropped -= 1
            return
        chunk = found.chunks[at]
        assert chunk is not None
        self.bytes -= len(chunk) + _CHUNK_BYTES
        found.chunks[at] = None
        found.first = at = at + 1
        if at == len(found.chunks):
            self.bytes -= _SEGMENT_BYTES
            del self._segments[name]
        elif at >= 64 and 2 * at >= len(found.chunks):
            del found.chunks[:at]
            del found.offsets[:at]
            found.first = 0

    def begin(self, name: str) -> int | None:
        """The first offset of a segment that is here; None if there is none."""
        found = self._segments.get(name)
        return None if found is None else found.offsets[found.first]

    def read(self, name: str, offset: int, size: int) -> bytes | None:
        """At most *size* bytes from *offset* on; None if that is not here."""
        found = self._segments.get(name)
        if found is None:
            return None
        at = bisect_right(found.offsets, offset, found.first) - 1
        if at < found.first:
            return None
        parts: list[memoryview | bytearray] = []
        skip = offset - found.offsets[at]
        while size > 0 and at < len(found.chunks):
            chunk = found.chunks[at]
            assert chunk is not None
            part = chunk[skip : skip + size]
            parts.append(part)
            size -= len(part)
            skip, at = max(0, skip - len(chunk)), at + 1
        return b"".join(parts)
