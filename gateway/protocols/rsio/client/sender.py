"""Reconnecting publisher on Twisted: sends until the gateway has everything on disk.

sender = Sender(lambda: connect(target, clock=reactor, name="meter-17"), clock=reactor)
sender.start()
await sender.send([b'{"kWh": 17.5}'])       # returns when it is on disk
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.protocols.backoff import Backoff
from gateway.protocols.rsio.client.outbox import Outbox
from gateway.protocols.rsio.client.peer import Peer
from gateway.protocols.rsio.client.publishing import Publishing
from gateway.protocols.rsio.client.runtime import (
    CanNotResume,
    Disconnected,
    StreamFailed,
)
from gateway.protocols.sender import Unacknowledged

__all__ = ["Sender"]

#: What ends a connection, or prevents one; the next attempt follows.
_FAILURES = (
    Disconnected,
    StreamFailed,
    ConnectError,
    ConnectingCancelledError,
    OSError,
)


@define(eq=False, slots=False)
class Sender:
    """As `gateway.protocols.sender.Sender`: what is not acknowledged is sent again.

    *connect* makes a connection; *size* is in bytes, 0 if elements differ.

    With a name, elements are stored exactly once; without one, at least once.  It stops
    for good, and `send` raises `CanNotResume`, once another sender has its name.
    """

    _log = Logger()

    _connect: Callable[[], AbstractAsyncContextManager[Peer]]
    _publisher: str = "events"
    _clock: IReactorTime = field(kw_only=True)
    _size: int = 0

    def __attrs_post_init__(self) -> None:
        self.connections = 0
        """How many were opened so far."""
        self.trouble = ""
        """Why the last connection ended or none could be made; "" while publishing."""
        self._outbox = Outbox()
        self._publishing: Publishing | None = None
        self._waiting: list[Deferred[None]] = []
        self._running: Deferred[Any] = succeed(None)
        self._stopping = False
        self._over: CanNotResume | None = None
        self._backoff = Backoff()

    @property
    def resent(self) -> int:
        """How many elements were sent more than once."""
        return self._outbox.resent

    def start(self) -> None:
        """Connect, and stay connected until `stop`."""
        self._running = Deferred.fromCoroutine(self._keep_connected())
        self._running.addErrback(self._failed)

    async def send(self, elements: Sequence[bytes]) -> None:
        """Returns when all of them are on disk.

        Raises `Unacknowledged` after `stop`, `CanNotResume` when it ended by itself.
        """
        outbox = self._outbox
        for element in elements:
            outbox.add(element)
        last = outbox.confirmed + len(outbox)
        while outbox.confirmed < last:
            publishing = self._publishing
            if self._over is not None:
                raise self._over
            if self._stopping:
                raise Unacknowledged
            if publishing is None:
                waiting: Deferred[None] = Deferred()
                self._waiting.append(waiting)
                await waiting
                continue
            try:
                await publishing.settled(last)
            except (Disconnected, StreamFailed):
                if self._publishing is publishing:
                    self._publishing = None

    def stop(self) -> Deferred[None]:
        """Say goodbye; what is not acknowledged fails with `Unacknowledged`."""
        stopped: Deferred[None] = Deferred()
        self._stopping = True
        self._wake()
        self._running.addBoth(lambda _: stopped.callback(None))
        self._running.cancel()
        return stopped

    async def _keep_connected(self) -> None:
        while not self._stopping and self._over is None:
            try:
                async with self._connect() as peer:
                    self.connections += 1
                    await self._publish(peer)
            except _FAILURES as why:
                self.trouble = str(why) or type(why).__name__
                self._log.debug("disconnected: {why}", why=self.trouble)
                if isinstance(why, CanNotResume):
                    self._over = why
            self._publishing = None
            if self._over is not None:
                self._wake()
            elif not self._stopping:
                await deferLater(self._clock, self._backoff.pause())

    async def _publish(self, peer: Peer) -> None:
        """Let `send` publish for as long as the connection lasts."""
        self.trouble = f"nobody subscribes to {self._publisher!r}"
        publishing = peer.publisher(
            self._publisher, size=self._size, outbox=self._outbox
        )
        async with publishing:
            self.trouble = ""
            self._backoff.succeeded()
            self._publishing = publishing
            self._wake()
            try:
                await publishing.ended()
            except CancelledError:
                if len(self._outbox):
                    peer.abandon()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    def _failed(self, why: Failure) -> None:
        if not why.check(CancelledError):
            self.trouble = why.getErrorMessage()
            self._log.failure("sender failed", failure=why)
