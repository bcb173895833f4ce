"""One accepted connection: an `interfaces.Connection` on a Twisted transport.

    life        how far it is: a table of states, and of what may follow each
    handshake   the steps up to its server: PROXY header, TLS, detection, WebSocket
    reading     what its server has not had, and why it is not read: a set of reasons
    intake      its input on its way to the server: now or later, in turns
    writing     its peer does not read what is sent
    http2       what is carried in HTTP/2, and by what windows
    holding     what it holds in memory, and whether that comes any further
    looks       what it is late with, as is looked every few seconds

These do no I/O; set-up, intake and looks ask the connection to.  Here is what joins them to
the transport, the server and the listener.  The way of input:

    dataReceived ─► Intake.arrived ─► take ─► (TLS) ─► take_plain ─► SetUp.take
                                                           └─► (frames) ─► Intake.put ─► deliver

A connection ends with FIN and then waits for the peer's, dropping what comes, for
the listener's `linger` seconds: a socket closed with unread input sends RST, and RST
can destroy the last acknowledgement or the refusal on its way.

What a protocol's code raises ends its connection and no other: a `Refusal` with the
reply and FIN, everything else at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHalfCloseableProtocol, IProtocol, IPushProducer
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.event import Origin
from gateway.net.admission import Standing
from gateway.net.connection_log import Seen
from gateway.net.handshake import SetUp
from gateway.net.holding import Holding
from gateway.net.intake import Intake
from gateway.net.life import FOLLOWS, Life
from gateway.net.looks import Times
from gateway.net.reading import LAYERED_READ_BYTES, READ_BYTES, Unread
from gateway.net.tls_connection import TlsConnection
from gateway.net.transport import (
    NO_TRANSPORT,
    LostTransport,
    Transport,
    unix_credentials,
)
from gateway.net.websocket_frames import (
    FrameDecoder,
    binary_message,
    binary_messages,
    close_frame,
)
from gateway.net.writing import OUTPUT_BYTES, Stall
from gateway.sdk.interfaces import Aging, Publishing, Refusal, Server, Yielding

if TYPE_CHECKING:
    from gateway.net.listen import Listener

_CALLBACK_ERRORS = (Exception, SystemExit)
"""What a protocol's code may raise that costs its connection, and not the daemon."""
_SERVING, _ANSWERING, _REFUSING = Life.SERVING, Life.ANSWERING, Life.REFUSING
_CLOSING, _LOST = Life.CLOSING, Life.LOST
# By these names, as a member of an enumeration takes longer to find than to compare.
_AGE_SPREAD = 0.2
"""Connections that came together do not end together: each within so much of their age."""
_BARE_BYTES = 1 << 16
"""Of TLS without data in it, in a row; a record has at most 16 KiB."""


