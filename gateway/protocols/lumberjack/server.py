"""Lumberjack connections on Twisted: windows go to the journal, acknowledgements back.

A window is acknowledged once it is durable, and never before an earlier one.  A v2
writer that waits gets a keepalive, `2A 00000000`, every `options.keepalive_interval`.
A v1 writer would take that for its acknowledgement, so it gets none.  After
`options.stall_timeout` without progress the connection is closed, so that its writer
tries another reader.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.event import Batch, Stored
from gateway.interfaces import Connection, Journal, Refusal
from gateway.protocol import Settings
from gateway.protocols.deadlines import Deadlines
from gateway.protocols.lumberjack import wire
from gateway.protocols.lumberjack.options import Options
from gateway.protocols.lumberjack.session import Limits, Ready, Session
from gateway.protocols.pressure import Unfinished, Valve

__all__ = ["Lumberjack", "LumberjackServer", "accept"]

_V1, _V2 = b"12"
_KEEPALIVE = wire.ack(_V2, 0)

#: Memory that a window takes beside its body, so that many tiny windows count too.
_WINDOW_BYTES = 512


@dataclass(slots=True, eq=False)
class _Pending:
    """A window that is complete and not acknowledged."""

    ack: bytes
    version: int
    held: int
    """Bytes that it counts for `limits.unacknowledged_bytes`."""
    durable: bool


class Lumberjack:
    """What the connections of one listener share: limits, timers, the journal."""

    def __init__(
        self, settings: Settings[Options], journal: Journal, clock: IReactorTime
    ) -> None:
        limits, options = settings.limits, settings.options
        self.limits = Limits(
            message_bytes=limits.message_bytes,
            inflated_bytes=limits.inflated_bytes,
            compressed_bytes=options.compressed_bytes,
            window_events=options.window_events,
            pairs=options.pairs,
        )
        self.unacknowledged_bytes = limits.unacknowledged_bytes
        self.stall_timeout = options.stall_timeout
        self.journal = journal
        self.clock = clock
        self.reminders: Deadlines[LumberjackServer] = Deadlines(
            clock,
            min(options.keepalive_interval, options.stall_timeout),
            LumberjackServer.remind,
        )
        self.unfinished = Unfinished(journal, "an unfinished window")

    def __call__(self, connection: Connection) -> LumberjackServer:
        """The server of a new connection."""
        return LumberjackServer(self, connection)


class LumberjackServer:
    """One connection.  Implements `interfaces.Server`."""

    __slots__ = ("_closed", "_connection", "_ending", "_listener", "_pending", "_progress",
                 "_refusal", "_session", "_unacknowledged", "_valve")  # fmt: skip

    _log = Logger()

    def __init__(self, listener: Lumberjack, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._session: Session | None = None
        self._pending: deque[_Pending] | None = None
        self._unacknowledged = 0
        self._progress = 0.0
        self._valve = Valve(
            connection, listener.journal, listener.unacknowledged_bytes, self._regulate
        )
        self._ending = self._closed = False
        self._refusal: Refusal | None = None
        self._regulate()

    @property
    def held_bytes(self) -> int:
        """Bytes that are buffered for the window that is still arriving."""
        return 0 if self._session is None else self._session.held_bytes

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes of complete windows that are not acknowledged."""
        return self._unacknowledged

    # What the network tells

    def received(self, data: bytes) -> None:
        """See `interfaces.Server`."""
        if self._ending or self._closed:
            return
        session = self._session
        if session is None:
            session = self._session = Session(self._listener.limits)
        try:
            for ready in session.received(data):
                self._submit(ready)
                if self._closed:
                    return
        except Refusal as why:
            self.give_up(why)
        else:
            self._acknowledge()
            self._listener.unfinished.hold(self, self.held_bytes)
            self._regulate()

    def closed(self) -> None:
        """See `interfaces.Server`."""
        self._forget()

    def drain(self) -> None:
        """See `interfaces.Server`."""
        if not (self._ending or self._closed):
            self._end()

    # What the listener tells

    def give_up(self, why: Refusal) -> None:
        """Acknowledge what is complete, then close; *why* is logged."""
        self._refusal = why
        self._end()

    def remind(self) -> None:
        """The peer still waits: send it a keepalive, or give it up as stalled."""
        stalled = self._listener.clock.seconds() - self._progress
        if stalled >= self._listener.stall_timeout:
            self._log.warn(
                "{peer}: closed, nothing became durable for {stalled:.0f} s "
                "(options.stall_timeout)",
                peer=self._connection.origin.peer,
                stalled=stalled,
            )
            self._hang_up()
            return
        waiting = [pending.version for pending in self._pending or ()]
        if self._unread is not None:
            waiting.append(self._unread)
        if waiting and all(version == _V2 for version in waiting):
            self._connection.write(_KEEPALIVE)
        if waiting and not self._closed:
            self._listener.reminders.watch(self)

    # Windows

    def _submit(self, ready: Ready) -> None:
        held = len(ready.body) + _WINDOW_BYTES
        pending = _Pending(ready.ack, ready.version, held, durable=not ready.count)
        if not self._pending:
            self._pending = deque()
            self._start_waiting()
        self._pending.append(pending)
        self._unacknowledged += held
        if ready.count:
            batch = Batch(
                origin=self._connection.origin,
                received_at=int(self._listener.clock.seconds() * 1_000_000),
                count=ready.count,
                body=ready.body,
                payload_bytes=ready.payload_bytes,
            )
            stored = self._listener.journal.submit(batch)
            stored.addCallbacks(self._stored, self._lost, callbackArgs=(pending,))

    def _stored(self, stored: Stored, pending: _Pending) -> None:
        self._connection.count(events=stored.batch.count)
        if self._closed:
            return
        pending.durable = True
        self._progress = self._listener.clock.seconds()
        self._acknowledge()
        self._regulate()

    def _lost(self, failure: Failure) -> None:
        """Neither this window nor any later one may be acknowledged: close."""
        if self._closed:
            return
        self._log.warn(
            "{peer}: closed, a window can not be stored: {why}",
            peer=self._connection.origin.peer,
            why=failure.getErrorMessage(),
        )
        self._hang_up()

    def _acknowledge(self) -> None:
        """Acknowledge the windows that are durable, as far as their order allows."""
        pending = self._pending
        if pending is None:
            return
        acks = []
        while pending and pending[0].durable:
            first = pending.popleft()
            acks.append(first.ack)
            self._unacknowledged -= first.held
        if acks:
            self._connection.write(b"".join(acks))
        if not pending:
            self._pending = None
            if self._ending:
                self._hang_up()
            elif self._unread is None:
                self._stop_waiting()

    # Flow

    def _regulate(self) -> None:
        """Pause or resume reading, as the journal and our unacknowledged bytes allow."""
        if self._ending or self._closed:
            return
        unread = self._unread is not None
        self._valve.regulate(self._unacknowledged)
        if self._pending is None and (self._unread is not None) != unread:
            if unread:
                self._stop_waiting()
            else:
                self._start_waiting()

    @property
    def _unread(self) -> int | None:
        """Version of a window that we stopped reading half-way; its writer waits too."""
        if not self._valve.paused or self._session is None:
            return None
        return self._session.arriving

    def _start_waiting(self) -> None:
        self._progress = self._listener.clock.seconds()
        self._connection.busy(True)
        self._listener.reminders.watch(self)

    def _stop_waiting(self) -> None:
        self._listener.reminders.forget(self)
        self._connection.busy(False)

    # The end

    def _end(self) -> None:
        """Take no more; hang up once all windows are acknowledged."""
        self._ending = True
        self._drop_session()
        self._acknowledge()
        if self._pending is None:
            self._hang_up()
        else:
            self._connection.pause()

    def _hang_up(self) -> None:
        if self._closed:
            return
        refusal, self._refusal = self._refusal, None
        self._forget()
        if refusal is None:
            self._connection.close()
        else:
            self._connection.refuse(refusal)

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session = None
            self._listener.unfinished.hold(self, 0)

    def _forget(self) -> None:
        self._closed = True
        self._drop_session()
        if self._pending is not None:
            self._pending = None
            self._unacknowledged = 0
        self._stop_waiting()


def accept(
    settings: Settings[Options], journal: Journal, clock: IReactorTime
) -> Lumberjack:
    """What a listener calls with each connection: an `interfaces.Accept`."""
    return Lumberjack(settings, journal, clock)
