"""How often each lsn of a node was seen: one byte per lsn, in chunks of 16 Mi lsns.

Chunks exist only where something was seen, so one absurd lsn costs one chunk and a
lake that was pruned costs nothing for its past.  One in which each lsn was seen once needs
no bytes any more: what stays is as much as is not, or not yet, as it should be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gateway.store.lsns import Lsns

CHUNK = 1 << 24
GREATEST = 2**62
"""No journal gets there; what is above is damage."""
_MOST_COUNTED = 255
_SPARSE = 8

Ints = np.ndarray[Any, np.dtype[np.int64]]
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Counts:
    """Counts up to 255, for lsns from 1 to `GREATEST`."""

    def __init__(self, chunk: int = CHUNK) -> None:
        self.first = 0
        """The least lsn seen; 0 if there is none."""
        self.last = 0
        """The greatest lsn seen; 0 if there is none."""
        self.size = chunk
        """Lsns of a chunk."""
        self._chunks: dict[int, _Bytes] = {}
        self._seen: dict[int, int] = {}
        """How many in each of those, those of one lsn too."""
        self._whole: set[int] = set()
        """Chunks in which each lsn was seen once."""

    @classmethod
    def summed(cls, parts: Sequence[Counts]) -> Counts:
        """The sum of counts, whose chunks are of one size."""
        found = cls(parts[0].size)
        for part in parts:
            found._see(part.first, part.last)
            for first, times in part.each():
                found._add_dense(first, times.astype(np.uint16))
        return found

    @property
    def memory(self) -> int:
        return len(self._chunks) * self.size

    def add(self, lsns: Ints) -> None:
        """See each of these once more; fastest where they are close together."""
        if not len(lsns):
            return
        first, last = int(lsns.min()), int(lsns.max())
        self._see(first, last)
        if last - first < _SPARSE * len(lsns):
            self._add_dense(first, np.bincount(lsns - first))
        else:
            self._add_sparse(*np.unique(lsns, return_counts=True))

    def of(self, lsns: Ints) -> _Bytes:
        """How often each of these was seen."""
        found = np.zeros(len(lsns), np.uint8)
        numbers = lsns // self.size
        for number in np.unique(numbers).tolist():
            here = numbers == number
            if number in self._whole:
                found[here] = 1
            elif number in self._chunks:
                found[here] = self._chunks[number][lsns[here] % self.size]
        return found

    def _see(self, first: int, last: int) -> None:
        if first:
            self.first = min(self.first or first, first)
            self.last = max(self.last, last)

    def seen(self, first: int, last: int) -> Lsns:
        return self._where(first, last, above=0)

    def doubled(self, first: int, last: int) -> Lsns:
        """The lsns from *first* to *last* that were seen more than once."""
        return self._where(first, last, above=1)

    def _where(self, first: int, last: int, *, above: int) -> Lsns:
        found: list[tuple[int, int]] = []
        last = min(last, self.last)
        for number in self._numbers():
            begin = max(first, number * self.size)
            end = min(last + 1, (number + 1) * self.size)
            if begin >= end:
                continue
            if number in self._whole:
                if not above:
                    found.append((begin, end - 1))
                continue
            base = number * self.size
            counts = self._chunks[number][begin - base : end - base]
            if counts.min() > above:
                found.append((begin, end - 1))
            elif counts.max() > above:
                found += _runs(counts > above, begin)
        return Lsns(found)

    def each(self) -> Iterator[tuple[int, _Bytes]]:
        """The first lsn of each chunk, and how often that and those behind it were seen."""
        for number in self._numbers():
            yield number * self.size, self._of(number)

    def _numbers(self) -> list[int]:
        return sorted(self._chunks.keys() | self._whole)

    def _of(self, number: int) -> _Bytes:
        if number in self._whole:
            once = np.ones(self.size, np.uint8)
            once[: number == 0] = 0  # there is no lsn 0
            return once
        return self._chunks[number]

    def _chunk(self, number: int) -> _Bytes:
        chunk = self._chunks.get(number)
        if chunk is None:
            if number in self._whole:
                chunk = self._of(number)
                self._whole.remove(number)
                self._seen[number] = self._lsns(number)
            else:
                chunk = np.zeros(self.size, np.uint8)
            self._chunks[number] = chunk
        return chunk

    def _lsns(self, number: int) -> int:
        return self.size - (number == 0)

    def _note(self, number: int, times: int) -> None:
        """Note how many were seen; a chunk that is whole now is remembered as that."""
        self._seen[number] = seen = self._seen.get(number, 0) + times
        if (
            seen == self._lsns(number)
            and self._chunks[number][number == 0 :].min() == 1
        ):
            del self._chunks[number], self._seen[number]
            self._whole.add(number)

    def _add_dense(self, first: int, times: np.ndarray[Any, Any]) -> None:
        """Lsn `first + i` was seen `times[i]` times more."""
        while len(times):
            number, at = divmod(first, self.size)
            size = min(len(times), self.size - at)
            counts = self._chunk(number)[at : at + size]
            counts[:] = np.minimum(counts + times[:size], _MOST_COUNTED)
            self._note(number, int(times[:size].sum()))
            first, times = first + size, times[size:]

    def _add_sparse(self, lsns: Ints, times: Ints) -> None:
        """Count lsns that are in order, and there once each."""
        numbers = lsns // self.size
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        for begin, end in zip(starts, [*starts[1:], len(lsns)], strict=True):
            number = int(numbers[begin])
            chunk = self._chunk(number)
            places = lsns[begin:end] % self.size
            chunk[places] = np.minimum(chunk[places] + times[begin:end], _MOST_COUNTED)
            self._note(number, int(times[begin:end].sum()))


def _runs(
    flags: np.ndarray[Any, np.dtype[np.bool_]], start: int
) -> Iterator[tuple[int, int]]:
    """First and last lsn of the runs of `start + i` for which `flags[i]` is true."""
    steps = np.flatnonzero(np.diff(flags.view(np.int8), prepend=0, append=0))
    firsts, ends = steps[::2] + start, steps[1::2] + start
    return zip(firsts.tolist(), (ends - 1).tolist(), strict=True)
