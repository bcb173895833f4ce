"""The client on Twisted, talking to our own server."""

# ruff: noqa: SIM117 - blocks are nested as in the documentation

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from gateway.protocols.rsio import wire
from gateway.protocols.rsio.client import (
    Disconnected,
    Outbox,
    StreamFailed,
)
from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.events import decode
from gateway.protocols.rsio.messages import (
    Cancel,
    Goodbye,
    OnError,
    ServerHello,
    Subscribe,
)
from rsio_clients import Endpoint, Running


def test_subscribe(gate):
    """Elements come one by one, in order, to the end."""
    endpoint = Endpoint(gate)

    async def run() -> list[bytes]:
        async with connect(endpoint, clock=gate.clock) as peer:
            numbers = peer.subscribe("check/count?n=1000", window=10)
            return [element async for element in numbers]

    assert Running(endpoint, run()).finish() == [b"%d" % n for n in range(1000)]
    assert endpoint.connection.closed


def test_batches(gate):
    """… or as many as there are."""
    endpoint = Endpoint(gate)

    async def run() -> list[int]:
        async with connect(endpoint, clock=gate.clock) as peer:
            numbers = peer.subscribe("check/count?n=100&size=4", window=32)
            return [len(some) async for some in numbers.batches()]

    sizes = Running(endpoint, run()).finish()
    assert sum(sizes) == 100
    assert max(sizes) <= 32


def test_a_slow_reader_is_not_overrun(gate):
    """What is not taken is not asked for."""
    endpoint = Endpoint(gate)
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


def test_a_stream_that_fails(gate):
    """The elements before the error come first."""
    endpoint = Endpoint(gate)
    found: list[bytes] = []

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async for element in peer.subscribe("check/fail?n=2"):
                found.append(element)  # noqa: PERF401 - it fails on the way

    with pytest.raises(StreamFailed, match="E500 as asked"):
        Running(endpoint, run()).finish()
    assert found == [b"0", b"1"]


def test_leaving_the_block_cancels(gate):
    """`async with` on a subscription ends it, and the connection goes on."""
    endpoint = Endpoint(gate)

    async def run() -> int:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.subscribe("check/endless", window=4) as numbers:
                await anext(numbers)
            return len([one async for one in peer.subscribe("check/count?n=3")])

    assert Running(endpoint, run()).finish() == 3


def test_publish(gate):
    """What was flushed is in the journal, each element once, in order."""
    endpoint = Endpoint(gate)
    elements = [b'{"n":%d}' % number for number in range(3000)]

    async def run() -> int:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("events") as publisher:
                await publisher.send(elements[0])
                await publisher.flush()
                stored = sum(batch.count for batch in gate.journal.submitted)
                assert stored == 1
                await publisher.send_all(elements[1:])
            return len(publisher.outbox)

    assert Running(endpoint, run()).finish() == 0
    rows = [decode(batch.body) for batch in gate.journal.submitted]
    assert [one for each in rows for one in each.each()] == elements


def test_flush_waits_for_the_disk(gate):
    """No sooner is anything confirmed than it is durable."""
    endpoint = Endpoint(gate)
    outbox = Outbox()

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("events", outbox=outbox) as publisher:
                await publisher.send_all([b"{}"] * 5)
                await publisher.flush()

    running = Running(endpoint, run())
    endpoint.pump()
    assert gate.journal.submitted[0].count == 5
    assert (outbox.confirmed, running.results) == (0, [])
    gate.journal.store_all()
    endpoint.pump()
    assert outbox.confirmed == 5


def test_flush_without_confirmation(gate):
    """With `confirms=False` sent is enough, whatever the subscriber's demand means."""
    endpoint = Endpoint(gate)
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


def test_publish_packed(gate):
    """Elements of a fixed size travel packed."""
    endpoint = Endpoint(gate)

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("events", size=2) as publisher:
                await publisher.send_all([b"aa", b"bb", b"cc"])

    Running(endpoint, run()).finish()
    rows = decode(gate.journal.submitted[0].body)
    assert list(rows.each()) == [b"aa", b"bb", b"cc"]


