"""The input of a connection, without I/O: what its server has not had, and why it is not read.

*Why a connection is not read* is one set of named reasons, `Input.unread`.  It is read
while the set is empty, and while its server takes nothing but there is room to read ahead
(`read_ahead`).  `pacing` acts on it: it puts reasons in, takes them out, and tells the
transport, in one place.

A server pauses its connection while it takes nothing, and asks for more turns while it
has input left (`turns`).  A look every few seconds finds connections that are paused, which
are read on into memory: so a sender can finish what it is writing, and its end is seen.
Bytes read ahead are delivered when the server goes on, a bit in each turn, and only then the
end that came behind them.
"""

from __future__ import annotations

from gateway.net.read_ahead import ReadAhead
from gateway.net.transport import Peer

READ_BYTES = 1 << 18
"""Bytes of one read, once they go to the server as they come; and of unsent output, above
which a peer counts as not reading."""
LAYERED_READ_BYTES = 1 << 15
"""Bytes of one read before that, and through TLS or WebSocket.  Their records and frames
cost much, however little is in them, and are taken before a turn can count anything."""
_CLOSED_SECONDS = 5.0
"""A peer that closed while we do not read it is given up after so long."""


class Unread:
    """Why a connection is not read.

    Members of a set in one number.  They are no `enum.IntFlag`, whose every operation
    costs half a microsecond.
    """

    PAUSED = 1 << 0
    """The server takes nothing."""
    AHEAD = 1 << 1
    """Something was read ahead, and is not delivered yet."""
    TURN = 1 << 2
    """The server has input left, and waits for its next turn."""
    PUT_OFF = 1 << 3
    """Bytes were read when others had had enough of the reactor's turn (`turns`)."""
    ROOM = 1 << 4
    """All connections hold so much that others go first (`memory`)."""
    STALLED = 1 << 5
    """The peer does not read what we send, and its server can not stop sending."""
    REFUSED = 1 << 6
    """The peer is refused, and waits for the answer."""
    END = 1 << 7
    """The peer's end is known, and not all input before it is delivered."""
    FIN = 1 << 8
    """The peer has sent its FIN: there is nothing more to read."""
    STOPPING = 1 << 9
    """The daemon stops, and all that was here by then is read."""

    UNDELIVERED = PAUSED | AHEAD | TURN | PUT_OFF
    """There is, or may be, input that the server has not had or not used."""
    UNUSED = PAUSED | TURN | PUT_OFF | ROOM
    """There is input, or may be, that the server will use once it can."""
    HELD = PAUSED | ROOM | STALLED | REFUSED
    """Reasons for which what was read ahead is not delivered, either."""


class Input:
    """Input of one connection that is not delivered, and why more is not read."""

    __slots__ = ("ahead", "closed_since", "last_bytes", "put_off", "unread")

    def __init__(self) -> None:
        self.unread = 0
        """The reasons not to read: a set of `Unread`."""
        self.put_off = b""
        """Bytes that were read when others had had enough."""
        self.ahead: ReadAhead | None = None
        """Input that came while its server was not to have any."""
        self.closed_since: float | None = None
        """When its FIN became known, behind input that is undelivered; or None."""
        self.last_bytes: int | None = None
        """The daemon stops, and so many bytes are still to be read; None: all that come."""

    @property
    def has_ahead(self) -> bool:
        """Something was read ahead, and is not delivered yet."""
        return self.ahead is not None and self.ahead.size > 0

    def is_read(self) -> bool:
        """Whether there is no reason against it.

        Room that was taken to read ahead is given back if nothing is to be read.
        """
        if self.ahead is None:
            return not self.unread
        if self.unread == Unread.PAUSED | Unread.AHEAD:
            return self.ahead.has_room
        self.ahead.give_room_back()
        return False

    def put_off_more(self, data: bytes) -> None:
        """Keep *data*, which is to be served later."""
        self.put_off += data
        self.unread |= Unread.PUT_OFF

    def take_put_off(self) -> bytes:
        """Take what was put off, to be served now."""
        data, self.put_off = self.put_off, b""
        self.unread &= ~Unread.PUT_OFF
        return data

    def keep(self, ahead: ReadAhead) -> None:
        """*ahead* has room for what comes while the server takes nothing."""
        self.ahead = ahead
        self.unread |= Unread.AHEAD

    def delivered(self) -> bool:
        """The server has had all that was read ahead; true: there was an end behind it."""
        self.ahead = None
        over = bool(self.unread & Unread.END)
        self.unread &= ~(Unread.AHEAD | Unread.END)
        return over

    def drop(self) -> None:
        """The server is to have nothing more."""
        ahead, _ = self.ahead, self.delivered()
        if ahead is not None:
            ahead.drop()

    def gave_up(
        self, peer: Peer, now: float, *, unused: bool, acknowledges: bool
    ) -> bool:
        """Whether no peer waits any more for what the server has not submitted.

        A peer that closed may not hear its acknowledgement: it sends again elsewhere, and
        what is unused here would be stored twice.  If nothing is, it may wait for its
        acknowledgements, with one direction closed.  What is not acknowledged is never sent
        again: that is kept, even of a peer that is gone.
        """
        if peer is Peer.GONE:
            return acknowledges or not unused
        waits = self.unread & (Unread.PAUSED | Unread.ROOM) and unused
        if not (peer is Peer.CLOSED and acknowledges and waits):
            self.closed_since = None
            return False
        if self.closed_since is None:
            self.closed_since = now
        return now - self.closed_since >= _CLOSED_SECONDS
