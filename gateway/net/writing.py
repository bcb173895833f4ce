"""PeerOutput to a peer, and a peer that does not read it: for how long, and how much waits.

A peer with more than `READ_BYTES` of unsent output counts as not reading.  Then we stop
reading from it, or writing, if its server can (`interfaces.Publishing`).  It is cut off if
the output grows by more than the listener's `unread_bytes`, or if it takes nothing for
`STALL_SECONDS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from gateway.net.phase import Phase
from gateway.net.reading import READ_BYTES, Unread
from gateway.sdk.interfaces import Refusal

if TYPE_CHECKING:
    from gateway.net.connection import AcceptedConnection
    from gateway.net.listen import Listener

STALL_SECONDS = 45.0
"""Less than TCP_USER_TIMEOUT (`bind`): the kernel would end the connection unlogged."""
OUTPUT_BYTES = 1 << 16
"""Unsent output that is counted at once; what is less waits for the next look."""


class Stall:
    """The time in which one peer does not read; it is over when all is sent."""

    __slots__ = ("_limit", "_unsent", "since")

    def __init__(self, now: float, unsent: int, more: int) -> None:
        """*unsent* bytes wait for it, and *more* may."""
        self.since = now
        """When it took something last."""
        self._unsent = unsent
        """PeerOutput if it takes nothing: TLS adds to it."""
        self._limit = unsent + more

    def grows(self, size: int, unsent: int) -> bool:
        """*size* bytes are added to those *unsent*; true: that is too much."""
        self._unsent += size
        return unsent + size > self._limit

    def shrinks(self, now: float, unsent: int) -> bool:
        """Whether the peer has taken something since the last look."""
        if unsent >= self._unsent:
            return False
        self._unsent = unsent
        self.since = now
        return True

    def is_long(self, now: float) -> bool:
        """Nothing was taken for too long."""
        return now - self.since > STALL_SECONDS


@implementer(IPushProducer)
class PeerOutput:
    """The output of one connection, as the transport takes it."""

    __slots__ = ("_connection", "_listener", "stall", "writing")

    def __init__(self, connection: AcceptedConnection, listener: Listener) -> None:
        self._connection = connection
        self._listener = listener
        self.stall: Stall | None = None
        """The time in which its peer does not read; None: it does."""
        self.writing = False
        """A write is under way, whose data is not all in the transport's hands."""

    @property
    def unsent_bytes(self) -> int:
        connection = self._connection
        held = connection.held
        behind = 0 if held is None else held.behind_windows
        return connection.transport.unsent_bytes + behind

    def send(self, *pieces: bytes | memoryview) -> None:
        """Write, through TLS but not as a WebSocket message."""
        if self.stall is not None and self.outgrows(sum(map(len, pieces))):
            return
        connection = self._connection
        layers, transport = connection.layers, connection.transport
        to = transport if layers is None else layers.tls or transport
        self.writing = True
        try:
            if len(pieces) > 1:
                to.writeSequence(pieces)
            else:
                to.write(b"".join(pieces))
        finally:
            self.writing = False
        unsent, held = connection.transport.unsent_bytes, connection.held
        if held is not None:
            unsent += held.behind_windows
        if unsent > OUTPUT_BYTES:
            self.count(unsent)

    def outgrows(self, size: int) -> bool:
        """Whether *size* bytes more are too much for a peer that does not read: it is cut off."""
        stall = self.stall
        if stall is None or not stall.grows(size, self.unsent_bytes):
            return False
        self.cut_off(READ_BYTES + self._listener.unread_bytes)
        return True

    def cut_off(self, limit: str | int) -> None:
        """Drop a peer that does not read what it is sent."""
        why = Refusal("peer does not read what we send", limit=limit)
        self._connection.ending.broke(why, "unread")
        self._connection.ending.abort()

    def count(self, unsent: int) -> None:
        """Count the bytes that are written and that the peer has not taken."""
        connection = self._connection
        if connection.held is not None or unsent:
            connection.holding.unsent(unsent)

    def hold_back(self, size: int) -> None:
        """Count the bytes that are written and wait for the peer's windows in HTTP/2."""
        connection = self._connection
        if connection.held is not None or size:
            connection.holding.behind_windows = size

    def pauseProducing(self) -> None:
        """The transport holds more than `READ_BYTES` unsent: the peer does not read.

        It says so again at every write, until all is sent.
        """
        if self.stall is not None:
            return
        connection, listener = self._connection, self._listener
        unsent = self.unsent_bytes
        self.stall = Stall(listener.seconds(), unsent, listener.unread_bytes)
        self.count(unsent)
        if connection.phase < Phase.CLOSING and not connection.calls.writable(False):
            connection.input.add(Unread.STALLED)

    def resumeProducing(self) -> None:
        """All is sent."""
        self.stall = None
        self.count(0)
        self._connection.input.remove(Unread.STALLED)
        self._connection.calls.writable(True)

    def stopProducing(self) -> None: ...
