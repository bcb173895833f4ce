"""RS.io server on Twisted: connects a session with the journal and our publishers.

A peer sends hello, and a token if it has one; then we subscribe to its publishers, and
it to ours.  More is requested only when what came is durable (`ingest`).  Nothing is
sent beyond the peer's demand, or while the transport would only buffer it (`publishing`).
"""

from __future__ import annotations

from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.protocols.rsio.decoder import Run
from gateway.protocols.rsio.ingest import Ingest
from gateway.protocols.rsio.messages import Extension
from gateway.protocols.rsio.offsets import SOURCE
from gateway.protocols.rsio.outbound import State
from gateway.protocols.rsio.publishing import Publishing
from gateway.protocols.rsio.session import Session
from gateway.protocols.rsio.shared import Shared
from gateway.protocols.rsio.signals import (
    Announced,
    Cancelled,
    DemandAdded,
    GoodbyeReceived,
    HelloReceived,
    Signal,
    SubscribeReceived,
    SubscribeRejected,
    Terminated,
    TokenReceived,
    Violated,
)
from gateway.sdk import interfaces
from gateway.sdk.closing import Closing
from gateway.sdk.costs import ControlBudget, Turn
from gateway.sdk.deadlines import Deadlines
from gateway.sdk.interfaces import Aging, Connection, Refusal, Yielding
from gateway.sdk.pressure import Valve

_NAME_BYTES = 255
_SUBSCRIBE = 20.0
"""The cost of a subscription for a turn, beside its reply."""
_FULL_BYTES = 1 << 18
"""While the journal is full, a connection that has so much on its way to the disk is
not read.  A publisher has no more on its way unless commits fail or take long."""
_GROWTH_KIB = 64
"""KiB that blocks may take on disk, at once, beyond a small multiple of what was sent."""
_STOPPING = "E503 stopping"
_AGED = "E503 connect again"
_ANNOUNCE = 15
"""The control messages that an announce counts as: it may be a journal record."""
_COSTLY = frozenset((SubscribeReceived, Announced))


