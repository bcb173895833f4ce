"""Connects an RS.io client on Twisted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn

from twisted.internet import interfaces
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.protocols.rsio.client.peer import Peer, connected
from gateway.protocols.rsio.client.runtime import Disconnected, Waiter
from gateway.protocols.rsio.messages import SUBPROTOCOL
from gateway.sdk.outgoing import Http2, Stream, Streams

_OPENING_SECONDS = 10.0
"""Seconds for the answer to a request for a WebSocket; the hello has a time of its own."""


class TwistedRuntime:
    """Implements `Runtime`."""

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


class _Transport:
    """Implements `Transport` with a stream."""

    def __init__(self, stream: Stream) -> None:
        self.write = stream.send
        self.close = stream.close
        self.abort = stream.abort


def _no_answer(_: object, seconds: float) -> NoReturn:
    raise Disconnected(f"no answer within {seconds:g} s")


class _Connecting:
    """Makes a `Peer` of a stream that opens, and tells it what happens there."""

    def __init__(self, clock: interfaces.IReactorTime, options: Any) -> None:
        self._clock = clock
        self._options = options
        self._stream: Stream | None = None
        self._peer: Peer | None = None
        self.opening: Deferred[Peer] = Deferred(self._give_up)

    def connected(self, stream: Stream) -> None:
        self._stream = stream
        self.opening.addTimeout(_OPENING_SECONDS, self._clock, _no_answer)

    def opened(self) -> None:
        assert self._stream is not None, "connected comes first"
        peer = Peer(
            _Transport(self._stream), TwistedRuntime(self._clock), **self._options
        )
        self._stream.when_choked(peer.writable)
        self._peer = peer
        self.opening.callback(peer)

    def received(self, data: bytes) -> None:
        if self._peer is not None:
            self._peer.received(data)

    def closed(self, why: Failure) -> None:
        if self._peer is not None:
            self._peer.lost(why.getErrorMessage())
        elif not self.opening.called:
            self.opening.errback(Disconnected(why.getErrorMessage()))

    def _give_up(self, _: Deferred[Peer]) -> None:
        if self._stream is not None:
            self._stream.abort()


def connect(
    target: interfaces.IStreamClientEndpoint,
    *,
    clock: interfaces.IReactorTime,
    websocket: str | None = None,
    http2: Http2 | None = None,
    **options: Any,
) -> AbstractAsyncContextManager[Peer]:
    """A connection to *target*, for `async with` in `Deferred.fromCoroutine`.

    *websocket* is the request's `//HOST/PATH`, *http2* what a stream of HTTP/2 is asked
    for with; without them it is a bare stream.  *options* are those of `Peer`.  Raises
    `Disconnected`, or what *target* fails with.
    """

    async def connecting() -> Peer:
        user = _Connecting(clock, options)
        await target.connect(
            Streams(user, websocket, subprotocols=[SUBPROTOCOL], http2=http2)
        )
        return await user.opening

    return connected(connecting)
