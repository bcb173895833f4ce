"""The client on Twisted, talking to our own server: elements of any size, whole and in parts."""

# ruff: noqa: SIM117 - blocks are nested as in the documentation

import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from gateway.protocols.rsio import wire
from gateway.protocols.rsio.client import (
    CanNotResume,
    Disconnected,
    Outbox,
    StreamFailed,
    TooLarge,
)
from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.events import decode
from gateway.protocols.rsio.messages import (
    Cancel,
    Goodbye,
    OnError,
    OnNextLastPart,
    OnNextPart,
    ServerHello,
    Subscribe,
)
from rsio_clients import Endpoint, Running


@contextlib.asynccontextmanager
async def publishing(endpoint: Any, to: str, **how: Any) -> AsyncIterator[Any]:
    """A publisher on a connection of its own."""
    of_peer = {key: how.pop(key) for key in {"compress", "name"} & how.keys()}
    async with connect(endpoint, clock=endpoint.gate.clock, **of_peer) as peer:
        async with peer.publisher(to, **how) as publisher:
            yield publisher


def submitted(gate: Any) -> list[bytes]:
    """All elements that the gate has stored, or is about to."""
    rows = [decode(batch.body) for batch in gate.journal.submitted]
    return [one for each in rows for one in each.each()]


def test_subscribe(endpoint, gate):
    """Elements come one by one, in order, to the end."""

    async def run() -> list[bytes]:
        async with connect(endpoint, clock=gate.clock) as peer:
            numbers = peer.subscribe("check/count?n=1000", window=10)
            return [element async for element in numbers]

    assert Running(endpoint, run()).finish() == [b"%d" % n for n in range(1000)]
    assert endpoint.connection.closed


def test_a_window_of_nothing(endpoint, gate):
    """It would be waited for without an end."""

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            peer.subscribe("check/endless", window=0)

    with pytest.raises(ValueError, match="a window of 0 elements"):
        Running(endpoint, run()).finish()


def test_batches(endpoint, gate):
    """… or as many as there are."""

    async def run() -> list[int]:
        async with connect(endpoint, clock=gate.clock) as peer:
            numbers = peer.subscribe("check/count?n=100&size=4", window=32)
            return [len(some) async for some in numbers.batches()]

    sizes = Running(endpoint, run()).finish()
    assert sum(sizes) == 100
    assert max(sizes) <= 32


def test_a_slow_reader_is_not_overrun(endpoint, gate):
    """What is not taken is not asked for."""
    taken: list[bytes] = []
    peers: list[Any] = []

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            peers.append(peer)
            async with peer.subscribe("check/endless", window=8) as numbers:
                taken.append(await anext(numbers))
                await Deferred()

    Running(endpoint, run())
    endpoint.pump()
    [stream] = peers[0]._session.consumer.streams.values()
    assert (len(taken), stream.arrived) == (1, 8)


def test_a_stream_that_fails(endpoint, gate):
    """The elements before the error come first."""
    found: list[bytes] = []

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async for element in peer.subscribe("check/fail?n=2"):
                found.append(element)  # noqa: PERF401 - it fails on the way

    with pytest.raises(StreamFailed, match="E500 as asked"):
        Running(endpoint, run()).finish()
    assert found == [b"0", b"1"]


def test_leaving_the_block_cancels(endpoint, gate):
    """`async with` on a subscription ends it, and the connection goes on."""

    async def run() -> int:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.subscribe("check/endless", window=4) as numbers:
                await anext(numbers)
            return len([one async for one in peer.subscribe("check/count?n=3")])

    assert Running(endpoint, run()).finish() == 3


def test_publish(endpoint, gate):
    """What was flushed is in the journal, each element once, in order."""
    elements = [b'{"n":%d}' % number for number in range(3000)]

    async def run() -> int:
        async with publishing(endpoint, "events") as publisher:
            await publisher.send(elements[0])
            await publisher.flush()
            stored = sum(batch.count for batch in gate.journal.submitted)
            assert stored == 1
            await publisher.send_all(elements[1:])
        return len(publisher.outbox)

    assert Running(endpoint, run()).finish() == 0
    assert submitted(gate) == elements


