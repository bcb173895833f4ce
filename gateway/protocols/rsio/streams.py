"""The two kinds of stream of a connection, and elements that come in parts.

We consume streams that we subscribed to, under Ids that we chose; we serve streams
that the peer subscribed to, under Ids that it chose.  The two have nothing to do with
each other: the same Id may be in use both ways.

    Consumed:  asked -- onSubscribe -> flowing -- onComplete | onError -> gone
               asked | flowing -- cancel -> dropped: its late elements are read and
               forgotten, with the size they had, until its terminal or for good
    Served:    offered -- onSubscribe -> flowing -- onComplete | onError | cancel -> gone
"""

from __future__ import annotations

from gateway.interfaces import Refusal
from gateway.protocols.rsio.demand import Demand, saturating_add
from gateway.protocols.rsio.limits import Limits

__all__ = ["UNKNOWN", "Consumed", "LimitExceeded", "Reassembly", "Served"]

UNKNOWN = -1
"""The size of the elements of a stream before its onSubscribe."""


class Consumed:
    """A stream that we subscribed to."""

    __slots__ = ("arrived", "context", "dropped", "id", "offset", "parts", "publisher",
                 "room", "size")  # fmt: skip

    def __init__(self, number: int, publisher: str, room: int, offset: int) -> None:
        self.id = number
        self.publisher = publisher
        self.room = room
        """Elements granted that have not begun to arrive."""
        self.offset = offset
        """Elements of the publisher that come before the first of this stream."""
        self.size = UNKNOWN
        """Octets of each element; 0: they differ."""
        self.arrived = 0
        """Elements, whole or with all their parts."""
        self.dropped = False
        """Cancelled, or the connection is ending: nobody wants what still arrives."""
        self.parts: dict[int, bytearray] | None = None
        self.context: object = None
        """Whatever its user likes."""


class Served:
    """A stream that the peer subscribed to."""

    __slots__ = ("context", "demand", "first", "granted", "id", "live", "next_part",
                 "offset", "publisher", "size")  # fmt: skip

    def __init__(self, number: int, publisher: str, offset: int | None) -> None:
        self.id = number
        self.publisher = publisher
        self.demand = Demand()
        """What may be sent now."""
        self.first = 0
        """The demand that came with the subscribe."""
        self.granted = 0
        """All the demand there ever was."""
        self.offset = offset
        """How many elements the subscriber has already; None if it did not say."""
        self.size = UNKNOWN
        self.live = True
        """Neither terminated nor cancelled."""
        self.next_part = 0
        self.context: object = None
        """Whatever its user likes."""

    def wanted(self, more: int) -> None:
        """The subscriber asks for *more*."""
        self.demand.add(more)
        self.granted = saturating_add(self.granted, more)


class LimitExceeded(Exception):
    """A stream's parts exceed a limit: it is to be cancelled."""

    def __init__(self, rule: str, limit: int, key: str | None = None) -> None:
        super().__init__(rule)
        self.rule = rule
        self.limit = limit
        self.key = key


class Reassembly:
    """The split elements of a connection that are still arriving."""

    __slots__ = ("_limits", "elements", "octets")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.elements = 0
        self.octets = 0

    def begins(self, stream: Consumed, element: int) -> bool:
        """Whether this would be an element's first part."""
        return stream.parts is None or element not in stream.parts

    def add(
        self, stream: Consumed, element: int, data: bytes, *, last: bool
    ) -> bytes | None:
        """The element, with its last part.  Raises `LimitExceeded`, or `Refusal`."""
        parts = stream.parts
        if parts is None:
            parts = stream.parts = {}
        joined = parts.get(element)
        size = len(data) + (len(joined) if joined is not None else 0)
        self._check(stream, size, whole=last)
        if last:
            if joined is None:
                return data
            del parts[element]
            self.elements -= 1
            self.octets -= len(joined)
            joined += data
            return bytes(joined)
        if joined is None:
            joined = parts[element] = bytearray()
            self.elements += 1
        joined += data
        self.octets += len(data)
        self._check_all()
        return None

    def drop(self, stream: Consumed) -> None:
        """Forget what has not arrived of a stream."""
        parts, stream.parts = stream.parts, None
        for joined in (parts or {}).values():
            self.elements -= 1
            self.octets -= len(joined)

    def _check(self, stream: Consumed, size: int, *, whole: bool) -> None:
        if stream.size and (size > stream.size or (whole and size != stream.size)):
            raise Refusal(
                f"a split element of {size} octets in a stream of {stream.size} each"
            )
        if size > self._limits.element_bytes:
            raise LimitExceeded(
                f"element of {size} octets or more",
                self._limits.element_bytes,
                "options.element_bytes",
            )

    def _check_all(self) -> None:
        limits = self._limits
        if self.elements > limits.unfinished_elements:
            raise LimitExceeded(
                f"{self.elements} unfinished elements", limits.unfinished_elements
            )
        if self.octets > limits.unfinished_bytes:
            raise LimitExceeded(
                f"{self.octets} octets of unfinished elements", limits.unfinished_bytes
            )
