"""When a connection's bytes reach its server: pauses, turns, and the peer's end.

A server pauses its connection while it takes nothing, and asks for more turns while it
has input left (`turns`).  After some seconds of a pause the connection is read on, into
memory (`read_ahead`), so that a sender can finish what it is writing, and so that its end
is seen.  What was read ahead is delivered when the server goes on, a bit in each turn, and
only then the end that came behind it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from gateway.net.handshake import Handshake
from gateway.net.read_ahead import STEP, ReadAhead
from gateway.net.transport import Peer, has_input, look_at_peer

if TYPE_CHECKING:
    from gateway.net.listen import Listener

__all__ = ["READ_BYTES", "Reading"]

READ_BYTES = 1 << 18
"""Of one read."""
_CLOSED_SECONDS = 5.0
"""A peer that closed while we do not read it is given up after so long."""


class Reading(Handshake):
    """The part of `connection.AcceptedConnection` that reads."""

    __slots__ = (
        "_active",
        "_ahead",
        "_busy",
        "_closed_since",
        "_half_closed",
        "_over",
        "_paused",
        "_turn_due",
    )

    def __init__(self, listener: Listener, host: str, peer: str) -> None:
        super().__init__(listener, host, peer)
        self._active = False
        """Something has happened since the last look."""
        self._busy = self._paused = self._half_closed = False
        self._turn_due = False
        """It has input left, and waits unread for its next turn."""
        self._ahead: ReadAhead | None = None
        """Input that came while its server was not to have any."""
        self._over = False
        """The peer's end is known, and not all input before it is delivered."""
        self._closed_since: float | None = None
        """Since when its FIN is known, behind input that we do not read; or None."""

    @abstractmethod
    def close(self) -> None:
        """See `interfaces.Connection`."""

    @property
    @abstractmethod
    def _withheld(self) -> bool:
        """It is not to be read, whatever its server says."""

    # The peer's end

    def readConnectionLost(self) -> None:
        """The peer has sent its FIN.

        It may still read: one that waits for an acknowledgement gets it first.
        """
        if not self._delivers_later:
            self._input_over()
        elif self._layered and self._listener.acknowledges:
            self._transport.loseConnection()
        else:
            self._half_closed = self._over = True

    def _input_over(self) -> None:
        """All that came before the peer's FIN is delivered."""
        if self._busy and not (self._closing or self._layered):
            self._half_closed = True
        else:
            self._transport.loseConnection()

    def _peer_ended(self) -> None:
        """The peer said in TLS or WebSocket that nothing more comes; nor will it listen.

        So what is not delivered yet is not acknowledged any more: it is dropped, unless
        nothing of its kind is acknowledged.
        """
        if self._delivers_later and not self._listener.acknowledges:
            self._over = True
            self._read_or_not()
        else:
            self._end()

    @property
    def _layered(self) -> bool:
        """The peer can not close one direction alone."""
        return self._tls is not None or self._frames is not None

    @property
    def _delivers_later(self) -> bool:
        """There is, or may be, input that the server has not had or not used."""
        later = self._paused or self._turn_due or self._ahead is not None
        return later and not self._closing

    def _peer_gave_up(self, now: float) -> bool:
        """Whether nobody waits any more for what we do not read at the moment.

        A peer that closed will not hear its acknowledgement: it sends again elsewhere,
        and what is unread here would be stored twice.  From one that has more to say a
        paused connection reads ahead.
        """
        peer = look_at_peer(self._transport)
        if self._paused and not self._withheld:
            self._read_ahead(peer)
        if peer is not Peer.CLOSED or not self._listener.acknowledges:
            self._closed_since = None
            return peer is Peer.GONE
        if self._closed_since is None:
            self._closed_since = now
        return now - self._closed_since >= _CLOSED_SECONDS

    # When to read

    def pause(self) -> None:
        """See `interfaces.Connection`."""
        self._paused = True
        self._read_or_not()

    def resume(self) -> None:
        """See `interfaces.Connection`."""
        self._paused = False
        self._closed_since = None
        if (self._ahead is not None or self._over) and not self._closing:
            self._listener.turns.add(self)
        self._read_or_not()

    def again(self) -> None:
        """See `interfaces.Connection`."""
        if not (self._closing or self._turn_due):
            self._turn_due = True
            self._listener.turns.add(self)
            self._read_or_not()

    def take_turn(self) -> None:
        """It is this connection's turn."""
        asked, self._turn_due = self._turn_due, False
        if not self._closing:
            if asked:
                self._deliver(b"")
            elif not (self._paused or self._deliver_ahead()):
                self._delivered()
                return
        if not self._turn_due:
            self._read_or_not()
        if not (self._paused or self._closing) and (self._ahead or self._over):
            self._listener.turns.add(self)

    def _read_or_not(self) -> None:
        """Tell the transport whether to read, for all the reasons there are not to."""
        ahead = self._ahead
        if ahead is not None and not self._paused:
            ahead.stop()
        held = self._turn_due or self._over or self._withheld
        if self._paused or ahead is not None:
            held = held or ahead is None or not ahead.reading
        if self._closing or not held:
            self._transport.resumeProducing()
        else:
            self._transport.pauseProducing()

    # Reading ahead

    def arrived(self, data: bytes) -> None:
        """See `Handshake`."""
        if not self._paused and self._ahead is None:
            self._deliver(data)
            return
        if self._closing:
            return
        ahead = self._ahead = self._ahead or self._new_ahead()
        reading = ahead.reading
        ahead.add(data)
        if not (reading and self._paused and ahead.read_on()):
            self._read_or_not()

    def _new_ahead(self) -> ReadAhead:
        listener = self._listener
        return ReadAhead(listener.memory, listener.limits.read_ahead_bytes)

    def _read_ahead(self, peer: Peer) -> None:
        """Read on while the server takes nothing, as long as the peer sends."""
        ahead = self._ahead
        if peer is not Peer.HEARD:
            if ahead is None:
                return
            ahead.rest()
        else:
            ahead = ahead or self._new_ahead()
            if not ahead.read_on():
                return
            self._ahead = ahead
            self._transport.bufferSize = STEP
        self._read_or_not()

    def _deliver_ahead(self) -> bool:
        """Deliver one read of it; false: there is nothing left."""
        data = b"" if self._ahead is None else self._ahead.take()
        if data:
            self._deliver(data)
        return bool(data)

    def _delivered(self) -> None:
        """The server has had all input: read again, unless there was an end behind it."""
        self._ahead = None
        self._transport.bufferSize = READ_BYTES
        over, self._over = self._over, False
        if not over:
            self._read_or_not()
        elif self._layered:
            self._end()
        else:
            self._input_over()

    def _discard_input(self) -> None:
        super()._discard_input()
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.drop()

    @property
    def unread_input(self) -> bool:
        """See `interfaces.Connection`."""
        ahead = self._ahead is not None and self._ahead.size > 0
        return ahead or has_input(self._transport)

    def busy(self, waiting: bool) -> None:  # noqa: FBT001 - as the interface
        """See `interfaces.Connection`."""
        self._busy = waiting
        if not waiting:
            self._active = True
            if self._half_closed and not self._over:
                # After the acknowledgement that this may stand right before.
                self._listener.clock.callLater(0, self.close)