def test_a_program_waits_in_send_for_demand(make_gate):
    """However long the journal is full it has one element in hand, beyond the window that is
    on its way; then everything arrives, once.
    """
    gate = make_gate(window=16)
    endpoint, outbox = Endpoint(gate), Outbox()
    returned: list[int] = []

    async def run() -> None:
        async with publishing(endpoint, "events", outbox=outbox) as publisher:
            for number in range(100):
                await publisher.send(b"%d" % number)
                returned.append(number)

    running = Running(endpoint, run())
    gate.journal.full = True
    for _ in range(9):
        endpoint.pump()
        gate.journal.store_all()
        gate.clock.advance(1)
    assert running.results == []
    assert len(returned) == outbox.sent <= outbox.confirmed + 16
    assert outbox.unsent == 1
    gate.journal.full = False
    running.finish()
    assert submitted(gate) == [b"%d" % number for number in range(100)]


def test_flush_waits_for_the_disk(endpoint, gate):
    """No sooner is anything confirmed than it is durable."""
    outbox = Outbox()

    async def run() -> None:
        async with publishing(endpoint, "events", outbox=outbox) as publisher:
            await publisher.send_all([b"{}"] * 5)
            await publisher.flush()

    running = Running(endpoint, run())
    endpoint.pump()
    assert gate.journal.submitted[0].count == 5
    assert (outbox.confirmed, running.results) == (0, [])
    gate.journal.store_all()
    endpoint.pump()
    assert outbox.confirmed == 5


def test_a_flush_that_is_cancelled(endpoint, read):
    """Its stream fails: complete is what the other end has."""

    async def run() -> None:
        async with publishing(endpoint, "events") as publisher:
            await publisher.send(b"1")

    running = Deferred.fromCoroutine(run())
    running.addErrback(lambda why: why.trap(CancelledError))
    endpoint.pump()
    running.cancel()
    assert read(endpoint.transport.value())[0] == OnError(1, "CancelledError()")


def test_flush_without_confirmation(endpoint, gate):
    """With `confirms=False` sent is enough, whatever the subscriber's demand means."""
    outbox = Outbox()

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            publisher = peer.publisher("events", outbox=outbox, confirms=False)
            async with publisher:
                await publisher.send_all([b"{}"] * 5)
                await publisher.flush()
                assert not gate.journal.stored
                assert (outbox.confirmed, len(outbox)) == (5, 0)

    Running(endpoint, run()).finish()


def test_publish_packed(endpoint, gate):
    """Elements of a fixed size travel packed, and none of another size does."""

    async def run() -> None:
        async with publishing(endpoint, "events", size=2) as publisher:
            await publisher.send_all([b"aa", b"bb"])
            with pytest.raises(ValueError, match="1 octets in a stream of 2"):
                await publisher.send(b"c")
            await publisher.send(b"cc")

    Running(endpoint, run()).finish()
    rows = decode(gate.journal.submitted[0].body)
    assert list(rows.each()) == [b"aa", b"bb", b"cc"]


def test_at_least_once_without_a_name(gate):
    """… and one without a name sends again what it can not know to be safe."""
    outbox = Outbox()
    endpoint = Endpoint(gate)

    async def run() -> None:
        async with publishing(endpoint, "events", outbox=outbox) as publisher:
            await publisher.send_all([] if len(outbox) else [b"1", b"2"])

    Running(endpoint, run())
    endpoint.pump()
    endpoint.transport.loseConnection()
    Running(endpoint, run()).finish()
    assert [batch.count for batch in gate.journal.submitted] == [2, 2]
    assert not len(outbox)


def test_compressed(endpoint, gate):
    """Both ways work the same when we compress."""
    elements = [b'{"n":%d,"text":"again and again"}' % n for n in range(500)]
    carried = 0

    async def run() -> None:
        async with publishing(endpoint, "events", compress=True) as publisher:
            await publisher.send(elements[0])
            await publisher.flush()  # by now they have agreed on it
            await publisher.send_all(elements[1:])

    running = Running(endpoint, run())
    deliver = endpoint.connection.deliver

    def measure(data: bytes) -> None:
        nonlocal carried
        carried += len(data)
        deliver(data)

    endpoint.connection.deliver = measure
    running.finish()
    assert submitted(gate) == elements
    assert carried < sum(map(len, elements)) / 3