class RsioListener(Shared):
    """A listener: makes the server of each of its connections, as `interfaces.Accept`."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        clock, options = self.clock, self.options
        self.greetings: Deadlines[RsioServer] = Deadlines(
            clock, options.hello_timeout, RsioServer.never_greeted
        )
        self.goodbyes: Deadlines[RsioServer] = Deadlines(
            clock, options.goodbye_timeout, RsioServer.never_answered
        )
        self.silences: Deadlines[RsioServer] = Deadlines(
            clock, options.keepalive_interval, RsioServer.silent
        )

    def __call__(self, connection: Connection) -> RsioServer:
        return RsioServer(self, connection)


class RsioServer(Closing, interfaces.Publishing, Yielding, Aging):
    """One connection.  Implements `interfaces.Server`.

    31 methods: session, ingest and timers each tell it something, and all of that may end
    it.
    """

    __slots__ = ("_announces", "_busy", "_control", "_growth", "_heard", "_ingest",
                 "_leaving", "_listener", "_named", "_publishing", "_rejected", "_session",
                 "_valve")  # fmt: skip

    _log = Logger()

    def __init__(self, listener: RsioListener, connection: Connection) -> None:
        super().__init__(connection)
        self._listener = listener
        session = self._session = Session(
            listener.limits, server=True, offered=listener.offered
        )
        self._ingest = Ingest(
            listener,
            session,
            connection,
            self._flush,
            self._acknowledged,
            self._lost,
            self._refuse,
        )
        self._publishing = Publishing(
            session.producer,
            listener.publishers,
            connection.origin,
            self._flush,
            self._count_memory,
            listener.clock,
        )
        self._valve = Valve(
            connection,
            listener.journal,
            listener.unacknowledged_bytes,
            self._regulate,
        )
        self._control = ControlBudget(listener.clock.seconds, listener.control_messages)
        self._growth: ControlBudget | None = None
        """None: no batch took much more than was sent."""
        self._named = self._heard = False
        self._leaving = ""
        """Why it says goodbye once what was taken is acknowledged; empty: it does not."""
        self._busy = self._rejected = self._announces = False
        listener.greetings.watch(self)

    # Called by the network

    def received(self, data: bytes) -> None:
        if self._closed or self._refusal is not None:
            return
        self._heard = self._heard or bool(data)
        ingest, session, turn = self._ingest, self._session, Turn()
        try:
            for signal in session.received(data, turn):
                if type(signal) is Run:
                    ingest.arrived(signal)
                else:
                    if type(signal) in _COSTLY:
                        turn.charge(_SUBSCRIBE)
                    self._take(signal)
                if self._closed:
                    return
        except Refusal as why:
            ingest.submit()
            self._refuse(why)
            return
        ingest.submit()
        self._publishing.pump()
        self._flush()
        self._count_memory()
        self._check_control()
        self._regulate()
        if session.unread and not (self._valve.paused or self._closed):
            self._connection.again()

    def _count_memory(self) -> None:
        """Tell what is held: input that is not whole, and elements not written yet."""
        if not self._closed and self._refusal is None:
            session = self._session
            self._connection.hold(session.held_bytes, session.producer.parts.octets)

    def _check_control(self) -> None:
        """Refuse a peer that sends messages without end and moves no elements."""
        session = self._session
        self._control.earn(2 * session.moved)  # each is followed by stored and request
        why = self._control.spend(session.control)
        session.moved = session.control = 0
        why = why or self._check_growth()
        if why is not None and not self._closed:
            self._refuse(why)

    def _check_growth(self) -> Refusal | None:
        growth, self._ingest.growth = self._ingest.growth, 0
        if not growth:
            return None
        if self._growth is None:
            self._growth = ControlBudget(
                self._listener.clock.seconds,
                _GROWTH_KIB,
                "blocks that take many times their size on disk, in KiB",
                "options.compression",
            )
        return self._growth.spend(growth / 1024)

    def closed(self) -> None:
        if not self._closed:  # it said no goodbye: it sends again what it is unsure of
            self._over()
            self._ingest.withdraw()

    def writable(self, ready: bool) -> None:  # noqa: FBT001 - a state, not a mode
        """Whether the transport takes more; while not, nothing is published."""
        if not self._closed:
            self._publishing.writable(ready)

    def drain(self) -> None:
        self._leave(_STOPPING)

    def aged(self) -> None:
        """Leave: nothing behind what was taken is taken, and peers resume there."""
        self._leave(_AGED)

    def _leave(self, why: str) -> None:
        """Take no more, acknowledge what was taken, say goodbye."""
        if self._leaving or self._closed:
            return
        self._leaving = why
        self._ingest.stop_taking()
        if self._session.state is State.GREETING:
            self._hang_up()
            return
        for stream in list(self._session.producer.streams.values()):
            self._publishing.cancelled(stream)
            self._session.producer.fail(stream, why)
        self._flush()
        self._count_memory()
        self._leave_if_done()

    # Signals of the session

    def _take(self, signal: Signal) -> None:
        match signal:
            case SubscribeReceived(stream):
                self._check_identified()
                if self._leaving:
                    self._session.producer.fail(stream, self._leaving)
                else:
                    self._publishing.subscribed(stream)
            case DemandAdded(stream):
                self._publishing.demand_added(stream)
            case Cancelled(stream):
                self._publishing.cancelled(stream)
            case Terminated(stream, error):
                self._ingest.stop(stream)
                self._log.debug(
                    "{peer}: {name!r} ended: {error}",
                    peer=self._connection.origin.peer,
                    name=stream.publisher,
                    error=error or "complete",
                )
            case Violated(stream, why):
                self._ingest.stop(stream)
                self._warn("cancelled", stream.publisher, why)
            case SubscribeRejected(stream, why):
                if not self._rejected:  # logged once: there may be any number
                    self._rejected = True
                    self._warn("rejected", stream.publisher, why)
            case HelloReceived():
                self._opened()
            case TokenReceived(scheme, data):
                self._identify(scheme, data)
            case Announced():
                self._announced(signal)
            case GoodbyeReceived():
                self._ingest.submit()  # stored, though not acknowledged any more
                self._flush()
                self._hang_up()

    def _warn(self, did: str, publisher: str, why: Refusal) -> None:
        """Log what cost a stream; what costs the connection is logged by `net`."""
        rule = f"{did} {publisher!r}: {why.rule}"
        self._connection.report(Refusal(rule, limit=why.limit, key=why.key))

    def _opened(self) -> None:
        listener = self._listener
        extensions = self._session.extensions
        if Extension.KEEPALIVE in extensions and listener.options.keepalive_interval:
            listener.silences.watch(self)
        if Extension.AUTH in extensions:
            return  # its token comes next
        self._named = True
        if listener.options.tokens and self._connection.origin.principal is None:
            raise self._unauthorised("a token is required", given=False)
        self._begin()

    def _identify(self, scheme: str, data: bytes) -> None:
        origin, tokens = self._connection.origin, self._listener.options.tokens
        if self._named and not self._may_add_a_name(scheme):
            raise Refusal("token at a time that is not for tokens")
        self._named = True
        if scheme == "bearer":
            name = self._listener.holder(data)
            if name is None or origin.principal not in (None, name):
                raise self._unauthorised("token that nobody has")
            origin.principal = name
        elif scheme == "name" and (origin.principal is not None or not tokens):
            name = _printable(data)
            if name is None:
                raise self._unauthorised("name that is none", given=False)
            origin.attributes = {**origin.attributes, SOURCE: name}
        else:
            raise self._unauthorised(f"token of scheme {scheme!r}")
        self._begin()

    def _may_add_a_name(self, scheme: str) -> bool:
        """Extension 7: a name behind the token, before anything is announced."""
        return (
            scheme == "name"
            and not self._announces
            and Extension.INSTANCES in self._session.extensions
            and SOURCE not in self._connection.origin.attributes
        )

    def _announced(self, announced: Announced) -> None:
        self._check_identified()
        self._session.control += _ANNOUNCE
        self._announces = True
        wanted = announced.publisher in self._listener.options.subscribe
        if wanted and not self._leaving:
            self._ingest.subscribe(announced.publisher, announced)

    def _unauthorised(self, why: str, *, given: bool = True) -> Refusal:
        """*given*: it showed credentials, and they are wrong."""
        return Refusal(f"E401 {why}", key="options.tokens", wrong_credentials=given)

    def _check_identified(self) -> None:
        if not self._named:
            raise self._unauthorised("the token comes first", given=False)

    def _begin(self) -> None:
        """The peer is identified: subscribe to its publishers, or to what it announces."""
        self._listener.greetings.forget(self)
        self._connection.introduced()
        if not (self._leaving or Extension.INSTANCES in self._session.extensions):
            for name in self._listener.options.subscribe:
                self._ingest.subscribe(name)

    # Called by the journal, through `Ingest`

    def _acknowledged(self) -> None:
        if self._closed:
            return
        self._flush()
        self._regulate()
        self._leave_if_done()

    def _lost(self, failure: Failure) -> None:
        """A batch can not be stored: neither it nor any later one is acknowledged."""
        if self._closed:
            return
        rule = f"closed, elements can not be stored: {failure.getErrorMessage()}"
        self._connection.report(Refusal(rule))
        self._refusal = None  # this is why it ends
        self._session.goodbye("E503 can not store")
        self._flush()
        self._hang_up()

    # Timeouts

    def never_greeted(self) -> None:
        """No hello, or no token, arrived in time."""
        if self._unread:
            self._listener.greetings.watch(self)
            return
        self._refuse(
            Refusal(
                "no hello" if self._session.state is State.GREETING else "no token",
                limit=f"{self._listener.options.hello_timeout:g} s",
                key="options.hello_timeout",
            )
        )

    def never_answered(self) -> None:
        """The peer did not answer our goodbye in time."""
        if self._unread:
            self._listener.goodbyes.watch(self)
        else:
            self._hang_up()

    @property
    def _unread(self) -> bool:
        """Something of the peer is here that was not looked at: time is not against it."""
        return self._session.unread or self._connection.unread_input

    def silent(self) -> None:
        """Ping the peer if nothing arrived since the last time."""
        if not self._heard and self._session.state is State.OPEN:
            self._session.ping()
            self._flush()
        self._heard = False
        if not self._closed:
            self._listener.silences.watch(self)

    # Writing, and reading or not

    def _flush(self) -> None:
        data = self._session.take()
        if data and not self._closed:
            self._connection.write(data)
        waiting = bool(self._ingest.pending)
        # A subscriber may send nothing for long; what it gets keeps it from being idle.
        published = data and not waiting and self._session.producer.streams
        if (waiting != self._busy or published) and not self._closed:
            self._busy = waiting
            self._connection.busy(waiting)

    def _regulate(self) -> None:
        """Pause or resume reading by unacknowledged bytes; a full journal holds back demand only."""
        if self._closed or self._refusal is not None:
            return
        unacknowledged = self._ingest.unacknowledged
        feeding = unacknowledged >= _FULL_BYTES and not self._leaving
        resumed = self._valve.regulate(unacknowledged, feeding=feeding)
        if resumed and self._session.unread:
            self._connection.again()

    # The end

    def give_up(self, why: Refusal) -> None:
        if self._closed or self._refusal is not None:
            return
        self._refusal = why
        self._ingest.stop_taking()
        self._publishing.close()
        self._session.discard()
        self._connection.hold(0)
        self._connection.take_no_more()
        self._leave_if_done()

    def _leave_if_done(self) -> None:
        if self._ingest.pending:
            return
        if self._refusal is not None:
            self._refuse(self._refusal)
        elif self._leaving:
            self._session.goodbye(self._leaving)
            self._listener.goodbyes.watch(self)
            self._flush()
            self._regulate()

    def _refuse(self, why: Refusal) -> None:
        if not why.reply:  # raised here, not by the session
            self._session.goodbye(why.rule)
            why.reply = self._session.take()
        self._refusal = why
        self._hang_up()

    def _forget(self) -> None:
        self._valve.close()
        listener = self._listener
        for deadlines in (listener.greetings, listener.goodbyes, listener.silences):
            deadlines.forget(self)
        self._publishing.close()
        self._session.lost()
        self._ingest.close()
        self._connection.hold(0)


def _printable(data: bytes) -> str | None:
    try:
        name = data.decode()
    except UnicodeDecodeError:
        return None
    return name if name.isprintable() and 0 < len(data) <= _NAME_BYTES else None
