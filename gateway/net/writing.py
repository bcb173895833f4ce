"""A peer that does not read what it is sent: how long, and how much more waits for it.

A peer with more than `READ_BYTES` of unsent output counts as not reading.  Then we stop
reading from it (or writing, if its server can: `interfaces.Publishing`), and cut it off if
the output grows by more than the listener's `unread_bytes`, or if `STALL_SECONDS` pass in
which it takes nothing.
"""

from __future__ import annotations

STALL_SECONDS = 45.0
"""Less than TCP_USER_TIMEOUT (`bind`): the kernel would end the connection unlogged."""
OUTPUT_BYTES = 1 << 16
"""Unsent output that is counted at once; what is less waits for the next look."""


class Stall:
    """The time in which one peer does not read; it is over when all is sent."""

    __slots__ = ("_limit", "_unsent", "since")

    def __init__(self, now: float, unsent: int, more: int) -> None:
        """*unsent* bytes wait for it, and *more* may."""
        self.since = now
        """When it took something last."""
        self._unsent = unsent
        """Output if it takes nothing: TLS adds to it."""
        self._limit = unsent + more

    def grows(self, size: int, unsent: int) -> bool:
        """*size* bytes are added to those *unsent*; true: that is too much."""
        self._unsent += size
        return unsent + size > self._limit

    def shrinks(self, now: float, unsent: int) -> bool:
        """Whether the peer has taken something since the last look."""
        if unsent >= self._unsent:
            return False
        self._unsent = unsent
        self.since = now
        return True

    def is_long(self, now: float) -> bool:
        """Nothing was taken for too long."""
        return now - self.since > STALL_SECONDS
