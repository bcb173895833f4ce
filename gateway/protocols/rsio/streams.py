"""State of single streams, consumed and served, and reassembly of split elements.

We consume the streams that we subscribed to, under Ids that we chose; we serve those
that the peer subscribed to, under Ids that it chose.  The two are independent: the same
Id may be in use in both directions.

    Consumed:  subscribed -- onSubscribe -> flowing -- onComplete | onError -> gone
               subscribed | flowing -- cancel -> dropped: late elements are skipped,
               with the size that they had, until the terminal arrives
    Served:    subscribed -- onSubscribe -> flowing -- onComplete | onError | cancel
               -> gone
"""

from __future__ import annotations

from collections import deque

from attrs import define, field

from gateway.protocols.rsio.demand import Demand, saturating_add
from gateway.protocols.rsio.limits import Limits
from gateway.sdk.interfaces import Refusal

UNKNOWN = -1
"""The size of the elements of a stream before its onSubscribe."""


@define(eq=False)
class Consumed:
    """A stream that we subscribed to."""

    id: int
    publisher: str
    room: int
    """Elements that were requested and have not begun to arrive."""
    offset: int
    """How many of the publisher's elements precede this stream (extension 2)."""
    size: int = UNKNOWN
    """Octets of each element; 0 if they differ, `UNKNOWN` before onSubscribe."""
    arrived: int = 0
    """Elements that have arrived, whole or with all their parts."""
    dropped: bool = False
    """Cancelled or terminated: what still arrives is skipped."""
    parts: dict[int, bytearray] | None = None
    """Unfinished split elements by Id; `Reassembly` keeps them."""
    context: object = None
    """An object of the session's user."""


@define(eq=False)
class Served:
    """A stream that the peer subscribed to."""

    id: int
    publisher: str
    offset: int | None
    """How many elements the subscriber has already; None if it did not say."""
    demand: Demand = field(factory=Demand)
    """How many elements may be sent now."""
    first: int = 0
    """The demand that came with the subscribe."""
    granted: int = 0
    """All the demand so far, the first included."""
    size: int = UNKNOWN
    """Octets of each element, or `UNKNOWN`."""
    live: bool = True
    """Neither terminated nor cancelled."""
    unsent: deque[bytes] = field(factory=deque)
    """Elements that took their demand and wait to be sent in parts; `Parts` keeps them."""
    sent_octets: int = 0
    """Octets sent of the first of those."""
    split_elements: int = 0
    """How many elements were begun to be sent in parts; the Id of the latest."""
    context: object = None
    """An object of the session's user."""

    def wanted(self, more: int) -> None:
        """The subscriber requested *more* elements."""
        self.demand.add(more)
        self.granted = saturating_add(self.granted, more)


class LimitExceeded(Refusal):
    """A stream's split elements exceed a limit: the stream is to be cancelled."""


class TooLarge(LimitExceeded):
    """One element does; it has *octets* at least."""

    def __init__(self, octets: int) -> None:
        super().__init__(f"element of {octets} octets or more")
        self.octets = octets


class Reassembly:
    """Joins the parts of split elements, for all streams of a connection."""

    __slots__ = ("_limits", "elements", "octets")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.elements = 0
        """Unfinished elements."""
        self.octets = 0
        """Bytes held of them."""

    def begins(self, stream: Consumed, element: int) -> bool:
        """Whether a part with this element Id would be the element's first."""
        return stream.parts is None or element not in stream.parts

    def add(
        self, stream: Consumed, element: int, data: bytes, *, last: bool
    ) -> bytes | None:
        """Add a part; returns the whole element if it is the *last* one.

        Raises `LimitExceeded`, or `Refusal`.
        """
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
        """Forget a stream's unfinished elements."""
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
            raise TooLarge(size)

    def _check_all(self) -> None:
        limits = self._limits
        if self.elements > limits.unfinished_elements:
            raise LimitExceeded(
                f"{self.elements} unfinished elements",
                limit=limits.unfinished_elements,
            )
        if self.octets > limits.unfinished_bytes:
            raise LimitExceeded(
                f"{self.octets} octets of unfinished elements",
                limit=limits.unfinished_bytes,
            )