def test_the_other_end_goes(endpoint, gate):
    """Whoever waits is told why, however many streams that program leaves then."""

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            never = [peer.subscribe("check/never") for _ in range(4)]
            async with never[0], never[1], never[2], never[3]:
                await anext(never[0])

    running = Running(endpoint, run())
    endpoint.pump()
    endpoint.protocol.dataReceived(wire.encode(Goodbye("E503 stopping")))
    with pytest.raises(Disconnected, match="E503 stopping"):
        running.finish()


def test_the_other_end_is_silent(endpoint, gate):
    """A machine that has lost its power says no goodbye: it is asked, and given up."""

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            await anext(peer.subscribe("check/never"))

    running = Running(endpoint, run())
    endpoint.pump()
    gate.clock.advance(60)
    endpoint.pump()
    for _ in range(3):
        assert not running.results
        gate.clock.advance(30)
    assert running.results[0].check(Disconnected)
    assert "no sign of life for 90 s" in running.results[0].getErrorMessage()


def test_a_wrong_server(endpoint, gate, read):
    """What is no RS.io is answered with a goodbye that says why."""

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock):
            pass

    running = Running(endpoint, run())
    endpoint.transport.clear()
    endpoint.protocol.dataReceived(wire.encode(ServerHello(3, ())))
    said = read(endpoint.transport.value())
    assert said == [Goodbye("unsupported version 3; 0 only")]
    with pytest.raises(Disconnected, match="version 3"):
        running.finish()


def test_a_server_that_says_nothing(endpoint, gate):
    """It is given ten seconds; there are ports that would wait for ever."""
    found: list[Any] = []

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock):
            pass

    Deferred.fromCoroutine(run()).addErrback(found.append)
    gate.clock.advance(9)
    assert not found
    gate.clock.advance(2)
    assert found[0].check(Disconnected)
    assert "no hello within 10 s" in found[0].getErrorMessage()


def test_a_cancelled_publisher(endpoint):
    """A subscriber that cancels ends the publishing with an error."""

    async def run() -> None:
        async with publishing(endpoint, "events") as publisher:
            endpoint.protocol.dataReceived(wire.encode(Cancel(1)))
            await publisher.send(b"{}")

    with pytest.raises(StreamFailed, match="cancelled"):
        Running(endpoint, run()).finish()


def test_a_choked_transport_stops_the_publisher(endpoint, gate):
    """Demand alone is not enough: the transport must take it, too."""

    async def run() -> None:
        async with publishing(endpoint, "events") as publisher:
            endpoint.protocol.pauseProducing()
            await publisher.send(b"{}")

    running = Running(endpoint, run())
    endpoint.pump()
    gate.clock.advance(1)
    endpoint.pump()
    assert not gate.journal.submitted
    endpoint.protocol.resumeProducing()
    running.finish()
    assert len(gate.journal.submitted) == 1


def test_a_publisher_that_can_not_be_offered(make_gate):
    """Its subscriber waits already, and takes no element of that size: the program is told."""
    gate = make_gate(element_bytes=100)
    endpoint = Endpoint(gate)

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            await deferLater(gate.clock, 0)
            async with peer.publisher("events", size=200) as publisher:
                await publisher.send(bytes(200))

    with pytest.raises(TooLarge):
        Running(endpoint, run()).finish()


def test_one_subscriber_at_a_time(endpoint, gate, read):
    """A second subscription to a name that is being published is rejected."""

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("events"):
                await Deferred()

    Running(endpoint, run())
    endpoint.pump()
    endpoint.protocol.dataReceived(wire.encode(Subscribe("events", 9, 1)))
    assert OnError(9, "E409 one subscriber at a time") in read(
        endpoint.transport.value()
    )


