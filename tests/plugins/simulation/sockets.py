"""The kernel's part of accepted connections: ports and sockets in memory, as Linux has them.

Under the sockets is the wire (`network`), over them the real transports of Twisted and
`gateway.net`.  What matters here is what an application sees of TCP: buffers that are
full, a FIN behind the data, a RST that destroys what was under way, and that a socket
which is closed with unread input sends one.
"""

from __future__ import annotations

import errno
import os
import select
import struct
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from simulation.reactor import Reactor

__all__ = ["Kernel", "Port", "Socket", "Waiting"]

_BUFFERS = (5_000, 1 << 20)
_RECORDS = (8, 1000)
"""Of TLS: so many pieces, as its bytes may not count (`Socket.whole`)."""
_SHUT = 5
"""What is left of a buffer whose peer reads nothing …"""
_SHUT_RECORDS = 1
"""… in TLS."""
_SMALL_OUTPUT = 10
"""With such a peer the transport calls so much unsent output too much."""


class Waiting(Protocol):
    """A connection in a port's backlog."""

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        """Its socket, and where its peer is."""

    def refuse(self) -> None:
        """Nobody will accept it."""


class Kernel:
    """All sockets of the gateway's processes."""

    def __init__(self, choose: Callable[[tuple[int, int]], int]) -> None:
        self._choose = choose
        self._next = 1000
        self._sockets: dict[int, Socket] = {}

    def make(self, *, whole: bool, deaf: Callable[[], bool] | None) -> Socket:
        """A connection's; *whole* and *deaf*: see `Socket`."""
        self._next += 1
        buffer = self._choose(_RECORDS if whole else _BUFFERS)
        socket = Socket(self, self._next, buffer, whole=whole, deaf=deaf)
        self._sockets[self._next] = socket
        return socket

    def forget(self, number: int) -> None:
        """It is closed."""
        self._sockets.pop(number, None)

    def end_process(self) -> None:
        """All of them are closed with it."""
        self._sockets.clear()

    @property
    def open(self) -> int:
        """How many are not closed."""
        return len(self._sockets)

    # What `gateway.net.transport` asks of the operating system

    POLLIN, POLLRDHUP = select.POLLIN, select.POLLRDHUP

    def poll(self) -> _Poll:
        """As `select.poll`."""
        return _Poll(self._sockets)

    def ioctl(self, number: int, request: int, waiting: Any) -> None:
        """As `fcntl.ioctl` with FIONREAD."""
        if number not in self._sockets:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        waiting[0] = self._sockets[number].readable


class _Poll:
    def __init__(self, sockets: dict[int, Socket]) -> None:
        self._sockets = sockets
        self._wanted: list[tuple[int, int]] = []

    def register(self, number: int, events: int) -> None:
        self._wanted.append((number, events | select.POLLHUP | select.POLLERR))

    def poll(self, _: int) -> list[tuple[int, int]]:
        return [
            (number, found)
            for number, wanted in self._wanted
            if (found := self._sockets[number].events & wanted)
        ]


