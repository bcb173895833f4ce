"""A connection of wire version 17, without I/O: bytes in; changes, reads, replies out.

Replies keep the order of their requests and wait until what they depend on is durable
(`replies`).  Hello and KeepAlive are answered at once, reads when there is data.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from gateway.protocols.pravega import reads
from gateway.protocols.pravega.appends import LARGE, Appends
from gateway.protocols.pravega.codec import (
    NEEDS,
    REQUESTS,
    Message,
    decode,
    encode,
    encode_in_pieces,
)
from gateway.protocols.pravega.errors import Need, SegmentError
from gateway.protocols.pravega.events import STEP_COST
from gateway.protocols.pravega.frames import HEADER_BYTES, Frames
from gateway.protocols.pravega.limits import Limits
from gateway.protocols.pravega.reads import Answer, Read
from gateway.protocols.pravega.requests import Requests, error_reply, subject
from gateway.protocols.pravega.segment import Segment
from gateway.protocols.pravega.segments import Change, Segments
from gateway.protocols.pravega.tokens import TokenCheck, check_token
from gateway.protocols.pravega.wire import (
    OLDEST,
    VERSION,
    Hello,
    KeepAlive,
    NoSuchSegment,
    SegmentIsSealed,
    SegmentIsTruncated,
)
from gateway.protocols.pravega.wire_segments import (
    MergeSegments,
    ReadSegment,
    SegmentRead,
    TruncateSegment,
)
from gateway.protocols.pravega.wire_tables import (
    TableEntriesDeltaRead,
    TableEntriesRead,
    TableKeysRead,
    TableRead,
)
from gateway.sdk.costs import BYTE
from gateway.sdk.interfaces import Refusal

#: With so many bytes of replies, those that are due are sent before more is decoded.
_SEND_BYTES = 1 << 20

_BYTE = 0.4
"""The cost of a byte of a message that is no append: of names, and of tables' keys."""
_REPLY_BYTE = 0.05
"""The cost of a byte of a reply."""

_CONTROL_BYTES = 256
"""A message that moves no data counts as one more for each of so many bytes."""

_KEEP_ALIVE = encode(KeepAlive())
_ANSWERED = 11
"""Clients of this version and later take an answer to a KeepAlive.  Java's of before, 0.8,
fail what they write for it, and connect again: at each flush."""
_HELLO = encode(Hello(VERSION, OLDEST))

Step: TypeAlias = Change | Read | bytes
"""A change to store, a read to answer when that is possible, bytes to send at once."""


