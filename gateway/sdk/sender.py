"""Sends events on connection after connection, until they are acknowledged.

    sender = Sender(endpoint(reactor, "gw.example", 5044), writer, clock=reactor)
    sender.start()
    await sender.send([b'{"message":"hi"}'])     # acknowledged: it is on disk

It reconnects by itself, with growing pauses.  Each protocol has a `Writer`, which knows
what to send on a connection and what the answers mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

from attrs import define
from twisted.internet import interfaces
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.sdk.backoff import Backoff, Unacknowledged
from gateway.sdk.interfaces import Refusal
from gateway.sdk.outgoing import Stream, Streams

__all__ = ["Backoff", "Batch", "Sender", "Unacknowledged", "Unexpected", "Writer"]


class Unexpected(Exception):
    """An answer that makes no sense; its connection is dropped."""


class Batch:
    """Events that the caller wants acknowledged as a whole."""

    __slots__ = ("acknowledged", "events", "sent")

    def __init__(self, events: Sequence[bytes]) -> None:
        self.events = events
        self.sent = 0
        """How many were sent."""
        self.acknowledged = 0
        """How many of those are acknowledged."""

    @property
    def done(self) -> bool:
        """All are acknowledged."""
        return self.acknowledged == len(self.events)


class Writer(Protocol):
    """The sending side of a protocol, over one connection after the other.

    No I/O, no clock.
    """

    @property
    def resent(self) -> int:
        """Events that were sent more than once."""

    @property
    def waiting(self) -> bool:
        """An answer of the other end is due."""

    @property
    def batches(self) -> Sequence[Batch]:
        """Those that are not acknowledged, oldest first."""

    def connected(self) -> bytes:
        """A connection is open; returns what to write first on it."""

    def add(self, batch: Batch) -> None:
        """Send these events too."""

    def take(self) -> bytes:
        """What to write next; empty if nothing may be written now."""

    def received(self, data: bytes) -> Iterator[Batch]:
        """The batches that these bytes of the answer acknowledge.

        Raises `Unexpected` or `Refusal` for an answer that makes no sense.
        """

    def disconnected(self) -> None:
        """The connection ended: what is not acknowledged is to be sent again."""


class _Sent(Batch):
    __slots__ = ("stored",)

    def __init__(self, events: Sequence[bytes]) -> None:
        super().__init__(events)
        self.stored: Deferred[None] = Deferred()


@define(eq=False, slots=False)
class Sender:
    """Sends events to one address, between `start` and `stop`.

    *websocket* is the request's `//HOST/PATH`, or None for no WebSocket.

    If an acknowledgement is due and nothing arrives for *timeout* seconds, the
    connection is dropped and another one opened.
    """

    _log = Logger()

    _target: interfaces.IStreamClientEndpoint
    writer: Writer
    _clock: interfaces.IReactorTime
    _websocket: str | None = None
    _timeout: float = 30.0

    def __attrs_post_init__(self) -> None:
        self.connections = 0
        """How many connections were opened so far."""
        self.trouble = ""
        """Why there is no connection, or why the last one ended."""
        self._backoff = Backoff()
        self._stream: Stream | None = None
        self._open = False
        self._connecting: Deferred[Any] | None = None
        self._retry: interfaces.IDelayedCall | None = None
        self._deadline: interfaces.IDelayedCall | None = None
        self._stopped: Deferred[None] | None = None

    @property
    def resent(self) -> int:
        """Events that were sent more than once."""
        return self.writer.resent

    def start(self) -> None:
        """Connect, and reconnect, until `stop`."""
        self._retry = None
        self._connecting = self._target.connect(Streams(self, self._websocket))
        self._connecting.addErrback(self._failed)

    def send(self, events: Sequence[bytes]) -> Deferred[None]:
        """Fires when all of *events* are acknowledged; never fails before `stop`."""
        if not events:
            return succeed(None)
        batch = _Sent(events)
        self.writer.add(batch)
        self._write()
        return batch.stored

    def stop(self) -> Deferred[None]:
        """Disconnect; what is not acknowledged fails with `Unacknowledged`."""
        stopped: Deferred[None] = Deferred()
        self._stopped = stopped
        if self._retry is not None:
            self._retry.cancel()
        self._cancel_deadline()
        for batch in list(self.writer.batches):
            cast("_Sent", batch).stored.errback(Unacknowledged())
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
        """Connected; the WebSocket handshake may still be to come."""
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
        """Data arrived."""
        if self._stopped is not None or self._stream is None:
            return
        self._cancel_deadline()
        done = []
        try:
            for batch in self.writer.received(data):
                done.append(cast("_Sent", batch))  # noqa: PERF401 - it may raise
        except (Unexpected, Refusal) as why:
            self._abort(str(why))
        else:
            self._backoff.succeeded()
            self._write()
        for batch in done:
            batch.stored.callback(None)

    def closed(self, why: Failure) -> None:
        """The connection ended, or could not be opened."""
        if self._stream is not None or self._connecting is not None:
            self.trouble = why.getErrorMessage()
        self._stream = self._connecting = None
        self._open = False
        self._cancel_deadline()
        if self._stopped is not None:
            if not self._stopped.called:
                self._stopped.callback(None)
            return
        self.writer.disconnected()
        self._log.debug("disconnected: {why}", why=self.trouble)
        self._retry = self._clock.callLater(self._backoff.pause(), self.start)

    def _failed(self, why: Failure) -> None:
        if self._stopped is None or not why.check(CancelledError):
            self.closed(why)

    def _write(self) -> None:
        if self._stream is None or not self._open:
            return
        while data := self.writer.take():
            self._stream.send(data)
        if self.writer.waiting:
            self._start_deadline()

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
            stream, self._stream = self._stream, None
            stream.abort()
