"""Publishing: within demand, while the transport is writable, without leaks."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.rsio import wire
from gateway.protocols.rsio.decoder import Run
from gateway.protocols.rsio.demand import (
    Credit,
)
from gateway.protocols.rsio.messages import (
    Cancel,
    CompressAck,
    Goodbye,
    OnComplete,
    OnError,
    OnNextLastPart,
    OnNextPart,
    OnSubscribe,
    Request,
    Subscribe,
)
from gateway.sdk.interfaces import Refusal
from gateway.sdk.publisher import Elements, Fault, Publishers
from gateway.sdk.publisher import Request as Asked

from .conftest import HELLO


class Tap:
    """A publisher whose elements come from the test."""

    size = 0

    def __init__(self) -> None:
        self.there: list[bytes] = []
        self.request: Asked | None = None
        self.wake: Callable[[], None] = lambda: None
        self.taken: list[int] = []
        self.closed = 0
        self.end: Exception | None = None

    def subscribe(self, request: Asked, wake: Callable[[], None]) -> Tap:
        self.request, self.wake = request, wake
        return self

    def take(self, most: int) -> Elements | None:
        self.taken.append(most)
        if not self.there and self.end is not None:
            raise self.end
        some, self.there = self.there[:most], self.there[most:]
        return Elements(some)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def tap(gate) -> Tap:
    """A publisher `tap`, on a connection that was greeted."""
    tap = Tap()
    gate.publishers.add("tap", tap)
    gate.greet()
    return tap


def test_the_request_reaches_the_publisher(gate, tap):
    """Name, query, peer."""
    gate.say(Subscribe("tap?channel=a%20b&x=", 1, 1))
    assert tap.request is not None
    assert tap.request.name == "tap"
    assert tap.request.query == {"channel": "a b", "x": ""}
    assert tap.request.offset is None
    assert tap.request.origin is gate.connection.origin


@pytest.mark.parametrize(
    ("name", "number"), [("", 400), ("a b", 400), ("tap?x", 400), ("nobody", 404)]
)
def test_names_that_lead_nowhere(gate, name, number):
    """onSubscribe and onError, with a number."""
    gate.greet()
    gate.say(Subscribe(name, 1, 1))
    started, failed = gate.heard()
    assert started == OnSubscribe(1, 0)
    assert failed.error.startswith(f"E{number} ")


def test_waking(gate, tap):
    """Elements leave as they come, as long as there is demand."""
    gate.say(Subscribe("tap", 1, 3))
    assert gate.heard() == [OnSubscribe(1, 0)]
    tap.there = [b"1"]
    tap.wake()
    assert gate.heard() == [(1, [b"1"])]
    tap.there = [b"2", b"3", b"4"]
    tap.wake()
    assert gate.heard() == [(1, [b"2", b"3"])]
    tap.wake()
    assert gate.heard() == []
    gate.say(Request(1, 1))
    assert gate.heard() == [(1, [b"4"])]


def test_what_ticked_while_nobody_took_it(gate):
    """All numbers of check/slow come in the end, and its end, however many waited."""
    gate.greet()
    gate.say(Subscribe("check/slow?n=400", 1, 1000))
    gate.server.writable(False)
    gate.clock.pump([0.1] * 400)
    gate.heard()
    gate.server.writable(True)
    *elements, last = gate.heard()
    assert [each for _, some in elements for each in some] == [
        b"%d" % n for n in range(400)
    ]
    assert last == OnComplete(1)


def test_an_unwritable_transport(gate, tap):
    """Demand alone does not make anything leave; no source is asked meanwhile."""
    gate.say(Subscribe("tap", 1, 100))
    gate.server.writable(False)
    gate.heard()
    tap.taken.clear()
    tap.there = [b"1"] * 50
    tap.wake()
    tap.wake()
    assert (gate.heard(), tap.taken) == ([], [])
    gate.server.writable(True)
    assert gate.heard() == [(1, [b"1"] * 50)]


def test_a_transport_that_fills_up_while_we_write(gate):
    """As soon as it says so we stop, in the middle of a turn."""
    gate.greet()
    write = gate.connection.write

    def full(data: bytes) -> None:
        write(data)
        gate.server.writable(False)

    gate.connection.write = full
    gate.say(Subscribe("check/endless", 1, 10_000))
    [_, (_, first)] = gate.heard()
    assert len(first) < 1000
    gate.clock.advance(1)
    assert gate.heard() == []
    gate.server.writable(True)
    [(_, second)] = gate.heard()
    assert second[0] == b"%d" % len(first)


def _next_turn(gate: Any) -> bool:
    """Whether there was one; a clock would take all."""
    now = gate.clock.seconds()
    for call in gate.clock.getDelayedCalls():
        if call.getTime() == now:
            turn = call.func
            call.cancel()
            turn()
            return True
    return False


def test_turns(gate):
    """An endless stream with endless demand leaves the reactor its time."""
    gate.greet()
    gate.say(
        Subscribe("check/endless", 1, 2**63 - 1), Subscribe("check/count?n=2", 2, 2)
    )
    first = len(gate.connection.sent)
    assert 0 < first < 2_000_000
    heard = gate.heard()
    assert (2, [b"0", b"1"]) not in heard
    assert _next_turn(gate)
    heard = gate.heard()
    assert (2, [b"0", b"1"]) in heard
    assert OnComplete(2) in heard, "the other stream had its turn"


def test_a_source_that_fails(gate, tap):
    """What it says is what the subscriber gets."""
    gate.say(Subscribe("tap", 1, 5))
    tap.there, tap.end = [b"1"], Fault(410, "gone")
    tap.wake()
    assert gate.heard()[-2:] == [(1, [b"1"]), OnError(1, "E410 gone")]
    tap.wake()
    assert gate.heard() == []
    assert tap.closed == 1


def test_a_source_that_is_broken(gate, tap, logged):
    """A bug in a publisher costs that stream, and is logged."""
    gate.say(Subscribe("tap", 1, 5))
    tap.end = ZeroDivisionError()
    tap.wake()
    assert gate.heard()[-1] == OnError(1, "E500 internal error")
    assert any("log_failure" in event for event in logged)
    assert not gate.connection.closed


def test_encoded_once():
    """Subscribers that chose the same Id share the same bytes."""
    elements = Elements([b"a", b"bc"])
    assert elements.encoded(1, wire.on_next) is elements.encoded(1, wire.on_next)
    assert elements.encoded(2, wire.on_next) == b"\x21\x02\x01a\x21\x02\x02bc"
    assert elements.encoded(1, wire.on_next) == b"\x21\x01\x01a\x21\x01\x02bc"


def test_many_small_elements_are_encoded_once(gate, make_gate):
    """However many they are together: one subscriber's messages are the next one's."""
    shared = Elements([b"x" * 1000] * 200)
    encoded = []
    for each in (gate, make_gate()):
        tap = Tap()
        each.publishers.add("tap", tap)
        tap.take = lambda most: shared if most >= 200 else None  # type: ignore[method-assign]
        each.say(HELLO, Subscribe("tap", 1, 200))
        assert (1, [b"x" * 1000] * 200) in each.heard()
        encoded.append(shared._encoded)
    assert encoded[0] is encoded[1] is not None


def test_names_are_taken_once():
    """Two publishers of one name would be a mistake of ours."""
    publishers = Publishers({"tap": Tap()})
    with pytest.raises(KeyError):
        publishers.add("tap", Tap())


def test_references_are_dropped(gate):
    """3.13: after a cancel nothing of ours knows the source any more."""
    made: list[weakref.ref[Tap]] = []

    class Making:
        def subscribe(self, request: Asked, wake: Callable[[], None]) -> Tap:
            source = Tap()
            made.append(weakref.ref(source))
            return source

    gate.publishers.add("tap", Making())
    gate.say(HELLO, Subscribe("tap", 1, 5))
    assert made[0]() is not None
    gate.say(Cancel(1))
    gc.collect()
    assert made[0]() is None


def test_nothing_is_left(gate, tap):
    """After any race of cancel, next and the end every source was closed once."""
    for end in (Cancel(1), None, Goodbye("")):
        gate.connection, gate.server = gate.connect()
        gate.say(HELLO, Subscribe("tap", 1, 5))
        tap.closed = 0
        tap.there = [b"x"] * 3
        tap.wake()
        if end is None:
            gate.connection.lose()
        else:
            gate.say(end)
        tap.wake()
        gate.connection.lose()
        assert tap.closed == 1
        assert not gate.server._session.producer.streams
        assert not gate.server._publishing._ready


# Fairness


def _gaps(data: bytes, read: Any, number: int) -> list[int]:
    """Bytes between consecutive elements of a stream, of messages of others."""
    gaps, since = [], 0
    for message in read(data):
        if isinstance(message, tuple):
            if message[0] == number:
                gaps.append(since)
                since = 0
            else:
                since += sum(len(element) + 4 for element in message[1])
        elif isinstance(message, OnNextPart | OnNextLastPart):
            since += len(message.data) + 6
    return gaps


def _beside_a_counter(gate: Any, *others: Subscribe) -> bytes:
    """What leaves in turns, with a stream 3 that counts beside these others."""
    gate.greet()
    gate.say(Subscribe("check/endless", 3, 200_000), *others)
    return gate.turns()


def test_a_counter_beside_large_elements(gate, read):
    """No more than 16 KiB of others lie between two of its elements, on the wire."""
    large = "check/large?n=1&octets=1000000"
    data = _beside_a_counter(gate, Subscribe(large, 1, 3), Subscribe(large, 2, 3))
    gaps = _gaps(data, read, 3)
    assert len(gaps) > 10
    assert max(gaps) <= 16_384
    joined: dict[tuple[int, int], int] = {}
    for message in read(data):
        if isinstance(message, OnNextPart | OnNextLastPart):
            key = message.subscriber, message.element
            joined[key] = joined.get(key, 0) + len(message.data)
    assert {key: 1_000_000 - size for key, size in joined.items()} == {
        (1, 1): 0,
        (2, 1): 0,
    }


def test_streams_of_many_small_elements_take_turns(gate, read):
    """What sources give at once, 100 KB of small elements, leaves in turns as well."""
    for number in (1, 2):
        tap = Tap()
        tap.there = [b"%04d" % n + b"x" * 96 for n in range(3000)]
        gate.publishers.add(f"tap{number}", tap)
    data = _beside_a_counter(
        gate, Subscribe("tap1", 1, 3000), Subscribe("tap2", 2, 3000)
    )
    gaps = _gaps(data, read, 3)
    assert len(gaps) > 10
    assert max(gaps) <= 2 * 8192, "a turn of each of the others"
    found: dict[int, list[bytes]] = {1: [], 2: [], 3: []}
    for number, elements in read(data):
        found[number] += elements
    for number in (1, 2):
        numbers = [int(element[:4]) for element in found[number]]
        assert numbers == list(range(3000 - len(numbers), 3000)), "in order, to the end"


def test_a_stream_of_a_fixed_size_takes_turns(gate, read):
    """Packed elements of 1 KiB leave in onNextPacked of 8 KiB, if others are there."""
    packed = Tap()
    packed.size = 1024
    packed.there = [b"x" * 1024] * 500
    gate.publishers.add("packed", packed)
    data = _beside_a_counter(gate, Subscribe("packed", 1, 500))
    assert packed.there == []
    runs = [
        sum(map(len, elements))
        for number, elements in read(data, {1: 1024})
        if number == 1
    ]
    assert max(runs) <= 8192


def test_each_stream_has_its_turn_between_two_parts(gate, read):
    """However many streams have small elements, a part waits for one turn of each; and
    none of them goes on for long while a part waits.
    """
    gate.greet()
    gate.say(
        *(Subscribe("check/endless", n, 10**6) for n in range(10)),
        Subscribe("check/large?n=1&octets=200000", 99, 1),
    )
    gate.connection.clear()
    while b"\x26\x63" not in gate.connection.sent:  # the last part
        assert _next_turn(gate)
    between: list[list[int]] = [[]]
    for message in read(gate.connection.sent):
        if isinstance(message, tuple):
            between[-1].append(message[0])
        else:
            between.append([])
    assert len(between) > 20
    for turns in between[2:-1]:
        assert sorted(turns) == list(range(10))


def test_large_elements_of_many_streams(make_gate):
    """Taps at different places keep 8 MiB of them and a chunk, which are counted; all
    arrive, and small elements come between them.
    """
    gate = make_gate(streams=201)
    chunk, small, many = [b"x" * 65_536] * 2, Tap(), 200
    taps = [Tap() for _ in range(many)]
    for number, tap in enumerate([small, *taps]):
        gate.publishers.add(f"tap{number}", tap)
    gate.say(HELLO, *(Subscribe(f"tap{n}", n, 9) for n in range(many + 1)))
    gate.server.writable(False)
    for tap in taps:
        tap.there = list(chunk)
        tap.wake()
    small.there = [b"small"]
    small.wake()
    gate.connection.clear()
    parts = gate.server._session.producer.parts
    gate.server.writable(True)
    assert parts.octets <= 3 * 131_072, "as many as are a turn's work"
    most, came = 0, None
    while _next_turn(gate):
        most = max(most, parts.octets)
        assert gate.connection.held_output == parts.octets
        if came is None and b"small" in gate.connection.sent:
            came = parts.octets
    assert 8 << 20 <= most < (8 << 20) + 2 * 131_072
    assert came, "it did not wait for all of them"
    assert gate.connection.held_output == 0
    size = sum(
        len(one.data)
        for one in gate.heard()
        if isinstance(one, OnNextPart | OnNextLastPart)
    )
    assert size == many * 131_072


def test_small_elements_beside_as_many_large_ones_as_may_be(gate):
    """A stream that had small ones has its turn while others are held back."""
    small, large = Tap(), [Tap() for _ in range(100)]
    for number, tap in enumerate([small, *large]):
        gate.publishers.add(f"tap{number}", tap)
    gate.say(HELLO, *(Subscribe(f"tap{n}", n, 9) for n in range(101)))
    small.there = [b"first"]
    small.wake()
    for tap in large:
        tap.there = [b"x" * 131_072]
        tap.wake()
    parts = gate.server._session.producer.parts
    while parts.octets < 8 << 20:
        assert _next_turn(gate)
    gate.connection.clear()
    small.there = [b"second"]
    small.wake()
    assert _next_turn(gate)
    assert (0, [b"second"]) in gate.heard()
    assert parts.octets > 7 << 20


def test_unsent_elements_of_one_who_is_let_go(gate, tap):
    """A connection that holds too much keeps none of them."""
    gate.say(Subscribe("tap", 1, 99))
    gate.server.writable(False)
    tap.there = [b"x" * 1_000_000] * 3
    gate.server.writable(True)
    tap.wake()
    assert gate.connection.held_output > 2_000_000
    gate.connection.let_go(Refusal("too much"))
    assert gate.server._session.producer.parts.octets == 0
    assert gate.connection.held_output == 0
    assert tap.closed == 1


def test_what_may_be_begun_is_bounded(opened, read):
    """A subscriber joins only so many at a time; none waits for ever."""
    session = opened()
    producer, begun = session.producer, {}
    for number in range(1, 41):
        list(session.received(wire.encode(Subscribe("a", number, 9))))
        stream = producer.streams[number]
        producer.accept(stream)
        producer.send(stream, [b"x" * 100_000, b"small", b"y" * 20_000])
    session.take()
    most = whole = 0
    while producer.parts:
        producer.parts.send_next()
        for message in read(session.take()):
            if isinstance(message, tuple):
                assert message[1] == [b"small"]
            elif isinstance(message, OnNextLastPart):
                del begun[message.subscriber]
                whole += 1
            else:
                begun[message.subscriber] = True
        most = max(most, len(begun))
    assert (most, whole, begun) == (16, 80, {})


def test_what_is_begun_is_bounded_by_its_size(opened, read):
    """A subscriber holds 8 MiB of unfinished elements; a larger one comes alone."""
    session = opened()
    producer = session.producer
    for number, size in ((1, 5 << 20), (2, 5 << 20), (3, 1 << 20), (4, 9 << 20)):
        list(session.received(wire.encode(Subscribe("a", number, 9))))
        producer.accept(producer.streams[number])
        producer.send(producer.streams[number], [bytes(size)])
    begun: list[int] = []
    while producer.parts:
        stream, _ = producer.parts.send_next()
        session.take()
        assert stream is not None
        if stream.sent_octets == 8128:
            begun.append(stream.id)
            held = [one for one in producer.streams.values() if one.sent_octets]
            size = sum(len(one.unsent[0]) for one in held)
            assert size <= 8 << 20 or len(held) == 1
    assert sorted(begun) == [1, 2, 3, 4]


def test_a_stream_that_ends_with_parts_unsent(opened, read):
    """onComplete comes behind all of them; onError and cancel drop what is left."""
    session = opened()
    producer = session.producer
    for number in (1, 2, 3, 4):
        list(session.received(wire.encode(Subscribe("a", number, 9))))
        producer.accept(producer.streams[number])
        producer.send(producer.streams[number], [b"x" * 20_000])
    one, two, _, four = producer.streams.values()
    for _ in range(4):
        producer.parts.send_next()
    session.take()
    producer.complete(one)
    assert [type(message) for message in read(session.take())] == [
        OnNextPart, OnNextLastPart, OnComplete,
    ]  # fmt: skip
    producer.fail(two, "E500 no")
    list(session.received(wire.encode(Cancel(3))))
    assert read(session.take()) == [OnError(2, "E500 no")]
    while producer.parts:
        assert producer.parts.send_next()[0] is four
    assert producer.parts._begun == producer.parts._begun_bytes == 0


def test_large_elements_of_a_fixed_size(opened, read):
    """… leave in parts as well, packed or not, that join to that size."""
    session = opened()
    list(session.received(wire.encode(Subscribe("a", 1, 9))))
    producer = session.producer
    stream = producer.streams[1]
    producer.accept(stream, 10_000)
    producer.send_packed(stream, b"x" * 20_000)
    producer.send(stream, [b"y" * 10_000])
    while producer.parts:
        producer.parts.send_next()
    sizes = [len(one.data) for one in read(session.take())[1:]]
    assert sizes == [8128, 10_000 - 8128] * 3


# Compression


def test_blocks_hold_whole_messages(opened, happened):
    """However much is written at once, and whatever it is."""
    chance = random.Random(1)
    session = opened(6, server=False)
    session.compress()
    list(session.received(wire.encode(CompressAck(1))))
    reader = opened(6)
    reader.consumer.subscribe("a", 2**40)
    list(reader.received(session.take()))
    list(session.received(reader.take()))
    stream = session.producer.streams[1]
    session.producer.accept(stream)
    sent = 0
    for size in (10, 700, 8192, 8192, 100_000):
        elements = [chance.randbytes(size) for _ in range(1_200_000 // size)]
        session.producer.send(stream, elements)
        sent += len(elements)
        while session.producer.parts:
            session.producer.parts.send_next()
    events, why = happened(reader, session.take())
    assert why is None
    assert sum(one.count for one in events if isinstance(one, Run)) == sent


@given(st.integers(1, 50), st.lists(st.integers(0, 50), max_size=60))
def test_credit(window, steps):
    """durable <= arrived <= granted, and nothing is withheld once all is durable."""
    credit = Credit(window)
    for step in steps:
        room = window + credit.acknowledged - credit.arrived
        credit.arrived += min(step, room)
        credit.durable += min(step // 2, credit.arrived - credit.durable)
        if credit.due:
            before = credit.acknowledged
            assert credit.grant() == credit.acknowledged - before > 0
        assert credit.durable <= credit.arrived <= window + credit.acknowledged
        assert credit.acknowledged <= credit.durable
    credit.durable = credit.arrived
    if credit.durable > credit.acknowledged:
        assert credit.due
        credit.grant()
    assert credit.acknowledged == credit.arrived
