"""Cache of the newest data of all segments, for readers at the tail.

Durable data stays until newer data needs the room; the oldest goes first, whichever
segment it is of.  A chunk is a view of its batch, so nothing is copied.  Only a small chunk is
copied to the end of the one before it, as keeping its batch would cost more memory.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

RECENT_BYTES = 64 << 20
"""Bytes of a cache that is not configured."""

#: Overhead of a chunk, and of a segment that has any, in bytes.
_CHUNK_BYTES = 512
_SEGMENT_BYTES = 512

#: Small chunks are joined up to this size, or up to a sixteenth of the cache.
_JOIN_BYTES = 1 << 13


class _Chunks:
    """The chunks of one segment, contiguous; those before `first` were evicted."""

    __slots__ = ("chunks", "first", "offsets")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.chunks: list[memoryview | bytearray | None] = []
        self.first = 0


class TailCache:
    """Newest data by segment name."""

    def __init__(self, most: int) -> None:
        """Holds at most *most* bytes, overhead included."""
        self.most = most
        self.bytes = 0
        self._join = min(_JOIN_BYTES, most >> 4)
        self._segments: dict[str, _Chunks] = {}
        self._order: deque[tuple[str, _Chunks]] = deque()
        self._dropped = 0
        """How many entries of `_order` are of chunks that were dropped."""

    def add(self, name: str, offset: int, data: memoryview) -> None:
        """Add data at the end of a segment.

        If it does not follow the segment's cached data, that data is dropped.  Data
        larger than the cache evicts nothing.
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
        """The first cached offset of a segment; None if nothing of it is cached."""
        found = self._segments.get(name)
        return None if found is None else found.offsets[found.first]

    def read(self, name: str, offset: int, size: int) -> bytes | None:
        """Bytes from *offset* on, *size* at most; None if *offset* is not cached."""
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


_T = TypeVar("_T")


class Shared(Generic[_T]):
    """Objects that were used last; all together weigh at most *most*."""

    def __init__(self, most: int, weigh: Callable[[_T], int] = lambda _: 1) -> None:
        self._most = most
        self._weigh = weigh
        self._weight = 0
        self._lock = threading.Lock()
        self._items: OrderedDict[Any, tuple[_T, int]] = OrderedDict()
        self._making: dict[Any, Future[_T]] = {}

    def get(self, key: Any) -> _T | None:
        """The object, which is then the last one used."""
        with self._lock:
            return self._get(key)

    def peek(self, key: Any) -> _T | None:
        """The object, which is not counted as used."""
        with self._lock:
            return self._items.get(key, (None, 0))[0]

    def put(self, key: Any, value: _T) -> None:
        """The last one stays, whatever it weighs."""
        weight = self._weigh(value)
        with self._lock:
            self._drop(key)
            self._items[key] = value, weight
            self._weight += weight
            while self._weight > self._most and len(self._items) > 1:
                self._weight -= self._items.popitem(last=False)[1][1]

    def drop(self, key: Any) -> None:
        with self._lock:
            self._drop(key)

    def made(self, key: Any, make: Callable[[], _T]) -> _T:
        """The object, made if it is not there; other threads that want it wait meanwhile.

        Raises what *make* raises, in all that waited for it.
        """
        with self._lock:
            found = self._get(key)
            if found is not None:
                return found
            making = self._making.get(key)
            mine = making is None
            if making is None:
                making = self._making[key] = Future()
        if not mine:
            return making.result()
        try:
            value = make()
            self.put(key, value)
            making.set_result(value)
        except BaseException as why:
            making.set_exception(why)
            raise
        finally:
            with self._lock:
                del self._making[key]
        return value

    def _get(self, key: Any) -> _T | None:
        found = self._items.get(key)
        if found is None:
            return None
        self._items.move_to_end(key)
        return found[0]

    def _drop(self, key: Any) -> None:
        if (found := self._items.pop(key, None)) is not None:
            self._weight -= found[1]
