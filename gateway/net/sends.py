"""Sends what connections wrote in one turn of the reactor at its end, or at once if much.

Twisted asks the kernel first when a socket can be written to, though it nearly always
can: a short answer costs two changes of the epoll set and one more event, and another
thread may take the interpreter at each of the three.  Here it is sent without asking.
What the kernel does not take waits for the reactor, as all output does in Twisted, and so
does the end of a connection.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from twisted.internet import main, tcp, unix
from twisted.internet.address import UNIXAddress
from twisted.internet.interfaces import IAddress, IListeningPort, IReactorTime

from gateway.net.transport import unsent_bytes

__all__ = ["Sends"]

_AT_ONCE = 256
_BYTES_AT_ONCE = 1 << 20
"""So many sockets, or bytes and a socket, are sent to at the end of a turn, before the
reactor serves others."""
_MOST_PIECES = 1024
"""The kernel takes no more in one call (IOV_MAX)."""


class Sends:
    """The sockets of one port that have something to send."""

    __slots__ = ("_clock", "_scheduled", "_waiting")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: dict[_Server, None] = {}
        self._scheduled = False

    def serve(self, port: IListeningPort) -> None:
        """Send for each connection that *port*, one of Twisted's, accepts from now on."""
        kind = _UnixServer if isinstance(port, unix.Port) else _Server

        def accepted(*given: Any) -> _Server:
            server = kind(*given)
            server.sends = self
            return server

        port.transport = accepted  # type: ignore[attr-defined]

    def add(self, server: _Server) -> None:
        """It has something to send."""
        self._waiting[server] = None
        self._schedule()

    def remove(self, server: _Server) -> None:
        """It has nothing to send any more."""
        self._waiting.pop(server, None)

    def flush(self) -> None:
        """Send now, as something else will take its time."""
        if self._waiting:
            self._send()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._end_turn)

    def _end_turn(self) -> None:
        self._scheduled = False
        self._send()

    def _send(self) -> None:
        try:
            left = _BYTES_AT_ONCE
            for server in list(islice(self._waiting, _AT_ONCE)):
                if left <= 0:
                    break
                if server in self._waiting:  # not lost meanwhile
                    del self._waiting[server]
                    left -= unsent_bytes(server)
                    server.send()
        finally:
            if self._waiting:
                self._schedule()


_NOTHING: list[bytes] = []
"""What one has to send that has nothing; never changed."""


class _Server(tcp.Server):
    """An accepted socket, as Twisted has it, that does not wait to be writable.

    Ten thousand of them have nothing to say most of the time, so it keeps no names for
    logs that nobody reads, no address of its peer, and no empty list.
    """

    sends: Sends
    read_bytes = tcp.Server.bufferSize
    """See `transport.Transport`."""
    _waits = False
    """The reactor says when it can be written to."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.logstr = self.repstr = type(self.protocol).__name__
        self.client, self.hostname, self.sessionno = (), "", 0
        self._tempDataBuffer = _NOTHING

    def getPeer(self) -> IAddress:
        """See ITransport."""
        kind: Callable[..., IAddress] = self._addressType
        return kind("TCP", *self.socket.getpeername()[:2])

    def doRead(self) -> Exception | None:  # type: ignore[override]
        """See IReadDescriptor."""
        room: int = self.protocol.room()  # type: ignore[attr-defined]
        if not room:  # the protocol has paused us
            return None
        try:
            data = self.socket.recv(min(self.read_bytes, room))
        except BlockingIOError:
            return None
        except OSError:
            return main.CONNECTION_LOST
        if not data:
            return main.CONNECTION_DONE
        self.protocol.dataReceived(data)
        return None

    def write(self, data: bytes) -> None:
        """See ITransport.  As Twisted's does, without its TLS, in one call."""
        if not isinstance(data, bytes):
            raise TypeError(f"no bytes are to be sent: {data!r}"[:200])
        if not data or not self.connected or self._writeDisconnected:
            return
        if self._tempDataLen:
            self._tempDataBuffer.append(data)
        else:
            self._tempDataBuffer = [data]
        self._tempDataLen += len(data)
        if len(self.dataBuffer) + self._tempDataLen > self.bufferSize:
            self._maybePauseProducer()
        if self._waits:
            self.startWriting()
        else:
            self.sends.add(self)

    def writeSequence(self, iovec: Iterable[bytes | memoryview]) -> None:
        """See ITransport.  What is much is sent now, from where it lies: its producer need
        not pause if the kernel takes all of it.
        """
        pieces: list[Any] = list(iovec)
        much = sum(map(len, pieces)) > self.bufferSize
        if not much or not self.connected or self._writeDisconnected or self._behind:
            self.write(b"".join(pieces))
            return
        pieces = self._tempDataBuffer + pieces
        if len(pieces) > _MOST_PIECES:
            pieces = [b"".join(pieces)]
        sent = 0
        with contextlib.suppress(OSError):  # as in `_send_all`
            sent = self.socket.sendmsg(pieces)
        self._tempDataBuffer, self._tempDataLen = _NOTHING, 0
        if sent == sum(map(len, pieces)):
            self.sends.remove(self)
        else:  # no view stays here, for it keeps more than itself
            self._tempDataBuffer = []
            self.dataBuffer, self.offset = b"".join(_rest(pieces, sent)), 0
            self._maybePauseProducer()
            self.startWriting()

    @property
    def _behind(self) -> bool:
        """Something is left of earlier writes, or somebody waits for room."""
        return bool(self.dataBuffer or self.producerPaused or self._waits)

    def startWriting(self) -> None:
        """There is something to send."""
        if self._waits:
            super().startWriting()
        else:
            self.sends.add(self)

    def stopWriting(self) -> None:
        """All is sent, or the connection is lost."""
        self.sends.remove(self)
        if self._waits:
            self._waits = False
            super().stopWriting()

    def send(self) -> None:
        """Send as much as the kernel takes; the reactor has the rest, and any error."""
        done = False
        try:
            if self._behind:
                done = self.doWrite() is None and not unsent_bytes(self)
            else:
                done = self._send_all()
        finally:
            if not done:
                self._wait()

    def _send_all(self) -> bool:
        """What `doWrite` does where nothing is left of earlier writes, nobody waits for
        room, and the kernel takes all; false: it did not.
        """
        pieces = self._tempDataBuffer
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        try:
            sent = self.socket.send(data)
        except OSError:  # the reactor tries again, and then sees why
            return False
        self._tempDataBuffer, self._tempDataLen = _NOTHING, 0
        if sent == len(data):
            return True
        self._tempDataBuffer = []
        self.dataBuffer, self.offset = data, sent
        return False

    def loseConnection(self) -> None:
        """See ITransport."""
        self._wait()
        super().loseConnection()

    def loseWriteConnection(self) -> None:
        """See ITCPTransport."""
        self._wait()
        super().loseWriteConnection()

    def _wait(self) -> None:
        if self.connected:
            self.sends.remove(self)
            self._waits = True
            super().startWriting()


class _UnixServer(_Server, unix.Server):
    """The same of a unix socket."""

    def getPeer(self) -> IAddress:
        """See ITransport; it has no name."""
        return UNIXAddress(None)


def _rest(pieces: Iterable[bytes | memoryview], sent: int) -> Iterator[memoryview]:
    """What is left of *pieces* after so many bytes."""
    for piece in pieces:
        yield memoryview(piece)[sent:]
        sent = max(0, sent - len(piece))
