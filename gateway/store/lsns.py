"""Sets of lsns: ranges in order and apart, as few as there can be.

Spark's ledger, the audit, marks of consumers and the tables' files all have such sets.  In
JSON one is a list of pairs, first and last lsn of each range: `list(lsns)`, and `Lsns(pairs)`.

The first lsns of all ranges are one list, the ends behind them another.  An operation on two
sets sorts both lists, which are runs in order already.  So time grows with the number of
ranges, and nothing is done for each of them in Python.  An lsn is in as many ranges as begin at
or before it, less those that end there: which end belongs to which beginning does not matter.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from operator import lt
from typing import Any

_Bounds = tuple[list[int], list[int]]
"""First lsns of ranges, and the lsns behind their last ones."""


class Lsns:
    """A set of lsns; iterating gives its ranges as (first, last)."""

    __slots__ = ("_ends", "_firsts")

    def __init__(self, ranges: Iterable[Sequence[int]] = ()) -> None:
        """The union of ranges in any order; an empty one (last < first) is skipped."""
        self._firsts, self._ends = _union(*_bounds(ranges))

    @classmethod
    def joined(cls, sets: Iterable[Lsns]) -> Lsns:
        firsts, ends = list[int](), list[int]()
        for one in sets:
            firsts += one._firsts  # noqa: SLF001
            ends += one._ends  # noqa: SLF001
        return cls._of(_union(firsts, ends))

    @classmethod
    def twice(cls, ranges: Iterable[Sequence[int]]) -> Lsns:
        """The lsns that are in two or more of these ranges."""
        return cls._of(_union(*_overlaps(*_bounds(ranges))))

    @classmethod
    def _of(cls, bounds: _Bounds) -> Lsns:
        made = cls.__new__(cls)
        made._firsts, made._ends = bounds  # noqa: SLF001
        return made

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, (end - 1 for end in self._ends), strict=True)

    def __len__(self) -> int:
        return len(self._firsts)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Lsns)
            and self._firsts == other._firsts
            and self._ends == other._ends
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Lsns({list(self)})"

    @property
    def size(self) -> int:
        return sum(self._ends) - sum(self._firsts)

    @property
    def last(self) -> int:
        """The greatest lsn; 0 if there is none."""
        return self._ends[-1] - 1 if self._ends else 0

    def covers(self, first: int, last: int) -> bool:
        """Whether it has all lsns from *first* to *last*."""
        at = bisect_right(self._firsts, first)
        return at > 0 and last < self._ends[at - 1]

    def touches(self, first: int, last: int) -> bool:
        """Whether it has an lsn from *first* to *last*."""
        at = bisect_right(self._ends, first)
        return at < len(self._firsts) and self._firsts[at] <= last

    def copy(self) -> Lsns:
        """Another one with the same lsns."""
        return Lsns._of((self._firsts.copy(), self._ends.copy()))

    def add(self, first: int, last: int) -> None:
        self._replace(first, last + 1, [first], [last + 1])

    def update(self, other: Lsns) -> None:
        if other._firsts:
            self._replace(other._firsts[0], other._ends[-1], other._firsts, other._ends)

    def _replace(
        self, first: int, end: int, firsts: list[int], ends: list[int]
    ) -> None:
        """Add ranges that lie from *first* up to before *end*."""
        low = bisect_left(self._ends, first)
        high = bisect_right(self._firsts, end)
        self._firsts[low:high], self._ends[low:high] = _union(
            self._firsts[low:high] + firsts, self._ends[low:high] + ends
        )

    def __or__(self, other: Lsns) -> Lsns:
        return Lsns.joined((self, other))

    def __and__(self, other: Lsns) -> Lsns:
        mine, theirs = self._near(other), other._near(self)
        return Lsns._of(_overlaps(mine[0] + theirs[0], mine[1] + theirs[1]))

    def __sub__(self, other: Lsns) -> Lsns:
        if not self._firsts:
            return Lsns()
        firsts, ends = other._near(self)
        # What *other* lacks begins where its ranges end.
        lacked = [self._firsts[0], *ends], [*firsts, self._ends[-1]]
        return Lsns._of(_overlaps(self._firsts + lacked[0], self._ends + lacked[1]))

    def _near(self, other: Lsns) -> _Bounds:
        """The ranges but for those below all of the other's, or above."""
        if not other._firsts:
            return [], []
        low = bisect_right(self._ends, other._firsts[0])
        high = bisect_left(self._firsts, other._ends[-1])
        return self._firsts[low:high], self._ends[low:high]


def spelled(first: int, last: int) -> str:
    """A range as people read it: `lsn 4 to 6`, or `lsn 4`."""
    return f"lsn {first}" if first == last else f"lsn {first} to {last}"


def decoded(kind: Callable[[Any], Any], plain: object) -> Any:
    """The set of these pairs, for msgspec (`dec_hook`)."""
    return kind(plain)


def _bounds(ranges: Iterable[Sequence[int]]) -> _Bounds:
    firsts, ends = list[int](), list[int]()
    for first, last in ranges:
        if first <= last:
            firsts.append(first)
            ends.append(last + 1)
    return firsts, ends


def _union(firsts: list[int], ends: list[int]) -> _Bounds:
    """The lsns that are in a range, of lists in any order, which are sorted."""
    if len(firsts) < 2:
        return firsts, ends
    firsts.sort()
    ends.sort()
    # Before a gap as many ranges have ended as have begun.
    behind = firsts[1:]
    gaps = [*map(lt, ends, behind)]
    return [*firsts[:1], *compress(behind, gaps)], [*compress(ends, gaps), *ends[-1:]]


def _overlaps(firsts: list[int], ends: list[int]) -> _Bounds:
    """The ranges that are in two of these; apart, where all ranges are of two sets."""
    firsts.sort()
    ends.sort()
    # From where one more has begun than has ended until the next one ends.
    second = firsts[1:]
    there = [*map(lt, second, ends)]
    return [*compress(second, there)], [*compress(ends, there)]
