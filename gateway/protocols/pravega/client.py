"""Writers without I/O: clients of wire version 17 and of the 2016 draft.

`V17Writer` and `DraftWriter` write events to one segment.  After a reconnect they send
exactly the events that the server has not stored, so each event is stored once.

    send(writer.connected())            # on each connection
    writer.add(events)
    for data in writer.blocks():        # whenever there are events, or bytes came
        send(data)
    stored = writer.received(data)      # so many more events are durable
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence

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
    NoSuchSegment,
    SegmentAlreadyExists,
    SetupAppend,
)
from gateway.protocols.pravega.wire_segments import CreateSegment, SegmentCreated
from gateway.sdk.interfaces import Refusal

_BLOCK_BYTES = 1 << 18


class EventWriter(ABC):
    """Writes events to one segment, in either protocol version."""

    def __init__(self, writer: bytes, segment: str) -> None:
        """*writer* is the writer id, 16 bytes."""
        self.writer = writer
        self.segment = segment
        self.resent = 0
        """How many events were sent more than once."""
        self.ready = False
        """The server has said which events it has; `blocks` sends the others."""
        self._in_flight: deque[bytes] = deque()
        """Whole Event messages, sent on this connection and not acknowledged."""
        self._unsent: deque[bytes] = deque()
        """Whole Event messages, to be sent after those."""
        self.at_once: int | None = None
        """The most events in flight; None: all that there are."""
        self._suspect: bytes | None = None
        self.refused: int | None = None
        """The event that `received` has just acknowledged as set aside, not as stored."""

    @property
    def in_flight(self) -> int:
        return len(self._in_flight) if self.ready else 0

    def set_aside(self) -> None:
        """Send the event in flight again only if the server says that it lacks it."""
        self._suspect = self._in_flight[0]

    @property
    def unacknowledged(self) -> int:
        return len(self._in_flight) + len(self._unsent)

    @abstractmethod
    def connected(self) -> bytes: ...

    @abstractmethod
    def received(self, data: bytes) -> int:
        """Take bytes of the server; how many events they acknowledge.  Raises `Refusal`."""

    @abstractmethod
    def _block(self, messages: Sequence[bytes]) -> bytes:
        """An append of whole Event messages."""

    def add(self, events: Sequence[bytes]) -> None:
        """Queue events to write, in this order."""
        self._unsent += map(wire.event, events)

    def blocks(self, *, most: int = _BLOCK_BYTES) -> Iterator[bytes]:
        """The appends to send now, each of at most *most* bytes, or one event."""
        while self.ready and self._unsent and (left := self._left()) > 0:
            block = [self._unsent.popleft()]
            size = len(block[0])
            while (
                self._unsent
                and len(block) < left
                and size + len(self._unsent[0]) <= most
            ):
                block.append(self._unsent.popleft())
                size += len(block[-1])
            self._in_flight += block
            yield self._block(block)

    def _left(self) -> int:
        if self.at_once is None:
            return len(self._unsent)
        return self.at_once - len(self._in_flight)

    def _resend(self, before: int) -> None:
        """Queue again what was in flight when the last connection ended; *before* this
        answer so many were not acknowledged.
        """
        self.resent += len(self._in_flight)
        self._unsent.extendleft(reversed(self._in_flight))
        self._in_flight.clear()
        suspect, self._suspect = self._suspect, None
        if suspect is not None and self._unsent and self._unsent[0] is suspect:
            self.refused = before - self.unacknowledged
            self._forget(self._unsent.popleft())
        self.ready = True

    @abstractmethod
    def _forget(self, message: bytes) -> None: ...

    def _pop(self) -> bytes:
        return (self._in_flight or self._unsent).popleft()


class DraftWriter(EventWriter):
    """Writes in the 2016 draft of the protocol: offsets count whole Event messages."""

    def __init__(self, writer: bytes, segment: str) -> None:
        super().__init__(writer, segment)
        self.level = 0
        """How many bytes of events are acknowledged."""
        self._sent = self._end = 0
        self._frames = Frames(wire.REPLIES)

    def connected(self) -> bytes:
        self.ready = False
        self._frames = Frames(wire.REPLIES)
        return wire.setup_append(self.writer, self.segment)

    def add(self, events: Sequence[bytes]) -> None:
        super().add(events)
        self._end += sum(HEADER_BYTES + len(event) for event in events)

    def received(self, data: bytes) -> int:
        before, self.refused = self.unacknowledged, None
        for kind, payload in self._frames.feed(data):
            if kind == wire.APPEND_SETUP:
                _, writer, level = wire.decode_append_setup(payload)
                self._stored(writer, level)
                self._sent = level
                self._resend(before)
            elif kind == wire.DATA_APPENDED:
                self._stored(*wire.decode_data_appended(payload))
        return before - self.unacknowledged

    def _forget(self, message: bytes) -> None:
        self._end -= len(message)

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
    """Writes in wire version 17, numbered from 1; creates the segment if it does not exist."""

    def __init__(self, writer: bytes, segment: str, *, token: str = "") -> None:
        """*token* is a delegation token, where one is required."""
        super().__init__(writer, segment)
        self.level = 0
        """How many events are acknowledged."""
        self._token = token
        self._sent = 0
        self._due = b""
        self._frames = Frames(REPLIES)

    def connected(self) -> bytes:
        self.ready = False
        self._due = b""
        self._frames = Frames(REPLIES)
        return encode(Hello(VERSION, OLDEST)) + self._setup()

    def _setup(self) -> bytes:
        return encode(SetupAppend(1, self.writer, self.segment, self._token))

    def blocks(self, *, most: int = _BLOCK_BYTES) -> Iterator[bytes]:
        """Blocks as `EventWriter` has them; what makes the segment comes first."""
        due, self._due = self._due, b""
        if due:
            yield due
        yield from super().blocks(most=most)

    def received(self, data: bytes) -> int:
        before, self.refused = self.unacknowledged, None
        for code, payload in self._frames.feed(data):
            match decode(code, payload):
                case DataAppended(last_event=last):
                    self._stored(last)
                case AppendSetup(last_event=last):
                    self._stored(0 if last == NEVER else last)
                    self._sent = self.level
                    self._resend(before)
                case NoSuchSegment() if not self.ready:
                    create = CreateSegment(0, self.segment, 0, 0, self._token)
                    self._due = encode(create)
                case SegmentCreated() | SegmentAlreadyExists():
                    self._due = self._setup()
                case Hello() | KeepAlive():
                    pass
                case refusal:
                    raise Refusal(f"the server says {refusal}")
        return before - self.unacknowledged

    def _forget(self, message: bytes) -> None:
        """Nothing: it has no number before it is sent."""

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