def test_a_publisher_that_can_not_go_on(endpoint, gate):
    """Asked for what it does not have, it says so, and does not wait for ever; another one
    may begin under the name.
    """
    outbox = Outbox(whole=True)
    outbox.add(b"1")
    outbox.confirm(1)

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock, name="meter") as peer:
            with pytest.raises(CanNotResume, match="asked to go on behind 0 elements"):
                async with peer.publisher("events", outbox=outbox):
                    pass
            async with peer.publisher("events") as publisher:
                await publisher.send(b"2")

    Running(endpoint, run()).finish()
    assert submitted(gate) == [b"2"]


def test_a_name_is_free_again_whatever_ended_it(endpoint, gate):
    """A program may publish under it once more, on the same connection."""

    async def publish(peer: Any) -> None:
        async with peer.publisher("events") as publisher:
            publisher.outbox.add(b"{}")
            endpoint.protocol.dataReceived(wire.encode(Cancel(1)))

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            with pytest.raises(StreamFailed, match="cancelled"):
                await publish(peer)
            peer.publisher("events")

    Running(endpoint, run()).finish()


@pytest.mark.parametrize("others", [[b"x" * 1_000_000], [b"x" * 1000] * 1000])
def test_a_counter_beside_others(make_gate, read, others):
    """A program's small elements wait for 16 KiB of its others at most, be those one
    that is large or many.
    """
    gate = make_gate(subscribe=("large", "counter"))
    endpoint = Endpoint(gate)
    said: list[bytes] = []

    async def count(publisher: Any) -> None:
        for number in range(150):
            await publisher.send(b"%d" % number)
            await deferLater(gate.clock, 0)

    def record() -> None:
        write = endpoint.transport.write

        def recorded(data: bytes) -> None:
            said.append(data)
            write(data)

        endpoint.transport.write = recorded

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("large") as large:
                async with peer.publisher("counter") as counter:
                    record()
                    counting = Deferred.fromCoroutine(count(counter))
                    await large.send_all(others)
                    await counting

    Running(endpoint, run()).finish()
    since, gaps = 0, []
    for message in read(b"".join(said)):
        if isinstance(message, tuple) and message[0] == 2:
            gaps.append(since)
            since = 0
        elif isinstance(message, tuple):
            since += sum(len(element) + 4 for element in message[1])
        elif isinstance(message, OnNextPart | OnNextLastPart):
            since += len(message.data) + 6
    assert sum(gap > 0 for gap in gaps) > 50
    assert max(gaps) <= 16_384
    assert sum(batch.count for batch in gate.journal.submitted) == 150 + len(others)


def test_large_elements_of_one_who_does_not_wait(endpoint, gate):
    """The end of the block waits until all parts are written, though nobody confirms."""

    async def run() -> None:
        async with publishing(endpoint, "events", confirms=False) as publisher:
            await publisher.send(b"x" * 300_000)
            endpoint.protocol.pauseProducing()
            gate.clock.callLater(1, endpoint.protocol.resumeProducing)

    Running(endpoint, run()).finish()
    [batch] = gate.journal.submitted
    assert (batch.count, batch.payload_bytes) == (1, 300_000)


def test_large_elements_while_the_transport_is_full(endpoint, gate):
    """Their parts wait, as everything does."""

    async def run() -> None:
        async with publishing(endpoint, "events") as publisher:
            await publisher.send(b"x" * 300_000)
            endpoint.protocol.pauseProducing()
            await publisher.send(b"y" * 300_000)

    running = Running(endpoint, run())
    endpoint.pump()
    assert not gate.journal.submitted
    assert not running.results
    endpoint.protocol.resumeProducing()
    running.finish()
    assert sum(batch.count for batch in gate.journal.submitted) == 2


def test_much_at_once_compressed(make_gate):
    """Blocks hold whole messages, whatever their size: the gateway takes them all."""
    gate = make_gate(window=10_000)
    endpoint = Endpoint(gate)
    chance = random.Random(5)
    elements = [chance.randbytes(size) for size in (1000,) * 1500 + (200_000,) * 3]

    async def run() -> None:
        async with publishing(endpoint, "events", compress=True) as publisher:
            await publisher.send(b"{}")
            await publisher.flush()
            await publisher.send_all(elements)

    Running(endpoint, run()).finish()
    assert submitted(gate) == [b"{}", *elements]
