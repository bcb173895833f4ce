"""Append blocks of the 2016 draft: collects a block's events, and checks its end.

    BeginAppendBlock(length)  length bytes of messages              EndAppendBlock(total)
    BeginAppendBlock(open)    messages, one by one                  EndAppendBlock(total)
    …  Event … PartialMessage(begin)    EndAppendBlock(total)  PartialMessage(end)

`total` is the size of the block's Event messages, whatever is between begin and end.  What
exceeds it is padding.  What is missing is the rest of an event that was split, and follows
after the end.  No I/O, no clock.
"""

from __future__ import annotations

from gateway.protocols.pravega import draft_wire as wire
from gateway.protocols.pravega.events import MOST_EVENTS, cut
from gateway.protocols.pravega.frames import HEADER, HEADER_BYTES
from gateway.sdk.interfaces import Refusal


class Reassembly:
    """Joins PartialMessages to one message."""

    __slots__ = ("_most", "_parts", "begun", "size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self.begun = False
        self.size = 0

    def add(self, payload: bytes) -> bytes | None:
        """Add a PartialMessage's payload; with the last one, give the whole message.

        The message includes its header.  Raises `Refusal` for a part out of order, and
        for a message over the limit.
        """
        which = payload[0] if payload else None
        if which not in (wire.BEGIN, wire.MIDDLE, wire.END):
            raise Refusal(f"part {which} of a message, not 0, 1 or 2")
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
        self._parts.clear()
        self.begun = False
        self.size = 0


class DraftBlock:
    """One append block, from its BeginAppendBlock until its last event is complete."""

    __slots__ = ("_events", "_most", "_split", "begin", "size", "total")

    def __init__(self, begin: wire.Block, most: int, split: Reassembly) -> None:
        """*most* is the limit in bytes; *split* joins the connection's PartialMessages."""
        self.begin = begin
        self._most = most
        self._events: list[bytes] = []
        self.size = 0
        """Size of the events so far."""
        self._split = split
        self.total = -1
        """The size that the EndAppendBlock gives; -1 before it."""

    @property
    def data(self) -> bytes:
        return b"".join(self._events)

    @property
    def complete(self) -> bool:
        return self.size == self.total

    def event(self, message: bytes) -> None:
        """Add a whole Event message."""
        self._events.append(message)
        if len(self._events) > MOST_EVENTS:
            raise Refusal("append block of too many events", limit=MOST_EVENTS)
        self.size += len(message)
        self._check_size(self.size)
        if self.total >= 0 and self.size != self.total:
            raise Refusal(
                f"append block of {self.size} bytes that should be {self.total}"
            )

    def joined(self, whole: bytes) -> None:
        """Add a message that came in parts, which must be an event."""
        size = len(whole) - HEADER_BYTES
        if size < 0 or HEADER.unpack_from(whole) != (wire.EVENT, size):
            raise Refusal("partial messages in a block that make no event")
        self.event(whole)

    def check_part(self) -> None:
        """Refuse a part of an event, come after the end, that exceeds the block."""
        if self.total >= 0 and self.size + self._split.size > self.total:
            raise Refusal(f"event that goes on behind its block of {self.total} bytes")

    def end(self, end: wire.Block, area: bytes | None) -> None:
        """Take the EndAppendBlock; *area* is what came before it, of an announced length."""
        if self.total >= 0:
            raise Refusal("second end of an append block")
        if end.writer != self.begin.writer:
            raise Refusal("end of another connection id's block")
        if end.offset not in (self.begin.offset, self.begin.offset + end.length):
            raise Refusal(f"append block at {self.begin.offset} ends at {end.offset}")
        self._check_size(end.length)
        if area is not None:
            self._take_area(area, end.length)
        if self.size > end.length:
            self._drop_padding(end.length)
        elif self.size < end.length and not self._split.begun:
            raise Refusal(f"append block of {self.size} bytes, not {end.length}")
        if self.size == end.length:
            self._split.clear()
        self.total = end.length

    def _check_size(self, size: int) -> None:
        if not 0 <= size <= self._most:
            raise Refusal(
                f"append block of {size} bytes",
                limit=self._most,
                key="limits.message_bytes",
            )

    def _take_area(self, area: bytes, total: int) -> None:
        """Add the messages of *area* until *total* is reached."""
        at, stop = 0, len(area)
        if total <= stop and not (self._events or self._split.begun):
            events = area[:total]
            found = cut(events, 0)
            if found is not None:
                if found[1] < total:
                    raise Refusal("append block of too many events", limit=MOST_EVENTS)
                self._events.append(events)
                self.size = total
                return
        while at < stop and self.size < total:
            if stop - at < HEADER_BYTES:
                raise Refusal("append block ends inside a message")
            kind, size = HEADER.unpack_from(area, at)
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

    def _drop_padding(self, total: int) -> None:
        """Drop the events after *total* bytes, which are padding."""
        while self.size > total:
            self.size -= len(self._events.pop())
        if self.size != total:
            raise Refusal(f"append block of {total} bytes ends inside an event")
        self._split.clear()
