"""The streams of one connection that we serve: sources in, elements out.

Elements leave when three say yes: the subscriber (demand), the transport (it is
writable) and the turn, which is `_TURN_BYTES` long so that no subscriber keeps the
reactor to itself.  Streams take turns; within a stream nothing recurses, however
`request`, `take` and `wake` call each other (3.3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from gateway.event import Origin
from gateway.feeds.publisher import (
    Elements,
    Fault,
    Finished,
    Publishers,
    Source,
)
from gateway.protocols.rsio import wire
from gateway.protocols.rsio.producer import Producer
from gateway.protocols.rsio.streams import Served

__all__ = ["Serving"]

_TURN_BYTES = 1 << 18
_TURN_ELEMENTS = 1024
_LARGE = 1 << 16


class Serving:
    """Feeds the subscribers of one connection."""

    __slots__ = ("_again", "_clock", "_closed", "_flush", "_origin", "_producer",
                 "_publishers", "_pumping", "_ready", "_streams",
                 "_writable")  # fmt: skip

    _log = Logger()

    def __init__(
        self,
        producer: Producer,
        publishers: Publishers,
        origin: Origin,
        flush: Callable[[], None],
        clock: IReactorTime,
    ) -> None:
        """*flush* writes what the producer has to say, and may call `writable`."""
        self._producer = producer
        self._publishers = publishers
        self._origin = origin
        self._flush = flush
        self._clock = clock
        self._streams: set[Served] = set()
        self._ready: deque[Served] = deque()
        self._writable = True
        self._pumping = self._again = self._closed = False

    def asked(self, stream: Served) -> None:
        """A peer subscribes."""
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
        self._producer.accept(stream, source.size)
        self.demanded(stream)

    def demanded(self, stream: Served) -> None:
        """There may be something to do for a stream, at the next `pump`."""
        state = stream.context
        if isinstance(state, _Feed) and not state.queued:
            state.queued = True
            self._ready.append(stream)

    def cancelled(self, stream: Served) -> None:
        """Nobody wants it any more."""
        self._streams.discard(stream)
        state, stream.context = stream.context, None
        if isinstance(state, _Feed) and state.source is not None:
            source, state.source = state.source, None
            source.close()

    def writable(self, ready: bool) -> None:  # noqa: FBT001 - a state, not a mode
        """Whether the transport takes more."""
        self._writable = ready
        self.pump()

    def close(self) -> None:
        """The connection is over."""
        self._closed = True
        self._ready.clear()
        for stream in list(self._streams):
            self.cancelled(stream)

    def pump(self) -> None:
        """Feed those who wait, for one turn."""
        if self._pumping or self._again or not self._ready:
            return
        self._pumping = True
        left = _TURN_BYTES
        try:
            while self._ready and self._writable and left > 0 and not self._closed:
                stream = self._ready.popleft()
                state = stream.context
                if isinstance(state, _Feed):
                    state.queued = False
                    left -= self._feed(stream, state)
                    self._flush()
        finally:
            self._pumping = False
        if self._ready and self._writable and not self._closed:
            self._again = True
            self._clock.callLater(0, self._next_turn)

    def _next_turn(self) -> None:
        self._again = False
        self.pump()

    def _feed(self, stream: Served, state: _Feed) -> int:
        """One helping for one stream; its size."""
        most = min(stream.demand.left, _TURN_ELEMENTS)
        try:
            # Without demand, too: a source may end before it is asked for more (2.9).
            elements = state.take(most)
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
            self._send(stream, elements)
            state.queued = True
            self._ready.append(stream)
            return elements.octets + 8 * len(elements)
        self.cancelled(stream)
        return 0

    def _send(self, stream: Served, elements: Elements) -> None:
        if stream.size:
            self._producer.send_packed(stream, b"".join(elements.elements))
        elif elements.largest <= _LARGE:
            encoded = elements.encoded(stream.id, wire.on_next)
            self._producer.send_encoded(stream, encoded, len(elements))
        else:
            self._producer.send(stream, elements.elements)


class _Feed:
    """A stream's source, and whether it stands in line."""

    __slots__ = ("_serving", "_stream", "queued", "source")

    def __init__(self, serving: Serving, stream: Served) -> None:
        self._serving = serving
        self._stream = stream
        self.source: Source | None = None
        self.queued = False

    def take(self, most: int) -> Elements | None:
        return None if self.source is None else self.source.take(most)

    def wake(self) -> None:
        if self.source is not None:
            self._serving.demanded(self._stream)
            self._serving.pump()
