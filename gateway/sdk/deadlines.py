"""Time-outs of many connections, all equally long, on one timer.

What one raises is logged, and keeps no other waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

__all__ = ["Deadlines"]

One = TypeVar("One")
_log = Logger()


class Deadlines(Generic[One]):
    """Calls *due* with each one that has been watched for *seconds*, once."""

    __slots__ = ("_clock", "_due", "_seconds", "_ticking", "_when")

    def __init__(
        self, clock: IReactorTime, seconds: float, due: Callable[[One], None]
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._due = due
        self._when: dict[One, float] = {}  # in order, because all wait as long
        self._ticking = False

    def watch(self, one: One) -> None:
        """Begin its time, or begin it anew."""
        self._when.pop(one, None)
        self._when[one] = self._clock.seconds() + self._seconds
        if not self._ticking:
            self._ticking = True
            self._clock.callLater(self._seconds, self._tick)

    def forget(self, one: One) -> None:
        """Watch it no more; nothing if it was not watched."""
        self._when.pop(one, None)

    def _tick(self) -> None:
        now = self._clock.seconds()
        late = []
        for one, when in self._when.items():
            if when > now:
                break
            late.append(one)
        for one in late:
            if self._when.pop(one, None) is not None:
                try:
                    self._due(one)
                except Exception:
                    _log.failure("whose time was over raised")
        self._ticking = bool(self._when)
        if self._ticking:
            first = next(iter(self._when.values()))
            self._clock.callLater(max(0.0, first - now), self._tick)
