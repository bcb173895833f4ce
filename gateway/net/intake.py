"""The way of a connection's input to its server: read now or later, delivered in turns.

    transport ─► arrived ─► (put off) ─► connection.take ─► (TLS, frames) ─► put
                                                   server ◄─ (read ahead) ◄──┘

What is known of it, and why a connection is not read, is in `reading`; this is what acts on
that.  It asks `turns` when the server may go on, `memory` whether there is room, and is the
only one who tells the transport to read or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.net.life import Life
from gateway.net.read_ahead import STEP, ReadAhead
from gateway.net.reading import READ_BYTES, Input, Unread
from gateway.net.transport import unread_bytes

if TYPE_CHECKING:
    from gateway.net.connection import AcceptedConnection
    from gateway.net.listen import Listener

_ANSWERING, _CLOSING = Life.ANSWERING, Life.CLOSING
# By these names, as a member of an enumeration takes longer to find than to compare.
_KEPT = Unread.PAUSED | Unread.AHEAD
"""What comes is not delivered at once."""


class Intake(Input):
    """Of one connection; what it offers is called as `interfaces.Connection` has it."""

    __slots__ = ("_connection", "_listener")

    def __init__(self, connection: AcceptedConnection, listener: Listener) -> None:
        super().__init__()
        self._connection = connection
        self._listener = listener

    # What comes

    def arrived(self, data: bytes) -> None:
        """The socket has brought it: serve it, now or later."""
        if self.last_bytes is not None:
            self.last_bytes = max(0, self.last_bytes - len(data))
            if not self.last_bytes:
                self.add(Unread.STOPPING)
        turns = self._listener.turns
        if self.put_off or (turns.crowded and self._connection.life < _CLOSING):
            self.put_off_more(data)
            turns.put_off_bytes += len(data)
            turns.put_off(self)
            self.read_or_not()
        else:
            self._serve(data)

    def _serve(self, data: bytes) -> None:
        """Serve what was read, on the reactor's time."""
        seconds = self._listener.clock.seconds
        begun = seconds()
        try:
            self._connection.take(data)
        except Exception as error:  # ours, as `deliver` catches the protocol's
            self._connection.raised("the network", error)
        self._listener.turns.spent(seconds() - begun)

    def put(self, data: bytes) -> None:
        """The protocol's own bytes, for the server."""
        if self.unread & _KEPT:
            self._keep(data)
        else:
            self._connection.deliver(data)

    def _keep(self, data: bytes) -> None:
        """Until the server goes on."""
        if self._connection.life >= _ANSWERING:
            return
        ahead = self.ahead or self._new_ahead()
        self.keep(ahead)
        had_room = ahead.has_room
        ahead.add(data)
        kept = self.ahead is ahead  # to count it may have ended us
        paused = self.unread & Unread.PAUSED
        if not (kept and had_room and paused and ahead.take_room()):
            self.read_or_not()

    def drop_all(self) -> None:
        """The server is to have nothing more, nor waits for any."""
        self._no_longer_put_off()
        self.drop()
        if self.unread & Unread.ROOM:
            self.unread &= ~Unread.ROOM
            self._connection.holding.account.forget()

    # Whether to read

    def read_or_not(self) -> None:
        """Tell the transport: here, and nowhere else."""
        connection = self._connection
        if connection.life >= _CLOSING or self.is_read():
            connection.transport.resumeProducing()
        else:
            connection.transport.pauseProducing()

    def add(self, reason: int) -> None:
        """It is not read for one more *reason*."""
        self.unread |= reason
        self.read_or_not()

    def remove(self, reason: int) -> None:
        """… for one less."""
        self.unread &= ~reason
        self.read_or_not()
        self.ask_to_deliver()

    def resume(self) -> None:
        """The server takes more."""
        self.closed_since = None
        self.remove(Unread.PAUSED)

    @property
    def has_undelivered(self) -> bool:
        """There is, or may be, input that the server has not had or not used."""
        undelivered = self.unread & Unread.UNDELIVERED
        return bool(undelivered) and self._connection.life < _CLOSING

    @property
    def has_unused(self) -> bool:
        """There is input that the server may submit yet; maybe part of a message."""
        if self._connection.life >= _ANSWERING:
            return False
        held = self._connection.held
        unfinished = held is not None and held.unfinished > 0
        return unfinished or bool(self.unread & Unread.TURN) or self.has_unread

    @property
    def waits_for_us(self) -> bool:
        """Something of its peer is here and was not served, so that time is ours."""
        return bool(self.unread & (Unread.TURN | Unread.ROOM)) or self.has_unread

    @property
    def has_unread(self) -> bool:
        """There is input that the server has not had."""
        ahead = self.ahead is not None and self.ahead.size > 0
        transport = self._connection.transport
        return ahead or bool(self.put_off) or unread_bytes(transport) > 0

    # The daemon stops

    def read_last(self) -> None:
        """Read what the socket has by now, and no more until `last_is_over`."""
        self.last_bytes = unread_bytes(self._connection.transport)
        if not (self.last_bytes or self.is_used):
            self.add(Unread.STOPPING)

    @property
    def is_used(self) -> bool:
        """The server has had, and used, all that was here when `read_last` was called."""
        if self._connection.life >= _ANSWERING:
            return True
        ahead = self.ahead is not None and self.ahead.size > 0
        return not (self.last_bytes or ahead or self.unread & Unread.UNUSED)

    def last_is_over(self) -> None:
        """The server is told that the daemon stops: it says what else is read."""
        self.last_bytes = None
        if self.unread & Unread.STOPPING:
            self.remove(Unread.STOPPING)

    # Room

    def read_ahead(self, *, heard: bool) -> None:
        """Read on while the server takes nothing, as long as the peer was *heard*."""
        ahead = self.ahead
        if not heard:
            if ahead is None:
                return
            ahead.rest()
        else:
            ahead = ahead or self._new_ahead()
            if not ahead.take_room():
                return
            self.keep(ahead)
            connection = self._connection
            connection.set_read_bytes()
            most = min(STEP, connection.transport.read_bytes)
            connection.transport.read_bytes = most
        self.read_or_not()

    def _new_ahead(self) -> ReadAhead:
        limit = self._listener.limits.read_ahead_bytes
        return ReadAhead(self._connection.holding.account, limit)

    def room(self) -> int:
        """As many bytes may be read now; 0: none, and it is not read for a while."""
        most, turns = self._room_in_memory(), self._listener.turns
        if self.last_bytes is not None:
            most = min(most, self.last_bytes)
        return min(most, turns.room) if turns.crowded else most

    def _room_in_memory(self) -> int:
        """So many bytes may be read of it, for all that is held; 0: it waits for room."""
        connection, unread = self._connection, self.unread
        if unread & Unread.PAUSED or connection.life >= _CLOSING:
            return READ_BYTES  # what is read while paused has room already
        if not connection.has_server:
            return READ_BYTES
        most = self._listener.memory.plenty or connection.holding.account.room(
            self._room_again
        )
        if not most:
            self.add(Unread.ROOM)
        elif unread:
            self.unread &= ~Unread.ROOM
        return most

    def _room_again(self) -> None:
        if self.unread & Unread.TURN:
            self.unread &= ~Unread.ROOM
            self._listener.turns.add(self)
        else:
            self.remove(Unread.ROOM)

    # Turns

    @property
    def host(self) -> str:
        """Whose turn it is: lines are fair by that."""
        return self._connection.host

    def again(self) -> None:
        """The server has input left."""
        if self._connection.life < _CLOSING and not self.unread & Unread.TURN:
            # What it has begun holds memory until it is done.
            self._listener.turns.add(self, first=self._listener.memory.tight)
            self.add(Unread.TURN)

    def may_begin(self) -> bool:
        """Whether the server may begin one more message."""
        if self._connection.life >= _CLOSING or self._room_in_memory():
            return True
        self.add(Unread.TURN)
        return False

    def ask_again(self) -> None:
        """Have a server that waits for room look whether it has something to say."""
        if self.unread & Unread.HELD == Unread.ROOM:
            # It may have to tell its peer, and may begin after all.
            self.unread &= ~Unread.TURN
            self._connection.deliver(b"")
            self.read_or_not()

    def take_turn(self) -> None:
        """It is this connection's turn."""
        connection, turns = self._connection, self._listener.turns
        if self.put_off:
            self._serve(self._no_longer_put_off())
            if self.unread & (Unread.TURN | Unread.ROOM) == Unread.TURN:
                turns.add(self)  # it may have asked before
            else:
                self.read_or_not()
            self.ask_to_deliver()
            return
        asked = self.unread & Unread.TURN
        self.unread &= ~Unread.TURN
        if asked and connection.life < _CLOSING:
            connection.deliver(b"")
        elif self._may_deliver and not self._deliver_ahead():
            self._all_delivered()
            return
        if not self.unread & Unread.TURN:
            self.read_or_not()
        self.ask_to_deliver()

    def _no_longer_put_off(self) -> bytes:
        data = self.take_put_off()
        self._listener.turns.put_off_bytes -= len(data)
        return data

    @property
    def _may_deliver(self) -> bool:
        """Nothing is against it to deliver what was read ahead."""
        return self._connection.life < _CLOSING and not self.unread & Unread.HELD

    def ask_to_deliver(self) -> None:
        """Wait for a turn, if something was read ahead that may be delivered."""
        if self.unread & (Unread.AHEAD | Unread.END) and self._may_deliver:
            self._listener.turns.add(self)

    def _deliver_ahead(self) -> bool:
        """Deliver one read of it; false: there is nothing left."""
        data = b"" if self.ahead is None else self.ahead.take()
        if data:
            self._connection.deliver(data)
        return bool(data)

    def _all_delivered(self) -> None:
        """The server has had all input: read again, unless there was an end behind it."""
        over = self.delivered()
        self._connection.set_read_bytes()
        if over:
            self._connection.all_delivered()
        else:
            self.read_or_not()
