"""A stream that a program publishes."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gateway.protocols.rsio.client.outbox import Outbox
from gateway.protocols.rsio.client.runtime import Condition, Disconnected, StreamFailed
from gateway.protocols.rsio.streams import Served

if TYPE_CHECKING:
    from gateway.protocols.rsio.client.peer import Peer

__all__ = ["Publishing"]

_HELPING = 1024


class Publishing:
    """Publishes to the one subscriber of a name, within its demand.

    A gateway asks for more only when as many are on disk, and so confirms them.  Any
    other subscriber may not mean that: `confirms=False`, and `flush` waits until all
    is sent.  `async with` flushes and completes the stream at its end, or fails it.
    """

    def __init__(
        self,
        peer: Peer,
        changed: Condition,
        outbox: Outbox,
        *,
        size: int = 0,
        confirms: bool = True,
    ) -> None:
        self.outbox = outbox
        """What is not confirmed; it may be used again on the next connection."""
        self._peer = peer
        self._changed = changed
        self._size = size
        self._confirms = confirms
        self._stream: Served | None = None
        self._base = 0
        self._over: Exception | None = None

    async def send(self, element: bytes) -> None:
        """Publish *element*; returns when it is on its way."""
        self.outbox.add(element)
        await self._drain()

    async def send_all(self, elements: Iterable[bytes]) -> None:
        """Publish *elements*; returns when the last one is on its way."""
        for element in elements:
            self.outbox.add(element)
            if self.outbox.unsent >= _HELPING:
                await self._drain()
        await self._drain()

    async def flush(self) -> None:
        """Wait until the subscriber has all of it safe."""
        await self.settled(self.outbox.confirmed + len(self.outbox))

    async def settled(self, number: int) -> None:
        """Wait until the first *number* elements of the outbox are safe."""
        while self.outbox.confirmed < number:
            self._check()
            self._push()
            if self.outbox.confirmed < number:
                await self._changed.wait()

    async def ended(self) -> None:
        """Wait until the stream is over; raises why."""
        while True:
            self._check()
            await self._changed.wait()

    async def _drain(self) -> None:
        while self.outbox.unsent:
            self._check()
            self._push()
            if self.outbox.unsent:
                await self._changed.wait()

    def _push(self) -> None:
        """Send what is wanted and can be sent now."""
        outbox, stream = self.outbox, self._stream
        while stream is not None and outbox.unsent and self._peer.can_write:
            elements = outbox.take(min(stream.demand.left, _HELPING))
            if not elements:
                return
            if self._size:
                self._peer.send_packed(stream, b"".join(elements))
            else:
                self._peer.send(stream, elements)
            if not self._confirms:
                outbox.confirm(outbox.sent)

    def _check(self) -> None:
        if self._over is not None:
            raise self._over

    async def __aenter__(self) -> Self:
        while self._stream is None:
            self._check()
            await self._changed.wait()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            self._peer.forget(self)
            if self._stream is not None and self._over is None:
                self._peer.finish(self._stream, None if error is None else repr(error))

    # What the peer tells

    def asked(self, stream: Served) -> int | None:
        """A subscriber: the size of our elements, or None if there is one already.

        ValueError if it wants to go on where we can not.
        """
        if self._stream is not None:
            return None
        self.outbox.rewind(stream.offset)
        self._base = self.outbox.confirmed
        self._stream = stream
        stream.context = self
        return self._size

    def impossible(self, why: str) -> None:
        """It wants to go on where we can not."""
        self._over = StreamFailed(why)
        self._changed.notify_all()

    def demanded(self) -> None:
        """It wants more, and so says how much is safe."""
        stream = self._stream
        if stream is not None and self._confirms:
            safe = self._base + stream.granted - stream.first
            self.outbox.confirm(min(safe, self.outbox.sent))
        self._changed.notify_all()

    def safe(self, offset: int) -> None:
        """It says how much is safe."""
        outbox = self.outbox
        outbox.confirm(min(offset - outbox.first, outbox.sent))
        self._changed.notify_all()

    def writable(self) -> None:
        """The transport takes more."""
        self._changed.notify_all()

    def cancelled(self) -> None:
        """It wants no more."""
        self._over = StreamFailed("the subscriber cancelled")
        self._changed.notify_all()

    def lost(self, why: str) -> None:
        """The connection has ended."""
        if self._over is None:
            self._over = Disconnected(why)
            self._changed.notify_all()
