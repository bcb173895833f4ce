"""Subscriber side of a session: the streams that we subscribed to.

A publisher may send what we requested and no more (1.1), onSubscribe before anything
else (1.9) and only once (2.5), and nothing after a terminal (1.7).  One that breaks a
rule has its stream cancelled, because a subscriber has no other complaint (2.13); or
the connection ends, where what follows could not be understood.

No I/O, no clock.
"""

from __future__ import annotations

from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.decoder import Overrun, Oversized, Run
from gateway.protocols.rsio.demand import not_positive, saturating_add
from gateway.protocols.rsio.messages import Extension
from gateway.protocols.rsio.outbound import Outbound, State
from gateway.protocols.rsio.signals import Accepted, Signal, Terminated, Violated
from gateway.protocols.rsio.streams import (
    UNKNOWN,
    Consumed,
    LimitExceeded,
    Reassembly,
    TooLarge,
)
from gateway.sdk.interfaces import Refusal


class Consumer:
    """Subscribes to any number of the peer's publishers."""

    __slots__ = ("_cancelled", "_next_id", "_outbound", "_overran", "_told",
                 "_unfinished", "streams")  # fmt: skip

    def __init__(self, outbound: Outbound) -> None:
        self.streams: dict[int, Consumed] = {}
        """Streams by Id.  A cancelled stream stays here until its terminal arrives."""
        self._outbound = outbound
        self._unfinished = Reassembly(outbound.limits)
        self._next_id = 1
        self._cancelled: dict[int, None] = {}
        self._overran = self._told = False

    @property
    def held_bytes(self) -> int:
        return self._unfinished.octets

    def discard(self) -> None:
        """Forget elements that come in parts and are not whole."""
        self._unfinished = Reassembly(self._outbound.limits)

    # -- what we send ---------------------------------------------------------

    def subscribe(
        self, publisher: str, demand: int = 0, *, offset: int | None = None
    ) -> Consumed:
        """Subscribe; with *offset*, to what follows so many elements (extension 2)."""
        outbound = self._outbound
        outbound.check_open()
        if Extension.LIMITS in outbound.extensions and not self._told:
            self._told = True
            outbound.send(messages.Limits(outbound.limits.element_bytes))
        stream = Consumed(self._next_id, publisher, demand, offset or 0)
        if offset is None:
            outbound.send(messages.Subscribe(publisher, stream.id, demand))
        else:
            outbound.require(Extension.OFFSETS)
            outbound.send(messages.SubscribeFrom(publisher, stream.id, demand, offset))
        self.streams[stream.id] = stream
        self._next_id += 1  # never used again on this connection
        return stream

    def request(self, stream: Consumed, more: int) -> None:
        """Request *more* elements; does nothing if the stream is over (3.6)."""
        if not_positive(more):
            raise ValueError(f"demand of {more} is not positive (3.9)")
        if not stream.dropped:
            stream.room = saturating_add(stream.room, more)
            self._outbound.send(messages.Request(stream.id, more))

    def cancel(self, stream: Consumed) -> None:
        """Cancel; does nothing if the stream is over (3.7)."""
        if stream.dropped:
            return
        self._drop(stream)
        self._outbound.send(messages.Cancel(stream.id))
        self._cancelled[stream.id] = None
        if len(self._cancelled) > self._outbound.limits.remembered:
            oldest = next(iter(self._cancelled))
            del self._cancelled[oldest]
            del self.streams[oldest]

    def stored(self, stream: Consumed, offset: int) -> None:
        """Tell that the publisher's first *offset* elements are safe (extension 2)."""
        self._outbound.require(Extension.OFFSETS)
        if not stream.dropped:
            self._outbound.send(messages.Stored(stream.id, offset))

    # -- what arrives ---------------------------------------------------------

    def on_subscribe(self, started: messages.OnSubscribe) -> Signal | None:
        """The peer answered a subscription of ours; an onError may follow at once."""
        stream = self._find(started.subscriber, "onSubscribe")
        limits = self._outbound.limits
        if stream.size != UNKNOWN:
            self.cancel(stream)
            raise Refusal(f"second onSubscribe for stream {stream.id} (2.5)")
        if started.size > limits.declared_bytes:
            raise Refusal(
                f"elements of {started.size} octets",
                limit=limits.declared_bytes,
                key="limits.message_bytes",
            )
        stream.size = started.size
        if stream.dropped:
            return None
        if started.size > limits.element_bytes:
            return self.oversized(Oversized(stream, started.size))
        return Accepted(stream)

    def on_complete(self, done: messages.OnComplete) -> Signal | None:
        """A stream is complete."""
        return self._terminal(done.subscriber, "onComplete", None)

    def on_error(self, failed: messages.OnError) -> Signal | None:
        return self._terminal(failed.subscriber, "onError", failed.error)

    def _terminal(self, number: int, what: str, error: str | None) -> Signal | None:
        stream = self._find(number, what)
        if stream.size == UNKNOWN:
            raise Refusal(f"{what} for stream {number} before its onSubscribe (1.9)")
        del self.streams[number]
        self._cancelled.pop(number, None)
        if stream.dropped:
            return None
        self._drop(stream)
        return Terminated(stream, error)

    def part(
        self, part: messages.OnNextPart | messages.OnNextLastPart
    ) -> Signal | None:
        """A part of an element arrived; the first one takes a unit of demand."""
        stream = self._find(part.subscriber, "element")
        if stream.size == UNKNOWN:
            raise Refusal(f"element of stream {stream.id} before its onSubscribe (1.9)")
        if stream.dropped:
            return None
        if self._unfinished.begins(stream, part.element):
            if not stream.room:
                return self.overrun(Overrun(stream))
            stream.room -= 1
        last = isinstance(part, messages.OnNextLastPart)
        try:
            joined = self._unfinished.add(stream, part.element, part.data, last=last)
        except TooLarge as why:
            return self.oversized(Oversized(stream, why.octets))
        except LimitExceeded as why:
            return self._violated(stream, why)
        if joined is None:
            return None
        stream.arrived += 1
        message = wire.on_next(stream.id, (joined,), fixed=stream.size > 0)
        return Run(stream, 1, len(joined), message)

    def overrun(self, token: Overrun) -> Signal:
        """More elements than requested: cancels the stream; the second time, fatal."""
        if self._overran:
            raise Refusal("more elements than were asked for, again (1.1)")
        self._overran = True
        why = Refusal("more elements than were asked for (1.1)")
        return self._violated(token.stream, why)

    def oversized(self, token: Oversized) -> Signal:
        """An element beyond `limits.element_bytes`: cancels the stream.

        A peer that was not told the limit hears from the reason of our goodbye which
        element that was: a subscriber has no other words for it.
        """
        stream, limits = token.stream, self._outbound.limits
        most, key = limits.element_bytes, "options.element_bytes"
        if most == limits.declared_bytes:
            key = "limits.message_bytes"
        why = Refusal(f"element of {token.size} octets", limit=most, key=key)
        signal = self._violated(stream, why)
        if not self._told:
            number = stream.offset + stream.arrived + 1
            named = f"element {number} of {stream.publisher!r} has {token.size} octets"
            goodbye = f"E413 {named}, {most} at most"
            self._outbound.send(messages.Goodbye(self._outbound.shortened(goodbye)))
            self._outbound.state = State.LEAVING
            raise Refusal(named, limit=most, key=key)
        return signal

    def end(self) -> None:
        """The connection is over; what still arrives is dropped."""
        for stream in self.streams.values():
            self._drop(stream)

    def _find(self, number: int, what: str) -> Consumed:
        stream = self.streams.get(number)
        if stream is None:
            raise Refusal(f"{what} for stream {number}, which we never asked for")
        return stream

    def _drop(self, stream: Consumed) -> None:
        stream.dropped = True
        self._unfinished.drop(stream)

    def _violated(self, stream: Consumed, why: Refusal) -> Signal:
        self.cancel(stream)
        return Violated(stream, why)
