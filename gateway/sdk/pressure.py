"""Back-pressure from the journal to one connection, for every protocol."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from gateway.event import BATCH_BYTES
from gateway.sdk.interfaces import Connection, Journal

__all__ = ["Valve", "batch_bytes", "waits_no_more"]

_BATCHES = 2048
"""The batches of one connection that may wait for the disk."""


def batch_bytes(limit: int) -> int:
    """The bytes that each batch counts beside its body, where *limit* may be unacknowledged.

    A group commit works on each batch, so others wait for the number of a sender's batches,
    and not for their bytes alone.
    """
    return max(BATCH_BYTES, limit // _BATCHES)


@define(eq=False)
class Valve:
    """Pauses a connection while the journal is full, or has too much of it to store, or
    too much of its address (`Journal.over_share`).

    The connection goes on when there is room; if it had reached its limit, when half of
    that is free.

    *limit* is `limits.unacknowledged_bytes`.

    *room* is called when the journal has room again; it has to call `regulate`.
    """

    _connection: Connection
    _journal: Journal
    _limit: int
    _room: Callable[[], None]
    paused: bool = field(default=False, init=False)
    """Nothing is delivered of the connection."""
    _at_limit: bool = field(default=False, init=False)
    """Whether it has reached its limit since it is paused."""
    _asked: Deferred[None] | None = field(default=None, init=False)
    """Fires when there is room; None: the server has not asked."""
    _closed: bool = field(default=False, init=False)

    def regulate(self, unacknowledged: int, *, feeding: bool = True) -> bool:
        """Pause or resume; *unacknowledged* bytes of the connection wait for the disk.

        Returns whether it is resumed by that: with input left, it asks for a turn.

        A connection that is not *feeding* the journal is read even if that is full.
        """
        journal, origin = self._journal, self._connection.origin
        full = feeding and journal.full
        over = journal.over_share(origin)
        if (full or over) and self._asked is None and not self._closed:
            self._asked = journal.when_room() if full else journal.when_share(origin)
            self._asked.addCallbacks(self._has_room, waits_no_more)
        if unacknowledged >= self._limit:
            self._at_limit = True
        elif unacknowledged <= self._limit // 2:
            self._at_limit = False
        holds = full or over or self._at_limit
        if holds and not self.paused:
            self.paused = True
            self._connection.pause()
        elif self.paused and not holds:
            self.paused = False
            self._connection.resume()
            return True
        return False

    def close(self) -> None:
        """The connection is over: wait for room no more."""
        self._closed = True
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.cancel()

    def _has_room(self, _: None) -> None:
        self._asked = None
        self._room()


def waits_no_more(why: Failure) -> None:
    """`Journal.when_room` was cancelled: an errback for it."""
    why.trap(CancelledError)
