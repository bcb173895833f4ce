"""Pomelo connections on Twisted: messages go to the journal, responses and pushes back.

A request is answered once it is durable: with 200, or with 500 if it can not be stored,
because the daemon stops while the journal is full.  A notify has no answer; if one can
not be stored, its client is kicked, because the protocol has no other way to say so.

Responses may overtake each other, as the protocol allows, and are never dropped.
Pushes are dropped when a client does not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.event import Batch, Origin, Stored
from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.auth import Admitted, Denied
from gateway.protocols.pomelo.handshake import Handshake, Terms, refused
from gateway.protocols.pomelo.rates import Meter, Verdict
from gateway.protocols.pomelo.ready import Ready
from gateway.protocols.pomelo.session import HEARTBEAT, Acknowledged, Session
from gateway.sdk.closing import Closing
from gateway.sdk.costs import TURN
from gateway.sdk.http_client import Unreachable
from gateway.sdk.interfaces import Connection, Refusal, Yielding
from gateway.sdk.pressure import Valve

if TYPE_CHECKING:
    from gateway.protocols.pomelo.listener import Pomelo

#: Memory that a message takes beside its body.
_MESSAGE_BYTES = 128
_GIVE_UP_SECONDS = 7.0
"""Seconds of the drain after which requests in a full journal are answered as not stored.

