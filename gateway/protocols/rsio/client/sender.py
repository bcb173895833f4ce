"""Reconnecting publisher on Twisted: sends until the gateway has everything on disk.

sender = Sender(lambda: connect(target, clock=reactor, name="meter-17"), clock=reactor)
sender.start()
await sender.send([b'{"kWh": 17.5}'])       # returns when it is on disk
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.protocols.rsio.client.on_twisted import TwistedRuntime
from gateway.protocols.rsio.client.peer import Peer
from gateway.protocols.rsio.client.reconnecting import Reconnecting


class Sender(Reconnecting):
    """A `gateway.sdk.sender.Sender` on Twisted that is `Reconnecting`."""

    failures: ClassVar = (
        *Reconnecting.failures,
        ConnectError,
        ConnectingCancelledError,
    )
    cancelled: ClassVar = CancelledError

    _log = Logger()

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Peer]],
        publisher: str = "events",
        *,
        clock: IReactorTime,
        size: int = 0,
    ) -> None:
        """*connect* makes a connection; *size* is in bytes, 0 if elements differ."""
        super().__init__(connect, publisher, TwistedRuntime(clock), size)
        self._running: Deferred[Any] = succeed(None)

    def start(self) -> None:
        """Connect, and stay connected until `stop`."""
        self._running = Deferred.fromCoroutine(self._keep_connected())
        self._running.addErrback(self._failed)

    def stop(self) -> Deferred[None]:
        """Say goodbye; what is not acknowledged fails with `Unacknowledged`."""
        stopped: Deferred[None] = Deferred()
        self._stop()
        self._running.addBoth(lambda _: stopped.callback(None))
        self._running.cancel()
        return stopped

    def _failed(self, why: Failure) -> None:
        if not why.check(CancelledError):
            self.trouble = why.getErrorMessage()
            self._log.failure("sender failed", failure=why)
