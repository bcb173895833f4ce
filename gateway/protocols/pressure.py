"""Back-pressure from the journal to the sockets, the same for every protocol.

Valve         of a connection: pauses and resumes reading
Unfinished    of a listener: bounds what connections buffer of incomplete messages
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.interfaces import Connection, Journal, Refusal

__all__ = ["Holder", "Unfinished", "Valve"]


class Holder(Protocol):
    """A connection's server that can drop what it has buffered."""

    def give_up(self, why: Refusal) -> None:
        """Drop it and close; the peer sends what was not acknowledged again."""


class Unfinished:
    """Counts the bytes of incomplete messages that a listener's connections have buffered.

    If all connections of the daemon buffered too much together, none might ever complete
    a message.  Then the connection that holds most is closed.
    """

    __slots__ = ("_held", "_journal", "_what")

    def __init__(self, journal: Journal, what: str) -> None:
        """*what* names such a message in refusals: `an unfinished window`."""
        self._journal = journal
        self._what = what
        self._held: dict[Holder, int] = {}

    def hold(self, holder: Holder, size: int) -> None:
        """*holder* has *size* bytes buffered now.  May call anybody's `give_up`."""
        held = self._held
        before = held.pop(holder, 0)
        if size:
            held[holder] = size
        if size != before and not self._journal.reserve(size - before) and held:
            largest = max(held, key=held.__getitem__)
            largest.give_up(
                Refusal(
                    f"{held[largest]} bytes of {self._what}, the most while all "
                    "connections together hold too many",
                    key="journal.memory_bytes",
                )
            )


class Valve:
    """Pauses a connection while the journal is full, or has too much of it to store.

    The connection is read again when there is room, and half of its limit is free.
    """

    __slots__ = ("_asked", "_connection", "_journal", "_limit", "_room", "paused")

    def __init__(
        self,
        connection: Connection,
        journal: Journal,
        limit: int,
        room: Callable[[], None],
    ) -> None:
        """*limit* is `limits.unacknowledged_bytes`.

        *room* is called when the journal is no longer full; it has to call `regulate`.
        """
        self.paused = False
        """The connection is not read."""
        self._connection = connection
        self._journal = journal
        self._limit = limit
        self._room = room
        self._asked = False

    def regulate(self, unacknowledged: int, *, feeding: bool = True) -> None:
        """Pause or resume; *unacknowledged* bytes of the connection wait for the disk.

        A connection that is not *feeding* the journal is read even if that is full.
        """
        full = feeding and self._journal.full
        if full and not self._asked:
            self._asked = True
            self._journal.when_room().addCallback(self._has_room)
        if not self.paused:
            if full or unacknowledged >= self._limit:
                self.paused = True
                self._connection.pause()
        elif not full and unacknowledged <= self._limit // 2:
            self.paused = False
            self._connection.resume()

    def _has_room(self, _: None) -> None:
        self._asked = False
        self._room()
