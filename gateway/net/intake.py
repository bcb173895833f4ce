"""Intake of a connection: bytes, the peer's end, the loss, as its transport brings them.

    transport ─► dataReceived ─► serve ─► take ─► (TLS, set-up, frames) ─► put ─► deliver
                       └─► (put off) ─► take_turn ─┘       (read ahead) ◄──┘

`pacing` has when the server gets it; this is on the way of each read, and asks little.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHalfCloseableProtocol, IProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.net.handshake import SetUp
from gateway.net.pacing import Pacing
from gateway.net.phase import Phase
from gateway.net.reading import READ_BYTES, Unread
from gateway.net.transport import LostTransport, Transport, unix_credentials

if TYPE_CHECKING:
    from gateway.net.connection import AcceptedConnection
    from gateway.net.listen import Listener

_SERVING, _ANSWERING, _CLOSING = Phase.SERVING, Phase.ANSWERING, Phase.CLOSING
_KEPT = Unread.PAUSED | Unread.AHEAD
"""Reasons for which bytes are not delivered at once."""
_AGE_SPREAD = 0.2
"""Connections that came together do not end together: each within so much of their age."""


@implementer(IProtocol, IHalfCloseableProtocol)
class Intake(Pacing):
    """The input of one connection, which its transport brings."""

    __slots__ = ("__weakref__", "received", "setup")

    def __init__(self, connection: AcceptedConnection, listener: Listener) -> None:
        super().__init__(connection, listener)
        self.received = 0
        """Bytes, ever, as they came; without the header of the balancer before us."""
        self.setup: SetUp | None = None
        """Takes the first bytes; None: the server does, or bytes are dropped."""

    @property
    def connection(self) -> AcceptedConnection:
        """The connection whose input this is."""
        return self._connection

    def makeConnection(self, transport: object) -> None:
        connection, listener = self._connection, self._listener
        connection.transport = cast(Transport, transport)
        connection.transport.bufferSize = READ_BYTES
        connection.transport.registerProducer(connection.output, True)
        if connection.host == "unix":
            connection.origin.peer = unix_credentials(connection.transport)
        listener.opened(connection)
        listener.connection_log.opened(connection.origin)
        header, times = (
            listener.admission.expects_header(connection.host),
            connection.times,
        )
        if header or listener.tls or listener.websocket:
            times.deadline = listener.seconds() + listener.limits.handshake
        age = listener.limits.connection_age
        if age is not None:
            spread = random.uniform(0.0, _AGE_SPREAD)  # noqa: S311 - spreads ends
            times.ages_at = times.began + age * (1.0 + spread)
        self.setup = SetUp(connection, listener)
        self.setup.begin()

    def connectionMade(self) -> None:
        """Do nothing: `makeConnection` has done all."""

    @property
    def is_spare(self) -> bool:
        """The connection is set up, and its peer has nothing to say yet."""
        return self.setup is not None and self.setup.is_spare

    # What comes

    def dataReceived(self, data: bytes) -> None:
        """Serve the bytes, now or later."""
        connection, listener = self._connection, self._listener
        size, turns = len(data), listener.turns
        connection.times.active = True
        listener.traffic.bytes += size
        self.received += size
        if self.last_bytes is not None:
            self.last_bytes = max(0, self.last_bytes - size)
            if not self.last_bytes:
                self.add(Unread.STOPPING)
        if self.put_off or (turns.crowded and connection.phase < _CLOSING):
            self.put_off_more(data)
            turns.put_off_bytes += size
            turns.put_off(self)
        else:
            self.serve(data)

    def serve(self, data: bytes) -> None:
        """Serve what was read, on the reactor's time."""
        connection, listener = self._connection, self._listener
        begun = listener.seconds()
        try:
            plain = connection.layers is None and connection.phase is _SERVING
            if plain and not self.unread & _KEPT:
                self.deliver(data)
            else:
                self.take(data)
        except Exception as error:  # ours, as `deliver` catches the protocol's
            connection.ending.raised("the network", error)
        listener.turns.spent(listener.seconds() - begun)

    def take_turn(self) -> None:
        """Serve what was put off, or else let the server go on, or else deliver what was read
        ahead: it is this connection's turn.
        """
        connection, unread = self._connection, self.unread
        if self.put_off:
            if self.left_in_handshake:
                connection.ending.by_peer()
                connection.abort()
                return
            self.serve(self.no_longer_put_off())
            if self.unread & (Unread.TURN | Unread.ROOM) == Unread.TURN:
                self._listener.turns.add(self)  # it may have asked before
        else:
            self.unread &= ~Unread.TURN
            if unread & Unread.TURN and connection.phase < _CLOSING:
                self.deliver(b"")
            elif self.may_deliver:
                data = b"" if self.ahead is None else self.ahead.take()
                if not data:
                    self._all_delivered()
                    return
                self.deliver(data)
        if not self.unread & Unread.TURN:
            self.read_or_not()
        self.ask_to_deliver()

    def take(self, data: bytes) -> None:
        """Bytes as the socket brings them; dropped once they come too late."""
        connection = self._connection
        layers = connection.layers
        if layers is None or layers.tls is None or connection.phase >= _ANSWERING:
            self.take_plain(data)
        else:
            layers.decrypt(layers.tls, data)

    def take_plain(self, data: bytes) -> None:
        """Bytes without TLS; dropped once they come too late."""
        connection = self._connection
        if connection.phase is not _SERVING:
            if self.setup is not None:
                self.setup.take(data)
        elif (layers := connection.layers) is not None and layers.frames is not None:
            layers.unframe(layers.frames, data)
        else:
            self.put(data)

    def put(self, data: bytes) -> None:
        """The protocol's own bytes, for the server."""
        if not self.unread & _KEPT:
            self.deliver(data)
        elif self._connection.phase < _ANSWERING:
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        """Keep *data* until the server goes on."""
        ahead = self.ahead or self.new_ahead()
        self.keep(ahead)
        had_room = ahead.has_room
        ahead.add(data)
        kept = self.ahead is ahead  # to count it may have ended us
        paused = self.unread & Unread.PAUSED
        if not (kept and had_room and paused and ahead.take_room()):
            self.read_or_not()

    # The peer's end

    def _all_delivered(self) -> None:
        """The server has had all input: read again, unless there was an end behind it."""
        over = self.delivered()
        self.set_read_bytes()
        if not over:
            self.read_or_not()
        elif self._connection.layers is not None:
            self._connection.ending.end()
        else:
            self.input_over()

    def input_over(self) -> None:
        """All that came before the peer's FIN is delivered."""
        connection = self._connection
        if (
            connection.times.busy
            and connection.phase < _CLOSING
            and connection.layers is None
        ):
            self.unread |= Unread.FIN
        else:
            connection.transport.loseConnection()

    def readConnectionLost(self) -> None:
        """The peer has sent its FIN.

        It may still read: one that waits for an acknowledgement gets it first.
        """
        connection = self._connection
        connection.ending.by_peer()
        if not self.has_undelivered:
            self.input_over()
        elif connection.layers is not None and self._listener.acknowledges:
            connection.transport.loseConnection()
        else:
            self.unread |= Unread.END | Unread.FIN

    def peer_ended(self) -> None:
        """The peer said in TLS or WebSocket that nothing more comes; it is answered so.

        TLS 1.3 would let us go on writing (RFC 8446 §6.1), TLS 1.2 and WebSocket do not.
        What is not delivered yet will not be acknowledged, and is dropped, unless nothing
        of its kind is acknowledged.
        """
        ending = self._connection.ending
        ending.by_peer()
        if self.has_undelivered and not self._listener.acknowledges:
            self.add(Unread.END)
        else:
            ending.end()

    def writeConnectionLost(self) -> None:
        """Our FIN is out.  See IHalfCloseableProtocol."""

    def connectionLost(self, reason: Failure) -> None:
        connection, listener = self._connection, self._listener
        if not listener.acknowledges and self.has_undelivered and self.has_unused:
            self._outlive(reason)
            return
        clean = reason.check(ConnectionDone) is not None
        closed = connection.phase >= _CLOSING
        why_lost = "closed" if closed else "peer" if clean else "lost"
        connection.become(Phase.LOST)
        listener.turns.remove(self)
        connection.lose(reason, why_lost)

    def _outlive(self, reason: Failure) -> None:
        """Go on without the transport, for input that its peer never sends again."""
        connection, later = self._connection, self._listener.clock.callLater
        connection.transport = LostTransport(
            lambda: later(0, self.connectionLost, reason)
        )
        connection.output.stall = None
        self.unread |= Unread.END | Unread.FIN
        self.unread &= ~Unread.STALLED
        self.ask_to_deliver()
