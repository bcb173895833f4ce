"""Large elements in parts: the streams of a connection take turns, some KiB each.

An element that is written in one piece holds back all other streams of its connection.
So those above `PART_BYTES` wait here, and leave part by part; so do small ones that are
many, some at a time.  As long as the transport takes more, the session's owner asks for
the next part, and gives other streams their turn between two.

A subscriber joins the parts in memory, within its limits.  So only some elements of a
connection are begun at a time; one that is larger than all that is alone.

No I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.outbound import Outbound
from gateway.protocols.rsio.streams import Served

PART_BYTES = (1 << 13) - 64
"""Larger elements are sent in parts of this size; two with their heads are 16 KiB."""

_MOST_BEGUN = 16
"""Elements that are begun and not finished, at most: a quarter of docs/rsio-v0.md's limit."""
BEGUN_BYTES = 8 << 20
"""Octets of those elements, at most: half of the limit of docs/rsio-v0.md."""


class Parts:
    """Elements of one connection's streams that are not sent, or in part."""

    __slots__ = ("_begun", "_begun_bytes", "_outbound", "_turns", "octets")

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound
        self._turns: deque[Served] = deque()
        """Streams with unsent elements, in the order of their turns."""
        self._begun = self._begun_bytes = 0
        self.octets = 0
        """Octets of all elements that are here, in memory: those that are begun are whole."""

    def __bool__(self) -> bool:
        return bool(self._turns)

    def add(self, stream: Served, elements: Iterable[bytes]) -> None:
        """Send *elements* when all before them are sent."""
        if not stream.unsent:
            self._turns.append(stream)
        for element in elements:
            stream.unsent.append(element)
            self.octets += len(element)

    def send_next(self) -> tuple[Served | None, int]:
        """Send some KiB of the stream whose turn it is: that stream, and the bytes."""
        for _ in range(len(self._turns)):
            stream = self._turns.popleft()
            size = self._send_some(stream)
            if stream.unsent:
                self._turns.append(stream)
            if size:
                return stream, size
        return None, 0

    def finish(self, stream: Served) -> None:
        if stream in self._turns:
            self._turns.remove(stream)
        while stream.unsent:
            self._send_some(stream, wait=False)

    def drop(self, stream: Served) -> None:
        if stream in self._turns:
            self._turns.remove(stream)
        if stream.sent_octets:
            self._end(stream)
        self.octets -= sum(map(len, stream.unsent))
        stream.unsent.clear()

    def clear(self) -> None:
        for stream in list(self._turns):
            self.drop(stream)

    def _send_some(self, stream: Served, *, wait: bool = True) -> int:
        """A part, or small elements; 0 if the next may not begin yet, and may *wait*."""
        unsent = stream.unsent
        if len(unsent[0]) > PART_BYTES:
            if wait and not stream.sent_octets and not self._may_begin(len(unsent[0])):
                return 0
            return self._send_part(stream, unsent[0])
        some, size = [], 0
        while unsent and size + len(unsent[0]) <= PART_BYTES:
            some.append(unsent.popleft())
            size += len(some[-1]) + 1
            self.octets -= len(some[-1])
        octets = wire.on_next(stream.id, some, fixed=stream.size > 0)
        self._outbound.send_encoded(octets)
        return len(octets)

    def _send_part(self, stream: Served, element: bytes) -> int:
        at, size = stream.sent_octets, len(element)
        if not at:
            stream.split_elements += 1
            self._begun += 1
            self._begun_bytes += size
        part = element[at : at + PART_BYTES]
        stream.sent_octets += len(part)
        last = stream.sent_octets == size
        kind = messages.OnNextLastPart if last else messages.OnNextPart
        self._outbound.send(kind(stream.id, stream.split_elements, part))
        if last:
            self._end(stream)
            stream.unsent.popleft()
            self.octets -= size
        return len(part)

    def _may_begin(self, size: int) -> bool:
        few = self._begun < _MOST_BEGUN and self._begun_bytes + size <= BEGUN_BYTES
        return few or not self._begun

    def _end(self, stream: Served) -> None:
        stream.sent_octets = 0
        self._begun -= 1
        self._begun_bytes -= len(stream.unsent[0])
