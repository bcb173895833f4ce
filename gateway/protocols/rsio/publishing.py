"""Publishes to the subscribers of one connection: elements from sources to streams.

Elements are sent while there is demand, while the transport is writable, and at most
`_TURN_BYTES` in one turn of the reactor, so that no connection keeps it busy.  The
streams of a connection take turns of some KiB.  Beyond that, one large element or many small
ones leave in parts, between which each other stream that is ready has its turn.  While `BEGUN_BYTES` wait to be sent in parts, no source is asked for more,
unless its latest elements were few and small: those have as much again.

`request`, `take` and `wake` never recurse into each other (3.3): they queue the stream,
and `pump` feeds what is queued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from gateway.event import Origin
from gateway.protocols.rsio import wire
from gateway.protocols.rsio.parts import BEGUN_BYTES, PART_BYTES
from gateway.protocols.rsio.producer import Producer
from gateway.protocols.rsio.streams import Served
from gateway.sdk.publisher import Elements, Fault, Finished, Publishers, Source

_TURN_BYTES = 1 << 18
_TURN_ELEMENTS = 1024
_PARTS_BYTES = 1 << 16
_MIXED_BYTES = 1 << 14


@define(eq=False)
class Publishing:
    """Publishes to the subscribers of one connection.

    *flush* writes what the producer has queued, and may call `writable`.  *turn_over*
    is called behind each turn: what waits to be sent may be more, or less.
    """

    _log = Logger()

    _producer: Producer
    _publishers: Publishers
    _origin: Origin
    _flush: Callable[[], None]
    _turn_over: Callable[[], None]
    _clock: IReactorTime
    _streams: set[Served] = field(factory=set, init=False)
    _ready: deque[Served] = field(factory=deque, init=False)
    _held_back: deque[Served] = field(factory=deque, init=False)
    """Streams that are ready, and wait until fewer large elements do."""
    _round: int = field(default=0, init=False)
    """Ready streams that have their turn before the next part."""
    _writable: bool = field(default=True, init=False)
    _pumping: bool = field(default=False, init=False)
    _again: bool = field(default=False, init=False)
    _mixed: bool = field(default=False, init=False)
    """Whole elements were sent in the last turn, beside parts or not."""
    _closed: bool = field(default=False, init=False)

    def subscribed(self, stream: Served) -> None:
        state = _Feed(self, stream)
        try:
            source = self._publishers.subscribe(
                stream.publisher, stream.offset, self._origin, state.wake
            )
        except Fault as why:
            self._producer.fail(stream, str(why))
            return
        except Exception:
            self._log.failure("while subscribing to {name!r}", name=stream.publisher)
            self._producer.fail(stream, "E500 internal error")
            return
        state.source = source
        stream.context = state
        self._streams.add(stream)
        if why_not := self._producer.why_too_large(source.size):
            self._producer.fail(stream, why_not)
            self.cancelled(stream)
            return
        self._producer.accept(stream, source.size)
        self.demand_added(stream)

    def demand_added(self, stream: Served) -> None:
        """Queue a stream for the next `pump`."""
        state = stream.context
        if isinstance(state, _Feed) and not state.queued:
            state.queued = True
            self._ready.append(stream)

    def cancelled(self, stream: Served) -> None:
        self._streams.discard(stream)
        state, stream.context = stream.context, None
        if isinstance(state, _Feed) and state.source is not None:
            source, state.source = state.source, None
            source.close()

    def writable(self, ready: bool) -> None:  # noqa: FBT001 - a state, not a mode
        """Whether the transport takes more; if so, go on sending."""
        self._writable = ready
        self.pump()

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._held_back.clear()
        for stream in list(self._streams):
            self.cancelled(stream)

    def pump(self) -> None:
        """Feed the queued streams, for one turn."""
        if self._pumping or self._again or not self._waits:
            return
        self._pumping = True
        left, parts = _TURN_BYTES, self._parts_bytes
        self._mixed = False
        try:
            while self._may_send(left, parts):
                if left > 0:
                    left -= self._feed_each(left)
                if parts > 0 and not self._round:
                    parts -= self._send_part()
                self._flush()
        finally:
            self._pumping = False
        self._turn_over()
        if self._waits and self._writable and not self._closed:
            self._again = True
            self._clock.callLater(0, self._next_turn)

    @property
    def _parts_bytes(self) -> int:
        """Bytes that may be sent in parts in one turn.

        Fewer if there are other streams, whose elements may come one by one, and little if one of
        them had some just now.
        """
        if self._alone:
            return _TURN_BYTES
        return _MIXED_BYTES if self._mixed else _PARTS_BYTES

    def _may_send(self, left: int, parts: int) -> bool:
        """*left*: bytes that sources may give; *parts*: those that leave in parts."""
        if not self._writable or self._closed:
            return False
        self._let_in()
        if self._producer.parts and parts <= 0:
            return False  # nor do others go on, while those wait
        if left > 0:
            return bool(self._ready or self._producer.parts)
        others = self._mixed or self._ready  # they have their turn first
        return bool(self._producer.parts) and not others

    @property
    def _waits(self) -> bool:
        """Something may be there to be sent."""
        return bool(self._ready or self._held_back or self._producer.parts)

    def _let_in(self) -> None:
        """Make streams ready again that were held back, if few enough elements wait."""
        if self._held_back and self._producer.parts.octets < BEGUN_BYTES:
            self._ready.extend(self._held_back)
            self._held_back.clear()

    def _feed_each(self, most: int) -> int:
        """Feed each stream that is ready once, or go on with that, up to *most* bytes or
        little more; returns the bytes.
        """
        fed = 0
        self._round = self._round or len(self._ready)
        while self._round and fed < most and self._writable and not self._closed:
            if fed:
                self._flush()
            self._round -= 1
            fed += self._feed_next()
        return fed

    def _feed_next(self) -> int:
        if not self._ready:
            return 0
        stream = self._ready.popleft()
        state = stream.context
        if not isinstance(state, _Feed):
            return 0
        if self._producer.parts.octets >= state.most_unsent:
            self._held_back.append(stream)
            return 0
        state.queued = False
        return self._feed(stream, state)

    def _send_part(self) -> int:
        stream, size = self._producer.parts.send_next()
        if stream is not None and not stream.unsent:
            self.demand_added(stream)
        return size

    def _next_turn(self) -> None:
        self._again = False
        self.pump()

    def _feed(self, stream: Served, state: _Feed) -> int:
        """Send what a stream's source has, up to its demand, or leave it to be sent in
        parts; returns the bytes.
        """
        if stream.unsent:
            return 0
        most = min(stream.demand.left, _TURN_ELEMENTS)
        if stream.size and not self._alone:
            most = min(most, max(1, PART_BYTES // stream.size))
        try:
            # Even without demand: a source may end before more is requested (2.9).
            elements = state.take(most)
            why_not = self._producer.why_too_large(elements.largest if elements else 0)
        except Finished:
            self._producer.complete(stream)
        except Fault as why:
            self._producer.fail(stream, str(why))
        except Exception:
            self._log.failure("while publishing {name!r}", name=stream.publisher)
            self._producer.fail(stream, "E500 internal error")
        else:
            if not elements:
                return 0
            if why_not is not None:
                self._producer.fail(stream, why_not)
                self.cancelled(stream)
                return 0
            self._send(stream, elements)
            state.large = bool(stream.unsent)
            if not state.large:  # else it is its turn again when that is sent
                self._mixed = state.queued = True
                self._ready.append(stream)
            return elements.octets + 8 * len(elements)
        self.cancelled(stream)
        return 0

    def _send(self, stream: Served, elements: Elements) -> None:
        if stream.size:
            self._producer.send_packed(stream, b"".join(elements.elements))
        elif (elements.largest if self._alone else elements.octets) <= PART_BYTES:
            encoded = elements.encoded(stream.id, wire.on_next)
            self._producer.send_encoded(stream, encoded, len(elements))
        else:
            self._producer.send_in_turns(stream, elements.elements)

    @property
    def _alone(self) -> bool:
        """There is no other stream whose turn it could be."""
        return len(self._streams) == 1


class _Feed:
    """A stream's source, and whether the stream is queued."""

    __slots__ = ("_publishing", "_stream", "large", "queued", "source")

    def __init__(self, serving: Publishing, stream: Served) -> None:
        self._publishing = serving
        self._stream = stream
        self.source: Source | None = None
        self.queued = False
        self.large = True
        """Whether its latest elements were too much for one turn; a new stream's may be."""

    @property
    def most_unsent(self) -> int:
        """While so many bytes wait to be sent in parts, its source is not asked."""
        return BEGUN_BYTES if self.large else 2 * BEGUN_BYTES

    def take(self, most: int) -> Elements | None:
        return None if self.source is None else self.source.take(most)

    def wake(self) -> None:
        if self.source is not None:
            self._publishing.demand_added(self._stream)
            self._publishing.pump()
