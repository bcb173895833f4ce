"""What a client of today's wire is owed: messages in; changes, reads and replies out.

Replies keep the order of their requests and wait for the disk (`replies`).  Only
greetings and signs of life go out at once, and reads when there is something to read.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, TypeAlias

from gateway.interfaces import Refusal
from gateway.protocols.pravega import reads
from gateway.protocols.pravega.appends import Appends
from gateway.protocols.pravega.codec import REQUESTS, Message, decode, encode
from gateway.protocols.pravega.errors import SegmentError
from gateway.protocols.pravega.frames import Frames
from gateway.protocols.pravega.limits import Limits
from gateway.protocols.pravega.reads import Answer, Read
from gateway.protocols.pravega.requests import Requests, denied, sources, subject
from gateway.protocols.pravega.segment import Segment
from gateway.protocols.pravega.segments import Change, Segments
from gateway.protocols.pravega.tokens import TokenCheck, allow_all, check_token
from gateway.protocols.pravega.wire import (
    OLDEST,
    VERSION,
    Hello,
    KeepAlive,
    NoSuchSegment,
    SegmentIsSealed,
    SegmentIsTruncated,
)
from gateway.protocols.pravega.wire_segments import ReadSegment, SegmentRead

__all__ = ["Session", "Step"]

_EVENT, _PADDING, _PARTIAL = 0, -1, -2
#: Those three come inside of blocks only.
_KNOWN = frozenset(REQUESTS) - {_EVENT, _PADDING, _PARTIAL}

#: So much is not kept back until all that came is read.
_SEND_BYTES = 1 << 20

_KEEP_ALIVE = encode(KeepAlive())
_HELLO = encode(Hello(VERSION, OLDEST))

Step: TypeAlias = Change | Read | bytes
"""To be stored, to be answered when it can be, to be sent at once."""


class Session:
    """One connection of today's wire."""

    def __init__(
        self,
        state: Segments,
        limits: Limits,
        new_id: Callable[[], str],
        check: TokenCheck = allow_all,
        head: Callable[[Segment], int] = attrgetter("start"),
    ) -> None:
        """For *new_id* and *head* see `Requests`."""
        self._state = state
        self._check = check
        self._frames = Frames(_KNOWN, limits.message_bytes)
        self._appends = Appends(state, limits, check)
        self._requests = Requests(state, limits, new_id, head)
        self._replies = self._appends.replies

    @property
    def held_bytes(self) -> int:
        """Buffered for a message or a block that is not complete."""
        return self._frames.held_bytes + self._appends.held_bytes

    @property
    def replies_pending(self) -> bool:
        """Whether a reply waits for the disk."""
        return len(self._replies) > 0

    def received(self, data: bytes, now: int) -> Iterator[Step]:
        """Take any slicing of the stream; what is to be done, in order.

        Submit each change before asking for the next step.  *now* is in milliseconds
        since the epoch.  May raise `Refusal`, behind what was complete before it.
        """
        self._appends.now = self._requests.now = now
        for code, payload in self._frames.feed(data):
            step = self._take(decode(code, payload))
            if step is not None:
                yield step
            if self._replies.held_bytes > _SEND_BYTES and (due := self.due()):
                yield due

    def due(self) -> bytes:
        """The replies that may be sent now."""
        return self._replies.due()

    def closed(self, now: int) -> Iterator[Change]:
        """The connection is gone; so are the large events that it had begun."""
        self._replies.clear()
        transients = self._requests.transients
        while transients:
            name, _ = transients.popitem()
            if name in self._state.segments:
                yield self._state.delete(name, now)

    def _take(self, message: Message) -> Step | None:
        match message:
            case Hello():
                return self._hello(message)
            case KeepAlive():
                return _KEEP_ALIVE
        self._allow(message)
        try:
            if isinstance(message, Appends.MESSAGES):
                return self._appends.take(message)
            if isinstance(message, ReadSegment):
                return Read(
                    message.segment, message.offset, message.size, message.request_id
                )
            change, reply = self._requests.answer(message)
        except SegmentError as why:
            change, reply = None, denied(message, why)
        self._replies.add(reply)
        return change

    def _hello(self, message: Hello) -> bytes:
        if message.high < OLDEST or message.low > VERSION:
            raise Refusal(
                f"Pravega wire versions {message.low} to {message.high}",
                limit=f"{OLDEST} to {VERSION}",
                reply=_HELLO,
            )
        return _HELLO

    def _allow(self, message: Any) -> None:
        token: str | None = getattr(message, "token", None)
        if token is None:
            return
        for name in (subject(message), *sources(message)):
            check_token(self._check, token, name, message.request_id)

    def answer(self, read: Read, answer: Answer) -> bytes:
        """The reply to a read."""
        name, offset, request = read.segment, read.offset, read.request_id
        reply: Message
        match answer:
            case reads.Found():
                reply = SegmentRead(
                    name, offset, answer.at_tail, answer.end, answer.data, request
                )
            case reads.Truncated():
                reply = SegmentIsTruncated(request, name, answer.start, "", offset)
            case reads.Ended():
                reply = SegmentIsSealed(request, name, "", offset)
            case reads.Missing():
                reply = NoSuchSegment(request, name, "", offset)
        return encode(reply)
