"""Publishes on one connection after the other, until the gateway has everything on disk.

`sender.Sender` is this on Twisted, `on_asyncio.Sender` on asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from attrs import define

from gateway.protocols.rsio.client.outbox import Outbox
from gateway.protocols.rsio.client.peer import Peer
from gateway.protocols.rsio.client.publishing import Publishing, check_size
from gateway.protocols.rsio.client.runtime import (
    CanNotResume,
    Condition,
    Disconnected,
    Runtime,
    StreamFailed,
    TooLarge,
    sleep,
)
from gateway.sdk.backoff import Backoff, Unacknowledged


@define(eq=False, slots=False)
class Reconnecting:
    """A sender that connects again, and repeats what is not acknowledged.

    With a name, elements are stored exactly once; without one, at least once.  It stops
    for good, and `send` raises `CanNotResume`, once another sender has its name.
    """

    failures: ClassVar[tuple[type[BaseException], ...]] = (OSError, StreamFailed)
    """Errors that end a connection, or prevent one; the next attempt follows."""
    cancelled: ClassVar[type[BaseException]]
    """The error in a coroutine of this event loop when it is cancelled."""

    _connect: Callable[[], AbstractAsyncContextManager[Peer]]
    """Makes a connection."""
    _publisher: str
    _runtime: Runtime
    _size: int
    """Bytes of an element; 0 if elements differ."""

    def __attrs_post_init__(self) -> None:
        self.connections = 0
        """How many were opened so far."""
        self.trouble = ""
        """Why the last connection ended or none could be made; "" while publishing."""
        self._outbox = Outbox()
        self._publishing: Publishing | None = None
        self._changed = Condition(self._runtime)
        self._stopping = False
        self._over: Exception | None = None
        self._backoff = Backoff()
        self._confirmed = 0
        self._subscribed = False
        self._element_bytes: int | None = None

    @property
    def resent(self) -> int:
        """How many elements were sent more than once."""
        return self._outbox.resent

    async def element_bytes(self) -> int | None:
        """The most octets of an element that the subscriber takes, as the latest one has
        said; None if it did not.  Waits for the first one, and raises as `send` does.
        """
        while not self._subscribed:
            if self._over is not None:
                raise self._over
            if self._stopping:
                raise Unacknowledged
            await self._changed.wait()
        return self._element_bytes

    async def send(self, elements: Sequence[bytes]) -> None:
        """Returns when all of them are on disk.

        Raises `TooLarge`, and has sent none of them, if the subscriber takes no element of
        the size that one has; ValueError if one has not the size that all have.  Raises
        `Unacknowledged` after `stop`, `CanNotResume` when another has its name, and what
        `connect` raised if that is no failure of a connection (a port of 70000).
        """
        for element in elements:
            check_size(element, self._size)
        outbox, most = self._outbox, await self.element_bytes()
        largest = max(map(len, elements), default=0)
        if most is not None and largest > most:
            raise TooLarge(largest, most)
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
                await self._changed.wait()
                continue
            try:
                await publishing.settled(last)
            except (Disconnected, StreamFailed):
                if self._publishing is publishing:
                    self._publishing = None

    def _stop(self) -> None:
        """Wake all that wait; connecting is still to be cancelled."""
        self._stopping = True
        self._changed.notify_all()

    async def _keep_connected(self) -> None:
        while not self._stopping and self._over is None:
            try:
                async with self._connect() as peer:
                    self.connections += 1
                    await self._publish(peer)
            except self.failures as why:
                self.trouble = str(why) or type(why).__name__
                if isinstance(why, CanNotResume):
                    self._over = why
            except self.cancelled:
                raise
            except Exception as why:
                self._over = why
                self.trouble = str(why) or type(why).__name__
                self._changed.notify_all()
                raise
            self._publishing = None
            if self._over is not None:
                self._changed.notify_all()
            elif not self._stopping:
                if self._outbox.confirmed > self._confirmed:
                    self._backoff.succeeded()
                self._confirmed = self._outbox.confirmed
                await sleep(self._runtime, self._backoff.pause())

    async def _publish(self, peer: Peer) -> None:
        """Let `send` publish for as long as the connection lasts."""
        self.trouble = f"nobody subscribes to {self._publisher!r}"
        publishing = peer.publisher(
            self._publisher, size=self._size, outbox=self._outbox
        )
        try:
            await self._publishes(peer, publishing)
        finally:
            if peer.element_bytes is not None:  # it may be why there is no stream
                self._tell_limit(peer)

    def _tell_limit(self, peer: Peer) -> None:
        self._subscribed, self._element_bytes = True, peer.element_bytes
        self._changed.notify_all()

    async def _publishes(self, peer: Peer, publishing: Publishing) -> None:
        async with publishing:
            self.trouble = ""
            self._publishing = publishing
            self._tell_limit(peer)
            try:
                await publishing.ended()
            except self.cancelled:
                if len(self._outbox):
                    peer.abandon()
