"""Turns: connections whose input costs much are served a bit at a time, one by one.

A connection may do a few milliseconds of work in one go (`gateway.sdk.costs`).  One
that has input left then waits here, unread, for its next turn.  Between two turns the
reactor serves all others, so that what one peer sends delays them by one turn, however much
it is.  What they have ready by then (batches for the journal, answers to send) goes first.

Hundreds of connections that each bring one turn's work at the same moment, or begin TLS,
would be hundreds of turns in a row.  The reactor reads all of them before anything else.
So when its reads have taken as long as one turn, what it reads from the rest is *put off*.
That is served before the next reads, again for as long as one turn.  Until nothing is put
off, all that is read stands in line.

A handshake that has begun is finished first.  After a restart all begin at once.  If each
had a bit of the time, all would be done together, which is too late where senders give up
after some seconds and come again.

All lines are fair by address (an IPv6 peer by its /64), so that a peer with one
connection waits for one turn of a peer with a thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import define
from twisted.internet.interfaces import IReactorTime

from gateway.event import network_of
from gateway.sdk.fair import FairQueue

_AT_ONCE_SECONDS = 0.004
"""Seconds for which input is served that no turn was charged for, before other things."""
_PUT_OFF_BYTES, _LEAST_BYTES = 16 << 20, 2 << 10
"""The most memory of what is put off, and the most of each connection beyond that."""
_NOTED_SECONDS = 0.0005
"""Less than this in a turn of the reactor is not worth to be forgotten at its end."""
_HANDSHAKES_FIRST = 7
"""Connections in their handshake, served in a row while others wait."""


class InLine(Protocol):
    """A connection that has something left."""

    @property
    def host(self) -> str:
        """The peer's address."""

    @property
    def shakes_hands(self) -> bool:
        """Whether its handshake has begun and is not over."""

    def take_turn(self) -> None:
        """Go on for one turn."""


@define(eq=False, slots=False)
class Turns:
    """The connections that wait for their turn, or for what they sent to be served."""

    _clock: IReactorTime

    def __attrs_post_init__(self) -> None:
        self._waiting: FairQueue[InLine] = FairQueue()
        """Connections that wait for a turn, by address."""
        self._scheduled = False
        self._put_off: FairQueue[InLine] = FairQueue()
        """Connections whose bytes were put off, by address."""
        self._handshakes: FairQueue[InLine] = FairQueue()
        """Connections in their handshake whose bytes were put off, by address."""
        self._in_a_row = 0
        """Handshakes that were served since another connection was."""
        self.put_off_bytes = 0
        """Bytes that were put off, and are in no account."""
        self.crowded = False
        """Bytes that are read now are to be put off."""
        self._spent = 0.0
        """Seconds that reads took in this turn of the reactor."""
        self._noted = False
        """The seconds are forgotten at the next turn."""
        self.before: list[Callable[[], None]] = []
        """Called by `let_others_go_first`, and so before each turn."""

    def add(self, connection: InLine, *, first: bool = False) -> None:
        """Give it one turn, behind those who wait already; or before those of its address."""
        self._waiting.put(network_of(connection.host), connection, first=first)
        self._schedule()

    def remove(self, connection: InLine) -> None:
        """Forget *connection*, which is over."""
        for line in (self._waiting, self._put_off, self._handshakes):
            if line:
                line.remove(network_of(connection.host), connection)

    @property
    def room(self) -> int:
        """Bytes that may be read of a connection, if what is read is put off."""
        return max(_LEAST_BYTES, _PUT_OFF_BYTES - self.put_off_bytes)

    def spent(self, seconds: float) -> None:
        """Count the *seconds* that it took to serve a read."""
        self._spent += seconds
        if self._spent >= _NOTED_SECONDS:
            self._note()
            if self._spent >= _AT_ONCE_SECONDS:
                self.crowded = True

    def _note(self) -> None:
        """Begin anew in the next turn of the reactor."""
        if not self._noted:
            self._noted = True
            self._clock.callLater(0, self._begin)

    def put_off(self, connection: InLine) -> None:
        """Have `take_turn` serve what was read of *connection* and not served."""
        line = self._handshakes if connection.shakes_hands else self._put_off
        line.put(network_of(connection.host), connection)
        self.crowded = True
        self._note()

    def _begin(self) -> None:
        """A new turn of the reactor: serve what was put off, as far as there is time."""
        crowded, self._noted, self.crowded = self.crowded, False, False
        self._spent = 0.0
        if not crowded or not self._is_any_put_off:
            return
        try:
            self.let_others_go_first()
            while self._is_any_put_off and self._spent < _AT_ONCE_SECONDS:
                self._next_put_off().take_turn()
        finally:
            if self._is_any_put_off:
                self.crowded = True
                self._note()

    @property
    def _is_any_put_off(self) -> bool:
        return bool(self._put_off or self._handshakes)

    def _next_put_off(self) -> InLine:
        """The connection to be served next, of those whose bytes were put off."""
        in_a_row = self._in_a_row if self._put_off else 0
        if self._handshakes and in_a_row < _HANDSHAKES_FIRST:
            self._in_a_row = in_a_row + 1
            return self._handshakes.take()
        self._in_a_row = 0
        return self._put_off.take()

    def let_others_go_first(self) -> None:
        """Something will take its time: what others have ready does not wait for it."""
        for call in self.before:
            call()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._next)

    def _next(self) -> None:
        self._scheduled = False
        if not self._waiting:
            return
        try:
            self.let_others_go_first()
            if self._waiting:  # else just lost
                self._waiting.take().take_turn()
        finally:
            self._schedule()
