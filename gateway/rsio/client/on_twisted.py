"""RS.io on Twisted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from twisted.internet import interfaces, protocol
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.rsio.client.peer import Peer
from gateway.rsio.client.waiting import Waiter

__all__ = ["connect"]


class _Runtime:
    def __init__(self, clock: interfaces.IReactorTime) -> None:
        self._clock = clock

    def waiter(self) -> Waiter:
        waiting: Deferred[None] = Deferred()

        def wake() -> None:
            if not waiting.called:
                waiting.callback(None)

        return waiting, wake

    def soon(self, call: Callable[[], None]) -> None:
        self._clock.callLater(0, call)

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        delayed = self._clock.callLater(seconds, call)

        def cancel() -> None:
            if delayed.active():
                delayed.cancel()

        return cancel


class _Wire:
    """What we need of a transport; zope's interfaces say it in two."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._transport.unregisterProducer()  # TLS would wait for it
        self._transport.loseConnection()

    def abort(self) -> None:
        self._transport.abortConnection()


@implementer(interfaces.IPushProducer)
class _Protocol(protocol.Protocol):
    def __init__(self, clock: interfaces.IReactorTime, options: Any) -> None:
        self._clock = clock
        self._options = options
        self.peer: Peer | None = None

    def connectionMade(self) -> None:
        transport = cast("Any", self.transport)
        transport.registerProducer(self, True)
        self.peer = Peer(_Wire(transport), _Runtime(self._clock), **self._options)

    def dataReceived(self, data: bytes) -> None:
        if self.peer is not None:
            self.peer.received(data)

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        if self.peer is not None:
            self.peer.lost(reason.getErrorMessage())

    def pauseProducing(self) -> None:
        if self.peer is not None:
            self.peer.writable(False)

    def resumeProducing(self) -> None:
        if self.peer is not None:
            self.peer.writable(True)

    def stopProducing(self) -> None:
        pass


@asynccontextmanager
async def connect(
    target: interfaces.IStreamClientEndpoint,
    *,
    clock: interfaces.IReactorTime,
    **options: Any,
) -> AsyncIterator[Peer]:
    """A `Peer` at *target*; it says goodbye at the end.  For `Deferred.fromCoroutine`.

    *options* are those of `Peer`.
    """
    factory = protocol.Factory.forProtocol(lambda: _Protocol(clock, options))
    factory.noisy = False
    made = cast("_Protocol", await target.connect(factory))
    peer = made.peer
    assert peer is not None, "connectionMade comes first"
    try:
        await peer.opened()
        yield peer
    except GeneratorExit:  # nobody runs us any more: no time for a goodbye
        peer.abandon()
        raise
    finally:
        await peer.close()
