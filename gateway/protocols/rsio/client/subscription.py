"""A stream that a program subscribed to, as an asynchronous iterator."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING, Self

from attrs import define

from gateway.protocols.rsio.client.runtime import Condition, Disconnected, StreamFailed
from gateway.protocols.rsio.decoder import Run, elements
from gateway.protocols.rsio.streams import UNKNOWN, Consumed

if TYPE_CHECKING:
    from gateway.protocols.rsio.client.peer import Peer


@define(eq=False, slots=False)
class Subscription:
    """An asynchronous iterator of elements; `async with` cancels it at the end.

    It never holds more than its window: more is requested when half of that has been
    taken out.
    """

    _peer: Peer
    _ask: Callable[[], Consumed]
    _changed: Condition
    _window: int

    def __attrs_post_init__(self) -> None:
        self._stream: Consumed | None = None
        self._there: deque[bytes] = deque()
        self._taken = 0
        self._ended = False
        self._error: Exception | None = None

    @property
    def size(self) -> int:
        """Bytes of every element; 0 if they differ, or it is not known yet."""
        stream = self._stream
        return 0 if stream is None or stream.size == UNKNOWN else stream.size

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await self._some()
        element = self._there.popleft()
        self._took(1)
        return element

    async def batches(self) -> AsyncGenerator[list[bytes], None]:
        """The elements in lists of as many as have arrived; faster than one by one."""
        while True:
            try:
                await self._some()
            except StopAsyncIteration:
                return
            found, self._there = list(self._there), deque()
            self._took(len(found))
            yield found

    async def _some(self) -> None:
        """Wait for an element; at the end of the stream, raises how it ended."""
        while not self._there:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            await self._changed.wait()

    def _took(self, count: int) -> None:
        self._taken += count
        if self._taken * 2 >= self._window and self._stream is not None:
            more, self._taken = self._taken, 0
            self._peer.request(self._stream, more)

    def stored(self, offset: int) -> None:
        """Tell the publisher that its first *offset* elements are safe (extension 2)."""
        if self._stream is not None:
            self._peer.stored(self._stream, offset)

    def cancel(self) -> None:
        """Request no more.  What has arrived can still be read."""
        if not self._ended:
            self._ended = True
            if self._stream is not None:
                self._peer.cancel(self._stream)
            self._changed.notify_all()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    # What the peer tells

    def opened(self) -> None:
        if not self._ended:
            self._stream = self._ask()
            self._stream.context = self

    def arrived(self, run: Run) -> None:
        self._there += elements(run.messages, run.stream.size)
        self._changed.notify_all()

    def ended(self, error: str | None) -> None:
        """The stream ended: onComplete if *error* is None, else onError."""
        self._ended = True
        self._error = None if error is None else StreamFailed(error)
        self._changed.notify_all()

    def lost(self, why: str) -> None:
        if not self._ended:
            self._ended = True
            self._error = Disconnected(why)
            self._changed.notify_all()
