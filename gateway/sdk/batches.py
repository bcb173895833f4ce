"""The server of protocols that acknowledge batches in order: from a session to the journal.

    bytes ──► Session ──► Ready ──► journal
                          ack   ◄── durable

A protocol brings a `Session`, which makes batches of bytes without I/O, and `BatchListener`
does the rest.  It stores each batch, and writes its acknowledgement once it is durable,
never before an earlier one's.  It takes no more while the journal is full or too much is
not durable.  A connection whose batch can not be stored is closed, unless the batch brings
what its peer is told then.  Where a protocol has no acknowledgements they are empty, and
all else is the same.

One connection's input is taken a turn at a time.  The batches of a session are consumed
lazily, one by one, while the turn is not over and the connection may feed the journal.  The
rest waits in the session, and what arrives meanwhile behind it.

A protocol that answers in any order, by demand, or once all of a shared state is durable has
a server of its own.  It shares with this one `closing`, `pressure` and `costs`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

from msgspec import Struct
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from gateway.event import Batch, Origin, Stored
from gateway.sdk.closing import Closing
from gateway.sdk.costs import BATCH, BYTE, EVENT, REPLY, TURN, ControlBudget
from gateway.sdk.deadlines import Deadlines
from gateway.sdk.interfaces import Aging, Connection, Journal, Refusal, Yielding
from gateway.sdk.pressure import Valve, batch_bytes
from gateway.sdk.protocol import Settings

__all__ = ["BatchListener", "BatchServer", "Pending", "Ready", "Session"]

#: Memory that each event of a batch will take, so that tiny events count too.
_EVENT_BYTES = 16


class Ready(Struct):
    """A complete batch: store `body`, if it has events, then send `ack`."""

    count: int = 0
    """How many events `body` has; with 0 there is nothing to store."""
    body: bytes = b""
    payload_bytes: int = 0
    ack: bytes = b""
    """The answer that the peer gets once the batch is durable."""
    cost: float | None = None
    """The work that it took to make it; None: what its size suggests.

    A session that works long without completing anything yields a `Ready` with nothing
    but its cost from time to time, so that the turn can end."""
    control: int = 0
    """How many messages that move no data came before it, or in it; a peer that sends
    too many is refused (`control`)."""
    not_stored: bytes = b""
    """The answer instead of `ack` if the batch can not be stored, and the connection goes on;
    empty: the connection ends."""
    close: bool = False
    """The connection ends once this and all before it are answered, in good order: nothing
    is logged, and what comes behind it is not read."""
    report: Refusal | None = None
    """A fault that does not end the connection, and is logged."""
    origin: Origin | None = None
    """The origin of its events, if not the connection's: a copy of that with another
    `principal` or `attributes`, the same object for all batches of the same."""

    @property
    def work(self) -> float:
        """The cost for the turn, to be made and to be submitted."""
        if self.cost is not None:
            return self.cost + (BATCH if self.count else 2 * REPLY if self.ack else 0.0)
        return BATCH + EVENT * self.count + BYTE * len(self.body) + REPLY


class Session(Protocol):
    """One connection's side of a protocol, without I/O.

    It is made when the first bytes come, from the listener's settings, a clock, and the
    connection's origin.  That has who the peer is (`peer`, `principal`), and what the network
    knows of it (`attributes`), both of which it may set before its first batch.
    """

    @property
    def held_bytes(self) -> int:
        """How many bytes are buffered for batches that are not complete."""

    def received(self, data: bytes) -> Iterable[Ready]:
        """Take bytes of the stream, in any slicing; yields the batches they complete.

        Write a generator: it is resumed when there is time and room for the next batch,
        and is not called with more bytes before it has ended.  A `Refusal` is raised
        after the batches that were complete before its cause.
        """


class Pending(Struct, eq=False):
    """A batch that is complete and not acknowledged.  Implements `interfaces.Told`."""

    ack: bytes
    not_stored: bytes
    held: int
    """Bytes that it counts for `limits.unacknowledged_bytes`."""
    server: BatchServer
    batch: Batch | None = None
    """The batch that the journal has not stored yet; None: it is durable."""

    def callback(self, stored: Stored) -> None:
        self.batch = None
        self.server.stored(stored)

    def errback(self, why: Failure) -> None:
        if self.not_stored:
            self.ack, self.batch = self.not_stored, None
        self.server.lost(why, goes_on=bool(self.not_stored))


class BatchListener:
    """The servers' common part, of one listener.  Implements `interfaces.Accept`."""

    waiting: Deadlines[Any] | None = None
    """Tells servers whose peers have waited for some time; they wait, too, while nothing is
    read of them.  None: peers wait for acknowledgements only, and no server is told."""

    def __init__(
        self,
        settings: Settings[object],
        journal: Journal,
        clock: IReactorTime,
        session: Callable[[Any, IReactorTime, Origin], Session],
    ) -> None:
        """*session* makes that of a new connection, from *settings*, *clock* and its origin."""
        self.unacknowledged_bytes = settings.limits.unacknowledged_bytes
        self.batch_bytes = batch_bytes(self.unacknowledged_bytes)
        self.control_messages = settings.limits.control_messages
        self.journal = journal
        self.clock = clock
        self.session = partial(session, settings, clock)

    def __call__(self, connection: Connection) -> BatchServer:
        """The server of a new connection."""
        return BatchServer(self, connection)


