"""A publisher and a subscriber, driven at random, under the rules of Reactive Streams.

Two sessions talk through pipes that deliver any number of octets at a time; each is
both, at once.  The model knows what was asked for and what was sent; the invariants are
the rules.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from gateway.protocols.rsio import messages
from gateway.protocols.rsio.decoder import Run, elements
from gateway.protocols.rsio.demand import UNBOUNDED
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Extension
from gateway.protocols.rsio.session import Session, State
from gateway.protocols.rsio.signals import (
    Accepted,
    Cancelled,
    DemandAdded,
    GoodbyeReceived,
    HelloReceived,
    StoredReceived,
    SubscribeReceived,
    Terminated,
)
from gateway.protocols.rsio.streams import Consumed, Served
from samples import some_of

_SIZES = {"any": 0, "four": 4}
_MOST = 6
_SELDOM = st.sampled_from((False,) * 7 + (True,))
"""What ends a stream, or all, would leave little else to happen."""
_WRONG = "3.9"


class Stream:
    """What the model knows of one stream."""

    def __init__(self, consumed: Consumed) -> None:
        self.consumed = consumed
        self.served: Served | None = None
        self.asked = consumed.room
        self.begun = 0
        """Elements that took their demand."""
        self.sent: list[bytes] = []
        self.unfinished: dict[int, bytes] = {}
        self.arrived: list[bytes] = []
        self.safe = self.safe_seen = 0
        self.asked_wrongly = False
        self.end: str | None = None
        self.seen_end: str | None = None
        self.cancelled = False
        self.started = False

    @property
    def live(self) -> bool:
        """It may be published on."""
        return self.served is not None and self.served.live

    @property
    def done(self) -> bool:
        """Nothing of it is on its way, either way: its Id may be used again."""
        return self.seen_end is not None and not self.cancelled


class Side:
    """A session, what it reads from, and what it subscribed to."""

    def __init__(self, *, server: bool) -> None:
        self.session = Session(Limits(), server=server, offered=Extension)
        self.pipe = bytearray()
        self.streams: list[Stream] = []
        self.by_id: dict[int, Stream] = {}
        self.opened = self.left = self.compresses = False


def some(what: Callable[[Stream], object]) -> Any:
    """A rule needs a stream for which this holds."""
    return precondition(
        lambda self: any(what(one) for side in self.sides for one in side.streams)
    )


def can_begin(stream: Stream) -> bool:
    served = stream.served
    return served is not None and served.live and served.demand.left > 0


def is_wanted(stream: Stream) -> bool:
    return not stream.consumed.dropped


def is_split(stream: Stream) -> bool:
    return stream.live and bool(stream.unfinished)


class Conversation(RuleBasedStateMachine):
    """Both sides publish and subscribe, cancel, fail, compress, and leave in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.sides = (Side(server=False), Side(server=True))
        self.sides[0].session.greet()
        self.parts = 0
        self._write()

    def _write(self) -> None:
        """What a side says goes into the other's pipe."""
        for side, other in (self.sides, self.sides[::-1]):
            other.pipe += side.session.take()

    def _other(self, side: Side) -> Side:
        return self.sides[1 if side is self.sides[0] else 0]

    def _pick(
        self, data: st.DataObject, what: Callable[[Stream], object] = bool
    ) -> tuple[Side, Stream]:
        """A stream for which *what* holds, and the side that subscribed to it."""
        fit = [
            (side, stream)
            for side in self.sides
            for stream in side.streams
            if what(stream)
        ]
        return data.draw(st.sampled_from(fit))

    def _may_leave(self) -> bool:
        """Before all else, or when there is something to leave."""
        began = all(side.opened for side in self.sides)
        return not began or sum(len(side.streams) for side in self.sides) > 3

    def _settle(self) -> None:
        """All that was said arrives."""
        while any(side.pipe for side in self.sides):
            for which in (0, 1):
                self.deliver(which, 10**6)

    # -- what may happen ------------------------------------------------------

    @initialize(greeted=st.sampled_from((True, True, True, False)))
    def begin(self, greeted: bool) -> None:
        """Mostly, both have said hello."""
        if greeted:
            self._settle()

    @precondition(lambda self: any(side.pipe for side in self.sides))
    @rule()
    def deliver_all(self) -> None:
        """Nothing is on its way any more."""
        self._settle()

    @precondition(lambda self: any(side.pipe for side in self.sides))
    @rule(which=st.integers(0, 1), octets=st.integers(1, 60) | st.just(5000))
    def deliver(self, which: int, octets: int) -> None:
        """Some octets arrive."""
        side = self.sides[which]
        data = bytes(side.pipe[:octets])
        del side.pipe[:octets]
        for event in side.session.received(data):
            self._take(side, event)
        self._write()

    def _take(self, side: Side, event: Any) -> None:
        other = self._other(side)
        match event:
            case HelloReceived():
                assert not side.opened
                side.opened = True
            case SubscribeReceived(served):
                stream = other.by_id[served.id]
                assert stream.served is None, "one subscribe, one stream"
                stream.served = served
                side.session.producer.accept(served, _SIZES[served.publisher])
            case Accepted(consumed):
                stream = side.by_id[consumed.id]
                assert not stream.started, "2.12: one onSubscribe"
                stream.started = True
            case Run(stream=consumed):
                stream = side.by_id[consumed.id]
                assert stream.started, "1.9: onSubscribe comes first"
                assert stream.seen_end is None, "1.7: nothing after a terminal"
                assert not stream.cancelled, "2.8: late elements are swallowed"
                stream.arrived += elements(event.messages, consumed.size)
            case Terminated(consumed, error):
                stream = side.by_id[consumed.id]
                assert stream.seen_end is None, "1.7: one terminal"
                assert not stream.cancelled, "2.8: late signals are swallowed"
                stream.seen_end = error or "complete"
            case DemandAdded(served):
                assert served is other.by_id[served.id].served
            case Cancelled(served):
                stream = other.by_id[served.id]
                assert served is stream.served
                assert stream.cancelled or stream.asked_wrongly
                if stream.end is None:
                    stream.end = _WRONG
            case StoredReceived(served, offset):
                stream = other.by_id[served.id]
                assert stream.safe_seen <= offset <= stream.safe
                stream.safe_seen = offset
            case GoodbyeReceived():
                assert not side.left
                side.left = True
            case _:
                raise AssertionError(event)

    @rule(
        which=st.integers(0, 1),
        name=st.sampled_from(sorted(_SIZES)),
        demand=st.integers(0, 5) | st.sampled_from((UNBOUNDED, UNBOUNDED - 1)),
        offset=st.none() | st.integers(0, 9),
    )
    def subscribe(self, which: int, name: str, demand: int, offset: int | None) -> None:
        """Ask for a stream."""
        side = self.sides[which]
        if side.session.state is State.OPEN and len(side.streams) < _MOST:
            self._subscribe(side, name, demand, offset)

    def _subscribe(
        self, side: Side, name: str, demand: int, offset: int | None = None
    ) -> None:
        consumed = side.session.consumer.subscribe(name, demand, offset=offset)
        stream = side.by_id[consumed.id] = Stream(consumed)
        side.streams.append(stream)
        self._write()

    @some(lambda stream: stream.done)
    @rule(data=st.data(), name=st.sampled_from(sorted(_SIZES)))
    def subscribe_again(self, data: st.DataObject, name: str) -> None:
        """Ask under the Id of a stream that is over, as we never do, but others may."""
        side, stream = self._pick(data, lambda stream: stream.done)
        number = stream.consumed.id
        consumer = side.session.consumer
        if side.session.state is State.OPEN and side.by_id[number].done:
            usual, consumer._next_id = consumer._next_id, number
            self._subscribe(side, name, 3)
            consumer._next_id = usual

    @some(bool)
    @rule(
        data=st.data(),
        more=st.integers(1, 9) | st.sampled_from((UNBOUNDED, UNBOUNDED - 1, 2**62)),
    )
    def request(self, data: st.DataObject, more: int) -> None:
        """Ask for more, of a stream that may be over (3.6)."""
        side, stream = self._pick(data)
        over = stream.consumed.dropped
        side.session.consumer.request(stream.consumed, more)
        if over:
            assert side.session.take() == b"", "3.6: a no-op after the end"
        else:
            stream.asked += more
        self._write()

    @some(is_wanted)
    @rule(data=st.data(), more=st.sampled_from((0, 2**63, 2**64 - 1)), really=_SELDOM)
    def request_nothing(self, data: st.DataObject, more: int, really: bool) -> None:
        """Ask for nothing, or less, as a program of others might (3.9)."""
        if not really:
            return
        side, stream = self._pick(data, is_wanted)
        stream.asked_wrongly = True
        side.session._outbound.send(messages.Request(stream.consumed.id, more))
        self._write()

    @some(bool)
    @rule(data=st.data(), really=_SELDOM)
    def cancel(self, data: st.DataObject, really: bool) -> None:
        """Ask for no more; again and again (3.5, 3.7)."""
        if not really:
            return
        side, stream = self._pick(data)
        if not stream.consumed.dropped:
            stream.cancelled = True
        side.session.consumer.cancel(stream.consumed)
        self._write()

    @some(is_wanted)
    @rule(data=st.data())
    def tell_what_is_safe(self, data: st.DataObject) -> None:
        """Extension 2."""
        side, stream = self._pick(data, is_wanted)
        stream.safe = max(stream.safe, len(stream.arrived))
        side.session.consumer.stored(stream.consumed, stream.safe)
        self._write()

    @some(can_begin)
    @rule(
        data=st.data(),
        count=st.integers(1, 4),
        packed=st.booleans(),
        times=st.sampled_from((1, 100)),
    )
    def publish(
        self, data: st.DataObject, count: int, packed: bool, times: int
    ) -> None:
        """Send what is asked for; more is our own mistake (1.1)."""
        side, stream = self._pick(data, lambda stream: stream.live)
        served = stream.served
        assert served is not None
        size = served.size
        body = st.binary(min_size=size, max_size=size or 10)
        some = data.draw(st.lists(body, min_size=count, max_size=count))
        some = some * times if size else [each * times for each in some]
        producer = self._other(side).session.producer
        left = served.demand.left
        try:
            if packed and size:
                producer.send_packed(served, b"".join(some))
            else:
                producer.send(served, some)
        except ValueError:
            assert len(some) > left, "refused within the demand"
        else:
            assert len(some) <= left, "1.1: more than was asked for"
            stream.sent += some
            stream.begun += len(some)
        self._write()

    @some(can_begin)
    @rule(data=st.data(), octets=st.binary(min_size=1, max_size=3))
    def begin_an_element(self, data: st.DataObject, octets: bytes) -> None:
        """Send the first part of one; it takes its demand now."""
        side, stream = self._pick(data, can_begin)
        self.parts += 1
        stream.begun += 1
        stream.unfinished[self.parts] = octets
        self._part(side, stream, self.parts, octets, first=True, last=False)

    @some(is_split)
    @rule(data=st.data(), octets=st.binary(max_size=9), last=st.booleans())
    def go_on_with_an_element(
        self, data: st.DataObject, octets: bytes, last: bool
    ) -> None:
        """Any of those that were begun: they interleave, and end in any order."""
        side, stream = self._pick(data, is_split)
        number = data.draw(st.sampled_from(sorted(stream.unfinished)))
        assert stream.served is not None
        size = stream.served.size
        if size:
            missing = size - len(stream.unfinished[number])
            octets = octets[:missing] if not last else octets.ljust(missing)[:missing]
        whole = stream.unfinished[number] + octets
        if last:
            del stream.unfinished[number]
            stream.sent.append(whole)
        else:
            stream.unfinished[number] = whole
        self._part(side, stream, number, octets, first=False, last=last)

    def _part(
        self,
        side: Side,
        stream: Stream,
        number: int,
        octets: bytes,
        *,
        first: bool,
        last: bool,
    ) -> None:
        """Our producer splits large elements only; others may split any."""
        assert stream.served is not None
        session = self._other(side).session
        if first:
            session.producer._take(stream.served, 1)
        kind = messages.OnNextLastPart if last else messages.OnNextPart
        session._outbound.send(kind(stream.served.id, number, octets))
        self._write()

    @some(lambda stream: stream.live)
    @rule(data=st.data(), error=st.none() | st.just("E500 why not"), really=_SELDOM)
    def end(self, data: st.DataObject, error: str | None, really: bool) -> None:
        """Complete, or fail, within an element maybe; twice is once (1.7)."""
        if not really:
            return
        side, stream = self._pick(data, lambda stream: stream.live)
        served, producer = stream.served, self._other(side).session.producer
        assert served is not None
        if error is None:
            producer.complete(served)
        else:
            producer.fail(served, error)
        producer.complete(served)
        stream.end = error or "complete"
        self._write()

    @rule(which=st.integers(0, 1), data=st.binary(max_size=9))
    def ping(self, which: int, data: bytes) -> None:
        """Extension 1, in between; whatever the elements do."""
        session = self.sides[which].session
        if session.state is State.OPEN:
            session.ping(data)
            self._write()

    @precondition(lambda self: not all(side.compresses for side in self.sides))
    @rule(which=st.integers(0, 1))
    def compress(self, which: int) -> None:
        """Extension 6, from some message on."""
        side = self.sides[which]
        if side.session.state is State.OPEN and not side.compresses:
            side.compresses = True
            side.session.compress()
            self._write()

    @precondition(lambda self: self._may_leave())
    @rule(which=st.integers(0, 1), really=_SELDOM)
    def leave(self, which: int, really: bool) -> None:
        """Say goodbye, in whatever state; maybe both at once; again is nothing."""
        if really:
            self.sides[which].session.goodbye("enough")
            self._write()

    # -- what must hold -------------------------------------------------------

    @invariant()
    def never_more_than_asked_for(self) -> None:
        """1.1, on both ends; 3.17: demand never wraps."""
        for side in self.sides:
            for stream in side.streams:
                served, consumed = stream.served, stream.consumed
                assert stream.begun <= stream.asked
                assert len(stream.arrived) == consumed.arrived
                assert 0 <= consumed.room <= UNBOUNDED
                if served is None:
                    continue
                assert 0 <= served.demand.left <= UNBOUNDED
                if served.granted < UNBOUNDED:  # 3.8: it adds up
                    assert served.demand.left == served.granted - stream.begun
                else:
                    assert served.demand.left > 0, "3.17: without bound"

    @invariant()
    def in_order(self) -> None:
        """1.3: what has arrived is a beginning of what was sent."""
        for side in self.sides:
            for stream in side.streams:
                assert stream.sent[: len(stream.arrived)] == stream.arrived

    @invariant()
    def nothing_is_held_for_what_is_over(self) -> None:
        """3.13: parts of streams that have ended are forgotten."""
        for side in self.sides:
            for stream in side.streams:
                if stream.consumed.dropped:
                    assert not stream.consumed.parts

    def teardown(self) -> None:
        """When all octets have arrived: nothing is missing, nobody hangs."""
        self._settle()
        states = {side.session.state for side in self.sides}
        assert states in ({State.OPEN}, {State.CLOSED}), states
        if states == {State.CLOSED}:
            assert not any(side.session.producer.streams for side in self.sides)
            assert not any(side.session.consumer.held_bytes for side in self.sides)
            assert all(side.left for side in self.sides)
            return
        for side in self.sides:
            for stream in side.streams:
                if stream.cancelled:
                    assert not stream.live
                    continue
                assert stream.arrived == stream.sent
                if stream.end == _WRONG:
                    assert stream.seen_end is not None
                    assert _WRONG in stream.seen_end
                else:
                    assert stream.seen_end == stream.end


TestModel = Conversation.TestCase
TestModel.settings = settings(
    max_examples=some_of(150, 40), stateful_step_count=60, deadline=None
)