def test_exactly_once_across_connections(gate):
    """A named sender loses the acknowledgement, comes again, and leaves no double."""
    outbox = Outbox()

    def session(endpoint: Endpoint, *elements: bytes) -> Any:
        async def run() -> None:
            async with connect(endpoint, clock=gate.clock, name="meter") as peer:
                async with peer.publisher("events", outbox=outbox) as publisher:
                    await publisher.send_all(elements)

        return Running(endpoint, run())

    first = Endpoint(gate)
    running = session(first, b"1", b"2", b"3")
    first.pump()
    gate.journal.store_all()  # that this life begins
    first.pump()
    gate.journal.store_all()  # durable, and …
    first.connection.clear()  # … nobody will know
    first.transport.loseConnection()
    assert running.results[0].check(Disconnected)
    assert (outbox.confirmed, len(outbox)) == (0, 3)
    session(Endpoint(gate), b"4").endpoint.pump()
    second = session(Endpoint(gate), b"5")
    second.finish()
    rows = [decode(batch.body) for batch in gate.journal.submitted if batch.count]
    assert [one for each in rows for one in each.each()] == [
        b"1",
        b"2",
        b"3",
        b"4",
        b"5",
    ]
    assert [seq for each in rows for seq in each.seqs] == [1, 2, 3, 4, 5]


def test_at_least_once_without_a_name(gate):
    """… and one without a name sends again what it can not know to be safe."""
    outbox = Outbox()
    endpoint = Endpoint(gate)

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("events", outbox=outbox) as publisher:
                await publisher.send_all([] if len(outbox) else [b"1", b"2"])

    Running(endpoint, run())
    endpoint.pump()
    endpoint.transport.loseConnection()
    Running(endpoint, run()).finish()
    assert [batch.count for batch in gate.journal.submitted] == [2, 2]
    assert not len(outbox)


def test_compressed(gate):
    """Both ways work the same when we compress."""
    endpoint = Endpoint(gate)
    elements = [b'{"n":%d,"text":"again and again"}' % n for n in range(500)]
    carried = 0

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock, compress=True) as peer:
            async with peer.publisher("events") as publisher:
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
    rows = [decode(batch.body) for batch in gate.journal.submitted]
    assert [one for each in rows for one in each.each()] == elements
    assert carried < sum(map(len, elements)) / 3


def test_the_other_end_goes(gate):
    """Whoever waits is told why."""
    endpoint = Endpoint(gate)

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async for _ in peer.subscribe("check/never"):
                pass

    running = Running(endpoint, run())
    endpoint.pump()
    endpoint.protocol.dataReceived(wire.encode(Goodbye("E503 stopping")))
    with pytest.raises(Disconnected, match="E503 stopping"):
        running.finish()


def test_a_wrong_server(gate, read):
    """What is no RS.io is answered with a goodbye that says why."""
    endpoint = Endpoint(gate)

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


def test_a_server_that_says_nothing(gate):
    """It is given ten seconds; there are ports that would wait for ever."""
    endpoint = Endpoint(gate)
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


def test_a_cancelled_publisher(gate):
    """A subscriber that cancels ends the publishing with an error."""
    endpoint = Endpoint(gate)

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("events") as publisher:
                endpoint.protocol.dataReceived(wire.encode(Cancel(1)))
                await publisher.send(b"{}")

    with pytest.raises(StreamFailed, match="cancelled"):
        Running(endpoint, run()).finish()


def test_a_choked_transport_stops_the_publisher(gate):
    """Demand alone is not enough: the transport must take it, too."""
    endpoint = Endpoint(gate)

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("events") as publisher:
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


def test_one_subscriber_at_a_time(gate, read):
    """A second subscription to a name that is being published is rejected."""
    endpoint = Endpoint(gate)

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


def test_a_publisher_that_can_not_go_on(gate):
    """Asked for what it does not have, it says so, and does not wait for ever."""
    endpoint = Endpoint(gate)
    outbox = Outbox(whole=True)
    outbox.add(b"1")
    outbox.confirm(1)

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock, name="meter") as peer:
            async with peer.publisher("events", outbox=outbox):
                pass

    with pytest.raises(StreamFailed, match="asked to go on behind 0 elements"):
        Running(endpoint, run()).finish()


def test_a_name_is_free_again_whatever_ended_it(gate):
    """A program may publish under it once more, on the same connection."""
    endpoint = Endpoint(gate)

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
