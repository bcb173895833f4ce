"""Sends events on connection after connection, until they are acknowledged.

    sender = Sender(endpoint(reactor, "gw.example", 5044), writer, clock=reactor)
    sender.start()
    await sender.send([b'{"message":"hi"}'])     # acknowledged: it is on disk

It reconnects by itself, with pauses that grow until something is acknowledged (`Attempts`).
Each protocol has a `Writer`, which knows what to send on a connection and what the answers
mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

from attrs import define
from twisted.internet import interfaces
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.sdk.backoff import Attempts, Backoff, Unacknowledged
from gateway.sdk.interfaces import Refusal
from gateway.sdk.outgoing import Stream, Streams, why_lost

__all__ = [
    "Backoff", "Batch", "Sender", "Unacknowledged", "Unexpected", "Unsendable", "Writer",
]  # fmt: skip


class Unexpected(Exception):
    """An answer that makes no sense; its connection is dropped."""


class Unsendable(Exception):
    """The protocol can not carry an event, which *batch* has set aside."""

    def __init__(self, batch: Batch, why: str) -> None:
        super().__init__(why)
        self.batch = batch


class Batch:
    """Events that the caller wants acknowledged as a whole."""

    __slots__ = ("acknowledged", "events", "refused", "sent")

    def __init__(self, events: Sequence[bytes]) -> None:
        self.events = events
        self.sent = 0
        """How many were sent."""
        self.acknowledged = 0
        """How many of those are acknowledged, or set aside."""
        self.refused: dict[int, str] = {}
        """The events that were set aside, by their place, and why, if that is known for sure."""

    @property
    def stored(self) -> int:
        """How many are acknowledged, without those that were set aside."""
        return self.acknowledged - len(self.refused)

    def set_aside(self, why: str = "") -> None:
        """The next event is not to be sent again."""
        self.refused[self.acknowledged] = why
        self.acknowledged += 1
        self.sent = max(self.sent, self.acknowledged)

    @property
    def done(self) -> bool:
        """All are acknowledged, or set aside."""
        return self.acknowledged == len(self.events)


class Writer(Protocol):
    """The sending side of a protocol, over one connection after the other.  No I/O, no clock."""

    at_once: int | None
    """The most events in flight; None: as many as it likes."""
    alive_every: float
    """Seconds between the signs of life that the other end wants; 0: it wants none."""

    @property
    def in_flight(self) -> int:
        """Events that were sent on this connection and are not acknowledged."""

    @property
    def resent(self) -> int:
        """Events that were sent more than once."""

    @property
    def waiting(self) -> bool:
        """An answer of the other end is due."""

    @property
    def batches(self) -> Sequence[Batch]:
        """The batches that are not acknowledged, oldest first."""

    def connected(self) -> bytes:
        """A connection is open; returns what to write first on it."""

    def add(self, batch: Batch) -> None:
        """Send these events too."""

    def take(self) -> bytes:
        """The bytes to write next; empty if nothing may be written now.

        Raises `Unsendable` for an event that the protocol can not carry.
        """

    def alive(self) -> bytes:
        """A sign of life."""

    def received(self, data: bytes) -> Iterator[Batch]:
        """The batches that these bytes of the answer acknowledge.

        Raises `Unexpected` or `Refusal` for an answer that makes no sense.
        """

    def disconnected(self) -> None:
        """The connection ended: what is not acknowledged is to be sent again."""

    def set_aside(self) -> Batch | None:
        """The one event that was in flight is not to be sent again; its batch, if that is
        done now.
        """


class _Sent(Batch):
    __slots__ = ("fate",)

    def __init__(self, events: Sequence[bytes]) -> None:
        super().__init__(events)
        self.fate: Deferred[dict[int, str]] = Deferred()


@define(eq=False, slots=False)
class Sender:
    """Sends events to one address, between `start` and `stop`.

    *websocket* is the request's `//HOST/PATH`, or None for no WebSocket.

    Who *sets_aside* does without an event that is lost with one connection after the other,
    alone; otherwise it is tried for ever.

    If an acknowledgement is due and nothing arrives for *timeout* seconds, the
    connection is dropped and another one opened.

    16 attributes: six are given; the others are the attempts, and what waits for them.
    """

    _log = Logger()

    _target: interfaces.IStreamClientEndpoint
    writer: Writer
    _clock: interfaces.IReactorTime
    _websocket: str | None = None
    _timeout: float = 30.0
    _sets_aside: bool = False

    def __attrs_post_init__(self) -> None:
        self.connections = 0
        """How many connections were opened so far."""
        self.trouble = ""
        """Why there is no connection, or why the last one ended."""
        self._attempts = Attempts()
        self._stream: Stream | None = None
        self._open = False
        self._connecting: Deferred[Any] | None = None
        self._retry: interfaces.IDelayedCall | None = None
        self._deadline: interfaces.IDelayedCall | None = None
        self._alive: interfaces.IDelayedCall | None = None
        self._stopped: Deferred[None] | None = None

    @property
    def resent(self) -> int:
        return self.writer.resent

    def start(self) -> None:
        """Connect, and reconnect, until `stop`."""
        self._retry = None
        self._connecting = self._target.connect(Streams(self, self._websocket))
        self._connecting.addErrback(self._failed)

    def send(self, events: Sequence[bytes]) -> Deferred[dict[int, str]]:
        """Fires when all of *events* are acknowledged; never fails before `stop`.

        Of who `sets_aside` the result are those that were, as in `Batch.refused`.
        """
        if not events:
            return succeed({})
        batch = _Sent(events)
        self.writer.add(batch)
        self._write()
        return batch.fate

    offer = send

    def stop(self) -> Deferred[None]:
        """Disconnect; what is not acknowledged fails with `Unacknowledged`."""
        stopped: Deferred[None] = Deferred()
        self._stopped = stopped
        if self._retry is not None:
            self._retry.cancel()
        self._cancel_timers()
        for batch in list(self.writer.batches):
            cast("_Sent", batch).fate.errback(Unacknowledged())
        if self._stream is not None:
            self._stream.close()
            return stopped
        if self._connecting is not None:
            self._connecting.cancel()  # may call `closed`
        if not stopped.called:
            stopped.callback(None)
        return stopped

    # `outgoing.User`

    def connected(self, stream: Stream) -> None:
        self._connecting = None
        self._stream = stream
        self._start_deadline()

    def opened(self) -> None:
        """The connection is ready for data."""
        self._open = True
        self.connections += 1
        self._cancel_deadline()
        greeting = self.writer.connected()
        if greeting and self._stream is not None:
            self._stream.send(greeting)
        self._write()

    def received(self, data: bytes) -> None:
        if self._stopped is not None or self._stream is None:
            return
        self._cancel_deadline()
        writer, done = self.writer, []
        pending = list(writer.batches)
        before = sum(batch.stored for batch in pending)
        trouble = None
        try:
            for batch in writer.received(data):
                done.append(batch)  # noqa: PERF402 - it may raise
        except (Unexpected, Refusal) as why:
            trouble = str(why)
        if sum(batch.stored for batch in pending) > before:
            self._attempts.acknowledged()
            writer.at_once = self._attempts.at_once
        if trouble is not None:
            self._abort(trouble)
        else:
            self._write()
            self._stay_alive()
        for batch in done:
            _tell(batch)

    def closed(self, why: Failure) -> None:
        if self._stream is not None or self._connecting is not None:
            self.trouble = why_lost(why)
        self._stream = self._connecting = None
        self._open = False
        self._cancel_timers()
        if self._stopped is not None:
            if not self._stopped.called:
                self._stopped.callback(None)
            return
        writer, attempts = self.writer, self._attempts
        to_blame = self._sets_aside and attempts.lost(writer.in_flight)
        writer.at_once = attempts.at_once
        writer.disconnected()
        self._log.debug("disconnected: {why}", why=self.trouble)
        self._retry = self._clock.callLater(attempts.pause(), self.start)
        if to_blame and (batch := writer.set_aside()) is not None:
            _tell(batch)

    def _failed(self, why: Failure) -> None:
        if self._stopped is None or not why.check(CancelledError):
            self.closed(why)

    def _write(self) -> None:
        if self._stream is None or not self._open:
            return
        while True:
            try:
                data = self.writer.take()
            except Unsendable as why:
                self.trouble = str(why)
                if why.batch.done:
                    self._clock.callLater(0, _tell, why.batch)
                continue
            if not data:
                break
            self._stream.send(data)
        if self.writer.waiting:
            self._start_deadline()

    def _stay_alive(self) -> None:
        """Give signs of life from now on, if the other end wants them."""
        seconds = self.writer.alive_every
        if self._alive is None and seconds and self._stream is not None:
            self._alive = self._clock.callLater(seconds, self._give_sign)

    def _give_sign(self) -> None:
        self._alive = None
        assert self._stream is not None
        self._stream.send(self.writer.alive())
        self._stay_alive()

    def _cancel_timers(self) -> None:
        self._cancel_deadline()
        if self._alive is not None:
            self._alive.cancel()
            self._alive = None

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self._clock.callLater(self._timeout, self._timed_out)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _timed_out(self) -> None:
        self._deadline = None
        self._abort(f"no answer for {self._timeout:g} s")

    def _abort(self, why: str) -> None:
        if self._stream is not None:
            self._log.warn("disconnecting: {why}", why=why)
            self.trouble = why
            self._cancel_timers()
            stream, self._stream = self._stream, None
            stream.abort()


def _tell(batch: Batch) -> None:
    fate = cast("_Sent", batch).fate
    if not fate.called:  # it was stopped meanwhile
        fate.callback(batch.refused)
