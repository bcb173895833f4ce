"""All that is private of Twisted and used here: its sockets, its ports, its epoll loop.

What Twisted does not promise may change with any release.  So `pyproject.toml` allows
those that `PRIVATE` was read in, no other module uses such names (`tests/test_imports.py`),
and a test says which of them another release lacks.

Sockets: Twisted asks the kernel whether a socket can be written to before it sends;
`AcceptedSocket` sends first (`gateway.net.sends`, ADR 11).

Where several sockets have something in one turn, and a little each, one call of the kernel in C
receives from all of them, or sends to all.  So another thread may take the interpreter once, and
not at each socket.

Ports: Twisted would remove a unix socket that systemd has handed over, or one of another
process that took the place of ours.

The loop: Twisted makes a log context for every read, for log calls of the old kind that do
not say who logs.  That is six calls, a tenth of what a small message and its answer cost.
In `poll_plainly` only Twisted's `_doReadOrWrite` logs like that, of what raises, and our
log (`gateway.daemon.logs`) never writes what the context would say, `system`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from select import EPOLLIN
from typing import Any, Protocol, cast

from twisted.internet import main, tcp, unix
from twisted.internet.address import UNIXAddress
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.interfaces import IAddress, IProtocolFactory
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.sdk import native

PRIVATE: Mapping[str, tuple[str, ...]] = {
    "twisted.internet.tcp.Server": (
        "_addressType",
        "_maybePauseProducer",
        "_tempDataBuffer",
        "_tempDataLen",
        "_writeDisconnected",
        "dataBuffer",
        "offset",
        "producerPaused",
    ),
    "twisted.internet.unix.Port": (
        "_bindPath",
        "_fromListeningDescriptor",
        "_shouldShutdown",
    ),
    "twisted.internet.epollreactor.EPollReactor": (
        "_disconnectSelectable",
        "_doReadOrWrite",
        "_poller",
        "_selectables",
        "doIteration",
    ),
    "twisted.internet.asyncioreactor.AsyncioSelectorReactor": ("_asyncioEventloop",),
}
"""Names that are used of each class: those with `_`, and others that no document has."""

_log = Logger()

_MOST_PIECES = 1024
"""The kernel takes no more in one call (IOV_MAX)."""
MOST_SOCKETS = 256
"""Sockets of one call of the kernel in C."""
_LITTLE = 2048
"""Bytes of a read, or a piece to send, for which a call of its own costs more than they do."""


class SendsLater(Protocol):
    """The one that sends to sockets at the end of the turn: `sends.Sends`."""

    def add(self, server: AcceptedSocket, /) -> None:
        """Send for *server* at the end of the turn."""

    def remove(self, server: AcceptedSocket, /) -> None:
        """Forget *server*, which has nothing to send any more."""


_NOTHING: list[bytes] = []
"""The buffer of a socket that has nothing to send; never changed."""


class AcceptedSocket(tcp.Server):
    """An accepted socket, as Twisted has it, that does not wait to be writable.

    Ten thousand of them have nothing to say most of the time.  So it keeps no names for
    logs, no address of its peer, and no empty list.
    """

    sends: SendsLater
    read_bytes = tcp.Server.bufferSize
    _waits = False
    """The reactor says when it can be written to."""
    _read_little = False
    """The last read had a little, as the next one may."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.logstr = self.repstr = type(self.protocol).__name__
        self.client, self.hostname, self.sessionno = (), "", 0
        self._tempDataBuffer = _NOTHING

    def getPeer(self) -> IAddress:
        kind: Callable[..., IAddress] = self._addressType
        return kind("TCP", *self.socket.getpeername()[:2])

    def doRead(self) -> Exception | None:  # type: ignore[override]
        room: int = self.protocol.room()  # type: ignore[attr-defined]
        if not room:  # the protocol has paused us
            return None
        try:
            data = self.socket.recv(min(self.read_bytes, room))
        except BlockingIOError:
            return None
        except OSError:
            return main.CONNECTION_LOST
        return self.received(data)

    def received(self, data: bytes) -> Exception | None:
        """Pass on what was read; nothing: the peer has sent its end."""
        if not data:
            return main.CONNECTION_DONE
        self._read_little = len(data) < _LITTLE
        self.protocol.dataReceived(data)
        return None

    @property
    def may_read_little(self) -> bool:
        """Whether it likely has a little to read, for which there is room."""
        return self._read_little and self.protocol.room() >= _LITTLE  # type: ignore[attr-defined]

    @property
    def little_to_send(self) -> bytes:
        """All that it has to send, if that is a little and nothing is left of earlier writes."""
        if self._tempDataLen > _LITTLE or self._behind:
            return b""
        pieces = self._tempDataBuffer
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def sent(self, data: bytes, size: int) -> None:
        """Count *size* bytes of *data*, which was all, as sent; -1: none, and the reactor sees why."""
        if size < 0:
            self._wait()
            return
        self._tempDataBuffer, self._tempDataLen = _NOTHING, 0
        if size < len(data):
            self._tempDataBuffer = []
            self.dataBuffer, self.offset = data, size
            self._wait()

    def write(self, data: bytes) -> None:
        """Write as Twisted's transport does, without its TLS, in one call."""
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
        """Send more than a buffer at once, from where it lies: its producer need not pause if
        the kernel takes all of it.
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
    def unsent_bytes(self) -> int:
        return self._tempDataLen + len(self.dataBuffer) - self.offset

    @property
    def _behind(self) -> bool:
        """Something is left of earlier writes, or a producer waits for room."""
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
            if self.dataBuffer or self.producerPaused or self._waits:
                done = self.doWrite() is None and not self.unsent_bytes
            else:
                done = self._send_all()
        finally:
            if not done:
                self._wait()

    def _send_all(self) -> bool:
        """Do as `doWrite` where nothing is left of earlier writes, no producer waits for
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
        self._wait()
        super().loseConnection()

    def loseWriteConnection(self) -> None:
        self._wait()
        super().loseWriteConnection()

    def _wait(self) -> None:
        if self.connected:
            self.sends.remove(self)
            self._waits = True
            super().startWriting()


