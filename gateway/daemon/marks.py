"""When events came, by lsn, in bounded memory: what their age is computed from.

A mark speaks for the events up to its lsn and behind the mark before it.  Marks of one
second are one; when there are too many, each speaks for the one after it, too, so that
ages only become greater.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

_SECOND = 1.0


class _Mark(NamedTuple):
    last: int
    oldest: float
    newest: float


def _last(mark: _Mark) -> int:
    return mark.last


class Marks:
    """The marks of one node, or of one of its listeners; times are seconds since the epoch."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._marks: deque[_Mark] = deque()
        self.newest: float | None = None
        """When the newest event came of those that `forget` was told of; within 1 s."""

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, last: int, oldest: float, newest: float) -> None:
        """Events up to lsn *last* came between these times; lsns only rise.

        Times may go back, if the clock was set.
        """
        marks = self._marks
        if marks and oldest - marks[-1].oldest < _SECOND:
            before = marks[-1]
            if newest >= before.oldest:
                newest = max(before.newest, newest)
            marks[-1] = _Mark(last, min(before.oldest, oldest), newest)
            return
        if len(marks) >= self._most:
            self._thin_out()
        self._marks.append(_Mark(last, oldest, newest))

    def forget(self, lsn: int) -> None:
        """Events up to there are where they belong."""
        while self._marks and self._marks[0].last <= lsn:
            self.newest = self._marks.popleft().newest

    def oldest_behind(self, lsn: int) -> float | None:
        """When the oldest event behind *lsn* came; None: there is none."""
        at = bisect_right(self._marks, lsn, key=_last)
        return self._marks[at].oldest if at < len(self._marks) else None

    def newest_until(self, lsn: int) -> float | None:
        """When the newest event up to *lsn* came, of those not older than the last
        `forget`; None: nothing is known of it.
        """
        at = bisect_right(self._marks, lsn, key=_last)
        return self._marks[at - 1].newest if at else self.newest

    def _thin_out(self) -> None:
        marks = list(self._marks)
        odd = [marks.pop()] if len(marks) % 2 else []
        pairs = zip(marks[::2], marks[1::2], strict=True)
        self._marks = deque(
            _Mark(second.last, first.oldest, second.newest) for first, second in pairs
        )
        self._marks.extend(odd)
