"""When a connection is read, and when its server gets what was read: now or in a later turn.

`reading` has what is known of the input, and why it is not read; this acts on that.  It asks
`turns` when the server may go on, `memory` whether there is room, and is the only one who
tells the transport to read or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.net.ending import CALLBACK_ERRORS
from gateway.net.phase import Phase
from gateway.net.read_ahead import STEP, ReadAhead
from gateway.net.reading import LAYERED_READ_BYTES, READ_BYTES, Input, Unread
from gateway.net.transport import Peer, look_at_peer, unread_bytes

if TYPE_CHECKING:
    from gateway.net.connection import AcceptedConnection
    from gateway.net.listen import Listener

_SERVING, _ANSWERING, _CLOSING = Phase.SERVING, Phase.ANSWERING, Phase.CLOSING
# By these names, as a member of an enumeration takes longer to find than to compare.


class Pacing(Input):
    """The input of one connection, whose server, turns and memory say when it goes on.

    27 methods: turns, room and the stop each have a say in whether it is read.
    """

    __slots__ = ("_connection", "_listener")

    def __init__(self, connection: AcceptedConnection, listener: Listener) -> None:
        super().__init__()
        self._connection = connection
        self._listener = listener

    # Whether to read

    def read_or_not(self) -> None:
        """Tell the transport: here, and nowhere else."""
        connection = self._connection
        if connection.phase >= _CLOSING or self.is_read():
            connection.transport.resumeProducing()
        else:
            connection.transport.pauseProducing()

    def set_read_bytes(self) -> None:
        """How much to read at once."""
        connection = self._connection
        plain = connection.phase is _SERVING and connection.layers is None
        connection.transport.read_bytes = READ_BYTES if plain else LAYERED_READ_BYTES

    def add(self, reason: int) -> None:
        """One more *reason* not to read."""
        self.unread |= reason
        self.read_or_not()

    def remove(self, reason: int) -> None:
        """One *reason* less not to read; what was read ahead may be delivered then."""
        self.unread &= ~reason
        self.read_or_not()
        self.ask_to_deliver()

    def drop_all(self) -> None:
        """The server is to have nothing more, nor waits for any."""
        self.no_longer_put_off()
        self.drop()
        if self.unread & Unread.ROOM:
            self.unread &= ~Unread.ROOM
            self._connection.holding.account.forget()

    @property
    def has_undelivered(self) -> bool:
        """There is, or may be, input that the server has not had or not used."""
        undelivered = self.unread & Unread.UNDELIVERED
        return bool(undelivered) and self._connection.phase < _CLOSING

    @property
    def has_unused(self) -> bool:
        """There is input that the server may submit yet; maybe part of a message."""
        if self._connection.phase >= _ANSWERING:
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
        transport = self._connection.transport
        return self.has_ahead or bool(self.put_off) or unread_bytes(transport) > 0

    # The daemon stops

    def read_last(self) -> None:
        """Read what the socket has by now, and no more until `last_is_over`."""
        self.last_bytes = unread_bytes(self._connection.transport)
        if not (self.last_bytes or self.is_used):
            self.add(Unread.STOPPING)

    @property
    def is_used(self) -> bool:
        """The server has had, and used, all that was here when `read_last` was called."""
        if self._connection.phase >= _ANSWERING:
            return True
        return not (self.last_bytes or self.has_ahead or self.unread & Unread.UNUSED)

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
            ahead = ahead or self.new_ahead()
            if not ahead.take_room():
                return
            self.keep(ahead)
            self.set_read_bytes()
            transport = self._connection.transport
            transport.read_bytes = min(STEP, transport.read_bytes)
        self.read_or_not()

    def new_ahead(self) -> ReadAhead:
        """Room for what comes while the server takes nothing."""
        limit = self._listener.limits.read_ahead_bytes
        return ReadAhead(self._connection.holding.account, limit)

    def room(self) -> int:
        """Bytes that may be read now; 0: none, and it is not read for a while."""
        if self.put_off:  # most send nothing more until that is answered
            self.read_or_not()
            return 0
        most, turns = self.room_in_memory(), self._listener.turns
        if self.last_bytes is not None:
            most = min(most, self.last_bytes)
        return min(most, turns.room) if turns.crowded else most

    def room_in_memory(self) -> int:
        """Bytes that may be read, beside all that is held; 0: it waits for room."""
        connection, unread = self._connection, self.unread
        if unread & Unread.PAUSED or connection.phase >= _CLOSING:
            return READ_BYTES  # what is read while paused has room already
        if connection.calls.server is None:
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
            self._listener.turns.add(self._connection.input)
        else:
            self.remove(Unread.ROOM)

    # Turns

    @property
    def host(self) -> str:
        """The peer whose turn it is: lines are fair by that."""
        return self._connection.host

    @property
    def shakes_hands(self) -> bool:
        """TLS has begun, and is not agreed upon."""
        return self._connection.phase is Phase.TLS_HANDSHAKE

    @property
    def left_in_handshake(self) -> bool:
        """The peer left before its handshake was over, so that nothing of it is to be served.

        There can be no event yet where TLS has not begun, and none without an
        acknowledgement, for which it waits no more, where that is not over.
        """
        connection, listener = self._connection, self._listener
        begins = listener.tls is not None and connection.phase < Phase.TLS_HANDSHAKE
        if not (begins or (self.shakes_hands and listener.acknowledges)):
            return False
        return look_at_peer(connection.transport) in (Peer.CLOSED, Peer.GONE)

    def again(self) -> None:
        """The server has input left."""
        if self._connection.phase < _CLOSING and not self.unread & Unread.TURN:
            # What it has begun holds memory until it is done.
            self._listener.turns.add(
                self._connection.input, first=self._listener.memory.tight
            )
            self.add(Unread.TURN)

    def ask_again(self) -> None:
        """Have a server that waits for room look whether it has something to say."""
        if self.unread & Unread.HELD == Unread.ROOM:
            # It may have to tell its peer, and may begin after all.
            self.unread &= ~Unread.TURN
            self.deliver(b"")
            self.read_or_not()

    def deliver(self, data: bytes) -> None:
        """Have the server take *data*; nothing: have it go on with what it has."""
        connection = self._connection
        try:
            server = connection.calls.server
            assert server is not None, "accept() returned None"
            server.received(data)
        except CALLBACK_ERRORS as error:
            connection.ending.raised("received()", error)

    def no_longer_put_off(self) -> bytes:
        """Take what was put off, to be served now or dropped."""
        data = self.take_put_off()
        self._listener.turns.put_off_bytes -= len(data)
        return data

    @property
    def may_deliver(self) -> bool:
        """Nothing is against it to deliver what was read ahead."""
        return self._connection.phase < _CLOSING and not self.unread & Unread.HELD

    def ask_to_deliver(self) -> None:
        """Wait for a turn, if something was read ahead that may be delivered."""
        if self.unread & (Unread.AHEAD | Unread.END) and self.may_deliver:
            self._listener.turns.add(self._connection.input)
