"""The keys of a table in their order, in blocks, so that no change moves many of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

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