The drain may begin 2 s after the daemon's (`daemon.opened.DRAIN_SECONDS`), so there is
time left to say so."""

_NOBODY = Admitted()
_NONE: dict[_Pending, None] = {}
"""The pending batches of a client that sends nothing; never changed."""
_TOO_MANY = "too many messages"


class _Pending(Struct, eq=False):
    """A batch that is not durable yet.  Implements `interfaces.Told`."""

    _server: PomeloServer
    ready: Ready
    batch: Batch
    held: int
    """Bytes that it counts."""

    def callback(self, stored: Stored) -> None:
        self._server.stored(stored, self)

    def errback(self, why: Failure) -> None:
        self._server.lost(why, self)


class PomeloServer(Closing, Yielding):
    """One connection.  Implements `interfaces.Server` and `registry.Member`.

    41 methods: client, journal, registry and timer each tell it something, and all of that
    may end it.
    """

    __slots__ = ("_admitted", "_asking", "_ending", "_giving_up", "_left", "_listener",
                 "_meter", "_pending", "_questions", "_reason", "_session",
                 "_unacknowledged", "_valve", "number", "since")  # fmt: skip

    _log = Logger()

    def __init__(self, listener: Pomelo, connection: Connection) -> None:
        super().__init__(connection)
        self._listener = listener
        self._session = Session(
            listener.handshaker,
            message_bytes=listener.message_bytes,
            handshake_bytes=listener.options.handshake_bytes,
            patience=listener.patience,
            control_packages=listener.options.control_packages,
            asks=listener.hook is not None,
            ticks=listener.ticks,
        )
        self._asking: Deferred[Any] | None = None
        """A service is asked who the client is."""
        self._meter = listener.rates.meter()
        self._pending = _NONE
        """Batches that are not durable yet, in the order in which they came."""
        self._questions = listener.questions(self, self._reply)
        """Requests that a service is to answer."""
        self._giving_up: IDelayedCall | None = None
        self._unacknowledged = 0
        self._valve: Valve | None = None
        """None: there was no reason to pause yet."""
        self._ending = False
        self._reason: str | None = None
        self._left = False
        """The client said that it leaves."""
        self._admitted = _NOBODY
        self.number = 0
        self.since = 0.0
        """When it joined, in seconds since the epoch; 0: it has not."""
        self._regulate()

    @property
    def origin(self) -> Origin:
        return self._connection.origin

    @property
    def uid(self) -> str | None:
        return self._admitted.uid

    @property
    def reachable(self) -> bool:
        return self._admitted.reachable

    @property
    def terms(self) -> Terms:
        return self._session.terms

    @property
    def held_bytes(self) -> int:
        return self._session.held_bytes

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes of messages that wait to become durable, or to be answered."""
        return self._unacknowledged + self._questions.held_bytes

    # What the network tells

    def received(self, data: bytes) -> None:
        if self._ending or self._closed or (not data and self._paused):
            return
        turn = self._listener.turn
        turn.left = TURN
        try:
            steps = self._session.received(data, turn)
            for step in steps:
                if isinstance(step, Ready):
                    self._store(step)
                elif isinstance(step, bytes):
                    self._write(step)
                elif isinstance(step, Handshake):
                    self._ask_or_accept(step)
                elif isinstance(step, Acknowledged):
                    self._opened()
                else:
                    self._left = True
                    self._end()
                if self._ending or self._closed:
                    return
        except Refusal as why:
            self.give_up(why)
        else:
            if not isinstance(steps, tuple):
                self._connection.hold(self._session.held_bytes)
            self._regulate()

    def closed(self) -> None:
        """Withdraw requests, which the client repeats elsewhere; notifies are stored."""
        for pending in self._pending:
            if pending.ready.ids:
                self._listener.journal.withdraw(pending.batch)
        self._over()

    def drain(self) -> None:
        self.kick("shutdown")
        if (self._pending or self._questions) and self._giving_up is None:
            clock = self._listener.clock
            self._giving_up = clock.callLater(_GIVE_UP_SECONDS, self._give_up_storing)

    # What the listener tells

    def give_up(self, why: Refusal) -> None:
        """Answer what is pending, send a kick with the reason, close; *why* is logged."""
        if self._closed:
            return
        why.reply = why.reply or wire.kick(why.rule)
        self._refusal = why
        self._end()

    def tick(self, now: float = 0.0) -> None:
        """A tick has passed; *now* is the wall clock's time."""
        if self._closed:
            return
        expires_at = self._admitted.expires_at
        if expires_at is not None and now >= expires_at and not self._ending:
            self.kick("token expired")
            return
        try:
            unread = self._paused or self._ending or self._connection.waits_for_room
            if self._session.tick(paused=unread):
                self._write(HEARTBEAT)
        except Refusal as why:
            if self._session.more or self._connection.unread_input:
                self._session.excuse()  # we are late, not the client
            else:
                self._overdue(why)

    def _overdue(self, why: Refusal) -> None:
        session = self._session
        if session.begun and not session.opened:
            self._refusal = why
        else:
            self._log.debug(
                "{peer}: closed, {why}", peer=self.origin.peer, why=str(why)
            )
            self._reason = why.rule if session.opened else None
        self._end()

    # Pushes: `registry.Member`

    def push(self, package: bytes, share: float = 1.0) -> bool | None:
        if self._ending or self._closed:
            return None
        options = self._listener.options
        unsent = self._connection.unsent_bytes + len(package)
        if unsent > share * options.push_bytes:
            if options.push_policy == "kick" and share >= 1:
                self._refusal = wire.refusal(
                    "client does not read its pushes",
                    limit=options.push_bytes,
                    key="options.push_bytes",
                )
                self._end()
            return False
        self._write(package)
        return True

    def answer(self, number: int, answer: bytes) -> bool:
        return not self._closed and self._questions.answer(number, answer)

    def kick(self, reason: str) -> None:
        """Take no more, answer what is pending, send a kick, hang up."""
        if not (self._ending or self._closed):
            self._reason = reason
            self._end()

    # Messages

    def _ask_or_accept(self, handshake: Handshake) -> None:
        origin, hook = self._connection.origin, self._listener.hook
        if why := self._listener.turn_away(origin):
            self.give_up(why)
            return
        if hook is None:
            self._accepted(handshake)
            return
        self._asking = Deferred.fromCoroutine(hook.ask(origin, handshake.said))
        self._asking.addCallbacks(self._admit, self._do_not_admit, (handshake,))
        self._asking.addErrback(self._broken)

    def _admit(self, admitted: Admitted, handshake: Handshake) -> None:
        self._asking = None
        if self._ending or self._closed:
            return
        handshake.bind(admitted)
        self._accepted(handshake)
        self._session.go_on()
        self._connection.hold(self._session.held_bytes)
        self._regulate()

    def _do_not_admit(self, why: Failure) -> None:
        self._asking = None
        if self._ending or self._closed:
            return
        if why.check(Denied):
            text = str(why.value)
            refusal = refused(500, text, f"not admitted: {text}")
            refusal.wrong_credentials = True
        else:
            why.trap(Unreachable)
            rule = f"not admitted: the service that decides {why.getErrorMessage()}"
            key = "options.authenticate"
            refusal = refused(500, "authentication is not available", rule, key=key)
        self.give_up(refusal)

    def _broken(self, why: Failure) -> None:
        """A fault of ours: this connection ends, and no other."""
        if not why.check(CancelledError):
            self._log.failure("{peer}: admission", why, peer=self.origin.peer)
            self._connection.abort()

    def _accepted(self, handshake: Handshake) -> None:
        origin = self._connection.origin
        attributes = {**origin.attributes, **handshake.attributes}
        origin.attributes = self._listener.shared(attributes)
        self._admitted = admitted = handshake.admitted
        origin.principal = admitted.principal or origin.principal
        self._write(handshake.reply)

    def _opened(self) -> None:
        listener = self._listener
        self.since = listener.clock.seconds()
        self.number = listener.registry.join(self)
        self._connection.introduced()
        listener.stand(self)
        if listener.sessions is None:
            return
        listener.sessions.opened(self._connection, self._admitted)

    @property
    def _payer(self) -> str | None:
        """The user whose rate counts."""
        return self.uid if self.reachable else None

    def _too_many(self, ready: Ready, meter: Meter) -> bool:
        """Whether these messages are refused: they are more than may come."""
        listener = self._listener
        size = max(ready.taken_bytes, ready.payload_bytes)  # it may be compressed
        verdict, rate = meter.judge(self._payer, listener.age, ready.count, size)
        if rate is None:
            return False
        listener.rates.too_many += ready.count
        answers = self._session.failures(ready, _TOO_MANY, 429)
        if answers:
            self._write_each(answers)
        if verdict is Verdict.KICKED or self._session.untold(ready):
            listener.rates.kicked += 1
            self.give_up(wire.refusal(_TOO_MANY, limit=str(rate), key=rate.key))
        return True

    def _store(self, ready: Ready) -> None:
        if self._meter is not None and self._too_many(ready, self._meter):
            return
        listener = self._listener
        body = ready.body(listener.message_bytes)
        ready.pieces.clear()
        held = len(body) + ready.count * _MESSAGE_BYTES
        held += len(ready.ids) * listener.answer_bytes
        if ready.asked is not None:
            held += self._questions.keep(ready)
        self._unacknowledged += held
        if not self._pending:
            self._pending = {}
            self._connection.busy(True)
        batch = Batch(
            self._connection.origin,
            0,  # the journal sets it
            ready.count,
            body,
            ready.payload_bytes,
            answers=len(ready.ids),
        )
        pending = _Pending(self, ready, batch, held)
        self._pending[pending] = None
        listener.journal.submit_for(pending, batch)

    def stored(self, stored: Stored, pending: _Pending) -> None:
        """A batch is durable."""
        ready = pending.ready
        self._connection.count(events=ready.count)
        if self._closed:
            return
        if ready.asked is not None:
            self._questions.put(stored, ready.ids, ready.asked)
        self._answer(self._session.answers(ready), pending)

    def _reply(self, package: bytes) -> None:
        """A service has answered a request, or its time is over."""
        self._write(package)
        self._settled()
        self._regulate()

    def lost(self, failure: Failure, pending: _Pending) -> None:
        if not self._closed:
            self._not_stored(pending, failure.getErrorMessage())

    def _give_up_storing(self) -> None:
        """The daemon stops while the journal takes nothing: say what is not stored."""
        self._giving_up = None
        self._questions.give_up()
        journal = self._listener.journal
        if not journal.full:
            return
        for pending in list(self._pending):
            if journal.withdraw(pending.batch):
                why = "the gateway stops, and the journal is full"
                self._not_stored(pending, why)

    def _not_stored(self, pending: _Pending, why: str) -> None:
        ready = pending.ready
        rule = f"{ready.count} messages can not be stored: {why}"
        self._connection.report(Refusal(rule))
        if self._session.untold(ready) and self._refusal is None:
            self._reason = "not stored"
            self._stop()
        self._answer(self._session.failures(ready, "not stored"), pending)

    def _answer(self, responses: list[bytes], pending: _Pending) -> None:
        if responses:
            self._write_each(responses)
        del self._pending[pending]
        self._pending = self._pending or _NONE
        self._unacknowledged -= pending.held
        if pending.ready.asked is not None:
            self._listener.journal.reserve(-pending.ready.asked_bytes)
        self._settled()
        if self._valve is not None or self._session.more or self._listener.journal.full:
            self._regulate()  # else there was room before, and now there is more

    def _settled(self) -> None:
        """Something was answered: perhaps it was the last."""
        if not (self._pending or self._questions.open):
            self._connection.busy(False)
            if self._ending:
                self._hang_up()

    def _write_each(self, packages: list[bytes]) -> None:
        # WebSocket clients read only the first package of a message.
        self._session.spoke = True
        self._connection.write_each(packages)

    def _write(self, package: bytes) -> None:
        self._session.spoke = True
        self._connection.write(package)

    # Flow

    def _regulate(self) -> None:
        """Pause or resume reading, as the journal and our unacknowledged bytes allow."""
        if self._ending or self._closed:
            return
        unacknowledged = self.unacknowledged_bytes
        listener, most = self._listener, self._listener.unacknowledged_bytes
        if self._session.waits:  # somebody is asked who the client is: it is not read
            unacknowledged = most
        connection, journal = self._connection, listener.journal
        if self._valve is None and (
            journal.full
            or unacknowledged >= most
            or journal.over_share(connection.origin)
        ):
            self._valve = Valve(connection, journal, most, self._regulate)
        if self._valve is not None:
            was_paused = self._valve.paused
            meter = self._meter
            if was_paused and meter is not None:
                meter.unread(self._payer, listener.age)
            self._valve.regulate(unacknowledged)
            if self._valve.paused and not was_paused and meter is not None:
                meter.paused_at = listener.age
        if self._session.more and not (self._paused or self._ending):
            self._connection.again()

    @property
    def _paused(self) -> bool:
        return self._valve is not None and self._valve.paused

    # The end

    def _stop(self) -> None:
        self._ending = True
        self._session.discard()
        self._connection.hold(0)
        self._listener.registry.leave(self)
        self._connection.take_no_more()

    def _end(self) -> None:
        """Take no more; hang up once all requests are answered."""
        self._stop()
        if not (self._pending or self._questions):
            self._hang_up()

    def _hang_up(self) -> None:
        if not self._closed and self._refusal is None and self._reason is not None:
            self._connection.write(wire.kick(self._reason))
        super()._hang_up()

    def _forget(self) -> None:
        if self._valve is not None:
            self._valve.close()
        self._session.discard()
        self._connection.hold(0)
        self._listener.registry.leave(self)
        self._listener.forget(self)
        if self.since and self._listener.sessions is not None:
            seconds = self._listener.clock.seconds() - self.since
            self._listener.sessions.closed(self._connection, self._why, seconds)
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        if self._pending or self._questions:
            self._questions.forget()
            for pending in self._pending:
                self._listener.journal.reserve(-pending.ready.asked_bytes)
            self._pending = _NONE
            self._unacknowledged = 0
            self._connection.busy(False)

    @property
    def _why(self) -> str:
        if self._refusal is not None:
            return self._refusal.rule
        return self._reason or ("left" if self._left else "lost")
