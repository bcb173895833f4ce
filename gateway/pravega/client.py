"""The client's side of both dialects, without I/O: what to send, what came back.

`SeedWriter` writes events to one segment in the seed's dialect and knows which of them
are stored; it sends again, after a reconnect, what the server does not have.  Offsets
count whole Event messages, so the same writer id may be used across restarts if the
same events are given again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from gateway.interfaces import Refusal
from gateway.pravega import seed_wire as wire
from gateway.pravega.frames import Frames

__all__ = ["SeedReader", "SeedWriter"]


class SeedWriter:
    """One connection id on one segment."""

    def __init__(self, writer: bytes, segment: str) -> None:
        self.writer = writer
        self.segment = segment
        self.level = 0
        """How many bytes of events are stored."""
        self._end = 0
        self._events: deque[bytes] = deque()
        self._begin = 0
        """Offset of the first event that is kept."""
        self._sent = 0
        self._ready = False
        self._frames = Frames(wire.REPLIES)

    @property
    def unacknowledged(self) -> int:
        """How many events were added and are not known to be stored."""
        return len(self._events)

    def connected(self) -> bytes:
        """Send this first on each connection."""
        self._ready = False
        self._frames = Frames(wire.REPLIES)
        return wire.setup_append(self.writer, self.segment)

    def add(self, events: Sequence[bytes]) -> None:
        """Events to be written, in this order."""
        for data in events:
            message = wire.event(data)
            self._events.append(message)
            self._end += len(message)

    def blocks(self, *, most: int = 1 << 18) -> Iterator[bytes]:
        """What to send now: blocks of *most* bytes or one event."""
        if not self._ready:
            return
        block: list[bytes] = []
        offset, size = self._begin, 0
        for message in self._events:
            if offset >= self._sent:
                if block and size + len(message) > most:
                    yield self._block(block, size)
                    block, size = [], 0
                block.append(message)
                size += len(message)
            offset += len(message)
        if block:
            yield self._block(block, size)

    def _block(self, messages: Sequence[bytes], size: int) -> bytes:
        begin, self._sent = self._sent, self._sent + size
        return b"".join(
            (
                wire.block(wire.BEGIN_BLOCK, self.writer, begin, size),
                *messages,
                wire.block(wire.END_BLOCK, self.writer, self._sent, size),
            )
        )

    def received(self, data: bytes) -> int:
        """Bytes of the server; how many events they acknowledge.  Raises `Refusal`."""
        before = len(self._events)
        for kind, payload in self._frames.feed(data):
            if kind == wire.APPEND_SETUP:
                _, writer, level = wire.read_append_setup(payload)
                self._stored(writer, level)
                self._sent, self._ready = level, True
            elif kind == wire.DATA_APPENDED:
                self._stored(*wire.read_data_appended(payload))
        return before - len(self._events)

    def _stored(self, writer: bytes, level: int) -> None:
        if writer != self.writer or not self.level <= level <= self._end:
            raise Refusal(f"level {level} of a writer at {self.level} to {self._end}")
        self.level = level
        while self._events and self._begin + len(self._events[0]) <= level:
            self._begin += len(self._events.popleft())


class SeedReader:
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
