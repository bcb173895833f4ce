"""What a connection may cost in one turn of the event loop, counted, not timed.

A session charges its turn for what it does: bytes inflated or copied, frames parsed,
events made, replies written, batches submitted.  When the turn is over it stops where
it is, between two frames, and goes on in the next one (`Connection.again`).  So nobody
waits longer for others than one turn each, whatever they send.

Costs are in microseconds of CPU on the machine of bench/RESULTS.md, roughly;
bench/amplification.py measures the time that turns really take.  A count makes turns the
same on every machine and in every run of a test.
"""

from __future__ import annotations

__all__ = [
    "BATCH",
    "BYTE",
    "EVENT",
    "FRAME",
    "REPLY",
    "TURN",
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
    """What it costs to inflate *read* bytes, which were *made* into so many."""
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
