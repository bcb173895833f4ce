"""Table segments: keys with values and versions, in memory.

A version is a position in the table's history: every put and every removal takes the
next one.  So the entries *from a position on* are those that were put since.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from gateway.protocols.pravega.codec import Entry
from gateway.protocols.pravega.errors import BadKeyVersion, BadOffset, KeyNotFound
from gateway.protocols.pravega.wire import NEVER

_BLOCK = 1024
"""A block with more keys is cut in two."""


class SortedKeys:
    """Different keys, each added and removed as it comes and goes."""

    __slots__ = ("_blocks", "_firsts")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        ordered = sorted(keys)
        half = _BLOCK // 2
        self._blocks = [ordered[at : at + half] for at in range(0, len(ordered), half)]
        """None of them is empty."""
        self._firsts = [block[0] for block in self._blocks]

    def _at(self, key: bytes) -> int:
        """The block that has the key, if any has."""
        return max(bisect_right(self._firsts, key) - 1, 0)

    def add(self, key: bytes) -> None:
        if not self._blocks:
            self._blocks, self._firsts = [[key]], [key]
            return
        at = self._at(key)
        block = self._blocks[at]
        insort(block, key)
        self._firsts[at] = block[0]
        if len(block) > _BLOCK:
            half = len(block) // 2
            self._blocks[at : at + 1] = [block[:half], block[half:]]
            self._firsts.insert(at + 1, block[half])

    def remove(self, key: bytes) -> None:
        at = self._at(key)
        block = self._blocks[at]
        del block[bisect_left(block, key)]
        if block:
            self._firsts[at] = block[0]
        else:
            del self._blocks[at], self._firsts[at]

    def between(self, first: bytes, last: bytes) -> Iterator[bytes]:
        """Both ends included; an empty *last* is behind all keys.

        The keys may not change meanwhile.
        """
        begin = self._at(first)
        for at in range(begin, len(self._blocks)):
            block = self._blocks[at]
            since = bisect_left(block, first) if at == begin else 0
            until = bisect_right(block, last) if last else len(block)
            yield from block[since:until]
            if until < len(block):
                return


_ABSENT = -1
_NOTHING = b"", _ABSENT

#: Memory that an entry takes beside its key and value, in bytes.
ENTRY_BYTES = 128

#: Limit of the entries in one reply, counted so; the one that exceeds it is its last.
_REPLY_BYTES = 1 << 20

_PASSED = 1024
"""Keys that were put again or removed are dropped once a reader passes more of them."""


class Table:
    __slots__ = (
        "_keys", "_sorted", "_versions", "bytes", "entries", "key_bytes", "position",
    )  # fmt: skip

    def __init__(self, key_bytes: int = 0) -> None:
        self.key_bytes = key_bytes
        self.position = 0
        """The version that the next put or removal takes."""
        self.entries: dict[bytes, tuple[bytes, int]] = {}
        """Value and version by key, in the order of versions."""
        self.bytes = 0
        """Memory of all entries, with `ENTRY_BYTES` for each."""
        self._versions = array("q")
        self._keys: list[bytes] = []
        """The key that was put at each of `_versions`; perhaps put again or removed."""
        self._sorted = SortedKeys() if key_bytes else None
        """All keys, if they may be asked for in this order."""

    @classmethod
    def restored(
        cls, key_bytes: int, position: int, entries: Iterable[tuple[bytes, bytes, int]]
    ) -> Table:
        """A table with these keys, values and versions, in the order of versions."""
        table = cls(key_bytes)
        table.position = position
        for key, value, version in entries:
            table.entries[key] = value, version
            table.bytes += ENTRY_BYTES + len(key) + len(value)
        table._index()
        if key_bytes:
            table._sorted = SortedKeys(table.entries)
        return table

    def check(self, keys: Iterable[Entry], position: int) -> None:
        """Check a put's or removal's conditions.  Raises `BadOffset`, `KeyNotFound`, `BadKeyVersion`."""
        if position >= 0 and position != self.position:
            raise BadOffset(self.position)
        for key in keys:
            if self.key_bytes and len(key.key) != self.key_bytes:
                raise BadKeyVersion
            found = self.entries.get(key.key)
            if key.version == NEVER:
                continue
            if found is None:
                if key.version != _ABSENT:
                    raise KeyNotFound
            elif key.version != found[1]:
                raise BadKeyVersion

    def put(self, version: int, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Put keys and values; the first gets *version*, each other one the next."""
        for number, (key, value) in enumerate(entries, version):
            if self._sorted is not None and key not in self.entries:
                self._sorted.add(key)
            self._drop(key)
            self.entries[key] = value, number
            self._versions.append(number)
            self._keys.append(key)
            self.bytes += ENTRY_BYTES + len(key) + len(value)
        self.position = version + len(entries)
        self._compact()

    def remove(self, version: int, keys: Sequence[bytes]) -> None:
        for key in keys:
            if self._sorted is not None and key in self.entries:
                self._sorted.remove(key)
            self._drop(key)
        self.position = version + len(keys)
        self._compact()

    def _drop(self, key: bytes) -> None:
        found = self.entries.pop(key, None)
        if found is not None:
            self.bytes -= ENTRY_BYTES + len(key) + len(found[0])

    def growth(self, entries: Iterable[Entry]) -> int:
        """How many bytes more it has once *entries* are put."""
        more = 0
        for key, value in {each.key: each.value for each in entries}.items():
            before = self.entries.get(key)
            more += len(value)
            more += ENTRY_BYTES + len(key) if before is None else -len(before[0])
        return more

    def get(self, key: bytes) -> Entry:
        """The entry of a key; version -1 if there is none."""
        value, version = self.entries.get(key, _NOTHING)
        return Entry(key, version, value)

    def between(self, first: bytes, last: bytes, count: int) -> list[Entry]:
        """Entries between two keys, both included, *count* at most.

        An empty *last* is behind all keys.  All keys of the table have one size.
        """
        assert self._sorted is not None
        keys = islice(self._sorted.between(first, last), max(count, 1))
        return list(_up_to_reply_size(map(self.get, keys)))

    def since(self, position: int, count: int) -> tuple[list[Entry], int, bool]:
        """Entries put from *position* on, oldest first, *count* at most.

        With them: the position of the entries that follow, and whether there are none.
        """
        first, end = bisect_left(self._versions, position), len(self._keys)
        found = list(_up_to_reply_size(islice(self._after(first), max(count, 1))))
        last = max(position, 0)
        if found:
            last = found[-1].version + 1
            end = bisect_left(self._versions, last)
        if end - first - len(found) > _PASSED:
            self._index()
        newest = next(reversed(self.entries.values()), (b"", -1))[1]
        return found, last, last > newest

    def _after(self, first: int) -> Iterator[Entry]:
        for at in range(first, len(self._keys)):
            key = self._keys[at]
            if self.entries.get(key, _NOTHING)[1] == self._versions[at]:
                yield self.get(key)

    def _compact(self) -> None:
        """Drop keys that were put again or removed, once they are many."""
        if len(self._keys) > len(self.entries) + len(self.entries) // 16 + 1024:
            self._index()

    def _index(self) -> None:
        self._keys = list(self.entries)
        self._versions = array("q", [each for _, each in self.entries.values()])


def _up_to_reply_size(entries: Iterable[Entry]) -> Iterator[Entry]:
    left_bytes = _REPLY_BYTES
    for entry in entries:
        yield entry
        left_bytes -= ENTRY_BYTES + len(entry.key) + len(entry.value)
        if left_bytes <= 0:
            return