class BatchServer(Closing, Yielding, Aging):
    """One connection.  Implements `interfaces.Server`."""

    __slots__ = ("_aged", "_batches", "_busy_since", "_control", "_ending", "_input", "_listener",
                 "_pending", "_session", "_valve", "unacknowledged_bytes")  # fmt: skip

    def __init__(self, listener: BatchListener, connection: Connection) -> None:
        super().__init__(connection)
        self._listener = listener
        self._session: Session | None = None
        self._batches: Iterator[Ready] | None = None
        """Batches that the session makes of bytes that it was given, not consumed yet."""
        self._input: list[bytes] = []
        """Bytes that arrived after those."""
        self._pending: deque[Pending] | None = None
        self.unacknowledged_bytes = 0
        """Bytes of complete batches that are not acknowledged."""
        self._valve = Valve(
            connection, listener.journal, listener.unacknowledged_bytes, self._settle
        )
        self._control: ControlBudget | None = None
        """None: no message that moves no data has come."""
        self._busy_since: float | None = None
        """The time since which the peer waits for us, and may be silent; None: it does not."""
        self._aged = self._ending = False

    @property
    def held_bytes(self) -> int:
        """Bytes that are buffered for batches that are still arriving."""
        if self._session is None:
            return 0
        return self._session.held_bytes + sum(map(len, self._input))

    # What the network tells

    def received(self, data: bytes) -> None:
        if self._ending or self._closed:
            return
        if self._session is None:
            self._session = self._listener.session(self._connection.origin)
        if data:
            self._input.append(data)
        self._valve.regulate(self.unacknowledged_bytes)
        try:
            self._take_turn(self._session)
        except Refusal as why:
            self.give_up(why)
        unread = self._batches is not None or self._input
        if self._aged and not unread:
            self._end_between()
        if self._ending or self._closed:
            return
        pending = self._pending
        if pending is not None and pending[0].batch is None:
            self._acknowledge()
        self._connection.hold(self.held_bytes)
        self._settle()
        if unread and not self._valve.paused:
            self._connection.again()

    def _take_turn(self, session: Session) -> None:
        """Submit what the input completes, as far as this turn and the limits allow."""
        left = TURN
        while left > 0 and not (self._valve.paused or self._closed):
            if self._batches is None:
                if not self._input or not self._connection.may_begin():
                    return
                self._batches = iter(session.received(self._input.pop(0)))
            ready = next(self._batches, None)
            if ready is None:
                self._batches = None
                continue
            left -= ready.work
            if ready.count or ready.ack:
                self._submit(ready)
                self._valve.regulate(self.unacknowledged_bytes)
                if self._aged and self._end_between():
                    return
            if ready.report is not None:
                self._connection.report(ready.report)
            if ready.control or self._control is not None:
                self._check_control(ready)
            if ready.close:
                self._end()
                return
            if (ready.count or ready.ack) and not self._connection.may_begin():
                return

    def _check_control(self, ready: Ready) -> None:
        """Raises `Refusal`: the peer sends messages without end, and no events."""
        control, listener = self._control, self._listener
        if control is None:
            control = self._control = ControlBudget(
                listener.clock.seconds, listener.control_messages
            )
        control.earn(ready.count)
        why = control.spend(ready.control)
        if why is not None:
            raise why

    @property
    def _unread(self) -> bool:
        """There is input left for another turn."""
        return self._batches is not None or bool(self._input)

    def drain(self) -> None:
        if self._ending or self._closed:
            return
        if self._session is not None and not (self._unread or self._valve.paused):
            for ready in self._whole(self._session):
                self._submit(ready)
        if not self._closed:
            self._end()

    def aged(self) -> None:
        """End between two batches."""
        self._aged = True
        if not self._unread:
            self._end_between()

    def _end_between(self) -> bool:
        """End, if nothing is here of a batch that its sender would have to send again."""
        session = self._session
        if not (self._ending or self._closed) and self._is_between(session):
            self._end()
        return self._ending

    def _is_between(self, session: Any) -> bool:
        """No batch has begun and not ended, in what was looked at."""
        return session is None or not session.held_bytes

    def _whole(self, session: Any) -> Iterable[Ready]:
        """The whole part of a batch that is still arriving, if it may be stored by itself."""
        return ()

    # What the listener tells

    def give_up(self, why: Refusal) -> None:
        """Acknowledge what is complete, then close; *why* is logged."""
        self._refusal = why
        self._end()

    # Batches

    def _submit(self, ready: Ready) -> None:
        if not isinstance(ready.ack, bytes):
            raise TypeError(f"the acknowledgement is no bytes: {ready.ack!r}"[:200])
        held = len(ready.body) + len(ready.ack) + ready.count * _EVENT_BYTES
        held += self._listener.batch_bytes
        pending = Pending(ready.ack, ready.not_stored, held, self)
        if self._pending is None:
            self._pending = deque((pending,))
        else:
            self._pending.append(pending)
        self.unacknowledged_bytes += held
        if ready.count:
            batch = pending.batch = Batch(
                origin=ready.origin or self._connection.origin,
                received_at=int(self._listener.clock.seconds() * 1_000_000),
                count=ready.count,
                body=ready.body,
                payload_bytes=ready.payload_bytes,
            )
            self._listener.journal.submit_for(pending, batch)

    def stored(self, stored: Stored) -> None:
        """A batch is durable."""
        self._connection.count(events=stored.batch.count)
        if self._closed:
            return
        self._acknowledge()
        self._settle()

    def lost(self, failure: Failure, *, goes_on: bool = False) -> None:
        """A batch can not be stored; with *goes_on* its peer is told so in its turn."""
        why = failure.getErrorMessage()
        if not goes_on:
            self._not_stored_because(why)
        elif not self._closed:
            self._connection.report(Refusal(f"what it sent can not be stored: {why}"))
            self._acknowledge()
            self._settle()

    def _acknowledge(self) -> None:
        """Acknowledge the batches that are durable, as far as their order allows."""
        pending = self._pending
        if pending is None or pending[0].batch is not None:
            return
        acks = []
        while pending and pending[0].batch is None:
            first = pending.popleft()
            acks.append(first.ack)
            self.unacknowledged_bytes -= first.held
        if not pending:
            self._pending = None
        if data := b"".join(acks):
            self._connection.write(data)  # the network may give us up in it
        if self._ending and self._pending is None:
            self._hang_up()

    # Flow

    def _settle(self) -> None:
        """Pause or go on, as the journal allows, and tell the network whether the peer waits.

        Whether too much is unacknowledged was asked when it grew.
        """
        valve, listener = self._valve, self._listener
        if (
            (valve.paused or listener.journal.full)
            and not (self._ending or self._closed)
            and valve.regulate(self.unacknowledged_bytes)
            and self._unread
        ):
            self._connection.again()
        waiting = listener.waiting
        busy = self._pending is not None
        if waiting is not None and not busy:
            unread = self._batches is not None or bool(self._input)
            busy = unread or self._not_read
        busy = busy and not self._closed
        if busy is (self._busy_since is not None):
            return
        self._busy_since = listener.clock.seconds() if busy else None
        self._connection.busy(busy)
        if waiting is not None:
            if busy:
                waiting.watch(self)
            else:
                waiting.forget(self)

    @property
    def _not_read(self) -> bool:
        """Nothing is read of the peer, so that it may wait for us unseen."""
        return self._valve.paused or self._connection.waits_for_room

    # The end

    def _end(self) -> None:
        """Take no more; hang up once all batches are acknowledged."""
        self._ending = True
        self._drop_session()
        self._acknowledge()
        if self._pending is None:
            self._hang_up()
        else:
            self._connection.take_no_more()
            self._settle()

    def _drop_session(self) -> None:
        self._batches = None
        self._input = []
        if self._session is not None:
            self._session = None
            self._connection.hold(0)

    def _forget(self) -> None:
        self._valve.close()
        self._drop_session()
        pending, self._pending = self._pending, None
        self.unacknowledged_bytes = 0
        for one in pending or ():
            if one.ack and one.batch is not None:  # its sender will send it again
                self._listener.journal.withdraw(one.batch)
        self._settle()
