"""A ceiling for control messages: those that cost a peer little and move no data.

A peer may send `limits.control_messages` at once, and some each second; data that moves
in either direction allows more.  Honest peers ping, subscribe and cancel far below it.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.interfaces import Refusal

__all__ = ["PER_SECOND", "ControlBudget"]

PER_SECOND = 100
_RULE = "control messages without end, which move no data"
_KEY = "limits.control_messages"


class ControlBudget:
    """How many control messages one connection may still send."""

    __slots__ = ("_at", "_key", "_left", "_most", "_rule", "_seconds")

    def __init__(
        self,
        seconds: Callable[[], float],
        most: int,
        rule: str = _RULE,
        key: str | None = _KEY,
    ) -> None:
        """*seconds* is a monotonic clock; *most*, at once, is what *key* says.

        *rule* is what a peer is told that sends more.
        """
        self._seconds = seconds
        self._at = seconds()
        self._most = most
        self._left = float(most)
        self._rule = rule
        self._key = key

    def earn(self, count: float) -> None:
        """Something moved that allows *count* messages more."""
        self._left = min(self._left + count, self._most)

    def spend(self, count: float) -> Refusal | None:
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
            self._rule,
            limit=f"{self._most} at once, then {PER_SECOND} a second",
            key=self._key,
        )
