"""A block of the seed's dialect, from its beginning to the end of its last event.

    BeginAppendBlock(length)  length bytes of messages              EndAppendBlock(total)
    BeginAppendBlock(open)    messages, one by one                  EndAppendBlock(total)
    …  Event … PartialMessage(begin)    EndAppendBlock(total)  PartialMessage(end)

`total` is how many bytes of Event messages there are, whatever lies between begin and
end: what is behind them is padding, and what is missing is the tail of an event that
was split, which follows the end.  No I/O, no clock.
"""

from __future__ import annotations

import struct

from gateway.interfaces import Refusal
from gateway.protocols.pravega import draft_wire as wire
from gateway.protocols.pravega.frames import HEADER_BYTES

__all__ = ["DraftBlock", "Reassembly"]

_HEADER = struct.Struct(">iI")


class Reassembly:
    """A message that comes in parts."""

    __slots__ = ("_most", "_parts", "begun", "size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self.begun = False
        self.size = 0

    def add(self, payload: bytes) -> bytes | None:
        """A PartialMessage's payload; the whole message, header included, at its end."""
        which = payload[0] if payload else None
        if which not in (wire.BEGIN, wire.MIDDLE, wire.END):
            raise Refusal(f"part {which} of a message, which is neither of three")
        if self.begun == (which == wire.BEGIN):
            raise Refusal(
                "new partial message before the end of the last"
                if self.begun
                else "part of a message that has not begun"
            )
        self.begun = which != wire.END
        self._parts.append(payload[1:])
        self.size += len(payload) - 1
        if self.size > HEADER_BYTES + self._most:
            raise Refusal(
                f"message of {self.size} bytes in parts",
                limit=self._most,
                key="limits.message_bytes",
            )
        if self.begun:
            return None
        whole = b"".join(self._parts)
        self.clear()
        return whole

    def clear(self) -> None:
        """ForgetIdleWriters what was begun."""
        self._parts.clear()
        self.begun = False
        self.size = 0


class DraftBlock:
    """One block."""

    __slots__ = ("_events", "_most", "_split", "begin", "size", "total")

    def __init__(self, begin: wire.Block, most: int, split: Reassembly) -> None:
        """*split* is where the connection's partial messages are joined."""
        self.begin = begin
        self._most = most
        self._events: list[bytes] = []
        self.size = 0
        """Of the events so far."""
        self._split = split
        self.total = -1
        """What the end said; not known before it."""

    @property
    def data(self) -> bytes:
        """The events."""
        return b"".join(self._events)

    @property
    def complete(self) -> bool:
        """Its end has come, and all of its events."""
        return self.size == self.total

    def event(self, message: bytes) -> None:
        """A whole Event message."""
        self._events.append(message)
        self.size += len(message)
        if self.size > self._most:
            raise Refusal(
                f"append block of {self.size} bytes",
                limit=self._most,
                key="limits.message_bytes",
            )
        if self.total >= 0 and self.size != self.total:
            raise Refusal(
                f"append block of {self.size} bytes that should be {self.total}"
            )

    def joined(self, whole: bytes) -> None:
        """An event that came in parts."""
        size = len(whole) - HEADER_BYTES
        if size < 0 or _HEADER.unpack_from(whole) != (wire.EVENT, size):
            raise Refusal("partial messages in a block that make no event")
        self.event(whole)

    def check_tail(self) -> None:
        """A part of an event has come: is there that much?"""
        if self.total >= 0 and self.size + self._split.size > self.total:
            raise Refusal(f"event that goes on behind its block of {self.total} bytes")

    def end(self, end: wire.Block, area: bytes | None) -> None:
        """EndAppendBlock; *area* is what lay between, if the length was announced."""
        if self.total >= 0:
            raise Refusal("second end of an append block")
        if end.writer != self.begin.writer:
            raise Refusal("end of another connection id's block")
        if end.offset not in (self.begin.offset, self.begin.offset + end.length):
            raise Refusal(f"append block at {self.begin.offset} ends at {end.offset}")
        if not 0 <= end.length <= self._most:
            raise Refusal(
                f"append block of {end.length} bytes",
                limit=self._most,
                key="limits.message_bytes",
            )
        if area is not None:
            self._walk(area, end.length)
        if self.size > end.length:
            self._cut(end.length)
        elif self.size < end.length and not self._split.begun:
            raise Refusal(f"append block of {self.size} bytes, not {end.length}")
        if self.size == end.length:
            self._split.clear()
        self.total = end.length

    def _walk(self, area: bytes, total: int) -> None:
        """The messages between begin and end, as far as they count."""
        at, stop = 0, len(area)
        while at < stop and self.size < total:
            if stop - at < HEADER_BYTES:
                raise Refusal("append block ends inside a message")
            kind, size = _HEADER.unpack_from(area, at)
            start = at + HEADER_BYTES
            at = start + size
            if at > stop:
                raise Refusal("append block ends inside a message")
            if kind == wire.PARTIAL:
                whole = self._split.add(area[start:at])
                if whole is not None:
                    self.joined(whole)
            elif self._split.begun:
                raise Refusal("event before the end of a partial message")
            elif kind == wire.EVENT:
                self.event(area[start - HEADER_BYTES : at])
            else:
                raise Refusal(f"message of type {kind} inside an append block")

    def _cut(self, total: int) -> None:
        """Of an open block: events behind *total* bytes are padding."""
        while self.size > total:
            self.size -= len(self._events.pop())
        if self.size != total:
            raise Refusal(f"append block of {total} bytes ends inside an event")
        self._split.clear()
