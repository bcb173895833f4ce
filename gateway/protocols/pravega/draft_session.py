"""A connection of the 2016 draft, without I/O: bytes in; changes, reads, replies out.

The *level* of a connection id is how many bytes of Event messages it has written to a
segment.  Append blocks say at which level they begin.  What is below the stored level is
not stored again, so a client that reconnects may send again what it is unsure of.

The draft has no message to create a segment: the first SetupAppend creates it.  It has
none for errors: the connection is closed.  No I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from gateway.protocols.pravega import draft_wire as wire
from gateway.protocols.pravega.draft_block import DraftBlock, Reassembly
from gateway.protocols.pravega.errors import (
    NAME_IN_LOGS,
    Denied,
    Need,
    SegmentError,
    of_writer,
)
from gateway.protocols.pravega.events import begins, count_rows
from gateway.protocols.pravega.frames import HEADER_BYTES, RAW, Frames, frame
from gateway.protocols.pravega.limits import Limits
from gateway.protocols.pravega.reads import Answer, Found, Read
from gateway.protocols.pravega.segment import is_internal, is_staged
from gateway.protocols.pravega.segments import Change, Segments
from gateway.protocols.pravega.session import Step
from gateway.protocols.pravega.tokens import TokenCheck
from gateway.protocols.pravega.wire import NEVER
from gateway.sdk.interfaces import Refusal

_END_HEADER = wire.block(wire.END_BLOCK, b"\0" * 16, 0, 0)[:HEADER_BYTES]
_END_BYTES = len(wire.block(wire.END_BLOCK, b"\0" * 16, 0, 0))

#: How much one SegmentRead carries; more comes in several.
_REPLY_BYTES = 1 << 18


class DraftSession:
    """One connection of the 2016 draft."""

    def __init__(self, state: Segments, limits: Limits, check: TokenCheck) -> None:
        """*check* is asked with empty tokens, as the draft has none."""
        self._state = state
        self._check = check
        self._limits = limits
        self._frames = Frames(wire.REQUESTS, limits.message_bytes)
        self._message = Reassembly(limits.message_bytes)
        self._segments: dict[bytes, str] = {}
        self._block: DraftBlock | None = None
        self._area: bytes | None = None
        self._pending: deque[tuple[int, bytes, bytes | None, int]] = deque()
        """Replies that wait for a change: its number, then a reply, or id and level to ack."""
        self._now = 0
        self.cost = 0.0
        self.control = 0
        self.reports: list[Refusal] = []
        self.appended = 0
        self.moved = 0
        """Events, and parts of messages in units of 64 bytes; its user resets it to 0."""

    @property
    def held_bytes(self) -> int:
        """How many bytes of an incomplete message or block are buffered."""
        held = self._frames.held_bytes + self._message.size + len(self._area or b"")
        return held if self._block is None else held + self._block.size

    @property
    def begun(self) -> str:
        """The append block, or other message, that has begun: see `Yielding.begun`."""
        block, frame_begun = self._block, self._frames.begun
        if block is not None:
            name = self._segments[block.begin.writer]
            what = of_writer("append block", block.begin.writer, name)
            if frame_begun is None or frame_begun[0] != RAW:
                came = block.size + self._message.size + len(self._area or b"")
                return f"{what}: {came} bytes came, and not its end"
            _, announced, data = frame_begun
            # The one mistake that its writer can not see: the end counts as data.
            ended = _END_HEADER + block.begin.writer in data[-_END_BYTES:]
            end = ", the last of them its EndAppendBlock" if ended else ""
            return f"{what}: {announced} bytes announced, {len(data)} came{end}"
        if frame_begun is None:
            return ""
        kind, announced, data = frame_begun
        return f"message of type {kind}: {announced} bytes announced, {len(data)} came"

    @property
    def replies_pending(self) -> bool:
        """Whether a reply waits until a change is durable."""
        return bool(self._pending)

    def received(self, data: bytes, now: int) -> Iterator[Step]:
        self._now = now
        for kind, payload in self._frames.feed(data):
            self.appended += HEADER_BYTES + len(payload)
            yield from self._take(kind, payload)
            yield b""

    def discard(self) -> None:
        """Forget what is buffered: nothing more will be taken."""
        self._frames.discard()
        self._message = Reassembly(self._limits.message_bytes)
        self._block = self._area = None

    def closed(self, now: int) -> Iterator[Change]:
        """The connection is closed: there is nothing to delete."""
        self._pending.clear()
        return iter(())

    def due(self) -> bytes:
        """The replies that may be sent now; one acknowledgement for each writer."""
        out: list[bytes] = []
        levels: dict[bytes, int] = {}
        while self._pending and self._pending[0][0] <= self._state.durable:
            _, reply, writer, level = self._pending.popleft()
            if writer is not None:
                levels[writer] = level
                continue
            out += [wire.data_appended(*each) for each in levels.items()]
            levels.clear()
            out.append(reply)
        out += [wire.data_appended(*each) for each in levels.items()]
        return b"".join(out)

    def answer(self, read: Read, answer: Answer) -> Sequence[bytes]:
        if not isinstance(answer, Found):
            # The draft has no message for truncation, nor for any other error.
            answer = Found(b"", end=True)
        replies: list[bytes] = []
        data = answer.data
        for at in range(0, max(len(data), 1), _REPLY_BYTES):
            last = at + _REPLY_BYTES >= len(data)
            replies.append(
                wire.segment_read(
                    read.segment,
                    read.offset + at,
                    data[at : at + _REPLY_BYTES],
                    at_tail=last and answer.at_tail,
                    end=last and answer.end,
                )
            )
        return replies

    # -- messages ---------------------------------------------------------------------

    def _take(self, kind: int, payload: bytes) -> Iterator[Step]:
        block = self._block
        if kind == RAW:
            self._area = payload
        elif kind == wire.PARTIAL:
            yield from self._part(payload)
        elif kind == wire.END_BLOCK and block is not None:
            # It may come between two parts of the block's last event.
            block.end(wire.decode_block(payload), self._area)
            self._area = None
            yield from self._finish(block)
        elif kind == wire.KEEP_ALIVE:
            yield frame(wire.KEEP_ALIVE, payload)
        elif self._message.begun:
            raise Refusal(f"message of type {kind} before the end of a partial message")
        elif kind == wire.EVENT:
            if block is None or self._area is not None:
                raise Refusal("event outside of an append block")
            block.event(frame(kind, payload))
            self.moved += 1
        elif kind == wire.READ_SEGMENT:
            yield self._read(wire.decode_read_segment(payload))
        elif block is not None:
            raise Refusal(f"message of type {kind} inside an append block")
        elif kind == wire.SETUP_APPEND:
            yield from self._setup(*wire.decode_setup_append(payload))
        elif kind == wire.BEGIN_BLOCK:
            self._begin(wire.decode_block(payload))
        else:
            raise Refusal("end of an append block that has not begun")

    def _part(self, payload: bytes) -> Iterator[Step]:
        """Take a part of a message; with the last part, take the message."""
        block = self._block
        self.moved += len(payload) // 64
        whole = self._message.add(payload)
        if block is not None and block.total >= 0:
            if whole is None:
                block.check_part()
                return
            block.joined(whole)
            yield from self._finish(block)
            return
        if whole is None:
            return
        inner = Frames(wire.REQUESTS - {wire.PARTIAL}, self._limits.message_bytes)
        messages = list(inner.feed(whole))
        if len(messages) != 1 or inner.held_bytes:
            raise Refusal("partial messages that do not make one message")
        yield from self._take(*messages[0])

    def _read(self, read: wire.ReadSegment) -> Read:
        self._check_token(read.segment, Need.READ)
        if read.segment not in self._state.segments:
            raise Refusal(
                f"read of {read.segment[:NAME_IN_LOGS]!r}, which does not exist"
            )
        return Read(read.segment, read.offset, read.length)

    # -- appends ----------------------------------------------------------------------

    def _check_token(self, name: str, need: Need) -> None:
        found = self._check("", name, need)
        if isinstance(found, Denied):
            raise found.refusal
        if found is not None:
            raise Refusal(
                f"{name[:NAME_IN_LOGS]!r} asks for a token, and the 2016 draft has none"
            )

    def _setup(self, writer: bytes, name: str) -> Iterator[Change]:
        self._check_token(name, Need.WRITE)
        segment = self._state.segments.get(name)
        if segment is None:
            self._check_token(name, Need.MANAGE)
            yield self._create(name)
            segment = self._state.segments[name]
        if segment.table is not None or segment.staged is not None or segment.kept:
            raise Refusal(f"{name!r} takes no appends in the 2016 draft")
        self._limits.check_writers(len(self._segments))
        self._segments[writer] = name
        setup = wire.append_setup(name, writer, self._level(writer))
        self._pending.append((self._state.number, setup, None, 0))

    def _create(self, name: str) -> Change:
        limits = self._limits
        internal = is_staged(name) or is_internal(name)
        if internal or not 0 < len(name.encode()) <= limits.name_bytes:
            raise Refusal(
                f"segment name {name[:NAME_IN_LOGS]!r}", limit=limits.name_bytes
            )
        limits.check_segments(len(self._state.segments))
        return self._state.create(name, self._now)

    def _level(self, writer: bytes) -> int:
        name = self._segments.get(writer)
        segment = None if name is None else self._state.segments.get(name)
        if segment is None:
            raise Refusal("append block of a connection id that is not set up")
        number = segment.number_of(writer)
        return 0 if number == NEVER else number

    def _begin(self, begin: wire.Block) -> None:
        level = self._level(begin.writer)
        if not 0 <= begin.offset <= level:
            raise Refusal(f"append block at {begin.offset} of {level} bytes")
        self._block = DraftBlock(begin, self._limits.message_bytes, self._message)
        if begin.length != wire.OPEN:
            if begin.length < 0:
                raise Refusal(f"append block of {begin.length} bytes")
            self._frames.raw(begin.length)

    def _finish(self, block: DraftBlock) -> Iterator[Change]:
        if not block.complete:
            return
        self._block = None
        writer, begin = block.begin.writer, block.begin.offset
        name, level = self._segments[writer], self._level(writer)
        end = begin + block.size
        if end > level:
            data = _not_stored(block.data, level - begin)
            segment = self._state.segments[name]
            if segment.kept is not None:
                raise Refusal(f"{name!r} takes no appends in the 2016 draft")
            held = self._state.retained_bytes + self._state.staged_bytes
            self._limits.check_retained(name, held + len(data))
            number = segment.number_of(writer)
            if number == NEVER:
                self._limits.check_numbers(self._state.numbers + 1)
            try:
                yield self._state.append(
                    name,
                    writer,
                    end,
                    data,
                    self._now,
                    claimed=count_rows(data),
                    last=number,
                )
            except SegmentError as why:
                raise Refusal(
                    f"append to {name!r}: {type(why).__name__.lower()}"
                ) from None
        self._pending.append((self._state.number, b"", writer, max(level, end)))


def _not_stored(data: bytes, skip: int) -> bytes:
    """The data after *skip* bytes, which are stored; it must begin with an event."""
    if next((at for at in begins(data) if at >= skip), len(data)) != skip:
        raise Refusal("append block that is stored up to the middle of an event")
    return data[skip:]