@implementer(IProtocol, IHalfCloseableProtocol, IPushProducer)
class AcceptedConnection:
    """From its socket up to its protocol's server."""

    __slots__ = (
        "__weakref__", "_events", "_failed", "_frames", "_last_error", "_listener",
        "_rejected", "_server", "_setup", "_tls", "_writing", "counted", "ended_by", "held",
        "host", "input", "life", "origin", "received", "stall", "standing", "times",
        "transport",
    )  # fmt: skip

    def __init__(self, listener: Listener, host: str, peer: str) -> None:
        self.host = host
        """Whom rejections and `connections_per_peer` are about."""
        self.ended_by = ""
        """Why it ends, once that is known: `peer`, `stopping`, a reason of rejections."""
        self.standing = Standing.UNCOUNTED
        self.counted = ""
        """The address or principal that it counts for: see `admission`."""
        self.origin = Origin(
            listener.protocol, listener.name, listener.next_session(), peer
        )
        self.life = Life.NEW
        self.input = Intake(self, listener)
        self.stall: Stall | None = None
        """Its peer does not read; None: it does."""
        self.held: Holding | None = None
        """None: it never held anything, or waited to."""
        self.times = Times(listener.clock.seconds())
        self.received = 0
        """Bytes, ever, as they came; without the header of whoever is before us."""
        self.transport: Transport = NO_TRANSPORT
        self._listener = listener
        self._setup: SetUp | None = None
        """Takes its first bytes; None: its server does, or nobody."""
        self._tls: TlsConnection | None = None
        self._frames: FrameDecoder | None = None
        self._server: Server | None = None
        self._writing = False
        """A write is under way, whose data is not all in the transport's hands."""
        self._failed = False
        """Something was raised for it, and is in the log."""
        self._events = 0
        """That became durable, ever."""
        self._last_error: str | None = None
        self._rejected: Refusal | None = None
        """What is in the log already, before its server comes to refuse for it."""

    def become(self, life: Life) -> None:
        """Go on with its life; from `ANSWERING` on, what comes or waits is dropped."""
        assert life in FOLLOWS[self.life], (self.life, life)
        if life > _SERVING and self.is_spare:
            self.received = 0  # but for TLS's own: it only looked whether we speak that
        self.life = life
        if life >= _SERVING:
            self._setup = None
        if life <= _SERVING:
            self.set_read_bytes()
        else:
            self.input.drop_all()

    # Called by the transport

    def makeConnection(self, transport: object) -> None:
        """See IProtocol."""
        self.transport = cast(Transport, transport)
        self.transport.bufferSize = READ_BYTES
        self.transport.registerProducer(self, True)
        if self.host == "unix":
            self.origin.peer = unix_credentials(self.transport)
        listener = self._listener
        listener.opened(self)
        listener.connection_log.opened(self.origin)
        header = listener.admission.expects_header(self.host)
        if header or listener.tls or listener.websocket:
            self.times.deadline = listener.clock.seconds() + listener.limits.handshake
        age = listener.limits.connection_age
        if age is not None:
            spread = random.uniform(0.0, _AGE_SPREAD)  # noqa: S311 - spreads ends
            self.times.ages_at = self.times.began + age * (1.0 + spread)
        self._setup = SetUp(self, listener)
        self._setup.begin()

    def connectionMade(self) -> None:
        """See IProtocol; all is done in `makeConnection`."""

    def dataReceived(self, data: bytes) -> None:
        """See IProtocol."""
        self.times.active = True
        size = len(data)
        self._listener.traffic.bytes += size
        self.received += size
        self.input.arrived(data)

    def readConnectionLost(self) -> None:
        """The peer has sent its FIN.

        It may still read: one that waits for an acknowledgement gets it first.
        """
        self._ended_by_peer()
        if not self.input.has_undelivered:
            self._input_over()
        elif self._layered and self._listener.acknowledges:
            self.transport.loseConnection()
        else:
            self.input.unread |= Unread.END | Unread.FIN

    def writeConnectionLost(self) -> None:
        """Our FIN is out.  See IHalfCloseableProtocol."""

    def connectionLost(self, reason: Failure) -> None:
        """See IProtocol."""
        if self._outlives(reason):
            return
        clean = reason.check(ConnectionDone) is not None
        closed = self.life >= _CLOSING
        why_lost = "closed" if closed else "peer" if clean else "lost"
        self.become(_LOST)
        self._listener.turns.remove(self.input)
        if self._tls is not None:
            self._tls.stop(reason)
            if not self._tls.established and self._tls.failure:
                failed = Refusal(f"TLS handshake failed: {self._tls.failure}")
                self.broke(failed, "tls")
        server, self._server = self._server, None
        self.transport = NO_TRANSPORT
        self._tls = self._frames = None
        if server is not None:
            with self._calling("closed()"):
                server.closed()
        if self.held is not None:
            self.held.release()
        self._listener.closed(self)
        if self.received:  # many a load balancer only looks whether we are there
            why = self.ended_by or why_lost
            self._listener.connection_log.closed(self.origin, why, lambda: self.seen)

    @property
    def is_spare(self) -> bool:
        """It is set up, and its peer has nothing to say yet."""
        return self._setup is not None and self._setup.is_spare

    def pauseProducing(self) -> None:
        """The transport holds more than `READ_BYTES` unsent: the peer does not read.

        It says so again at every write, until all is sent.
        """
        if self.stall is not None:
            return
        unsent, listener = self.unsent_bytes, self._listener
        self.stall = Stall(listener.clock.seconds(), unsent, listener.unread_bytes)
        self.count_output(unsent)
        if self.life >= _CLOSING:
            return
        if isinstance(self._server, Publishing):
            with self._calling("writable()"):
                self._server.writable(False)
        else:
            self.input.add(Unread.STALLED)

    def resumeProducing(self) -> None:
        """All is sent."""
        self.stall = None
        self.count_output(0)
        self.input.remove(Unread.STALLED)
        if isinstance(self._server, Publishing) and self.life < _CLOSING:
            with self._calling("writable()"):
                self._server.writable(True)

    def stopProducing(self) -> None:
        """See IPushProducer."""

    # The way of input

    def take(self, data: bytes) -> None:
        """Bytes as the socket brings them; dropped once they come too late."""
        if self._tls is None or self.life >= _ANSWERING:
            self.take_plain(data)
        else:
            self._decrypt(self._tls, data)

    def _decrypt(self, tls: TlsConnection, data: bytes) -> None:
        plain = tls.feed(data)
        if self._setup is not None and self.life is Life.TLS_HANDSHAKE:
            if tls.established:
                self._setup.tls_established(tls)
        elif tls.bare_bytes > _BARE_BYTES:
            rule = "TLS without data: new keys again and again, or empty records"
            self.reject(Refusal(rule, limit=f"{_BARE_BYTES} bytes"), "tls")
        if plain:
            self.take_plain(plain)
        if self._tls is not None and tls.over:
            self._peer_ended()

    def take_plain(self, data: bytes) -> None:
        """Bytes without TLS; dropped once they come too late."""
        if self.life is not _SERVING:
            if self._setup is not None:
                self._setup.take(data)
        elif self._frames is not None:
            self._unframe(self._frames, data)
        else:
            self.input.put(data)

    def _unframe(self, frames: FrameDecoder, data: bytes) -> None:
        try:
            payload = frames.feed(data)
        except Refusal as why:
            self.reject(why, "websocket")
            return
        if output := frames.output():
            self.send(output)
        if payload:
            self.input.put(payload)
        if frames.closed:
            self._peer_ended()

    def deliver(self, data: bytes) -> None:
        """Have the server take it; nothing: have it go on with what it has."""
        try:
            assert self._server is not None, "accept() returned None"
            self._server.received(data)
        except _CALLBACK_ERRORS as error:
            self.raised("received()", error)

    def through_tls(self, tls: TlsConnection) -> None:
        """All goes through *tls* from now on."""
        self._tls = tls

    def in_frames(self, frames: FrameDecoder) -> None:
        """All is in WebSocket frames from now on."""
        self._frames = frames

    @property
    def _layered(self) -> bool:
        """An end of the peer's is the end of both directions, as we answer it."""
        return self._tls is not None or self._frames is not None

    def set_read_bytes(self) -> None:
        """How much to read at once."""
        plain = self.life is _SERVING and not self._layered
        self.transport.read_bytes = READ_BYTES if plain else LAYERED_READ_BYTES

    # Whether to read: see `interfaces.Connection`

    def pause(self) -> None:
        """The server takes nothing for now."""
        self.input.add(Unread.PAUSED)

    def resume(self) -> None:
        """It takes more."""
        self.input.resume()

    def take_no_more(self) -> None:
        """It takes nothing ever again."""
        if self.life < _CLOSING:
            self.input.unread |= Unread.PAUSED
            self._drop_input()
            self.input.read_or_not()

    def _drop_input(self) -> None:
        """The server is to have nothing more."""
        if self.life < _ANSWERING:
            self.become(_ANSWERING)

    def again(self) -> None:
        """It has input left, and waits for a turn."""
        self.input.again()

    def may_begin(self) -> bool:
        """Whether it may begin one more message."""
        return self.input.may_begin()

    @property
    def waits_for_room(self) -> bool:
        """Others go first; `memory` says who."""
        return bool(self.input.unread & Unread.ROOM)

    @property
    def unread_input(self) -> bool:
        """There is input that it has not had."""
        return self.input.has_unread

    def room(self) -> int:
        """As many bytes the transport may read now."""
        return self.input.room()

    @property
    def has_server(self) -> bool:
        """There is one, though it may be its peer's turn to say what it wants."""
        return self._server is not None

    # The peer's end

    def all_delivered(self) -> None:
        """The server has had all that came before the peer's end."""
        if self._layered:
            self.end()
        else:
            self._input_over()

    def _input_over(self) -> None:
        """All that came before the peer's FIN is delivered."""
        if self.times.busy and self.life < _CLOSING and not self._layered:
            self.input.unread |= Unread.FIN
        else:
            self.transport.loseConnection()

    def _peer_ended(self) -> None:
        """The peer said in TLS or WebSocket that nothing more comes; it is answered so.

        TLS 1.3 would let us go on writing (RFC 8446 §6.1), TLS 1.2 and WebSocket do not.
        What is not delivered yet will not be acknowledged, and is dropped, unless nothing
        of its kind is acknowledged.
        """
        self._ended_by_peer()
        if self.input.has_undelivered and not self._listener.acknowledges:
            self.input.add(Unread.END)
        else:
            self.end()

    def _ended_by_peer(self) -> None:
        if self.life < _CLOSING:
            self.ended_by = self.ended_by or "peer"

    def _outlives(self, reason: Failure) -> bool:
        """Its transport is lost: whether it goes on, for what nobody sends again."""
        acknowledges = self._listener.acknowledges
        if acknowledges or not self.input.has_undelivered or not self.input.has_unused:
            return False
        later = self._listener.clock.callLater
        self.transport = LostTransport(lambda: later(0, self.connectionLost, reason))
        self.stall = None
        self.input.unread |= Unread.END | Unread.FIN
        self.input.unread &= ~Unread.STALLED
        self.input.ask_to_deliver()
        return True

    # Calls to the protocol (`deliver` and `connectionLost` have the others)

    def serve(
        self, accept: Callable[[AcceptedConnection], Server] | None = None
    ) -> None:
        """Make the server, once the peer is known.

        *accept*: not the port's own, but that of what the first bytes turned out to be.
        The port's own may be there already, and has had none of them.
        """
        before, self._server = self._server, None
        self.times.deadline = None
        self.times.active = True
        with self._calling("accept()"):
            if before is not None:
                before.closed()
            self._server = (accept or self._listener.accept)(self)
        if isinstance(self._server, Publishing):
            self.input.unread &= ~Unread.STALLED

    def drain(self) -> None:
        """The daemon stops.

        The server is told once it has used what is here of its peer by now, which is looked
        for (`looks`), or when it did not for long: it takes nothing.
        """
        self.ended_by = self.ended_by or "stopping"
        if self._server is None:
            self.end()
            return
        self.input.read_last()
        self.drain_if_used()

    def drain_if_used(self, *, late: bool = False) -> None:
        """Tell the server that the daemon stops, if that was put off and need not be, or if
        it is too *late* to put it off any more.
        """
        if self.input.last_bytes is None or not (late or self.input.is_used):
            return
        self.input.last_is_over()
        if self._server is not None:
            with self._calling("drain()"):
                self._server.drain()

    def aged(self) -> None:
        """It is as old as it may be: its server, if it has one yet, ends it when it can."""
        if self._server is None or self.life >= _ANSWERING:
            return
        self.times.ages_at = None
        if isinstance(self._server, Aging):
            self.ended_by = self.ended_by or "age"
            with self._calling("aged()"):
                self._server.aged()

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        """What is raised here ends this connection, and no other."""
        try:
            yield
        except _CALLBACK_ERRORS as error:
            self.raised(what, error)

    def raised(self, what: str, error: BaseException) -> None:
        """End this connection, because *what* raised *error*."""
        if isinstance(error, Refusal):
            try:
                self.refuse(error)
            except _CALLBACK_ERRORS as unusable:  # a reply that is no bytes
                self.raised(what, unusable)
            return
        if not self._failed:
            self._failed = True
            self.ended_by = "failure"
            peer = self.origin.peer
            self._listener.rejections.failed(self.host, peer, what, error)
        self.abort()

    # Output

    @property
    def framed(self) -> bool:
        """See `interfaces.Connection`."""
        return self._frames is not None

    @property
    def unsent_bytes(self) -> int:
        """See `interfaces.Connection`."""
        held = self.held
        behind = 0 if held is None else held.behind_windows
        return self.transport.unsent_bytes + behind

    def write(self, data: bytes) -> None:
        """See `interfaces.Connection`."""
        if self.life < _CLOSING:
            self.send(data if self._frames is None else binary_message(data))

    def write_each(self, messages: Sequence[bytes | memoryview]) -> None:
        """See `interfaces.Connection`."""
        if self.life >= _CLOSING:
            return
        if self._frames is None:
            self._send_pieces(messages)
        else:
            self.send(binary_messages(messages))

    def send(self, data: bytes) -> None:
        """Write, through TLS but not as a WebSocket message."""
        self._send_pieces((data,))

    def _send_pieces(self, pieces: Sequence[bytes | memoryview]) -> None:
        if self.stall is not None and self.outgrows(sum(map(len, pieces))):
            return
        self._writing = True
        try:
            transport = self._tls or self.transport
            if len(pieces) > 1:
                transport.writeSequence(pieces)
            else:
                transport.write(b"".join(pieces))
        finally:
            self._writing = False
        unsent = self.unsent_bytes
        if unsent > OUTPUT_BYTES:
            self.count_output(unsent)

    def outgrows(self, size: int) -> bool:
        """Whether *size* bytes more are too much for a peer that does not read: it is cut
        off.
        """
        stall = self.stall
        if stall is None or not stall.grows(size, self.unsent_bytes):
            return False
        self.cut_off(READ_BYTES + self._listener.unread_bytes)
        return True

    def cut_off(self, limit: str | int) -> None:
        """Drop a peer that does not read what it is sent."""
        why = Refusal("peer does not read what we send", limit=limit)
        self.broke(why, "unread")
        self.abort()

    # Time

    def begun(self) -> str:
        """What its server says of the message that has begun; empty: nothing."""
        with self._calling("begun()"):
            return self._server.begun() if isinstance(self._server, Yielding) else ""
        return ""

    def not_idle(self) -> None:
        """Something has happened since the last look, or is for others to do."""
        if self._frames is not None:
            self._frames.tick()
        if self._tls is not None:
            self._tls.renew_buffers()
        self.input.ask_again()

    def busy(self, waiting: bool) -> None:  # noqa: FBT001 - as the interface
        """See `interfaces.Connection`."""
        self.times.busy = waiting
        if not waiting:
            self.times.active = True
            if self.input.unread & (Unread.FIN | Unread.END) == Unread.FIN:
                # After the acknowledgement that this may stand right before.
                self._listener.clock.callLater(0, self.close)

    # Memory

    @property
    def holding(self) -> Holding:
        """What it holds, which begins to be counted now, if it was not."""
        if self.held is None:
            self.held = Holding(self._listener.memory.account(self, self.host))
        return self.held

    def hold(self, size: int, unsent: int = 0) -> None:
        """See `interfaces.Connection`."""
        held = self.held
        if held is None:
            if self.life is _LOST or not (size or unsent):
                return
            held = self.holding
        held.hold(size, unsent)

    def hold_back(self, size: int) -> None:
        """So much is written, and waits for the peer's windows in HTTP/2."""
        if self.held is not None or size:
            self.holding.behind_windows = size

    def count_output(self, unsent: int) -> None:
        """So much is written, and the peer has not taken it."""
        if self.held is not None or unsent:
            self.holding.unsent(unsent)

    def let_go(self, why: Refusal) -> None:
        """All connections hold too much, and this one more than others."""
        if self.life is _LOST:
            return
        if self._writing:  # what is written may be an acknowledgement: it goes first
            self._listener.clock.callLater(0, self.let_go, why)
        elif self.life >= _CLOSING or self.holding.mostly_output:
            self.broke(why, "memory")
            self.abort()
        else:
            self.give_up(why)

    def give_up(self, why: Refusal) -> None:
        """The server drops what it holds, answers what is complete, and refuses.

        That may take as long as the disk does; the log has it at once.
        """
        self.broke(why, "protocol")
        self._rejected = why
        self._drop_input()
        with self._calling("give_up()"):
            if isinstance(self._server, Yielding):
                self._server.give_up(why)
            else:
                self.refuse(why)

    # Its end

    def close(self) -> None:
        """See `interfaces.Connection`."""
        if self.life >= _REFUSING:  # the answer ends it
            return
        if self._frames is not None and not self._frames.closed:
            self.send(close_frame(1000))
        self.end()

    def end(self) -> None:
        """FIN after what is written; then wait a little for the peer's."""
        if self.life >= _CLOSING:
            return
        self.become(_CLOSING)
        listener = self._listener
        self.times.deadline = listener.clock.seconds() + listener.linger
        if self._tls is not None:
            self._tls.close()
        if self.input.unread & Unread.FIN:
            self.transport.loseConnection()
        else:
            self.transport.loseWriteConnection()
            self.input.read_or_not()

    def abort(self) -> None:
        """See `interfaces.Connection`."""
        if self.life < _CLOSING:
            self.become(_CLOSING)
        self.transport.abortConnection()

    def refuse(self, why: Refusal, reply: bytes | None = None) -> None:
        """See `interfaces.Connection`; *reply*: in place of that of *why*."""
        if self.life >= _REFUSING:
            return
        if why is not self._rejected:
            self.broke(why, "protocol")
        seconds = self._listener.penalty(self) if why.wrong_credentials else 0.0
        reply = why.reply if reply is None else reply
        if not seconds:
            self._answer_refused(why, reply)
            return
        self.become(_REFUSING)
        self.input.add(Unread.REFUSED)
        self._listener.clock.callLater(seconds, self._answer_refused, why, reply)

    def _answer_refused(self, why: Refusal, reply: bytes) -> None:
        if self.life >= _CLOSING:
            return
        if reply:
            self.write(reply)
        if self._frames is not None and self.life < _CLOSING:
            self.send(close_frame(1008, why.rule))
        self.end()

    def broke(self, why: Refusal, reason: str) -> None:
        """Count and log that its peer broke a rule, which ends it."""
        self.ended_by = reason
        self._listener.rejections.refused(self.host, self.origin.peer, why, reason)

    def reject(self, why: Refusal, reason: str) -> None:
        """Refuse below the server, where the reply is already in the peer's terms."""
        self.broke(why, reason)
        if why.reply:
            self.send(why.reply)
        self.end()

    def report(self, why: Refusal) -> float:
        """See `interfaces.Connection`."""
        self._listener.rejections.reported(self.host, self.origin.peer, why)
        self._last_error = str(why)
        return self._listener.penalty(self) if why.wrong_credentials else 0.0

    # What it did

    def introduced(self) -> None:
        """See `interfaces.Connection`."""
        self._listener.admission.proven(self)

    def count(self, *, events: int) -> None:
        """See `interfaces.Connection`."""
        self._listener.traffic.events += events
        if not self._events:
            self.introduced()
        self._events += events
        if self.held is not None:
            self.held.account.served()

    @property
    def seen(self) -> Seen:
        """What it did so far."""
        origin = self.origin
        return Seen(
            listener=origin.listener,
            session=origin.session,
            peer=origin.peer,
            principal=origin.principal,
            seconds=self._listener.clock.seconds() - self.times.began,
            bytes=self.received,
            events=self._events,
            unacknowledged=origin.unacknowledged,
            paused=bool(self.input.unread & Unread.PAUSED),
            last_error=self._last_error,
        )
