"""Pressure passed on: what every protocol's server does when we take no more.

Unfinished    of a listener: what its connections hold of messages still arriving
Valve         of a connection: whether it is read
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.interfaces import Connection, Journal, Refusal

__all__ = ["Holder", "Unfinished", "Valve"]


class Holder(Protocol):
    """A connection's server that can let go of what it holds."""

    def give_up(self, why: Refusal) -> None:
        """End the connection: its peer has what was not acknowledged, and sends again."""


class Unfinished:
    """What the connections of one listener hold of messages that are still arriving.

    When all connections of the daemon hold too much together, nothing may ever be
    finished.  Then the one that holds most goes.
    """

    __slots__ = ("_held", "_journal", "_what")

    def __init__(self, journal: Journal, what: str) -> None:
        """*what* is held, for the refusal: `an unfinished window`."""
        self._journal = journal
        self._what = what
        self._held: dict[Holder, int] = {}

    def hold(self, holder: Holder, size: int) -> None:
        """*holder* holds *size* bytes now."""
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
    """Reads a connection, or does not, as the journal and its own debt allow."""

    __slots__ = ("_asked", "_connection", "_journal", "_limit", "_room", "paused")

    def __init__(
        self,
        connection: Connection,
        journal: Journal,
        limit: int,
        room: Callable[[], None],
    ) -> None:
        """*limit* is `limits.unacknowledged_bytes`; *room* is called, to regulate
        again, when the journal is no longer full.
        """
        self.paused = False
        """The connection is not read."""
        self._connection = connection
        self._journal = journal
        self._limit = limit
        self._room = room
        self._asked = False

    def regulate(self, unacknowledged: int, *, feeding: bool = True) -> None:
        """*unacknowledged* bytes of the connection wait for the disk.

        One that is not *feeding* the journal is read though that is full.
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