class Session:
    """One connection of wire version 17."""

    def __init__(
        self,
        state: Segments,
        limits: Limits,
        new_id: Callable[[], str],
        check: TokenCheck,
        head: Callable[[Segment], int],
    ) -> None:
        """*check* is asked about tokens; for *new_id* and *head* see `Requests`."""
        self._state = state
        self._check = check
        self._frames = Frames(REQUESTS, limits.message_bytes)
        self._appends = Appends(state, limits, check)
        self._requests = Requests(state, limits, new_id, head)
        self._replies = self._appends.replies
        self._version = VERSION
        """The highest that the client speaks."""
        self.reports = self._appends.reports
        self.cost = 0.0
        """The cost of messages for a turn beside the least of each; its user resets it to 0."""
        self.control = 0
        """Further messages that large ones without data count as; its user resets it to 0."""
        self.moved = 0
        """Entries of tables that were read; its user resets it to 0."""
        self.appended = 0
        """Bytes of append commands; its user resets it to 0."""

    @property
    def held_bytes(self) -> int:
        """How many bytes of an incomplete frame or append block are buffered."""
        return self._frames.held_bytes + self._appends.held_bytes

    @property
    def begun(self) -> str:
        """The append block, or other message, that has begun: see `Yielding.begun`."""
        frame = self._frames.begun
        if frame is None:
            return self._appends.begun
        kind, announced, data = frame
        # Those of a writer begin with its id.
        what = self._appends.named(REQUESTS[kind].__name__, data[:16])
        return f"{what}: {announced} bytes announced, {len(data)} came"

    @property
    def replies_pending(self) -> bool:
        """Whether a reply waits until a change is durable."""
        return len(self._replies) > 0

    def received(self, data: bytes, now: int) -> Iterator[Step]:
        """Take bytes of the stream, in any slices; give what is to be done, in order.

        Submit each change before taking the next step.  *now* is in milliseconds since
        the epoch.  Each message makes at least one step, maybe an empty one, so that a
        turn can end after it.  Exhaust the iterator before the next call.  Raises
        `Refusal` for a bad command, after the steps before it.
        """
        self._appends.now = self._requests.now = now
        appends = self._appends
        for code, payload in self._frames.feed(data):
            if len(payload) > LARGE:
                yield self._part_done(BYTE * len(payload))
            waiting = self._replies.held_bytes
            message = decode(code, payload)
            if isinstance(message, MergeSegments):
                yield from self._count_staged(message)
            step = self._take(message)
            self.cost += BYTE * len(payload)
            if isinstance(message, Appends.MESSAGES):
                self.appended += HEADER_BYTES + len(payload)
            else:
                self.cost += _BYTE * len(payload)
                self.control += len(payload) // _CONTROL_BYTES
            self.cost += _REPLY_BYTE * max(self._replies.held_bytes - waiting, 0)
            if step is not None or not appends.unfinished:
                yield step or b""
            if appends.unfinished:
                yield from self._append_large()
            if self._replies.held_bytes > _SEND_BYTES and (due := self.due()):
                yield due

    def _append_large(self) -> Iterator[Step]:
        """Store a large append, of which every part may have a turn of its own."""
        appends = self._appends
        yield self._part_done(BYTE * appends.held_bytes)
        while appends.unfinished:
            change = appends.go_on()
            cost, appends.cost = appends.cost, 0.0
            if change is None:
                yield self._part_done(cost)
            else:
                self.cost += cost
                yield change

    def _count_staged(self, merge: MergeSegments) -> Iterator[Step]:
        """Count what a merge takes, in as many turns as that needs."""
        while not self._state.count_staged(merge.source):
            yield self._part_done(STEP_COST)

    def _part_done(self, cost: float) -> Step:
        """A step that does nothing, within a message: the turn may end."""
        self.cost += cost
        self.control -= 1
        return b""

    def due(self) -> bytes:
        """The replies that may be sent now, which are forgotten here."""
        return self._replies.due()

    def discard(self) -> None:
        """Forget what is buffered: nothing more will be taken."""
        self._frames.discard()
        self._appends.discard()

    def closed(self, now: int) -> Iterator[Change]:
        """Delete large events that were not merged; take each change when it can be submitted."""
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
                return _KEEP_ALIVE if self._version >= _ANSWERED else None
        try:
            self._check_tokens(message)
            if isinstance(message, Appends.MESSAGES):
                return self._appends.take(message)
            if isinstance(message, ReadSegment):
                return Read(
                    message.segment, message.offset, message.size, message.request_id
                )
            change, reply = self._requests.answer(message)
            self.moved += _found(reply)
        except SegmentError as why:
            change, reply = None, error_reply(message, why)
        self._replies.add(reply)
        return change

    def _hello(self, message: Hello) -> bytes:
        if message.high < OLDEST or message.low > VERSION:
            raise Refusal(
                f"Pravega wire versions {message.low} to {message.high}",
                limit=f"{OLDEST} to {VERSION}",
                reply=_HELLO,
            )
        self._version = message.high
        return _HELLO

    def _check_tokens(self, message: Any) -> None:
        need = NEEDS[type(message)]
        if need is None:
            return
        if isinstance(message, TruncateSegment) and self._is_kept(message.segment):
            need = Need.WRITE
        names = [subject(message)]
        if isinstance(message, MergeSegments):
            names.append(message.source)
        for name in names:
            check_token(self._check, message.token, name, need, message.request_id)

    def _is_kept(self, name: str) -> bool:
        """Whether it is a revisioned stream's, which those who write it truncate."""
        segment = self._state.segments.get(name)
        return segment is not None and segment.kept is not None

    def answer(self, read: Read, answer: Answer) -> Sequence[bytes | memoryview]:
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
        return encode_in_pieces(reply)


def _found(reply: Message | None) -> int:
    match reply:
        case TableRead() | TableEntriesRead() | TableEntriesDeltaRead():
            return sum(entry.version >= 0 for entry in reply.entries)
        case TableKeysRead():
            return len(reply.keys)
    return 0
