"""The client's side of both dialects, without I/O: what to send, what came back.

`DraftWriter` and `V17Writer` write events to one segment and know which of them are
stored; after a reconnect they send again what the server does not have, and nothing
else: each event is stored once.

    send(writer.connected())            # on each connection
    writer.add(events)
    for data in writer.blocks():        # whenever there are events, or bytes came
        send(data)
    stored = writer.received(data)      # so many more of the events are safe
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence

from gateway.interfaces import Refusal
from gateway.protocols.pravega import draft_wire as wire
from gateway.protocols.pravega.codec import REPLIES, decode, encode
from gateway.protocols.pravega.frames import HEADER_BYTES, Frames
from gateway.protocols.pravega.wire import (
    NEVER,
    OLDEST,
    VERSION,
    AppendBlock,
    AppendBlockEnd,
    AppendSetup,
    DataAppended,
    Hello,
    KeepAlive,
    SegmentAlreadyExists,
    SetupAppend,
)
from gateway.protocols.pravega.wire_segments import CreateSegment, SegmentCreated

__all__ = ["DraftReader", "DraftWriter", "EventWriter", "V17Writer"]

_BLOCK_BYTES = 1 << 18


class EventWriter(ABC):
    """One writer on one segment, whichever the dialect; its id is 16 bytes."""

    def __init__(self, writer: bytes, segment: str) -> None:
        self.writer = writer
        self.segment = segment
        self.resent = 0
        """Events that were sent more than once."""
        self.ready = False
        """The server has said what it has."""
        self._flight: deque[bytes] = deque()
        """Whole Event messages that were sent on this connection …"""
        self._unsent: deque[bytes] = deque()
        """… and that were not."""

    @property
    def unacknowledged(self) -> int:
        """How many events were added and are not known to be stored."""
        return len(self._flight) + len(self._unsent)

    @abstractmethod
    def connected(self) -> bytes:
        """Send this first on each connection."""

    @abstractmethod
    def received(self, data: bytes) -> int:
        """Bytes of the server; how many events they acknowledge.  Raises `Refusal`."""

    @abstractmethod
    def _block(self, messages: Sequence[bytes]) -> bytes:
        """An append of whole Event messages."""

    def add(self, events: Sequence[bytes]) -> None:
        """Events to be written, in this order."""
        self._unsent += map(wire.event, events)

    def blocks(self, *, most: int = _BLOCK_BYTES) -> Iterator[bytes]:
        """What to send now: blocks of *most* bytes or one event."""
        while self.ready and self._unsent:
            block = [self._unsent.popleft()]
            size = len(block[0])
            while self._unsent and size + len(self._unsent[0]) <= most:
                block.append(self._unsent.popleft())
                size += len(block[-1])
            self._flight += block
            yield self._block(block)

    def _begin(self) -> None:
        """What is in flight on this connection is not stored: it is to be sent again."""
        self.resent += len(self._flight)
        self._unsent.extendleft(reversed(self._flight))
        self._flight.clear()
        self.ready = True

    def _pop(self) -> bytes:
        return (self._flight or self._unsent).popleft()


class DraftWriter(EventWriter):
    """In the dialect of the first proposal: offsets count whole Event messages."""

    def __init__(self, writer: bytes, segment: str) -> None:
        super().__init__(writer, segment)
        self.level = 0
        """How many bytes of events are stored."""
        self._sent = self._end = 0
        self._frames = Frames(wire.REPLIES)

    def connected(self) -> bytes:
        """See `EventWriter`."""
        self.ready = False
        self._frames = Frames(wire.REPLIES)
        return wire.setup_append(self.writer, self.segment)

    def add(self, events: Sequence[bytes]) -> None:
        """See `EventWriter`."""
        super().add(events)
        self._end += sum(HEADER_BYTES + len(event) for event in events)

    def received(self, data: bytes) -> int:
        """See `EventWriter`."""
        before = self.unacknowledged
        for kind, payload in self._frames.feed(data):
            if kind == wire.APPEND_SETUP:
                _, writer, level = wire.read_append_setup(payload)
                self._stored(writer, level)
                self._sent = level
                self._begin()
            elif kind == wire.DATA_APPENDED:
                self._stored(*wire.read_data_appended(payload))
        return before - self.unacknowledged

    def _block(self, messages: Sequence[bytes]) -> bytes:
        data = b"".join(messages)
        begin, self._sent = self._sent, self._sent + len(data)
        return b"".join(
            (
                wire.block(wire.BEGIN_BLOCK, self.writer, begin, len(data)),
                data,
                wire.block(wire.END_BLOCK, self.writer, self._sent, len(data)),
            )
        )

    def _stored(self, writer: bytes, level: int) -> None:
        if writer != self.writer or not self.level <= level <= self._end:
            raise Refusal(f"level {level} of a writer at {self.level} to {self._end}")
        while self.level < level:
            self.level += len(self._pop())
        if self.level != level:
            raise Refusal(f"level {level} is in the middle of an event")


class V17Writer(EventWriter):
    """In today's wire: events are numbered from 1.  Makes the segment if need be."""

    def __init__(self, writer: bytes, segment: str, *, token: str = "") -> None:
        """*token* is a delegation token, where one is demanded."""
        super().__init__(writer, segment)
        self.level = 0
        """How many events are stored."""
        self._token = token
        self._sent = 0
        self._due = b""
        self._frames = Frames(REPLIES)

    def connected(self) -> bytes:
        """See `EventWriter`."""
        self.ready = False
        self._due = b""
        self._frames = Frames(REPLIES)
        create = CreateSegment(0, self.segment, 0, 0, self._token)
        return encode(Hello(VERSION, OLDEST)) + encode(create)

    def blocks(self, *, most: int = _BLOCK_BYTES) -> Iterator[bytes]:
        """See `EventWriter`; first, that we want to append."""
        due, self._due = self._due, b""
        if due:
            yield due
        yield from super().blocks(most=most)

    def received(self, data: bytes) -> int:
        """See `EventWriter`."""
        before = self.unacknowledged
        for code, payload in self._frames.feed(data):
            match decode(code, payload):
                case DataAppended(last_event=last):
                    self._stored(last)
                case AppendSetup(last_event=last):
                    self._stored(0 if last == NEVER else last)
                    self._sent = self.level
                    self._begin()
                case SegmentCreated() | SegmentAlreadyExists():
                    setup = SetupAppend(1, self.writer, self.segment, self._token)
                    self._due = encode(setup)
                case Hello() | KeepAlive():
                    pass
                case refusal:
                    raise Refusal(f"the server says {refusal}")
        return before - self.unacknowledged

    def _block(self, messages: Sequence[bytes]) -> bytes:
        data = b"".join(messages)
        self._sent += len(messages)
        end = AppendBlockEnd(self.writer, len(data), b"", len(messages), self._sent)
        return encode(AppendBlock(self.writer, data)) + encode(end)

    def _stored(self, last: int) -> None:
        end = self.level + self.unacknowledged
        if not self.level <= last <= end:
            raise Refusal(f"event {last} of a writer at {self.level} to {end}")
        while self.level < last:
            self._pop()
            self.level += 1


class DraftReader:
    """Reads one segment from an offset on, event by event."""

    def __init__(self, segment: str, offset: int = 0) -> None:
        self.segment = segment
        self.offset = offset
        """Where the next read begins."""
        self.end = False
        """The segment is sealed, and was read to its end."""
        self._frames = Frames(wire.REPLIES)
        self._events = Frames((wire.EVENT,))

    def request(self, size: int = 1 << 18) -> bytes:
        """Ask for more; one at a time."""
        return wire.read_segment(self.segment, self.offset, size)

    def received(self, data: bytes) -> Iterator[bytes]:
        """The events that are complete now.  Raises `Refusal`."""
        for kind, payload in self._frames.feed(data):
            if kind != wire.SEGMENT_READ:
                continue
            found = wire.read_segment_read(payload)
            if found.offset != self.offset:
                raise Refusal(f"read at {found.offset}, not {self.offset}")
            self.offset += len(found.data)
            self.end = found.end
            for _, event in self._events.feed(found.data):
                yield event
