"""The Twisted end of a Lumberjack reader: a connection, a journal, and what is owed.

Nothing is acknowledged before it is durable, and acknowledgements leave in the order
of the windows.  An older writer (v1) takes any six bytes for success, so it never
gets anything else; a v2 writer that waits gets `2A 00000000` now and then, to know
that we live, until `options.stall_timeout` without progress: then it had better try
another reader.
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

#: What a window costs in memory beside its body; else tiny windows would count little.
_WINDOW_BYTES = 512


@dataclass(slots=True, eq=False)
class _Owed:
    """A window that is complete and not acknowledged."""

    ack: bytes
    version: int
    held: int
    durable: bool


class Lumberjack:
    """What the connections of one listener share: limits, and one timer for all."""

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
    """One connection's reader.  Implements `interfaces.Server`."""

    __slots__ = ("_closed", "_connection", "_ending", "_listener", "_owed", "_progress",
                 "_refusal", "_session", "_unacknowledged", "_valve")  # fmt: skip

    _log = Logger()

    def __init__(self, listener: Lumberjack, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._session: Session | None = None
        self._owed: deque[_Owed] | None = None
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
        """Buffered for the window that is still arriving."""
        return 0 if self._session is None else self._session.held_bytes

    @property
    def unacknowledged_bytes(self) -> int:
        """Held by windows that wait to become durable."""
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
                self._owe(ready)
                if self._closed:
                    return
        except Refusal as why:
            self.give_up(why)
        else:
            self._settle()
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
        """Answer what is complete, then tell the peer why no more is taken."""
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
        waiting = [owed.version for owed in self._owed or ()]
        if self._unread is not None:
            waiting.append(self._unread)
        if waiting and all(version == _V2 for version in waiting):
            self._connection.write(_KEEPALIVE)
        if waiting and not self._closed:
            self._listener.reminders.watch(self)

    # Windows

    def _owe(self, ready: Ready) -> None:
        held = len(ready.body) + _WINDOW_BYTES
        owed = _Owed(ready.ack, ready.version, held, durable=not ready.count)
        if not self._owed:
            self._owed = deque()
            self._begin_to_wait()
        self._owed.append(owed)
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
            stored.addCallbacks(self._stored, self._lost, callbackArgs=(owed,))

    def _stored(self, stored: Stored, owed: _Owed) -> None:
        self._connection.count(events=stored.batch.count)
        if self._closed:
            return
        owed.durable = True
        self._progress = self._listener.clock.seconds()
        self._settle()
        self._regulate()

    def _lost(self, failure: Failure) -> None:
        """It must not be acknowledged, nor must anything behind it."""
        if self._closed:
            return
        self._log.warn(
            "{peer}: closed, a window can not be stored: {why}",
            peer=self._connection.origin.peer,
            why=failure.getErrorMessage(),
        )
        self._hang_up()

    def _settle(self) -> None:
        """Acknowledge what can be, in order."""
        owed = self._owed
        if owed is None:
            return
        acks = []
        while owed and owed[0].durable:
            first = owed.popleft()
            acks.append(first.ack)
            self._unacknowledged -= first.held
        if acks:
            self._connection.write(b"".join(acks))
        if not owed:
            self._owed = None
            if self._ending:
                self._hang_up()
            elif self._unread is None:
                self._end_to_wait()

    # Flow

    def _regulate(self) -> None:
        """Read, or do not, as the journal and our own debt allow."""
        if self._ending or self._closed:
            return
        unread = self._unread is not None
        self._valve.regulate(self._unacknowledged)
        if self._owed is None and (self._unread is not None) != unread:
            if unread:
                self._end_to_wait()
            else:
                self._begin_to_wait()

    @property
    def _unread(self) -> int | None:
        """Version of a window whose rest we do not read: its writer waits as well."""
        if not self._valve.paused or self._session is None:
            return None
        return self._session.arriving

    def _begin_to_wait(self) -> None:
        self._progress = self._listener.clock.seconds()
        self._connection.busy(True)
        self._listener.reminders.watch(self)

    def _end_to_wait(self) -> None:
        self._listener.reminders.forget(self)
        self._connection.busy(False)

    # The end

    def _end(self) -> None:
        """Take no more; hang up as soon as nothing is owed."""
        self._ending = True
        self._drop_session()
        self._settle()
        if self._owed is None:
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
        if self._owed is not None:
            self._owed = None
            self._unacknowledged = 0
        self._end_to_wait()


def accept(
    settings: Settings[Options], journal: Journal, clock: IReactorTime
) -> Lumberjack:
    """What a listener calls with each connection: an `interfaces.Accept`."""
    return Lumberjack(settings, journal, clock)
