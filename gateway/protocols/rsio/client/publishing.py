"""A stream that a program publishes to one subscriber, within its demand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from attrs import define, field

from gateway.protocols.rsio.client.outbox import Outbox
from gateway.protocols.rsio.client.runtime import (
    CanNotResume,
    Condition,
    Disconnected,
    Fenced,
    StreamFailed,
    TooLarge,
)
from gateway.protocols.rsio.messages import FENCED
from gateway.protocols.rsio.streams import Served

if TYPE_CHECKING:
    from gateway.protocols.rsio.client.peer import Peer

_AT_ONCE = 1024
"""Elements that are given to the session at most in one call."""
_SHARE_BYTES = 1 << 13
"""Bytes that one publisher sends in a turn of the loop, if the connection has others."""


def check_size(element: bytes, size: int) -> None:
    """Raise ValueError if *element* is not of the *size* that all have, if they have one."""
    if size and len(element) != size:
        raise ValueError(
            f"an element of {len(element)} octets in a stream of {size} each"
        )


@define(eq=False, slots=False)
class Publishing:
    """Publishes to the one subscriber of a name.

    A gateway requests more only when as many are on disk: its demand confirms them.
    For a subscriber whose demand does not mean that there is `confirms=False`: `flush`
    then waits only until everything is sent.  At the end of an `async with` block the
    stream is flushed and completed, or failed if the block raised.
    """

    _peer: Peer
    _changed: Condition
    outbox: Outbox
    """The elements that are not confirmed; use it again on the next connection."""
    _size: int = 0
    _confirms: bool = field(default=True, kw_only=True)

    def __attrs_post_init__(self) -> None:
        self._stream: Served | None = None
        self._base = 0  # how many elements were confirmed when the stream began
        self._over: Exception | None = None

    async def send(self, element: bytes) -> None:
        """Publish *element*; returns when it is on its way.

        Raises `TooLarge`, and publishes the others as ever, if the subscriber has said that
        it takes none of this size.  ValueError if it has not the size that all have.
        """
        self._check_size(element)
        self.outbox.add(element)
        await self._drain()

    async def send_all(self, elements: Iterable[bytes]) -> None:
        """Publish *elements*; returns when all of them are on their way."""
        for element in elements:
            self._check_size(element)
            self.outbox.add(element)
            if self.outbox.unsent >= _AT_ONCE:
                await self._drain()
        await self._drain()

    async def flush(self) -> None:
        """Wait until the subscriber has every element safe."""
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
        """Send as much as demand and transport allow; behind a large one, when it is sent."""
        outbox, stream = self.outbox, self._stream
        if stream is None:
            return
        share = _SHARE_BYTES if self._peer.publishes_more else None
        while outbox.unsent and self._peer.can_write and not stream.unsent:
            elements = outbox.take(min(stream.demand.left, _AT_ONCE), share)
            if not elements:
                break
            if self._size:
                self._peer.send_packed(stream, b"".join(elements))
            else:
                self._peer.send(stream, elements)
            if share is not None and outbox.unsent:  # the turn of others
                self._peer.soon(self._changed.notify_all)
                break
        if not (self._confirms or stream.unsent):
            outbox.confirm(outbox.sent)

    @property
    def largest(self) -> int:
        return max(self._size, self.outbox.largest)

    def _check_size(self, element: bytes) -> None:
        check_size(element, self._size)
        most = self._peer.element_bytes
        if most is not None and len(element) > most:
            raise TooLarge(len(element), most)

    def _check(self) -> None:
        if self._over is not None:
            raise self._over

    async def __aenter__(self) -> Self:
        try:
            while self._stream is None:
                self._check()
                await self._changed.wait()
        except BaseException:  # there is no block whose end would make the name free
            self._peer.forget(self)
            raise
        return self

    async def __aexit__(
        self, _: object, error: BaseException | None, __: object
    ) -> None:
        try:
            if error is None:
                await self.flush()
        except BaseException as why:
            error = why
            raise
        finally:
            self._peer.forget(self)
            if self._stream is not None and self._over is None:
                self._peer.finish(self._stream, None if error is None else repr(error))

    # What the peer tells

    def asked(self, stream: Served) -> int | None:
        """A peer subscribes; returns the elements' size, None if another one did before.

        ValueError if it asks for an offset at which we can not resume.
        """
        if self._stream is not None:
            return None
        self.outbox.rewind(stream.offset, announced=self._peer.announces)
        self._base = self.outbox.confirmed
        self._stream = stream
        stream.context = self
        return self._size

    def rejected(self, why: str) -> None:
        """Stop: its offset is one at which we can not resume."""
        self._over = CanNotResume(why)
        self._changed.notify_all()

    def failed(self, why: str) -> None:
        """The stream is over before it began; the next one may go better."""
        self._over = StreamFailed(why)
        self._changed.notify_all()

    def demanded(self) -> None:
        """The subscriber requested more, which may confirm what it has."""
        stream = self._stream
        if stream is not None and self._confirms:
            safe = self._base + stream.granted - stream.first
            self.outbox.confirm(min(safe, self.outbox.sent))
        self._changed.notify_all()

    def safe(self, offset: int) -> None:
        """The subscriber has elements safe (extension 2): the first *offset* of the
        publisher's, or of this stream's if it did not ask to resume.
        """
        outbox, stream = self.outbox, self._stream
        resumes = stream is not None and stream.offset is not None
        number = offset - outbox.first if resumes else self._base + offset
        if number > outbox.sent:
            self.rejected(f"told that {number} elements are stored of {outbox.sent}")
            return
        outbox.confirm(number)
        self._changed.notify_all()

    def writable(self) -> None:
        self._changed.notify_all()

    def cancelled(self) -> None:
        self.failed("the subscriber cancelled")

    def lost(self, why: str) -> None:
        if self._over is None:
            fenced = why.startswith(FENCED)
            self._over = Fenced(why) if fenced else Disconnected(why)
            self._changed.notify_all()
