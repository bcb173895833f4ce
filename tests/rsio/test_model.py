"""A publisher and a subscriber, driven at random, under the rules of Reactive Streams.

Two sessions talk through pipes that deliver any number of octets at a time.  The model
knows what was asked for and what was sent; the invariants are the rules.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.rsio.decoder import Run, elements
from gateway.rsio.happenings import (
    Asked,
    Cancelled,
    Demanded,
    Ended,
    Left,
    Opened,
    Started,
)
from gateway.rsio.limits import Limits
from gateway.rsio.messages import Extension
from gateway.rsio.session import Session, State
from gateway.rsio.streams import Consumed, Served

_SIZES = {"any": 0, "four": 4}


class Stream:
    """What the model knows of one stream."""

    def __init__(self, consumed: Consumed) -> None:
        self.consumed = consumed
        self.served: Served | None = None
        self.asked = consumed.room
        self.sent: list[bytes] = []
        self.unfinished: list[bytes] = []
        self.arrived: list[bytes] = []
        self.end: str | None = None
        self.seen_end: str | None = None
        self.cancelled = False
        self.started = False


class Side:
    """A session, what it reads from, and what it subscribed to."""

    def __init__(self, *, server: bool) -> None:
        self.session = Session(Limits(), server=server, offered=list(Extension)[:3])
        self.pipe = bytearray()
        self.streams: dict[int, Stream] = {}
        self.opened = self.left = False


class Conversation(RuleBasedStateMachine):
    """Both sides publish and subscribe, cancel, fail, and leave in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.sides = (Side(server=False), Side(server=True))
        self.sides[0].session.greet()
        self._write()

    def _write(self) -> None:
        """What a side says goes into the other's pipe."""
        for side, other in (self.sides, self.sides[::-1]):
            other.pipe += side.session.take()

    def _pick(self, data: st.DataObject, what: Any) -> tuple[Side, Stream] | None:
        """A stream for which *what* holds, and the side that subscribed to it."""
        fit = [
            (side, stream)
            for side in self.sides
            for stream in side.streams.values()
            if what(stream)
        ]
        return data.draw(st.sampled_from(fit)) if fit else None

    def _publisher(self, side: Side) -> Session:
        return self.sides[1 if side is self.sides[0] else 0].session

    # -- what may happen ------------------------------------------------------

    @rule(which=st.integers(0, 1), octets=st.integers(1, 60))
    def deliver(self, which: int, octets: int) -> None:
        """Some octets arrive."""
        side = self.sides[which]
        data = bytes(side.pipe[:octets])
        del side.pipe[:octets]
        for event in side.session.received(data):
            self._take(side, event)
        self._write()

    def _take(self, side: Side, event: Any) -> None:
        other = self.sides[1 if side is self.sides[0] else 0]
        match event:
            case Opened():
                side.opened = True
            case Asked(served):
                stream = other.streams[served.id]
                stream.served = served
                side.session.producer.accept(served, _SIZES[served.publisher])
            case Started(consumed):
                stream = side.streams[consumed.id]
                assert not stream.started, "2.12: one onSubscribe"
                stream.started = True
            case Run(stream=consumed):
                stream = side.streams[consumed.id]
                assert stream.started, "1.9: onSubscribe comes first"
                assert stream.seen_end is None, "1.7: nothing after a terminal"
                assert not stream.cancelled, "2.8: late elements are swallowed"
                stream.arrived += elements(event.messages, consumed.size)
            case Ended(consumed, error):
                stream = side.streams[consumed.id]
                assert stream.seen_end is None, "1.7: one terminal"
                stream.seen_end = error or "complete"
            case Demanded(served) | Cancelled(served):
                assert served is other.streams[served.id].served
            case Left():
                side.left = True
            case _:
                raise AssertionError(event)

    @rule(
        which=st.integers(0, 1),
        name=st.sampled_from(sorted(_SIZES)),
        demand=st.integers(0, 5) | st.just(2**63 - 1),
    )
    def subscribe(self, which: int, name: str, demand: int) -> None:
        """Ask for a stream."""
        side = self.sides[which]
        if side.session.state is State.OPEN and len(side.streams) < 6:
            consumed = side.session.consumer.subscribe(name, demand)
            side.streams[consumed.id] = Stream(consumed)
            self._write()

    @rule(data=st.data(), more=st.integers(1, 9) | st.just(2**63 - 1))
    def request(self, data: st.DataObject, more: int) -> None:
        """Ask for more, of a stream that may be over (3.6)."""
        if picked := self._pick(data, lambda stream: True):
            side, stream = picked
            over = stream.consumed.dropped
            side.session.consumer.request(stream.consumed, more)
            if over:
                assert side.session.take() == b"", "3.6: a no-op after the end"
            else:
                stream.asked += more
            self._write()

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Ask for no more; again and again (3.5, 3.7)."""
        if picked := self._pick(data, lambda stream: True):
            side, stream = picked
            if not stream.consumed.dropped:
                stream.cancelled = True
            side.session.consumer.cancel(stream.consumed)
            self._write()

    @rule(data=st.data(), count=st.integers(1, 4), packed=st.booleans())
    def publish(self, data: st.DataObject, count: int, packed: bool) -> None:
        """Send what is asked for; more is our own mistake (1.1)."""
        picked = self._pick(data, _live)
        if picked is None:
            return
        side, stream = picked
        served = stream.served
        assert served is not None
        size = served.size
        body = st.binary(min_size=size, max_size=size or 10)
        some = data.draw(st.lists(body, min_size=count, max_size=count))
        producer = self._publisher(side).producer
        try:
            if packed and size:
                producer.send_packed(served, b"".join(some))
            else:
                producer.send(served, some)
        except ValueError:
            assert len(some) > served.demand.left, "refused within the demand"
        else:
            stream.sent += some
        self._write()

    @rule(data=st.data())
    def publish_in_parts(self, data: st.DataObject) -> None:
        """Send an element in two parts, with a whole one in between."""
        picked = self._pick(data, lambda one: _live(one) and one.served.size == 0)
        if picked is None:
            return
        side, stream = picked
        served = stream.served
        assert served is not None
        if served.demand.left < 2:
            return
        producer = self._publisher(side).producer
        producer.send_part(served, 9, b"first", first=True, last=False)
        producer.send(served, [b"between"])
        producer.send_part(served, 9, b"last", first=False, last=True)
        stream.sent += [b"between", b"firstlast"]
        self._write()

    @rule(data=st.data(), error=st.none() | st.just("E500 why not"))
    def end(self, data: st.DataObject, error: str | None) -> None:
        """Complete, or fail; twice is once (1.7)."""
        if picked := self._pick(data, _live):
            side, stream = picked
            served, producer = stream.served, self._publisher(side).producer
            assert served is not None
            if error is None:
                producer.complete(served)
            else:
                producer.fail(served, error)
            producer.complete(served)
            stream.end = error or "complete"
            self._write()

    @precondition(lambda self: any(len(side.streams) > 4 for side in self.sides))
    @rule(which=st.integers(0, 1))
    def leave(self, which: int) -> None:
        """Say goodbye; maybe both at once."""
        side = self.sides[which]
        if side.session.state is State.OPEN:
            side.session.goodbye("enough")
            self._write()

    # -- what must hold -------------------------------------------------------

    @invariant()
    def never_more_than_asked_for(self) -> None:
        """1.1, on both ends; 3.17: demand never wraps."""
        for side in self.sides:
            for stream in side.streams.values():
                assert len(stream.sent) <= stream.asked
                assert len(stream.arrived) == stream.consumed.arrived
                if stream.served is not None:
                    assert 0 <= stream.served.demand.left <= 2**63 - 1

    @invariant()
    def in_order(self) -> None:
        """1.3: what has arrived is a beginning of what was sent."""
        for side in self.sides:
            for stream in side.streams.values():
                assert stream.sent[: len(stream.arrived)] == stream.arrived

    def teardown(self) -> None:
        """When all octets have arrived: nothing is missing, nobody hangs."""
        while any(side.pipe for side in self.sides):
            for which in (0, 1):
                self.deliver(which, 10**6)
        states = {side.session.state for side in self.sides}
        assert states in ({State.OPEN}, {State.CLOSED}), states
        if states == {State.CLOSED}:
            assert not any(side.session.producer.streams for side in self.sides)
            return
        for side in self.sides:
            for stream in side.streams.values():
                if not stream.cancelled:
                    assert stream.arrived == stream.sent
                    assert stream.seen_end == stream.end


def _live(stream: Stream) -> bool:
    return stream.served is not None and stream.served.live


TestModel = Conversation.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
