"""One accepted connection, from its socket up to its protocol's server.

`approach` has its way in; here is what it is once open, and how it ends.

Time is kept without a timer per connection: the listener calls `sweep` on each every
few seconds, and a received chunk only sets a flag.

A connection ends with FIN and then listens for the peer's, dropping what comes, for
the listener's `linger` seconds: a socket closed with unread input sends RST, and RST
can destroy the last acknowledgement or the refusal on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from twisted.internet.interfaces import IHalfCloseableProtocol, IProtocol, IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.interfaces import Publishing, Refusal
from gateway.net.approach import Approach
from gateway.net.websocket import close_frame, message
from gateway.net.wire import NO_WIRE, Wire, credentials, dead, unsent

if TYPE_CHECKING:
    from gateway.net.listen import Listener

__all__ = ["READ_BYTES", "STUCK_SECONDS", "Link"]

READ_BYTES = 1 << 18
"""Of one read; also the unsent output at which a peer counts as not reading.  Then we
stop reading from it (or writing, if its server can: `interfaces.Publishing`), and cut
it off if the output grows by more than the listener's `unread_bytes` or if
`STUCK_SECONDS` pass in which it takes nothing."""
STUCK_SECONDS = 45.0
"""Less than TCP_USER_TIMEOUT (`bind`): the kernel would hang up without a word."""


@implementer(IProtocol, IHalfCloseableProtocol, IPushProducer)
class Link(Approach):
    """An `interfaces.Connection` on a Twisted transport."""

    __slots__ = (
        "__weakref__", "_busy", "_choked_since", "_half_closed", "_heard", "_heard_at",
        "_most_unsent", "_paused", "_silent", "_unsent",
    )  # fmt: skip

    _log = Logger()

    def __init__(self, listener: Listener, host: str, peer: str) -> None:
        super().__init__(listener, host, peer)
        self._heard = False
        self._heard_at = listener.clock.seconds()
        self._silent = True
        self._busy = self._paused = self._half_closed = False
        self._choked_since: float | None = None
        self._unsent = self._most_unsent = 0
        """While the peer counts as not reading: output if it takes nothing (TLS adds
        to it); output at which it is cut off."""

    # What the transport tells us

    def makeConnection(self, transport: object) -> None:
        """See IProtocol."""
        wire = self._wire = cast(Wire, transport)
        wire.bufferSize = READ_BYTES
        wire.registerProducer(self, True)
        if self.host == "unix":
            self.origin.peer = credentials(wire)
        self._listener.joined(self)
        self._start()

    def connectionMade(self) -> None:
        """See IProtocol; all is done in `makeConnection`."""

    def dataReceived(self, data: bytes) -> None:
        """See IProtocol."""
        self._heard = True
        self._silent = False
        self._listener.bytes += len(data)
        try:
            self._take(self, data)
        except Exception:
            self._fail("while serving {peer}")

    def readConnectionLost(self) -> None:
        """The peer has sent its FIN.

        It may still read: one that waits for an acknowledgement gets it first.
        """
        layered = self._tls is not None or self._frames is not None
        if self._busy and not (self._closing or layered):
            self._half_closed = True
        else:
            self._wire.loseConnection()

    def writeConnectionLost(self) -> None:
        """Our FIN is out.  See IHalfCloseableProtocol."""

    def connectionLost(self, reason: Failure) -> None:
        """See IProtocol."""
        self._closing = True
        self._deafen()
        if self._tls is not None:
            self._tls.stop(reason)
            if not self._tls.established and self._tls.failure:
                why = Refusal(f"TLS handshake failed: {self._tls.failure}")
                self._listener.complain(self, why, "tls")
        elif self._silent:
            self._log.debug(
                "{peer} came and went without a word", peer=self.origin.peer
            )
        server, self._server = self._server, None
        self._wire = NO_WIRE
        self._tls = self._frames = self._step = None
        if server is not None:
            try:
                server.closed()
            except Exception:
                self._log.failure("after {peer} left", peer=self.origin.peer)
        self._listener.left(self)

    def _serve(self) -> None:
        self._deadline = None
        self._heard = True
        try:
            self._server = self._listener.accept(self)
        except Exception:
            self._fail("while accepting {peer}")

    def pauseProducing(self) -> None:
        """The transport holds more than `READ_BYTES` unsent: the peer does not read.

        It says so again at every write, until all is sent.
        """
        if self._choked_since is not None:
            return
        self._choked_since = self._listener.clock.seconds()
        self._unsent = self.unsent_bytes
        self._most_unsent = self._unsent + self._listener.unread_bytes
        if self._closing:
            return
        if self._publishes():
            self._writable(ready=False)
        else:
            self._wire.pauseProducing()

    def resumeProducing(self) -> None:
        """All is sent."""
        self._choked_since = None
        if not self._paused or self._closing:
            self._wire.resumeProducing()
        if self._publishes() and not self._closing:
            self._writable(ready=True)

    def _publishes(self) -> bool:
        """Whether the server stops writing, so that we need not stop reading."""
        return hasattr(self._server, "writable")

    def _writable(self, *, ready: bool) -> None:
        try:
            cast(Publishing, self._server).writable(ready)
        except Exception:
            self._fail("while publishing to {peer}")

    def stopProducing(self) -> None:
        """See IPushProducer."""

    # What the listener asks

    def sweep(self, now: float) -> None:
        """Look whether this connection is late with something."""
        if self._deadline is not None and now >= self._deadline:
            self._late()
        elif self._closing:
            return
        elif self._stuck(now):
            self._cut_off(f"{STUCK_SECONDS:g} s")
        elif (self._paused or self._choked_since is not None) and dead(self._wire):
            self.abort()
        elif self._heard or self._busy or self._paused:
            self._heard = False
            self._heard_at = now
            if self._frames is not None:
                self._frames.tick()
        elif now - self._heard_at >= self._listener.limits.idle:
            self._listener.reject("idle")
            self._log.debug("{peer} was idle for too long", peer=self.origin.peer)
            self.close()

    def _stuck(self, now: float) -> bool:
        """Whether the peer has taken nothing for long of what waits for it."""
        if self._choked_since is None:
            return False
        unsent = self.unsent_bytes
        if unsent < self._unsent:
            self._unsent = unsent
            self._choked_since = now
            self._heard = True
        return now - self._choked_since > STUCK_SECONDS

    def _late(self) -> None:
        if self._closing:
            self._wire.abortConnection()
            return
        limit = f"{self._listener.limits.handshake:g} s"
        if self._silent:  # many a load balancer keeps a port open and says nothing
            self._listener.reject("handshake")
            self._log.debug("{peer} says nothing", peer=self.origin.peer)
            self._end()
            return
        why = Refusal("handshake not finished", limit=limit, key="limits.handshake")
        self._reject(why, "handshake")

    def drain(self) -> None:
        """The daemon stops."""
        if self._server is None:
            self._end()
            return
        try:
            self._server.drain()
        except Exception:
            self._fail("while draining {peer}")

    # interfaces.Connection

    @property
    def framed(self) -> bool:
        """See `interfaces.Connection`."""
        return self._frames is not None

    @property
    def unsent_bytes(self) -> int:
        """See `interfaces.Connection`."""
        return unsent(self._wire)

    def write(self, data: bytes) -> None:
        """See `interfaces.Connection`."""
        if self._closing:
            return
        self._send(data if self._frames is None else message(data))

    def _send(self, data: bytes) -> None:
        if self._choked_since is not None:
            self._unsent += len(data)
            if self.unsent_bytes + len(data) > self._most_unsent:
                self._cut_off(READ_BYTES + self._listener.unread_bytes)
                return
        (self._tls or self._wire).write(data)

    def _cut_off(self, limit: str | int) -> None:
        why = Refusal("peer does not read what we send", limit=limit)
        self._listener.complain(self, why, "unread")
        self.abort()

    def close(self) -> None:
        """See `interfaces.Connection`."""
        if self._closing:
            return
        if self._frames is not None and not self._frames.closed:
            self._send(close_frame(1000))
        self._end()

    def _end(self) -> None:
        """FIN after what is written; then wait a little for the peer's."""
        if self._closing:
            return
        self._closing = True
        self._deafen()
        self._head = b""
        listener = self._listener
        self._deadline = listener.clock.seconds() + listener.linger
        if self._tls is not None:
            self._tls.close()
        if self._half_closed:
            self._wire.loseConnection()
        else:
            self._wire.loseWriteConnection()
            self._wire.resumeProducing()

    def abort(self) -> None:
        """See `interfaces.Connection`."""
        self._closing = True
        self._deafen()
        self._wire.abortConnection()

    def pause(self) -> None:
        """See `interfaces.Connection`."""
        self._paused = True
        if not self._closing:
            self._wire.pauseProducing()

    def resume(self) -> None:
        """See `interfaces.Connection`."""
        self._paused = False
        if self._choked_since is None or self._publishes() or self._closing:
            self._wire.resumeProducing()

    def refuse(self, why: Refusal) -> None:
        """See `interfaces.Connection`."""
        if self._closing:
            return
        self._listener.complain(self, why, "protocol")
        if why.reply:
            self.write(why.reply)
        if self._frames is not None and not self._closing:
            self._send(close_frame(1008, why.rule))
        self._end()

    def _reject(self, why: Refusal, kind: str) -> None:
        """Refuse below the server, where the reply is already in the peer's terms."""
        self._listener.complain(self, why, kind)
        if why.reply:
            self._send(why.reply)
        self._end()

    def _fail(self, doing: str) -> None:
        """A bug of ours costs this connection and no other."""
        self._log.failure(doing, peer=self.origin.peer)
        self._listener.reject("failure")
        self.abort()

    def busy(self, waiting: bool) -> None:  # noqa: FBT001 - as the interface
        """See `interfaces.Connection`."""
        self._busy = waiting
        if not waiting:
            self._heard = True
            if self._half_closed:
                # After the acknowledgement that this may stand right before.
                self._listener.clock.callLater(0, self.close)

    def count(self, *, events: int) -> None:
        """See `interfaces.Connection`."""
        self._listener.events += events
