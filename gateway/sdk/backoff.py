"""How all senders try again: pauses between connections, and what of the events is at fault.

Of the standard library only: a client without the daemon takes it along.
"""

from __future__ import annotations

import random

__all__ = ["Attempts", "Backoff", "Unacknowledged"]

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 10.0
_FRUITLESS = 2
"""Connections in a row that were lost with events in flight, none of which was acknowledged:
from then on those go one by one."""
_ALONE = 3
"""The times that one must be lost alone, with nothing acknowledged in between."""
_MANY = 1 << 12


class Unacknowledged(Exception):
    """The sender was stopped before these events were acknowledged."""


class Backoff:
    """Pauses between connections: about twice as long each time, and differing from sender
    to sender, up to 10 s; at most 0.1 s again once something was acknowledged.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = _FIRST_SECONDS

    def pause(self) -> float:
        """How many seconds to wait before the next attempt."""
        now = self._next
        self._next = min(_LONGEST_SECONDS, 2 * now)
        return now * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries

    def succeeded(self) -> None:
        """The other end has taken something: start from the shortest pause again.

        That it lets us connect, or says hello, is no success: it may do so all day.
        """
        self._next = _FIRST_SECONDS


class Attempts:
    """Pauses of a sender that keeps events until they are acknowledged, and its limit in flight.

    A peer that can not take one event hangs up on all, and says seldom which.  So after the
    second connection that was lost for nothing events go one by one, then by twos, fours and
    so on as they are acknowledged.  So the one is found that is always lost alone.
    """

    __slots__ = ("_alone", "_backoff", "_fruitless", "at_once")

    def __init__(self) -> None:
        self.at_once: int | None = None
        """The most events in flight; None: as many as the sender likes."""
        self._backoff = Backoff()
        self._fruitless = self._alone = 0

    def pause(self) -> float:
        """How many seconds to wait before the next connection."""
        return self._backoff.pause()

    def acknowledged(self) -> None:
        self._backoff.succeeded()
        self._fruitless = self._alone = 0
        if self.at_once is not None:
            self.at_once *= 2
            if self.at_once > _MANY:
                self.at_once = None

    def lost(self, in_flight: int) -> bool:
        """A connection, with so many events; True: the one that it was is to be set aside."""
        if not in_flight:
            return False
        self._fruitless += 1
        if self.at_once is not None or self._fruitless >= _FRUITLESS:
            self.at_once = 1
        self._alone = self._alone + 1 if in_flight == 1 else 0
        if self._alone < _ALONE:
            return False
        self._alone = 0
        return True
