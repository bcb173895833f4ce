"""Connects an RS.io client on asyncio; a publisher that reconnects.

async with Sender(lambda: connect("gw.example", 7400, name="meter-17")) as sender:
    await sender.send([b'{"kWh": 17.5}'])       # returns when it is on disk
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Self, cast

from gateway.protocols.rsio.client.peer import Peer, connected
from gateway.protocols.rsio.client.reconnecting import Reconnecting
from gateway.protocols.rsio.client.runtime import Waiter


class _Runtime:
    """Implements `Runtime`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def waiter(self) -> Waiter:
        future: asyncio.Future[None] = self._loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        return future, wake

    def soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        return self._loop.call_later(seconds, call).cancel


class _Protocol(asyncio.Protocol):
    """Makes a `Peer` of a connection, and tells it what happens there."""

    def __init__(self, loop: asyncio.AbstractEventLoop, options: Any) -> None:
        self._loop = loop
        self._options = options
        self.peer: Peer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        self.peer = Peer(stream, _Runtime(self._loop), **self._options)

    def data_received(self, data: bytes) -> None:
        if self.peer is not None:
            self.peer.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.peer is not None:
            self.peer.lost(str(exc or "the connection was closed"))

    def pause_writing(self) -> None:
        if self.peer is not None:
            self.peer.writable(False)

    def resume_writing(self) -> None:
        if self.peer is not None:
            self.peer.writable(True)


def connect(
    host: str = "localhost",
    port: int = 0,
    *,
    unix: str | None = None,
    tls: ssl.SSLContext | None = None,
    **options: Any,
) -> AbstractAsyncContextManager[Peer]:
    """A connection to *host* and *port*, or to the socket *unix*, for `async with`.

    *options* are those of `Peer`.  Raises OSError, of which `Disconnected` is one.
    """

    async def connecting() -> Peer:
        loop = asyncio.get_running_loop()

        def make() -> _Protocol:
            return _Protocol(loop, options)

        if unix is not None:
            _, protocol = await loop.create_unix_connection(make, unix, ssl=tls)
        else:
            _, protocol = await loop.create_connection(make, host, port, ssl=tls)
        assert protocol.peer is not None, "connection_made comes first"
        return protocol.peer

    return connected(connecting)


class Sender(Reconnecting):
    """A `Reconnecting` on asyncio, for `async with`; at its end it says goodbye."""

    cancelled: ClassVar = asyncio.CancelledError

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Peer]],
        publisher: str = "events",
        *,
        size: int = 0,
    ) -> None:
        """*connect* makes a connection; *size* is in bytes, 0 if elements differ."""
        runtime = _Runtime(asyncio.get_running_loop())
        super().__init__(connect, publisher, runtime, size)
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._keep_connected())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop()
        if self._running is not None:
            self._running.cancel()
            # What ended it by itself `send` has raised.
            await asyncio.gather(self._running, return_exceptions=True)
