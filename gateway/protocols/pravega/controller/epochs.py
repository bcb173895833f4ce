"""Epochs of a stream: which segments it had when, their successors, stream cuts, its head.

The key space, 0 to 1, is cut into ranges, one for each segment.  Scaling seals segments and
puts others in their ranges, which begins the next epoch: the old ones have the new ones as
*successors*.  A *stream cut* is a place in a stream: segments that cover the key space once,
each with an offset.  Its *head* is the first one that can be read.

    epoch        0           1           2
    1.0   +-----------+-----------+-----------+
          |           |     2     |           |
    0.5   |     0     +-----------+     4     |    0 was split, 1 and 2 were merged:
          |           |     1     |           |    successors of 0 are 1 and 2, of both 4
    0.0   +-----------+-----------+-----------+

No I/O and no state.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

_NUMBER_BITS = 32
_OPEN = -1


class Part(msgspec.Struct, array_like=True, frozen=True):
    """A segment of a stream, with its range of the key space."""

    id: int
    """`epoch << 32 | number`."""
    low: float
    high: float
    until: int = _OPEN
    """The first epoch that it is not in; -1 while there is none."""

    @property
    def epoch(self) -> int:
        return self.id >> _NUMBER_BITS

    @property
    def number(self) -> int:
        """The number, which no other segment of the stream has."""
        return self.id & ((1 << _NUMBER_BITS) - 1)

    @property
    def is_active(self) -> bool:
        return self.until == _OPEN


def equal_ranges(count: int) -> list[tuple[float, float]]:
    return [(place / count, (place + 1) / count) for place in range(count)]


def replaced(
    parts: Iterable[Part],
    ended: Collection[int],
    numbers: Iterable[int],
    ranges: Iterable[tuple[float, float]],
    epoch: int,
) -> tuple[list[Part], list[Part]]:
    """The parts of a stream once *ended* are replaced in *epoch*; and the new ones alone."""
    made = [
        Part(epoch << _NUMBER_BITS | number, low, high)
        for number, (low, high) in zip(numbers, sorted(ranges), strict=True)
    ]
    left = [
        msgspec.structs.replace(part, until=epoch) if part.id in ended else part
        for part in parts
    ]
    return left + made, made


class Cover:
    """Parts that do not overlap, to be found by ranges: those of an epoch, or of a cut."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts = sorted(parts, key=lambda part: part.low)
        self._lows = [part.low for part in self.parts]
        self._highs = [part.high for part in self.parts]

    @property
    def is_whole(self) -> bool:
        """Whether they cover the key space once."""
        edges = [0.0, *self._highs]
        return edges == [*self._lows, 1.0]

    @property
    def ranges(self) -> list[tuple[float, float]]:
        """The ranges that the segments cover; those that touch are joined."""
        found: list[tuple[float, float]] = []
        for low, high in zip(self._lows, self._highs, strict=True):
            if found and found[-1][1] == low:
                found[-1] = found[-1][0], high
            else:
                found.append((low, high))
        return found

    def covers(self, part: Part) -> bool:
        """Whether all keys of *part* are covered."""
        parts = Cover(self.under(part)).ranges
        return len(parts) == 1 and parts[0][0] <= part.low and part.high <= parts[0][1]

    def under(self, part: Part) -> Sequence[Part]:
        """The segments that share keys with *part*."""
        begin = bisect_right(self._highs, part.low)
        return self.parts[begin : bisect_left(self._lows, part.high)]


def in_epoch(parts: Iterable[Part], epoch: int) -> list[Part]:
    return [
        part
        for part in parts
        if part.epoch <= epoch and (part.is_active or epoch < part.until)
    ]


def successors(parts: Sequence[Part], part: Part) -> list[tuple[Part, Sequence[Part]]]:
    """The segments that took the place of *part*, each with all that it follows; none while
    *part* is active.
    """
    if part.is_active:
        return []
    before = Cover(each for each in parts if each.until == part.until)
    behind = Cover(each for each in parts if each.epoch == part.until)
    return [(each, before.under(each)) for each in behind.under(part)]


def scalings(parts: Iterable[Part]) -> list[tuple[list[Part], list[Part]]]:
    """Pairs of old and new segments, range by range, the oldest first."""
    events: defaultdict[int, list[Part]] = defaultdict(list)
    ends = {part.until for part in parts if not part.is_active}
    for part in parts:
        events[part.until].append(part)
        if part.epoch in ends:
            events[part.epoch].append(part)
    found: list[tuple[list[Part], list[Part]]] = []
    for epoch in sorted(ends):
        edge = -1.0
        for part in sorted(events[epoch], key=lambda each: each.low):
            if part.low >= edge:
                found.append(([], []))
            found[-1][part.epoch == epoch].append(part)
            edge = max(edge, part.high)
    return [(old, new) for old, new in found if old]


def head(
    parts: Sequence[Part], is_gone: Callable[[Part], bool]
) -> tuple[list[Part], set[int]]:
    """The segments that a stream begins with, and the ids of those behind that.

    *is_gone* says whether a segment that was replaced has nothing left.  One whose
    successor follows others too, which have, is part of the head all the same: the head
    covers the key space.
    """
    behind: set[int] = set()
    ahead: set[int] = set()
    for old, new in scalings(parts):
        if all(part.id not in ahead and is_gone(part) for part in old):
            behind.update(part.id for part in old)
        else:
            ahead.update(part.id for part in new)
    kept = [part for part in parts if part.id not in behind and part.id not in ahead]
    return kept, behind


def between(
    parts: Iterable[Part], begin: Iterable[Part], end: Iterable[Part]
) -> list[Part]:
    """The segments from one cut to another, both included."""
    first, last = Cover(begin), Cover(end)
    return [
        part
        for part in parts
        if any(each.epoch <= part.epoch for each in first.under(part))
        and any(part.epoch <= each.epoch for each in last.under(part))
    ]


def read_to(
    parts: Sequence[Part], cut: Mapping[int, int], length: Callable[[Part], int]
) -> dict[int, int]:
    """How far a cut is in each segment, by id: at its end in those before the cut.

    Of a cut that does not cover the key space only the segments that it names count.
    """
    named = Cover(part for part in parts if part.id in cut)
    is_whole = named.is_whole
    found: dict[int, int] = {}
    for part in parts:
        if part.id in cut:
            found[part.id] = cut[part.id]
        else:
            is_before = is_whole and all(
                each.epoch > part.epoch for each in named.under(part)
            )
            found[part.id] = length(part) if is_before else 0
    return found
