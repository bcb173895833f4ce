"""How often each lsn of a node was seen: one byte per lsn, in chunks of 16 Mi lsns.

Chunks exist only where something was seen, so one absurd lsn costs one chunk and a
lake that was pruned costs nothing for its past.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gateway.audit.ranges import Ranges

__all__ = ["CHUNK", "GREATEST", "Counts", "Ints"]

CHUNK = 1 << 24
GREATEST = 2**62
"""No journal gets there; what is above is damage."""
_MANY = 255
_SPARSE = 8

Ints = np.ndarray[Any, np.dtype[np.int64]]
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Counts:
    """Counts up to 255, for lsns from 1 to `GREATEST`."""

    def __init__(self, chunk: int = CHUNK) -> None:
        self.last = 0
        """The greatest lsn seen; 0 if there is none."""
        self._size = chunk
        self._chunks: dict[int, _Bytes] = {}

    def add(self, lsns: Ints) -> None:
        """See each of these once more; fastest where they are close together."""
        if not len(lsns):
            return
        first, last = int(lsns.min()), int(lsns.max())
        self.last = max(self.last, last)
        if last - first < _SPARSE * len(lsns):
            self._add_dense(first, np.bincount(lsns - first))
        else:
            self._add_sparse(*np.unique(lsns, return_counts=True))

    def of(self, lsns: Ints) -> _Bytes:
        """How often each of these was seen."""
        found = np.zeros(len(lsns), np.uint8)
        numbers = lsns // self._size
        for number in np.unique(numbers).tolist():
            if number in self._chunks:
                here = numbers == number
                found[here] = self._chunks[number][lsns[here] % self._size]
        return found

    def missing(self, first: int, last: int) -> Ranges:
        """The lsns from *first* to *last* that were not seen."""
        return Ranges.of([(first, last)]) - self._where(first, last, above=0)

    def doubled(self, first: int, last: int) -> Ranges:
        """The lsns from *first* to *last* that were seen more than once."""
        return self._where(first, last, above=1)

    def _where(self, first: int, last: int, *, above: int) -> Ranges:
        found = []
        for number in sorted(self._chunks):
            begin = max(first, number * self._size)
            end = min(last + 1, (number + 1) * self._size)
            if begin < end:
                base = number * self._size
                counts = self._chunks[number][begin - base : end - base]
                if counts.min() > above:
                    found.append(Ranges.of([(begin, end - 1)]))
                elif counts.max() > above:
                    found.append(Ranges.where(counts > above, begin))
        return Ranges.joined(found)

    def _chunk(self, number: int) -> _Bytes:
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = np.zeros(self._size, np.uint8)
        return chunk

    def _add_dense(self, first: int, times: Ints) -> None:
        """Lsn `first + i` was seen `times[i]` times more."""
        while len(times):
            number, at = divmod(first, self._size)
            size = min(len(times), self._size - at)
            counts = self._chunk(number)[at : at + size]
            counts[:] = np.minimum(counts + times[:size], _MANY)
            first, times = first + size, times[size:]

    def _add_sparse(self, lsns: Ints, times: Ints) -> None:
        """The same for lsns in order, each there once."""
        numbers = lsns // self._size
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        for begin, end in zip(starts, [*starts[1:], len(lsns)], strict=True):
            chunk = self._chunk(int(numbers[begin]))
            places = lsns[begin:end] % self._size
            chunk[places] = np.minimum(chunk[places] + times[begin:end], _MANY)