class Socket:
    """Of one accepted connection.

    *whole*: its pieces are counted and never joined or split by size, so that bytes which
    TLS draws at random change nothing of what happens.  *deaf* says whether the peer reads
    nothing now; None: it always reads.
    """

    def __init__(
        self,
        kernel: Kernel,
        number: int,
        buffer: int,
        *,
        whole: bool,
        deaf: Callable[[], bool] | None,
    ) -> None:
        self._kernel = kernel
        self._number = number
        self._buffer = buffer
        self._whole = whole
        self.deaf = deaf
        self._incoming: deque[bytes] = deque()
        self.outgoing: deque[bytes] = deque()
        """What the wire has not taken yet."""
        self._fin_came = self._reset_came = False
        self.fin = False
        """Ours goes behind `outgoing`."""
        self.rst = False
        """Ours goes at once."""
        self.closed = False
        self.changed: Callable[[], None] = lambda: None
        """To be called when its reactor may have something to do."""

    # The application's side

    def fileno(self) -> int:
        """Of no real file."""
        return -1 if self.closed else self._number

    def setblocking(self, _: bool) -> None:
        """It never blocks."""

    def recv(self, size: int) -> bytes:
        """See `socket.socket`."""
        data = b""
        while self._incoming and len(data) < size:
            piece = self._incoming.popleft()
            left = size - len(data)
            data += piece[:left]
            if piece[left:]:
                self._incoming.appendleft(piece[left:])
        if data or self._fin_came:
            return data
        if self._reset_came:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))

    def send(self, data: bytes) -> int:
        """See `socket.socket`."""
        if self._reset_came or self.fin:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = self._room_to_send
        if room <= 0:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
        taken = bytes(data if self._whole else data[:room])
        if taken:
            self.outgoing.append(taken)
        return len(taken)

    def sendmsg(self, pieces: Iterable[bytes | memoryview]) -> int:
        """See `socket.socket`."""
        return self.send(b"".join(pieces))

    def shutdown(self, how: int) -> None:
        """See `socket.socket`; `how` is 1 for writing, 2 for both."""
        if self._reset_came:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        self.fin = True

    def setsockopt(self, level: int, option: int, value: object) -> None:
        """See `socket.socket`: Twisted sets SO_LINGER before a close that aborts."""
        if value == struct.pack("ii", 1, 0):
            self.rst = True

    def close(self) -> None:
        """See `socket.socket`."""
        self.closed = self.fin = True
        if self._incoming:  # unread: Linux says so to the peer
            self.rst = True
        if self.rst:
            self.outgoing.clear()
        self._incoming.clear()
        self._kernel.forget(self._number)

    @property
    def events(self) -> int:
        """What epoll would say, interest or not."""
        found = 0
        if self._incoming or self._fin_came or self._reset_came:
            found |= select.POLLIN
        if self._fin_came or self._reset_came:
            found |= select.POLLRDHUP
        if self._room_to_send > 0 or self._reset_came:
            found |= select.POLLOUT
        if (self._fin_came and self.fin) or self._reset_came:
            found |= select.POLLHUP
        if self._reset_came:
            found |= select.POLLERR
        return found

    @property
    def readable(self) -> int:
        """Bytes that came and that nobody has read."""
        return sum(map(len, self._incoming))

    # The wire's side

    @property
    def has_room(self) -> bool:
        """It takes more of its peer."""
        return self._room(self._incoming) > 0

    def arrive(self, data: bytes) -> None:
        """Bytes of the peer's come; more than there is room for, if they are whole."""
        if self.closed:
            self.rst = True  # nobody will read them
        else:
            self._incoming.append(data)
            self.changed()

    def end(self) -> None:
        """The peer's FIN comes."""
        self._fin_came = True
        self.changed()

    def reset(self) -> None:
        """The peer's RST comes, or nothing of it any more: what came stays readable."""
        self._reset_came = True
        self.outgoing.clear()
        self.changed()

    def taken(self) -> None:
        """The wire has taken some of `outgoing`."""
        self.changed()

    def _room(self, pieces: deque[bytes]) -> int:
        held = len(pieces) if self._whole else sum(map(len, pieces))
        return self._buffer - held

    @property
    def _room_to_send(self) -> int:
        shut = 0
        if self.deaf is not None and self.deaf():
            shut = self._buffer - (_SHUT_RECORDS if self._whole else _SHUT)
        return self._room(self.outgoing) - shut


class Port:
    """A listening port; as much of Twisted's as `gateway.net` uses."""

    transport: Any
    """What makes a transport of a socket: see `gateway.net.sends`."""

    def __init__(self, reactor: Reactor, factory: Any, number: int) -> None:
        self._reactor = reactor
        self.factory = factory
        self._number = number
        self._backlog: deque[Waiting] = deque()
        self._reading = True
        self.open = True
        self.accepted: list[weakref.ref[Any]] = []
        """All connections, ever."""

    def getHost(self) -> IPv4Address:
        """See `IListeningPort`."""
        return IPv4Address("TCP", "127.0.0.1", self._number)

    def connect(self, waiting: Waiting) -> None:
        """A peer comes; it is accepted in a turn of the reactor, once that accepts."""
        self._backlog.append(waiting)
        self._accept_soon()

    def startReading(self) -> None:
        """See Twisted's."""
        self._reading = True
        self._accept_soon()

    def stopReading(self) -> None:
        """See Twisted's."""
        self._reading = False

    def stopListening(self) -> Deferred[None] | None:
        """See Twisted's."""
        self.open = self._reading = False
        while self._backlog:
            self._backlog.popleft().refuse()
        return None

    def _accept_soon(self) -> None:
        if self._reading:
            for _ in self._backlog:
                self._reactor.callFromThread(self._accept)

    def _accept(self) -> None:
        if not (self._reading and self._backlog):
            return
        socket, (host, port) = self._backlog.popleft().accept()
        kind = IPv6Address if ":" in host else IPv4Address
        protocol = self.factory.buildProtocol(kind("TCP", host, port))
        if protocol is None:
            socket.close()
            return
        self.accepted.append(weakref.ref(protocol))
        transport = self.transport(
            socket, protocol, (host, port), None, len(self.accepted), self._reactor
        )
        protocol.makeConnection(transport)
        if socket.deaf is not None:
            transport.bufferSize = _SMALL_OUTPUT
