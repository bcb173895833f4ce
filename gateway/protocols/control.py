"""A ceiling for control messages: those that cost a peer little and move no data.

A peer may send so many at once, and some each second; data that moves in either
direction allows more.  Honest peers ping, subscribe and cancel far below it.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.interfaces import Refusal

__all__ = ["AT_ONCE", "PER_SECOND", "ControlBudget"]

AT_ONCE = 1 << 14
PER_SECOND = 100


class ControlBudget:
    """How many control messages one connection may still send."""

    __slots__ = ("_at", "_left", "_seconds")

    def __init__(self, seconds: Callable[[], float]) -> None:
        """*seconds* is a monotonic clock."""
        self._seconds = seconds
        self._at = seconds()
        self._left = float(AT_ONCE)

    def earn(self, count: float) -> None:
        """Something moved that allows *count* messages more."""
        self._left = min(self._left + count, AT_ONCE)

    def spend(self, count: int) -> Refusal | None:
        """*count* messages arrived; the refusal of the peer if that is too many."""
        self._left -= count
        if self._left >= 0:
            return None
        now = self._seconds()
        self.earn((now - self._at) * PER_SECOND)
        self._at = now
        if self._left >= 0:
            return None
        return Refusal(
            "control messages without end, which move no data",
            limit=f"{AT_ONCE} at once, then {PER_SECOND} a second",
        )
