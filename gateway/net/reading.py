"""When a connection's bytes reach its server: pauses, turns, and the peer's end.

A server pauses its connection while it takes nothing, and asks for more turns while it
has input left (`turns`).  A connection that is found paused, at a look every few seconds,
is read on into memory (`read_ahead`), so that a sender can finish what it is writing, and
so that its end is seen.  What was read ahead is delivered when the server goes on, a bit
in each turn, and only then the end that came behind it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.net.handshake import READ_BYTES, Handshake
from gateway.net.read_ahead import STEP, ReadAhead
from gateway.net.transport import LostTransport, Peer, has_input, look_at_peer

if TYPE_CHECKING:
    from gateway.net.listen import Listener
    from gateway.net.memory import Account

__all__ = ["Reading"]

_CLOSED_SECONDS = 5.0
"""A peer that closed while we do not read it is given up after so long."""


class Reading(Handshake):
    """The part of `connection.AcceptedConnection` that reads."""

    __slots__ = (
        "_active",
        "_ahead",
        "_busy",
        "_closed_since",
        "_ending",
        "_half_closed",
        "_over",
        "_paused",
        "_put_off",
        "_turn_due",
        "_unfinished",
        "waits_for_room",
    )

    def __init__(self, listener: Listener, host: str, peer: str) -> None:
        super().__init__(listener, host, peer)
        self._active = False
        """Something has happened since the last look."""
        self._busy = self._paused = self._half_closed = False
        self._turn_due = False
        """It has input left, and waits unread for its next turn."""
        self._put_off = b""
        """What was read when others had had enough of the reactor's turn (`turns`)."""
        self._ahead: ReadAhead | None = None
        """Input that came while its server was not to have any."""
        self._over = False
        """The peer's end is known, and not all input before it is delivered."""
        self._closed_since: float | None = None
        """Since when its FIN is known, behind input that is undelivered; or None."""
        self._ending = False
        """Its server takes no more: nothing is read ahead for it."""
        self._unfinished = 0
        """Bytes of input that its server holds, as that says."""
        self.waits_for_room = False
        """See `interfaces.Connection`; `memory` says who waits."""

    @abstractmethod
    def close(self) -> None:
        """See `interfaces.Connection`."""

    @property
    @abstractmethod
    def _withheld(self) -> bool:
        """It is not to be read, whatever its server says."""

    @property
    @abstractmethod
    def _memory(self) -> Account:
        """Its part of the daemon's memory."""

    # The peer's end

    def readConnectionLost(self) -> None:
        """The peer has sent its FIN.

        It may still read: one that waits for an acknowledgement gets it first.
        """
        self._ended_by_peer()
        if not self._has_undelivered:
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
        """The peer said in TLS or WebSocket that nothing more comes; it is answered so.

        TLS 1.3 would let us go on writing (RFC 8446 §6.1), TLS 1.2 and WebSocket do not.
        What is not delivered yet will not be acknowledged, and is dropped, unless nothing
        of its kind is acknowledged.
        """
        self._ended_by_peer()
        if self._has_undelivered and not self._listener.acknowledges:
            self._over = True
            self._read_or_not()
        else:
            self._end()

    def _ended_by_peer(self) -> None:
        if not self._closing:
            self.ended_by = self.ended_by or "peer"

    @property
    def _layered(self) -> bool:
        """An end of the peer's is the end of both directions, as we answer it."""
        return self._tls is not None or self._frames is not None

    @property
    def _has_undelivered(self) -> bool:
        """There is, or may be, input that the server has not had or not used."""
        later = self._paused or self._turn_due or self._ahead is not None
        return (later or bool(self._put_off)) and not self._closing

    @property
    def _has_unused(self) -> bool:
        """There is input that the server may submit yet; maybe part of a message."""
        if self._ending:
            return False
        return self._unfinished > 0 or self._turn_due or self.unread_input

    def _outlives(self, ended: Callable[[], object]) -> bool:
        """Its transport is lost: whether it goes on, for what nobody sends again.

        If so, *ended* is called once its server has had all that was read ahead.
        """
        if (
            self._listener.acknowledges
            or not self._has_undelivered
            or not self._has_unused
        ):
            return False
        self._over = self._half_closed = True
        self._transport = LostTransport(ended)
        return True

    def _look(self) -> Peer:
        """Ask the socket of a peer that is not read; read ahead if it has more to say."""
        peer = look_at_peer(self._transport)
        if self._paused and not (self._withheld or self._ending):
            self._read_ahead(peer)
        return peer

    def _gave_up(self, peer: Peer, now: float) -> bool:
        """Whether nobody waits any more for what its server has not submitted.

        A peer that closed may not hear its acknowledgement: it sends again elsewhere, and
        what is unused here would be stored twice.  If nothing is, it may wait for its
        acknowledgements, with one direction closed.  What is not acknowledged nobody sends
        again: that is kept, even of a peer that is gone.
        """
        acknowledges = self._listener.acknowledges
        if peer is Peer.GONE:
            return acknowledges or not self._has_unused
        waits = (self._paused or self.waits_for_room) and self._has_unused
        if not (peer is Peer.CLOSED and acknowledges and waits):
            self._closed_since = None
            return False
        if self._closed_since is None:
            self._closed_since = now
        return now - self._closed_since >= _CLOSED_SECONDS

    # When to read

    def pause(self) -> None:
        """See `interfaces.Connection`."""
        self._paused = True
        self._read_or_not()

    def take_no_more(self) -> None:
        """See `interfaces.Connection`."""
        if not self._closing:
            self._paused = True
            self._discard_input()
            self._read_or_not()

    def resume(self) -> None:
        """See `interfaces.Connection`."""
        self._paused = False
        self._closed_since = None
        self._ask_to_deliver()
        self._read_or_not()

    def again(self) -> None:
        """See `interfaces.Connection`."""
        if not (self._closing or self._turn_due):
            self._turn_due = True
            # What it has begun holds memory until it is done.
            self._listener.turns.add(self, first=self._listener.memory.tight)
            self._read_or_not()

    def may_begin(self) -> bool:
        """See `interfaces.Connection`."""
        if self._closing or self._room_in_memory():
            return True
        self._turn_due = True
        self._read_or_not()
        return False

    def take_turn(self) -> None:
        """It is this connection's turn."""
        if self._put_off:
            self._take(self._no_longer_put_off())
            if self._turn_due and not self.waits_for_room:  # it may have asked before
                self._listener.turns.add(self)
            else:
                self._read_or_not()
            self._ask_to_deliver()
            return
        asked, self._turn_due = self._turn_due, False
        if asked and not self._closing:
            self._deliver(b"")
        elif self._may_deliver and not self._deliver_ahead():
            self._delivered()
            return
        if not self._turn_due:
            self._read_or_not()
        self._ask_to_deliver()

    @property
    def _may_deliver(self) -> bool:
        """Nothing is against it to deliver what was read ahead."""
        held = self._paused or self._closing or self._withheld
        return not (held or self.waits_for_room)

    def _ask_to_deliver(self) -> None:
        """Wait for a turn, if something was read ahead that may be delivered."""
        if (self._ahead is not None or self._over) and self._may_deliver:
            self._listener.turns.add(self)

    def room(self) -> int:
        """As many bytes may be read now; 0: none, and it is not read for a while."""
        most, turns = self._room_in_memory(), self._listener.turns
        return min(most, turns.room) if turns.crowded else most

    def _room_in_memory(self) -> int:
        """So many bytes may be read of it, for all that is held; 0: it waits for room."""
        if self._closing or self._paused or self._server is None:
            return READ_BYTES  # what is read while paused has room already
        most = self._listener.memory.plenty or self._memory.room(self._room_again)
        self.waits_for_room = not most
        if not most:
            self._read_or_not()
        return most

    def _still_waits(self) -> None:
        """Call its server, which may have to tell its peer, and may begin after all."""
        self._turn_due = False
        self._deliver(b"")
        self._read_or_not()

    def _room_again(self) -> None:
        self.waits_for_room = False
        if self._turn_due:
            self._listener.turns.add(self)
        else:
            self._read_or_not()
            self._ask_to_deliver()

    def _read_or_not(self) -> None:
        """Tell the transport whether to read, for all the reasons there are not to."""
        ahead = self._ahead
        held = self._turn_due or self._over or self._withheld or bool(self._put_off)
        held = held or self.waits_for_room
        if ahead is not None and (held or not self._paused):
            ahead.give_room_back()
        if self._paused or ahead is not None:
            held = held or ahead is None or not ahead.has_room
        if self._closing or not held:
            self._transport.resumeProducing()
        else:
            self._transport.pauseProducing()

    # What came from the socket

    @abstractmethod
    def _take(self, data: bytes) -> None:
        """Serve what was read."""

    def _serve_later(self, data: bytes) -> None:
        turns = self._listener.turns
        self._put_off += data
        turns.put_off_bytes += len(data)
        turns.put_off(self)
        self._read_or_not()

    def _no_longer_put_off(self) -> bytes:
        data, self._put_off = self._put_off, b""
        self._listener.turns.put_off_bytes -= len(data)
        return data

    # Reading ahead

    def arrived(self, data: bytes) -> None:
        """See `Handshake`."""
        if not self._paused and self._ahead is None:
            self._deliver(data)
            return
        if self._closing:
            return
        ahead = self._ahead = self._ahead or self._new_ahead()
        had_room = ahead.has_room
        ahead.add(data)
        kept = self._ahead is ahead  # to count it may have ended us
        if not (kept and had_room and self._paused and ahead.take_room()):
            self._read_or_not()

    def _new_ahead(self) -> ReadAhead:
        return ReadAhead(self._memory, self._listener.limits.read_ahead_bytes)

    def _read_ahead(self, peer: Peer) -> None:
        """Read on while the server takes nothing, as long as the peer sends."""
        ahead = self._ahead
        if peer is not Peer.HEARD:
            if ahead is None:
                return
            ahead.rest()
        else:
            ahead = ahead or self._new_ahead()
            if not ahead.take_room():
                return
            self._ahead = ahead
            self._transport.read_bytes = min(STEP, self._read_bytes)
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
        self._transport.read_bytes = self._read_bytes
        over, self._over = self._over, False
        if not over:
            self._read_or_not()
        elif self._layered:
            self._end()
        else:
            self._input_over()

    def _discard_input(self) -> None:
        super()._discard_input()
        self._ending = True
        self._no_longer_put_off()
        self._over = False
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.drop()
        if self.waits_for_room:
            self.waits_for_room = False
            self._memory.forget()

    @property
    def unread_input(self) -> bool:
        """See `interfaces.Connection`."""
        ahead = self._ahead is not None and self._ahead.size > 0
        return ahead or bool(self._put_off) or has_input(self._transport)

    def busy(self, waiting: bool) -> None:  # noqa: FBT001 - as the interface
        """See `interfaces.Connection`."""
        self._busy = waiting
        if not waiting:
            self._active = True
            if self._half_closed and not self._over:
                # After the acknowledgement that this may stand right before.
                self._listener.clock.callLater(0, self.close)
