"""Publisher side of a session: the streams that the peer subscribed to.

We answer every subscribe with an onSubscribe, even if an onError follows (1.9), send
no more than was requested (1.1) and nothing after a terminal (1.7).  Requests and
cancels for streams that are over are ignored: they crossed the end (3.6, 3.7).

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.demand import UNBOUNDED, not_positive
from gateway.protocols.rsio.outbound import Outbound, State
from gateway.protocols.rsio.parts import PART_BYTES, Parts
from gateway.protocols.rsio.signals import (
    Cancelled,
    DemandAdded,
    Signal,
    StoredReceived,
    SubscribeReceived,
    SubscribeRejected,
)
from gateway.protocols.rsio.streams import UNKNOWN, Served
from gateway.sdk.interfaces import Refusal

_MESSAGE_BYTES = 1 << 16
"""Bytes that are queued as one piece, so that they can be compressed as one block."""


class Producer:
    """Publishes to any number of the peer's subscribers."""

    __slots__ = ("_asked", "_outbound", "element_bytes", "parts", "sent", "streams")

    def __init__(self, outbound: Outbound) -> None:
        self.streams: dict[int, Served] = {}
        self.element_bytes: int | None = None
        """The most that the peer takes of one element, if it has said so (extension 8)."""
        self.sent = 0
        """Elements sent since the session last reset this to 0."""
        self.parts = Parts(outbound)
        """Large elements that are not sent yet: the user asks for part after part."""
        self._outbound = outbound
        self._asked = False

    # -- what arrives ---------------------------------------------------------

    def limits(self, told: messages.Limits) -> None:
        """The peer says what it takes, before it subscribes."""
        if self.element_bytes is not None or self._asked or not told.element_bytes:
            raise Refusal("limits that come again, too late, or allow nothing")
        self.element_bytes = told.element_bytes

    def why_too_large(self, octets: int) -> str | None:
        """Why no element of so many *octets* may be sent; None if it may."""
        most = self.element_bytes
        if most is None or octets <= most:
            return None
        return f"E413 element of {octets} octets, {most} at most"

    def subscribe(
        self, asked: messages.Subscribe | messages.SubscribeFrom
    ) -> Signal | None:
        outbound, number = self._outbound, asked.subscriber
        if outbound.state is State.LEAVING:
            return None
        self._asked = True
        if number in self.streams:
            raise Refusal(f"subscribe with Id {number}, which is in use (1.10)")
        offset = asked.offset if isinstance(asked, messages.SubscribeFrom) else None
        stream = Served(number, asked.publisher, offset)
        self.streams[number] = stream
        most = outbound.limits.streams
        if len(self.streams) > most:
            self.fail(stream, f"E429 more than {most} streams")
            why = Refusal("more streams", limit=most, key="options.streams")
            return SubscribeRejected(stream, why)
        if asked.demand > UNBOUNDED:
            return self._not_positive(stream)
        if offset is not None and offset > UNBOUNDED:
            self.fail(stream, outbound.with_code(416, "offset out of range"))
            return Cancelled(stream)
        stream.first = asked.demand
        stream.wanted(asked.demand)
        return SubscribeReceived(stream)

    def request(self, request: messages.Request) -> Signal | None:
        stream = self.streams.get(request.subscriber)
        if stream is None:
            return None
        if not_positive(request.demand):
            return self._not_positive(stream)
        stream.wanted(request.demand)
        return DemandAdded(stream)

    def cancel(self, cancel: messages.Cancel) -> Signal | None:
        stream = self.streams.get(cancel.subscriber)
        if stream is None:
            return None
        del self.streams[stream.id]
        stream.live = False
        self.parts.drop(stream)
        return Cancelled(stream)

    def stored(self, stored: messages.Stored) -> Signal | None:
        """The peer has elements safe (extension 2)."""
        stream = self.streams.get(stored.subscriber)
        return None if stream is None else StoredReceived(stream, stored.offset)

    def _not_positive(self, stream: Served) -> Signal:
        self.fail(stream, self._outbound.with_code(400, "3.9: demand must be positive"))
        return Cancelled(stream)

    # -- what we send ---------------------------------------------------------

    def accept(self, stream: Served, size: int = 0) -> None:
        """Answer subscribe with onSubscribe; *size* octets per element, 0 if they differ."""
        if stream.size != UNKNOWN or not stream.live:
            raise ValueError(f"stream {stream.id} was answered")
        stream.size = size
        self._outbound.send(messages.OnSubscribe(stream.id, size))

    def send(self, stream: Served, elements: Sequence[bytes]) -> None:
        """Publish *elements*; ValueError beyond the demand.  Large ones are left to `parts`."""
        if stream.unsent or max(map(len, elements), default=0) > PART_BYTES:
            self.send_in_turns(stream, elements)
            return
        self._check_sizes(stream, elements)
        self._take(stream, len(elements))
        most = _MESSAGE_BYTES // PART_BYTES
        if sum(map(len, elements)) <= _MESSAGE_BYTES:
            most = len(elements) or 1
        for at in range(0, len(elements), most):
            some, fixed = elements[at : at + most], stream.size > 0
            self._outbound.send_encoded(wire.on_next(stream.id, some, fixed=fixed))

    def send_in_turns(self, stream: Served, elements: Sequence[bytes]) -> None:
        """Publish *elements*, all of them left to `parts`; ValueError as with `send`."""
        self._check_sizes(stream, elements)
        self._take(stream, len(elements))
        self.parts.add(stream, elements)

    def send_packed(self, stream: Served, octets: bytes) -> None:
        """Publish elements of the fixed size, joined; ValueError beyond the demand."""
        size = stream.size
        count, rest = divmod(len(octets), size) if size > 0 else (0, 1)
        if rest:
            raise ValueError("packed elements need a fixed size")
        if size > PART_BYTES:
            starts = range(0, len(octets), size)
            self.send(stream, [octets[at : at + size] for at in starts])
            return
        self._take(stream, count)
        most = _MESSAGE_BYTES // size
        for first in range(0, count, most):
            few = min(most, count - first)
            some = octets[first * size : (first + few) * size]
            self._outbound.send_encoded(wire.on_next_packed(stream.id, few, some))

    def send_encoded(self, stream: Served, messages: bytes, count: int) -> None:
        """Publish *count* elements, given as onNext messages of this stream."""
        self._take(stream, count)
        self._outbound.send_encoded(messages)

    def complete(self, stream: Served) -> None:
        """Send onComplete; does nothing if the stream is over already (1.7)."""
        self.parts.finish(stream)
        if self._finish(stream):
            self._outbound.send(messages.OnComplete(stream.id))

    def fail(self, stream: Served, error: str) -> None:
        """Send onError, and drop unsent elements; nothing if the stream is over already (1.7)."""
        if self._finish(stream):
            self._outbound.send(
                messages.OnError(stream.id, self._outbound.shortened(error))
            )

    def end(self) -> None:
        self.parts.clear()
        for stream in self.streams.values():
            stream.live = False
        self.streams.clear()

    def _finish(self, stream: Served) -> bool:
        if not stream.live:
            return False
        if stream.size == UNKNOWN:  # a rejection is onSubscribe and onError (1.9)
            self.accept(stream)
        stream.live = False
        del self.streams[stream.id]
        self.parts.drop(stream)
        return True

    def _check_sizes(self, stream: Served, elements: Sequence[bytes]) -> None:
        if stream.size > 0 and any(len(each) != stream.size for each in elements):
            raise ValueError(f"an element is not of {stream.size} octets")

    def _take(self, stream: Served, count: int) -> None:
        if not stream.live:
            raise ValueError(f"stream {stream.id} is over (1.7)")
        if stream.size == UNKNOWN:
            raise ValueError(f"stream {stream.id} was not accepted (1.9)")
        stream.demand.take(count)
        self.sent += count
