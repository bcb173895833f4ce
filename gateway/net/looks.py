"""The looks at a listener's connections by time: what each is late with, and the cost.

No connection has a timer of its own.  Every few seconds all connections of a listener are
looked at, and in between each only notes in its `Times` that something happened.

`Looks.look` is all that time does to a connection: one rule after the other, and the first
that applies is the last.  A limit of time is a key of `gateway.sdk.limits` and a rule here.
None is for what we are late with ourselves.  No peer is cut while something of it is here
that was not read or not served, as after a restart, when all come at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from twisted.logger import Logger

from gateway.net.holding import Holding
from gateway.net.phase import Phase
from gateway.net.reading import Unread
from gateway.net.transport import Peer, look_at_peer
from gateway.net.writing import STALL_SECONDS, Stall
from gateway.sdk.interfaces import Refusal

if TYPE_CHECKING:
    from gateway.net.connection import AcceptedConnection
    from gateway.net.listen import Listener

_AT_ONCE = 256
"""Connections that are looked at before the reactor serves others."""
_LONGEST_SECONDS, _SHORTEST_SECONDS = 2.5, 0.05
"""Seconds between two looks."""


class Times:
    """Times of one connection: when something happened, and what has to happen by when."""

    __slots__ = ("active", "ages_at", "began", "busy", "deadline", "since")

    def __init__(self, now: float) -> None:
        self.began = now
        self.since = now
        """Nothing has happened since then, as of the last look."""
        self.active = False
        """Something has happened since the last look."""
        self.busy = False
        """The peer waits for us, says its server."""
        self.deadline: float | None = None
        """When set-up must be done; once closing, when the peer's FIN must be there."""
        self.ages_at: float | None = None
        """When it is as old as it may be; None: never, or its server knows."""


