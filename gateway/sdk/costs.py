"""Costs of a connection: the work of one turn, and messages that move no data.

Both are counted, not timed, so that they are the same on every machine and in every run
of a test.

A session charges its `Turn` of the event loop for what it does: bytes inflated or
copied, frames parsed, events made, replies written, batches submitted.  When the turn is
over it stops where it is, between two frames, and goes on in the next one
(`Connection.again`).  So each waits for others one turn of theirs at most, whatever they
send.  Costs are in microseconds of CPU on the machine of bench/RESULTS.md, roughly;
bench/amplification.py measures the time that turns really take.

Control messages are those that cost a peer little and move no data.  A peer may send
`limits.control_messages` at once, and some each second; data that moves in either
direction allows more (`ControlBudget`).  Honest peers ping, subscribe and cancel far
below it.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.sdk.interfaces import Refusal

__all__ = [
    "BATCH",
    "BYTE",
    "EVENT",
    "FRAME",
    "PER_SECOND",
    "REPLY",
    "TURN",
    "ControlBudget",
    "Turn",
    "inflating",
]

#: A whole turn.
TURN = 4000.0

BYTE = 0.0005
"""Copied."""
_INFLATED_BYTE = 0.005
"""No more than 1 MiB is inflated in a turn, if no step of it is above 192 KiB."""
_DEFLATED_BYTE = 0.065
"""Read by an inflater: its blocks may hold tables, and nothing that they are for."""
FRAME = 1.0
"""Parsed, whatever is in it."""
EVENT = 0.5
"""Counted or split off; decoding waits for the spool."""
REPLY = 3.0
"""Encoded and written, or kept until it may be."""
BATCH = 30.0
"""Submitted to the journal."""


def inflating(read: int, made: int) -> float:
    """The cost of inflating *read* bytes to *made* ones."""
    return max(_INFLATED_BYTE * made, _DEFLATED_BYTE * read)


class Turn:
    """One turn of one connection."""

    __slots__ = ("left",)

    def __init__(self, size: float = TURN) -> None:
        self.left = size

    def charge(self, cost: float) -> None:
        """Count work that was done, or that is about to be."""
        self.left -= cost

    @property
    def over(self) -> bool:
        """Stop before the next frame."""
        return self.left <= 0


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
