"""Sends events on connection after connection, until they are acknowledged.

    sender = Sender(endpoint(reactor, "gw.example", 5044), writer, clock=reactor)
    sender.start()
    await sender.send([b'{"message":"hi"}'])     # acknowledged: it is on disk

It reconnects by itself, with growing pauses.  What to say on a connection, and what the
answers mean, its `Writer` knows: one for each protocol.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

from twisted.internet import interfaces
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.interfaces import Refusal
from gateway.protocols.outgoing import Stream, Streams

__all__ = ["Lot", "Sender", "Unacknowledged", "Unexpected", "Writer"]

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0


class Unacknowledged(Exception):
    """The sender was stopped before the other end said that these events are safe."""


class Unexpected(Exception):
    """An answer that makes no sense; the connection that it came on is given up."""


class Lot:
    """Events that are acknowledged as a whole; the caller adds what it likes."""

    __slots__ = ("acknowledged", "events", "sent")

    def __init__(self, events: Sequence[bytes]) -> None:
        self.events = events
        self.sent = 0
        """How many are on their way or were."""
        self.acknowledged = 0
        """How many of those are safe."""

    @property
    def done(self) -> bool:
        """All of it is safe."""
        return self.acknowledged == len(self.events)


class Writer(Protocol):
    """One connection after the other, from the sending side; no I/O, no clock."""

    @property
    def resent(self) -> int:
        """Events that were sent more than once."""

    @property
    def waiting(self) -> bool:
        """The other end owes us an answer."""

    @property
    def lots(self) -> Sequence[Lot]:
        """What is not acknowledged, oldest first."""

    def connected(self) -> bytes:
        """What to say first on a new connection."""

    def add(self, lot: Lot) -> None:
        """Send this as well."""

    def take(self) -> bytes:
        """What to write now; empty if nothing may be."""

    def received(self, data: bytes) -> Iterator[Lot]:
        """The lots that are safe now.  May raise `Unexpected` or `Refusal`."""

    def disconnected(self) -> None:
        """What is not acknowledged is to be sent again."""


class _Sent(Lot):
    __slots__ = ("safe",)

    def __init__(self, events: Sequence[bytes]) -> None:
        super().__init__(events)
        self.safe: Deferred[None] = Deferred()


class Sender:
    """Sends events to one place for as long as it runs."""

    _log = Logger()

    def __init__(
        self,
        target: interfaces.IStreamClientEndpoint,
        writer: Writer,
        *,
        clock: interfaces.IReactorTime,
        websocket: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        """*websocket* is the request's `//HOST/PATH`, or None for a bare stream.

        After *timeout* seconds without a sign of life from one that owes us an
        acknowledgement, we try another connection.
        """
        self.writer = writer
        self.connections = 0
        """How many were opened so far."""
        self.trouble = ""
        """Why there is no connection, or why the last one ended."""
        self._target = target
        self._clock = clock
        self._websocket = websocket
        self._timeout = timeout
        self._pause = _FIRST_PAUSE
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
        """Connect, and stay connected until `stop`."""
        self._retry = None
        self._connecting = self._target.connect(Streams(self, self._websocket))
        self._connecting.addErrback(self._failed)

    def send(self, events: Sequence[bytes]) -> Deferred[None]:
        """Fires when all of *events* are acknowledged; never fails before `stop`."""
        if not events:
            return succeed(None)
        lot = _Sent(events)
        self.writer.add(lot)
        self._write()
        return lot.safe

    def stop(self) -> Deferred[None]:
        """Disconnect; what is not acknowledged fails with `Unacknowledged`."""
        stopped: Deferred[None] = Deferred()
        self._stopped = stopped
        if self._retry is not None:
            self._retry.cancel()
        self._rest()
        for lot in list(self.writer.lots):
            cast("_Sent", lot).safe.errback(Unacknowledged())
        if self._stream is not None:
            self._stream.close()
            return stopped
        if self._connecting is not None:
            self._connecting.cancel()  # `closed` hears of it, if anybody does
        if not stopped.called:
            stopped.callback(None)
        return stopped

    # What the stream tells

    def connected(self, stream: Stream) -> None:
        """There is a connection; it may still have to become a WebSocket."""
        self._connecting = None
        self._stream = stream
        self._wait()

    def opened(self) -> None:
        """The connection takes bytes."""
        self._open = True
        self.connections += 1
        self._rest()
        greeting = self.writer.connected()
        if greeting and self._stream is not None:
            self._stream.send(greeting)
        self._write()

    def received(self, data: bytes) -> None:
        """The other end says something."""
        if self._stopped is not None or self._stream is None:
            return
        self._rest()
        done = []
        try:
            for lot in self.writer.received(data):
                done.append(cast("_Sent", lot))  # noqa: PERF401 - it may raise
        except (Unexpected, Refusal) as why:
            self._abort(str(why))
        else:
            self._pause = _FIRST_PAUSE
            self._write()
        for lot in done:
            lot.safe.callback(None)

    def closed(self, why: Failure) -> None:
        """The connection ended, or never was one."""
        if self._stream is not None or self._connecting is not None:
            self.trouble = why.getErrorMessage()
        self._stream = self._connecting = None
        self._open = False
        self._rest()
        if self._stopped is not None:
            if not self._stopped.called:
                self._stopped.callback(None)
            return
        self.writer.disconnected()
        self._log.debug("disconnected: {why}", why=self.trouble)
        self._retry = self._clock.callLater(self._pause, self.start)
        self._pause = min(_LONGEST_PAUSE, self._pause * random.uniform(1.5, 2.5))  # noqa: S311 - spreads retries

    def _failed(self, why: Failure) -> None:
        if self._stopped is None or not why.check(CancelledError):
            self.closed(why)

    def _write(self) -> None:
        if self._stream is None or not self._open:
            return
        while data := self.writer.take():
            self._stream.send(data)
        if self.writer.waiting:
            self._wait()

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self._clock.callLater(self._timeout, self._silent)

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _silent(self) -> None:
        self._deadline = None
        self._abort(f"no answer for {self._timeout:g} s")

    def _abort(self, why: str) -> None:
        if self._stream is not None:
            self._log.warn("disconnecting: {why}", why=why)
            self.trouble = why
            stream, self._stream = self._stream, None
            stream.abort()
