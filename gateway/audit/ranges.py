"""Sets of lsns as sorted, disjoint ranges; every operation is one vectorised sweep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

_Ints = np.ndarray[Any, np.dtype[np.int64]]
_NONE: _Ints = np.empty(0, np.int64)


class Ranges:
    """An immutable set of lsns; iterating gives its ranges as (first, last)."""

    __slots__ = ("_first", "_last")

    def __init__(self, first: _Ints | None = None, last: _Ints | None = None) -> None:
        """Bounds as they are: sorted, disjoint and not adjacent.  Else use `of`."""
        self._first = _NONE if first is None else first
        self._last = _NONE if last is None else last

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Ranges:
        """The union of ranges in any order; an empty one (last < first) is skipped."""
        return _sweep([_bounds(pairs)], lambda depth: depth[0] > 0)

    @classmethod
    def twice(cls, pairs: Iterable[tuple[int, int]]) -> Ranges:
        """What two or more of these ranges have in common."""
        return _sweep([_bounds(pairs)], lambda depth: depth[0] > 1)

    @classmethod
    def joined(cls, parts: Iterable[Ranges]) -> Ranges:
        """The union of many."""
        pairs = [part._pair for part in parts]  # noqa: SLF001
        firsts = np.concatenate([_NONE, *(first for first, _ in pairs)])
        lasts = np.concatenate([_NONE, *(last for _, last in pairs)])
        return _sweep([(firsts, lasts)], lambda depth: depth[0] > 0)

    @classmethod
    def where(cls, flags: np.ndarray[Any, np.dtype[np.bool_]], start: int) -> Ranges:
        """The lsns `start + i` for which `flags[i]` is true."""
        steps = np.flatnonzero(np.diff(flags.view(np.int8), prepend=0, append=0))
        return cls(steps[::2] + start, steps[1::2] + (start - 1))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._first.tolist(), self._last.tolist(), strict=True)

    def __len__(self) -> int:
        """How many ranges."""
        return len(self._first)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranges.of({list(self)})"

    def __or__(self, other: Ranges) -> Ranges:
        return _sweep([self._pair, other._pair], lambda d: (d[0] > 0) | (d[1] > 0))

    def __and__(self, other: Ranges) -> Ranges:
        return _sweep([self._pair, other._pair], lambda d: (d[0] > 0) & (d[1] > 0))

    def __sub__(self, other: Ranges) -> Ranges:
        return _sweep([self._pair, other._pair], lambda d: (d[0] > 0) & (d[1] == 0))

    def touches(self, first: int, last: int) -> bool:
        """Whether it has an lsn from *first* to *last*."""
        at = int(np.searchsorted(self._last, first))
        return at < len(self._first) and int(self._first[at]) <= last

    @property
    def events(self) -> int:
        """How many lsns."""
        return int((self._last - self._first + 1).sum())

    @property
    def last(self) -> int:
        """The greatest lsn; 0 if there is none."""
        return int(self._last[-1]) if len(self._last) else 0

    @property
    def _pair(self) -> tuple[_Ints, _Ints]:
        return self._first, self._last


def _bounds(pairs: Iterable[tuple[int, int]]) -> tuple[_Ints, _Ints]:
    bounds = np.array([p for p in pairs if p[0] <= p[1]], np.int64).reshape(-1, 2)
    return bounds[:, 0], bounds[:, 1]


def _sweep(sets: list[tuple[_Ints, _Ints]], wanted: Any) -> Ranges:
    """Where *wanted*, told how deep each set covers a stretch, says yes."""
    points = np.concatenate([edge for s in sets for edge in (s[0], s[1] + 1)])
    order = np.argsort(points, kind="stable")
    points = points[order]
    depths = []
    begin = 0
    for first, _ in sets:
        steps = np.zeros(len(points), np.int64)
        steps[begin : begin + len(first)] = 1
        steps[begin + len(first) : begin + 2 * len(first)] = -1
        begin += 2 * len(first)
        depths.append(np.cumsum(steps[order]))
    # Of several edges at one point only the last tells what holds behind it.
    final = np.flatnonzero(np.diff(points, append=-1))
    inside = wanted([depth[final] for depth in depths])
    found = Ranges.where(inside, 0)
    edges = points[final]
    return Ranges(edges[found._first], edges[found._last + 1] - 1)  # noqa: SLF001
