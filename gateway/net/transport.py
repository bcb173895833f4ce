"""Twisted's socket transport, typed, and what has to be asked of the socket itself.

That is: whether the peer is gone while reading is paused, and the credentials at the
other end of a unix socket.
"""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import termios
from array import array
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol


class Transport(Protocol):
    """The part of Twisted's socket transports that `AcceptedConnection` uses."""

    read_bytes: int
    """Bytes of one read.  Twisted's has one number for this and for output that piles up."""
    bufferSize: int  # noqa: N815 - Twisted's
    """The latter."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes written that the kernel has not taken yet."""

    def write(self, data: bytes) -> None:
        """Buffers, then sends."""

    def writeSequence(self, iovec: Iterable[bytes | memoryview]) -> None:
        """Write the pieces one after another."""

    def loseWriteConnection(self) -> None:
        """FIN after what is written."""

    def loseConnection(self) -> None:
        """Close after what is written."""

    def abortConnection(self) -> None:
        """RST."""

    def pauseProducing(self) -> None:
        """Read no more."""

    def resumeProducing(self) -> None:
        """Read again."""

    def registerProducer(self, producer: object, streaming: bool) -> None:  # noqa: FBT001 - Twisted's
        """Register a producer, whose pauseProducing is called when output piles up."""

    def fileno(self) -> int:
        """The descriptor."""

    def getHandle(self) -> socket.socket:
        """The socket."""


class _NoTransport:
    """A stand-in for the transport of a lost connection: calls do nothing."""

    read_bytes = 0
    bufferSize = 0  # noqa: N815 - Twisted's
    unsent_bytes = 0

    def write(self, data: bytes) -> None: ...

    def writeSequence(self, iovec: Iterable[bytes | memoryview]) -> None: ...

    def loseWriteConnection(self) -> None: ...

    def loseConnection(self) -> None: ...

    def abortConnection(self) -> None: ...

    def pauseProducing(self) -> None: ...

    def resumeProducing(self) -> None: ...

    def registerProducer(self, producer: object, streaming: bool) -> None: ...  # noqa: FBT001 - Twisted's

    def fileno(self) -> int:
        return -1

    def getHandle(self) -> socket.socket:
        raise OSError


NO_TRANSPORT: Transport = _NoTransport()


class LostTransport(_NoTransport):
    """A stand-in for a lost transport, whose connection has input to deliver first.

    *ended* is called once, when the connection is done.
    """

    def __init__(self, ended: Callable[[], object]) -> None:
        self._ended: Callable[[], object] | None = ended

    def loseConnection(self) -> None:
        """End: the connection is done."""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()

    def abortConnection(self) -> None:
        """End: the connection is done."""
        self.loseConnection()


def address_text(host: str, port: int) -> str:
    """`192.0.2.1:5044`, `[2001:db8::1]:5044`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Peer(Enum):
    """The state of a peer as its socket says it, though its server takes nothing at the moment."""

    THERE = "there"
    HEARD = "heard"
    """The peer has sent what is unread."""
    CLOSED = "closed"
    """The peer has sent its FIN, behind what is unread."""
    GONE = "gone"
    """The peer reset the connection, or its keepalive failed."""


def look_at_peer(transport: Transport) -> Peer:
    """Ask the socket: the reactor does not look at one that is paused."""
    descriptor = transport.fileno()
    if descriptor < 0:
        return Peer.GONE
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP | select.POLLIN)
    found = sum(events for _, events in poll.poll(0))
    if found & ~(select.POLLRDHUP | select.POLLIN):
        return Peer.GONE
    if found & select.POLLRDHUP:
        return Peer.CLOSED
    return Peer.HEARD if found else Peer.THERE


def unread_bytes(transport: Transport) -> int:
    """Bytes of the peer in the kernel that are not read yet."""
    waiting = array("i", [0])
    try:
        fcntl.ioctl(transport.fileno(), termios.FIONREAD, waiting)
    except (OSError, ValueError):  # it is no socket any more
        return 0
    return waiting[0]


def unix_credentials(transport: Transport) -> str:
    """The process at the other end of a unix socket: `unix:uid=1000,pid=4711`."""
    option = transport.getHandle().getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, _ = struct.unpack("iII", option)
    return f"unix:uid={uid},pid={pid}"
