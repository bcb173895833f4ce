"""Twisted's socket transport, typed, and what has to be asked of the socket itself.

That is: whether the peer is gone while reading is paused, how much output waits, and
the credentials at the other end of a unix socket.
"""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import termios
from array import array
from typing import Protocol

__all__ = [
    "NO_TRANSPORT",
    "Transport",
    "address_text",
    "has_input",
    "peer_gone",
    "unix_credentials",
    "unsent_bytes",
]


class Transport(Protocol):
    """The part of Twisted's socket transports that `AcceptedConnection` uses."""

    bufferSize: int  # noqa: N815 - Twisted's

    def write(self, data: bytes) -> None:
        """Buffers, then sends."""

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
        """Its pauseProducing is called when output piles up."""

    def fileno(self) -> int:
        """The descriptor."""

    def getHandle(self) -> socket.socket:
        """The socket."""


class _NoTransport:
    """In place of a connection that is lost: calls do nothing."""

    bufferSize = 0  # noqa: N815 - Twisted's

    def write(self, data: bytes) -> None: ...

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


def address_text(host: str, port: int) -> str:
    """`192.0.2.1:5044`, `[2001:db8::1]:5044`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def peer_gone(transport: Transport) -> bool:
    """Whether the connection was reset, for a socket whose reading is paused.

    The reactor does not look at a paused socket, so a reset or a failed keepalive
    would go unnoticed until it is resumed.  (A mere FIN does not count: the data
    before it is still to be read.)
    """
    poll = select.poll()
    poll.register(transport.fileno(), 0)
    return bool(poll.poll(0))


def has_input(transport: Transport) -> bool:
    """Whether the kernel holds bytes of the peer that nobody has read yet."""
    waiting = array("i", [0])
    try:
        fcntl.ioctl(transport.fileno(), termios.FIONREAD, waiting)
    except OSError:  # it is no socket any more
        return False
    return waiting[0] > 0


def unsent_bytes(transport: Transport) -> int:
    """Bytes written to a Twisted socket that the kernel has not taken yet."""
    waiting: int = getattr(transport, "_tempDataLen", 0)  # joined to dataBuffer later
    buffered = len(getattr(transport, "dataBuffer", b""))
    return buffered - getattr(transport, "offset", 0) + waiting


def unix_credentials(transport: Transport) -> str:
    """Who is at the other end of a unix socket: `unix:uid=1000,pid=4711`."""
    option = transport.getHandle().getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, _ = struct.unpack("iII", option)
    return f"unix:uid={uid},pid={pid}"