class Looks:
    """The looks of one *listener* at all of its *connections*."""

    _log = Logger()

    def __init__(
        self, listener: Listener, connections: Iterable[AcceptedConnection]
    ) -> None:
        self._listener = listener
        self._limits = listener.limits
        self._connections = connections
        self._left: list[AcceptedConnection] = []
        """Connections that this look at all of them has not reached yet."""

    @property
    def seconds(self) -> float:
        """Seconds between two calls of `look_at_all`."""
        limits = self._limits
        age = limits.idle if limits.connection_age is None else limits.connection_age
        shortest = min(limits.handshake, limits.idle, age)
        return min(_LONGEST_SECONDS, max(_SHORTEST_SECONDS, shortest / 4))

    def look_at_all(self) -> None:
        """Begin a look at all, if the one before is over."""
        self._listener.memory.look()
        if not self._left:
            self._left.extend(self._connections)
            self._left.reverse()
            self._look_at_some()

    def _look_at_some(self) -> None:
        clock, left = self._listener.clock, self._left
        now = self._listener.seconds()
        try:
            for _ in range(min(len(left), _AT_ONCE)):
                self.look(left.pop(), now)
        finally:  # what fails for one ends no other's look
            if left:
                clock.callLater(0, self._look_at_some)

    def look(self, connection: AcceptedConnection, now: float) -> None:
        """Look whether *connection* is late with something."""
        times, stall, held = connection.times, connection.output.stall, connection.held
        unread = connection.input.unread
        connection.output.count(connection.unsent_bytes)
        if connection.input.last_bytes is not None:
            connection.calls.drain_if_used(late=now >= self._listener.used_by)
        if times.ages_at is not None and now >= times.ages_at:
            connection.calls.aged()
        if held is not None:
            since = None if stall is None else stall.since
            paused = bool(unread & Unread.PAUSED)
            held.look(now, connection.input.received, since, paused=paused)
        if times.deadline is not None and self._has_yet_to_hear(connection):
            times.deadline = now + self._limits.handshake
        elif times.deadline is not None and now >= times.deadline:
            self._deadline_passed(connection)
        elif connection.phase >= Phase.CLOSING:
            return
        elif stall is not None and _is_stuck(connection, stall, now):
            connection.output.cut_off(f"{STALL_SECONDS:g} s")
        elif _is_unwatched(connection) and self._gave_up(connection, now):
            connection.abort()
        elif held is not None and self._is_too_slow(connection, held, now):
            limit = f"{self._limits.minimum_rate} bytes/s"
            begun = connection.calls.begun()
            what = begun or f"{held.unfinished} bytes of an unfinished message"
            rule = f"{what}, and no progress"
            why = Refusal(rule, limit=limit, key="limits.minimum_rate")
            connection.ending.give_up(why)
        elif times.active or times.busy or unread & (Unread.PAUSED | Unread.ROOM):
            times.active = False
            times.since = now
            if connection.layers is not None:
                connection.layers.tick()
            connection.input.ask_again()
        elif now - times.since >= self._limits.idle and not (
            connection.input.waits_for_us
        ):
            connection.ending.why = "idle"
            self._end_quietly(connection, "idle", "{peer} was idle for too long")
            connection.close()

    def _has_yet_to_hear(self, connection: AcceptedConnection) -> bool:
        """The set-up waits for us: it has all of its time from then on."""
        return connection.phase < Phase.CLOSING and connection.input.waits_for_us

    def _deadline_passed(self, connection: AcceptedConnection) -> None:
        if connection.phase >= Phase.CLOSING:
            connection.transport.abortConnection()
        elif not connection.input.received or connection.input.is_spare:
            # Many a load balancer keeps a port open and says nothing; a browser does so
            # when TLS is agreed upon.
            self._end_quietly(connection, "handshake", "{peer} says nothing")
            connection.ending.end()
        else:
            limit = f"{self._limits.handshake:g} s"
            rule, key = "handshake not finished", "limits.handshake"
            connection.ending.reject(Refusal(rule, limit=limit, key=key), "handshake")

    def _gave_up(self, connection: AcceptedConnection, now: float) -> bool:
        """Ask the socket of a peer that is not read; read ahead if it has more to say.

        True: no peer waits any more for what the server has not submitted.
        """
        peer, unread = look_at_peer(connection.transport), connection.input.unread
        reasons = unread & (Unread.PAUSED | Unread.STALLED | Unread.REFUSED)
        if reasons == Unread.PAUSED and connection.phase < Phase.ANSWERING:
            connection.input.read_ahead(heard=peer is Peer.HEARD)
        acknowledges = self._listener.acknowledges
        return connection.input.gave_up(
            peer, now, unused=connection.input.has_unused, acknowledges=acknowledges
        )

    def _is_too_slow(
        self, connection: AcceptedConnection, held: Holding, now: float
    ) -> bool:
        """Whether a message that has begun does not come any further."""
        ours = connection.input.unread & (Unread.UNDELIVERED | Unread.ROOM)
        if not held.unfinished or ours or connection.output.stall is not None:
            held.rests()
            return False
        slow = held.too_slow(now, connection.input.received, self._limits.minimum_rate)
        return slow and not connection.input.waits_for_us

    def _end_quietly(
        self, connection: AcceptedConnection, reason: str, text: str
    ) -> None:
        """Count a peer that broke no rule, without a line in the log."""
        self._listener.rejections.count(reason)
        self._log.debug(text, peer=connection.origin.peer)


def _is_stuck(connection: AcceptedConnection, stall: Stall, now: float) -> bool:
    """Whether the peer has taken nothing for long of what waits for it."""
    if stall.shrinks(now, connection.unsent_bytes):
        connection.times.active = True
    return stall.is_long(now)


def _is_unwatched(connection: AcceptedConnection) -> bool:
    """The reactor does not tell what happens to its peer."""
    unread = connection.input.unread & (Unread.PAUSED | Unread.ROOM | Unread.FIN)
    return bool(unread) or connection.output.stall is not None
