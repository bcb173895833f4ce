"""One accepted connection: an `interfaces.Connection` on a Twisted transport.

`handshake` sets it up, `reading` brings its server the input, `writing` the peer the
output; here is what it may cost, and how it ends.

Time is kept without a timer per connection: the listener calls `check_time` on each
every few seconds, and a received chunk only sets a flag.

A connection ends with FIN and then waits for the peer's, dropping what comes, for
the listener's `linger` seconds: a socket closed with unread input sends RST, and RST
can destroy the last acknowledgement or the refusal on its way.

What a protocol's code raises ends its connection and no other: a `Refusal` with the
reply and FIN, everything else at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHalfCloseableProtocol, IProtocol, IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.net.handshake import CALLBACK_ERRORS, READ_BYTES
from gateway.net.seen import Seen
from gateway.net.transport import NO_TRANSPORT, Transport, unix_credentials
from gateway.net.websocket_frames import close_frame
from gateway.net.writing import STALL_SECONDS, Writing
from gateway.sdk.interfaces import Refusal, Yielding

if TYPE_CHECKING:
    from gateway.net.listen import Listener
    from gateway.net.memory import Account

__all__ = ["READ_BYTES", "AcceptedConnection"]

PROGRESS_SECONDS = 30.0
"""So long `limits.minimum_rate` is measured."""
_STANDS_SECONDS = 5.0
"""So long at least it is looked whether a connection stands."""


@implementer(IProtocol, IHalfCloseableProtocol, IPushProducer)
class AcceptedConnection(Writing):
    """From its socket up to its protocol's server."""

    __slots__ = (
        "__weakref__", "_account", "_active_at", "_began", "_events", "_failed", "_kept",
        "_last_error", "_progress", "_received", "_refusing", "_rejected", "_silent",
    )  # fmt: skip

    _log = Logger()

    def __init__(self, listener: Listener, host: str, peer: str) -> None:
        super().__init__(listener, host, peer)
        self._active_at = listener.clock.seconds()
        self._silent = True
        self._failed = False
        self._account: Account | None = None
        """Its part of the daemon's memory; None: it never held anything, or waited to."""
        self._kept = 0
        """Bytes of output that its server holds and has not written."""
        self._received = self._events = 0
        """Bytes, and events that became durable, ever."""
        self._began = self._active_at
        self._last_error: str | None = None
        self._refusing = False
        """It is refused, and waits for the answer."""
        self._rejected: Refusal | None = None
        """What is in the log already, before its server comes to refuse for it."""
        self._progress: tuple[float, int] | None = None
        """When its unfinished input was looked at, and `_received` then."""

    # Called by the transport

    def makeConnection(self, transport: object) -> None:
        """See IProtocol."""
        self._transport = cast(Transport, transport)
        self._transport.read_bytes = self._read_bytes
        self._transport.bufferSize = READ_BYTES
        self._transport.registerProducer(self, True)
        if self.host == "unix":
            self.origin.peer = unix_credentials(self._transport)
        self._listener.opened(self)
        self._listener.connection_log.opened(self.origin)
        self._start()

    def connectionMade(self) -> None:
        """See IProtocol; all is done in `makeConnection`."""

    def dataReceived(self, data: bytes) -> None:
        """See IProtocol."""
        self._active = True
        self._silent = False
        size, listener = len(data), self._listener
        listener.traffic.bytes += size
        self._received += size
        if self._put_off or (listener.turns.crowded and not self._closing):
            self._serve_later(data)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        seconds = self._listener.clock.seconds
        begun = seconds()
        try:
            self._on_socket(self, data)
        except Exception as error:  # ours, as `_deliver` catches the protocol's
            self._raised("the network", error)
        self._listener.turns.spent(seconds() - begun)

    def writeConnectionLost(self) -> None:
        """Our FIN is out.  See IHalfCloseableProtocol."""

    def connectionLost(self, reason: Failure) -> None:
        """See IProtocol."""
        later = self._listener.clock.callLater
        if self._outlives(lambda: later(0, self.connectionLost, reason)):
            self._stalled_since = None
            self._ask_to_deliver()
            return
        clean = reason.check(ConnectionDone) is not None
        why_lost = "closed" if self._closing else "peer" if clean else "lost"
        self._closing = True
        self._discard_input()
        self._listener.turns.remove(self)
        if self._tls is not None:
            self._tls.stop(reason)
            if not self._tls.established and self._tls.failure:
                failed = Refusal(f"TLS handshake failed: {self._tls.failure}")
                self._listener.reject(self, failed, "tls")
        server, self._server = self._server, None
        self._transport = NO_TRANSPORT
        self._tls = self._frames = self._parser = None
        if server is not None:
            try:
                server.closed()
            except CALLBACK_ERRORS as error:
                self._raised("closed()", error)
        self._count_memory()
        self._listener.closed(self)
        if not self._silent:  # many a load balancer only looks whether we are there
            why = self.ended_by or why_lost
            self._listener.connection_log.closed(self.origin, why, lambda: self.seen)

    # Calls to the protocol (`_deliver`, `connectionLost` and `writing` have the others)

    def _serve(self) -> None:
        self._deadline = None
        self._active = True
        try:
            self._server = self._listener.accept(self)
        except CALLBACK_ERRORS as error:
            self._raised("accept()", error)

    def drain(self) -> None:
        """The daemon stops."""
        self.ended_by = self.ended_by or "stopping"
        if self._server is None:
            self._end()
            return
        try:
            self._server.drain()
        except CALLBACK_ERRORS as error:
            self._raised("drain()", error)

    def _raised(self, what: str, error: BaseException) -> None:
        if isinstance(error, Refusal):
            try:
                self.refuse(error)
            except CALLBACK_ERRORS as unusable:  # a reply that is no bytes
                self._raised(what, unusable)
            return
        if not self._failed:
            self._failed = True
            self._listener.failed(self, what, error)
        self.abort()

    # Called by the listener

    def check_time(self, now: float) -> None:
        """Look whether this connection is late with something."""
        self._count_output(self.unsent_bytes)
        if self._account is not None:
            self._account.stands = self._stands(now, self._account.stands)
        if self._deadline is not None and now >= self._deadline:
            self._deadline_passed()
        elif self._closing:
            return
        elif self._stalled(now):
            self._cut_off(f"{STALL_SECONDS:g} s")
        elif self._unwatched and self._gave_up(self._look(), now):
            self.abort()
        elif self._too_slow(now):
            limit = f"{self._listener.limits.minimum_rate} bytes/s"
            rule = f"{self._unfinished} bytes of an unfinished message, and no progress"
            self._give_up(Refusal(rule, limit=limit, key="limits.minimum_rate"))
        elif self._active or self._busy or self._paused or self.waits_for_room:
            self._active = False
            self._active_at = now
            if self._frames is not None:
                self._frames.tick()
            if self.waits_for_room and not (self._paused or self._withheld):
                self._still_waits()
        elif now - self._active_at >= self._listener.limits.idle:
            self._listener.count_rejection("idle")
            self.ended_by = "idle"
            self._log.debug("{peer} was idle for too long", peer=self.origin.peer)
            self.close()

    def _unread_by_us(self) -> bool:
        return self._paused or self.waits_for_room or self._stalled_since is not None

    @property
    def _unwatched(self) -> bool:
        """The reactor does not tell what happens to its peer."""
        return self._unread_by_us() or self._half_closed

    @property
    def _withheld(self) -> bool:
        stalled = self._stalled_since is not None and not self._publishes()
        return self._refusing or stalled

    def _too_slow(self, now: float) -> bool:
        """Whether a message that has begun does not come any further."""
        if not self._unfinished or self._has_undelivered or self._unread_by_us():
            self._progress = None
            return False
        if self._progress is None:
            self._progress = now, self._received
            return False
        since, received = self._progress
        if now - since < PROGRESS_SECONDS:
            return False
        self._progress = now, self._received
        least = self._listener.limits.minimum_rate * (now - since)
        return self._received - received < least

    def _stands(self, now: float, stood: bool) -> bool:  # noqa: FBT001 - as it was
        """Whether what it holds would not be done with in `PROGRESS_SECONDS`, as it goes."""
        if self._stalled_since is not None:
            return now - self._stalled_since >= _STANDS_SECONDS
        if self._progress is None or self._paused:
            return False
        since, received = self._progress
        if (seconds := now - since) < _STANDS_SECONDS:
            return stood
        return (
            self._received - received
        ) * PROGRESS_SECONDS < self._unfinished * seconds

    # Memory

    def hold(self, size: int, unsent: int = 0) -> None:
        """See `interfaces.Connection`."""
        if size != self._unfinished or unsent != self._kept:
            self._unfinished, self._kept = size, unsent
            if not size:
                self._progress = None
                if self._account is not None:
                    self._account.stands = False
            self._count_memory()

    def _count_memory(self) -> None:
        held = self._unfinished + self._output + self._kept
        if self._transport is NO_TRANSPORT:
            held = 0
        if held or self._account is not None:
            self._memory.hold(held, self._unfinished if held else 0)

    @property
    def _memory(self) -> Account:
        if self._account is None:
            self._account = self._listener.memory.account(self, self.host)
        return self._account

    def let_go(self, why: Refusal) -> None:
        """All connections hold too much, and this one more than others."""
        if self._transport is NO_TRANSPORT:
            return
        if self._writing:  # what is written may be an acknowledgement: it goes first
            self._listener.clock.callLater(0, self.let_go, why)
        elif self._closing or self._output + self._kept > self._unfinished:
            self._listener.reject(self, why, "memory")
            self.abort()
        else:
            self._give_up(why)

    def _give_up(self, why: Refusal) -> None:
        """The server drops what it holds, answers what is complete, and refuses.

        That may take as long as the disk does; the log has it at once.
        """
        self._listener.reject(self, why, "protocol")
        self._rejected = why
        self._discard_input()
        server = self._server
        try:
            if isinstance(server, Yielding):
                server.give_up(why)
            else:
                self.refuse(why)
        except CALLBACK_ERRORS as error:
            self._raised("give_up()", error)

    def _deadline_passed(self) -> None:
        if self._closing:
            self._transport.abortConnection()
            return
        limit = f"{self._listener.limits.handshake:g} s"
        if self._silent:  # many a load balancer keeps a port open and says nothing
            self._listener.count_rejection("handshake")
            self._log.debug("{peer} says nothing", peer=self.origin.peer)
            self._end()
            return
        why = Refusal("handshake not finished", limit=limit, key="limits.handshake")
        self._reject(why, "handshake")

    @property
    def seen(self) -> Seen:
        """What it did so far."""
        origin = self.origin
        return Seen(
            listener=origin.listener,
            session=origin.session,
            peer=origin.peer,
            principal=origin.principal,
            seconds=self._listener.clock.seconds() - self._began,
            bytes=self._received,
            events=self._events,
            unacknowledged=origin.unacknowledged,
            paused=self._paused,
            last_error=self._last_error,
        )

    # interfaces.Connection

    def close(self) -> None:
        """See `interfaces.Connection`."""
        if self._closing or self._refusing:  # the answer ends it
            return
        if self._frames is not None and not self._frames.closed:
            self._send(close_frame(1000))
        self._end()

    def _end(self) -> None:
        """FIN after what is written; then wait a little for the peer's."""
        if self._closing:
            return
        self._closing = True
        self._discard_input()
        self._head = b""
        listener = self._listener
        self._deadline = listener.clock.seconds() + listener.linger
        if self._tls is not None:
            self._tls.close()
        if self._half_closed:
            self._transport.loseConnection()
        else:
            self._transport.loseWriteConnection()
            self._transport.resumeProducing()

    def abort(self) -> None:
        """See `interfaces.Connection`."""
        self._closing = True
        self._discard_input()
        self._transport.abortConnection()

    def report(self, why: Refusal) -> float:
        """See `interfaces.Connection`."""
        self._listener.report(self, why)
        self._last_error = str(why)
        return self._listener.penalty(self) if why.wrong_credentials else 0.0

    def refuse(self, why: Refusal) -> None:
        """See `interfaces.Connection`."""
        if self._closing or self._refusing:
            return
        if why is not self._rejected:
            self._listener.reject(self, why, "protocol")
        seconds = self._listener.penalty(self) if why.wrong_credentials else 0.0
        if not seconds:
            self._answer_refused(why)
            return
        self._refusing = True
        self._discard_input()
        self._read_or_not()
        self._listener.clock.callLater(seconds, self._answer_refused, why)

    def _answer_refused(self, why: Refusal) -> None:
        if self._closing:
            return
        if why.reply:
            self.write(why.reply)
        if self._frames is not None and not self._closing:
            self._send(close_frame(1008, why.rule))
        self._end()

    def _reject(self, why: Refusal, reason: str) -> None:
        self._listener.reject(self, why, reason)
        if why.reply:
            self._send(why.reply)
        self._end()

    def count(self, *, events: int) -> None:
        """See `interfaces.Connection`."""
        self._listener.traffic.events += events
        self._events += events
        if self._account is not None:
            self._account.served()
