"""Turns: connections whose input costs much are served a bit at a time, one by one.

A connection may do a few milliseconds of work in one go (`gateway.protocols.turn`).  One
that has input left then waits here, unread, for its next turn.  Between two turns the
reactor serves everybody else, so that what one peer sends delays the others by one turn,
however much it is.  What all others have ready by then (batches for the journal, answers to
send) goes first, so that it does not wait for that turn as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

__all__ = ["Turns", "Waiting"]


class Waiting(Protocol):
    """A connection with input left."""

    def take_turn(self) -> None:
        """Go on for one turn."""


class Turns:
    """The connections that wait for their turn; each gets one, then the next."""

    __slots__ = ("_clock", "_scheduled", "_waiting", "before")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: dict[Waiting, None] = {}
        self._scheduled = False
        self.before: list[Callable[[], None]] = []
        """Called before each turn."""

    def add(self, connection: Waiting) -> None:
        """Give it one turn, behind those who wait already."""
        self._waiting[connection] = None
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._next)

    def remove(self, connection: Waiting) -> None:
        """It is over."""
        self._waiting.pop(connection, None)

    def _next(self) -> None:
        self._scheduled = False
        if not self._waiting:
            return
        try:
            for call in self.before:
                call()
            connection = next(iter(self._waiting), None)
            if connection is None:
                return  # it was lost just now
            del self._waiting[connection]
            connection.take_turn()
        finally:
            if self._waiting and not self._scheduled:
                self._scheduled = True
                self._clock.callLater(0, self._next)