def send_little(servers: Sequence[AcceptedSocket]) -> Collection[AcceptedSocket]:
    """Send for those that have a little, in one call; the others, or all, are left to `send`."""
    little: dict[AcceptedSocket, bytes] = {}
    if native.kernel and len(servers) > 1:
        little = {one: data for one in servers if (data := one.little_to_send)}
    if not little:
        return little.keys()
    numbers = [one.fileno() for one in little]
    sizes = native.kernel.send(numbers, tuple(little.values()))
    for (one, data), size in zip(little.items(), sizes, strict=True):
        one.sent(data, size)
    return little.keys()


class AcceptedUnixSocket(AcceptedSocket, unix.Server):
    """The same of a unix socket."""

    def getPeer(self) -> IAddress:
        """The peer's address, which has no name."""
        return UNIXAddress(None)


def _rest(pieces: Iterable[bytes | memoryview], sent: int) -> Iterator[memoryview]:
    """Views of what is left of *pieces* after *sent* bytes."""
    for piece in pieces:
        yield memoryview(piece)[sent:]
        sent = max(0, sent - len(piece))


class UnixPort(unix.Port):
    """Removes the file of its socket at its end, and no other.

    Twisted would not close where that is gone already, and remove what has its place.
    """

    def startListening(self) -> None:
        super().startListening()
        self.made = self._there()

    def connectionLost(self, reason: Failure) -> None:
        """Close it."""
        if self._there() != self.made:
            self._bindPath = b"\0"  # as if in no file system
        super().connectionLost(reason)

    def _there(self) -> tuple[int, ...] | None:
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(self._bindPath)
            return found.st_dev, found.st_ino, found.st_mtime_ns
        return None


def adopt_unix_port(
    reactor: Any, descriptor: int, factory: IProtocolFactory
) -> unix.Port:
    """Listen on a unix socket that this process was handed.

    Twisted would give it mode 0666, and at the end remove it and shut it down for all.
    The next process, which has the same socket, could not be found any more.
    """
    make: Any = unix.Port._fromListeningDescriptor
    port: Any = make(reactor, descriptor, factory)
    port._bindPath = b"\0" + port._bindPath  # as if in no file system
    port._shouldShutdown = False  # as of adopted TCP sockets
    port.startListening()
    return cast(unix.Port, port)


def poll_plainly(reactor: Any) -> None:
    """Let the reactor serve what is ready without log contexts, if it is one of epoll."""
    if not isinstance(reactor, EPollReactor):
        return
    own: Any = reactor

    def poll(seconds: float | None) -> None:
        ready, serve = own._selectables, own._doReadOrWrite
        wait = -1 if seconds is None else seconds
        found = own._poller.poll(wait, len(ready))
        some = little(found, ready) if native.kernel and len(found) > 1 else {}
        for number, event in found:
            # What was received of a socket is its own, though meanwhile it is not to be read any
            # more, or another one has its number.
            one, data = some.get(number) or (ready.get(number), b"")
            if one is None or (data != b"" and not one.connected):  # lost meanwhile
                continue
            try:
                if event == EPOLLIN:
                    read(one, data)
                else:
                    serve(one, number, event)
            except Exception:
                _log.failure("a connection could not be served")

    def little(
        found: Iterable[tuple[int, int]], ready: Mapping[int, Any]
    ) -> Mapping[int, tuple[Any, bytes | None]]:
        """Receive from those that have a little, in one call; None of one that is lost.

        An end is there as long as its socket: it is read by itself.
        """
        numbers = [
            number
            for number, event in found
            if event == EPOLLIN and getattr(ready.get(number), "may_read_little", False)
        ][:MOST_SOCKETS]
        if len(numbers) < 2:
            return {}
        each = native.kernel.receive(numbers, _LITTLE)
        return {
            number: (ready[number], data or None)
            for number, data in zip(numbers, each, strict=True)
            if data or data is False
        }

    def read(one: Any, data: bytes | None) -> None:
        """Serve one that has something to read and no more, as Twisted's does; *data*: what
        was received of it, if that was done, or None, as it is lost.
        """
        why: BaseException | None = main.CONNECTION_LOST
        try:
            if data is not None:
                why = one.received(data) if data else one.doRead()
        except BaseException as error:  # as Twisted does
            _log.failure("a connection could not be read")
            why = error
        if why:
            own._disconnectSelectable(one, why, True)

    own.doIteration = poll


def event_loop(reactor: Any) -> object:
    """The loop that runs the reactor, if it is asyncio's; None of any other."""
    return getattr(reactor, "_asyncioEventloop", None)
