"""The client on both event loops, talking to our own server."""

# ruff: noqa: SIM117 - blocks are nested as in the documentation

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater

from gateway.protocols.rsio import wire
from gateway.protocols.rsio.client import (
    Disconnected,
    Fenced,
    Outbox,
    StreamFailed,
    on_asyncio,
)
from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.client.runtime import Condition
from gateway.protocols.rsio.client.sender import Sender
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
from gateway.protocols.sender import Unacknowledged
from rsio_clients import Endpoint, Running


def test_subscribe(gate: Any) -> None:
    """Elements come one by one, in order, to the end."""
    endpoint = Endpoint(gate)

    async def run() -> list[bytes]:
        async with connect(endpoint, clock=gate.clock) as peer:
            numbers = peer.subscribe("check/count?n=1000", window=10)
            return [element async for element in numbers]

    assert Running(endpoint, run()).finish() == [b"%d" % n for n in range(1000)]
    assert endpoint.connection.closed


def test_batches(gate: Any) -> None:
    """… or as many as there are."""
    endpoint = Endpoint(gate)

    async def run() -> list[int]:
        async with connect(endpoint, clock=gate.clock) as peer:
            numbers = peer.subscribe("check/count?n=100&size=4", window=32)
            return [len(some) async for some in numbers.batches()]

    sizes = Running(endpoint, run()).finish()
    assert sum(sizes) == 100
    assert max(sizes) <= 32


def test_a_slow_reader_is_not_overrun(gate: Any) -> None:
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


def test_a_stream_that_fails(gate: Any) -> None:
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


def test_leaving_the_block_cancels(gate: Any) -> None:
    """`async with` on a subscription ends it, and the connection goes on."""
    endpoint = Endpoint(gate)

    async def run() -> int:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.subscribe("check/endless", window=4) as numbers:
                await anext(numbers)
            return len([one async for one in peer.subscribe("check/count?n=3")])

    assert Running(endpoint, run()).finish() == 3


def test_publish(gate: Any) -> None:
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


def test_flush_waits_for_the_disk(gate: Any) -> None:
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


def test_flush_without_confirmation(gate: Any) -> None:
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


def test_publish_packed(gate: Any) -> None:
    """Elements of a fixed size travel packed."""
    endpoint = Endpoint(gate)

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("events", size=2) as publisher:
                await publisher.send_all([b"aa", b"bb", b"cc"])

    Running(endpoint, run()).finish()
    rows = decode(gate.journal.submitted[0].body)
    assert list(rows.each()) == [b"aa", b"bb", b"cc"]


def test_exactly_once_across_connections(gate: Any) -> None:
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


def test_at_least_once_without_a_name(gate: Any) -> None:
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


def test_compressed(gate: Any) -> None:
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


def test_the_other_end_goes(gate: Any) -> None:
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


def test_a_wrong_server(gate: Any, read: Any) -> None:
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


def test_a_server_that_says_nothing(gate: Any) -> None:
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


def test_a_cancelled_publisher(gate: Any) -> None:
    """A subscriber that cancels ends the publishing with an error."""
    endpoint = Endpoint(gate)

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("events") as publisher:
                endpoint.protocol.dataReceived(wire.encode(Cancel(1)))
                await publisher.send(b"{}")

    with pytest.raises(StreamFailed, match="cancelled"):
        Running(endpoint, run()).finish()


def test_a_choked_transport_stops_the_publisher(gate: Any) -> None:
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


def test_one_subscriber_at_a_time(gate: Any, read: Any) -> None:
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


# asyncio


class Server(asyncio.Protocol):
    """Carries a socket to a gate whose disk is quick."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate
        self.connection, _ = gate.connect()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.connection.closed:
            self.connection.deliver(data)
        self.settle()

    def settle(self) -> None:
        """Write what there is to be written, until there is no more."""
        self.gate.clock.advance(0)
        self.gate.journal.store_all()
        if answer := self.connection.sent:
            self.connection.clear()
            self.transport.write(answer)
            asyncio.get_running_loop().call_soon(self.settle)
        elif self.connection.closed:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connection.lose()


def test_asyncio(gate: Any) -> None:
    """The same on asyncio, over a socket."""

    async def run() -> list[bytes]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Server(gate), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with on_asyncio.connect(host, port, compress=True) as peer:
            async with peer.publisher("events") as publisher:
                await publisher.send_all([b'{"n":%d}' % n for n in range(5000)])
            found = [one async for one in peer.subscribe("check/count?n=5000")]
        server.close()
        return found

    assert asyncio.run(run()) == [b"%d" % n for n in range(5000)]
    assert sum(batch.count for batch in gate.journal.submitted) == 5000


def test_a_sender_on_asyncio(gate: Any) -> None:
    """It connects again and again, and each element is stored once, in order."""
    servers: list[Server] = []

    def serve() -> Server:
        servers.append(Server(gate))
        return servers[-1]

    async def run() -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()

        def again() -> Any:
            return on_asyncio.connect(host, port, name="meter")

        async with on_asyncio.Sender(again) as sender:
            for life in range(3):
                ids = range(life * 200, life * 200 + 200)
                sending = asyncio.ensure_future(
                    sender.send([b'{"n":%d}' % n for n in ids])
                )
                if life:
                    servers[-1].transport.abort()
                await sending
            connections = sender.connections
        server.close()
        return connections

    assert asyncio.run(run()) == len(servers) == 3
    found = [
        json.loads(one)["n"]
        for batch in gate.journal.submitted
        if batch.count
        for one in decode(batch.body).each()
    ]
    assert found == list(range(600))


def test_a_sender_on_asyncio_that_is_stopped() -> None:
    """While nobody answers it ends at once, and says what was not acknowledged."""

    async def run() -> str:
        def refused() -> Any:
            return on_asyncio.connect("127.0.0.1", 1)

        sender = on_asyncio.Sender(refused)
        async with sender:
            sending = asyncio.ensure_future(sender.send([b"{}"]))
            while not sender.trouble:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0)
        with pytest.raises(Unacknowledged):
            await sending
        return sender.trouble

    assert "127" in asyncio.run(run())


def test_a_sender_on_asyncio_that_can_not_connect_at_all() -> None:
    """A mistake of the program is no outage: `send` raises it, now and later."""

    async def run() -> str:
        async with on_asyncio.Sender(lambda: on_asyncio.connect("::1", 70000)) as one:
            with pytest.raises(OverflowError):
                await one.send([b"{}"])
            with pytest.raises(OverflowError):
                await one.send([b"{}"])
        return one.trouble

    assert "65535" in asyncio.run(run())


def test_a_sender_that_can_not_connect_at_all() -> None:
    """The same on Twisted, which also logs it."""

    def mistaken() -> Any:
        raise ValueError("no such option")

    sender = Sender(mistaken, clock=Clock())
    whys: list[Any] = []
    sender.start()
    Deferred.fromCoroutine(sender.send([b"1"])).addErrback(whys.append)
    assert whys[0].check(ValueError)
    assert sender.trouble == "no such option"


def test_a_sender_on_asyncio_that_is_fenced(gate: Any) -> None:
    """Another one of its name began later: it ends by itself, with an error."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Server(gate), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()

        def again() -> Any:
            return on_asyncio.connect(host, port, name="meter")

        async with on_asyncio.Sender(again) as old:
            await old.send([b"1"])
            async with on_asyncio.Sender(again) as new:
                await new.send([b"2"])
                with pytest.raises(Fenced):
                    await old.send([b"3"])
                await new.send([b"4"])
        server.close()

    asyncio.run(run())


def test_asyncio_no_one_there() -> None:
    """A port that nobody listens on is an OSError, at once."""

    async def run() -> None:
        async with on_asyncio.connect("127.0.0.1", 1):
            pass

    with pytest.raises(OSError, match="127"):
        asyncio.run(run())


def test_a_publisher_that_can_not_go_on(gate: Any) -> None:
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


def test_a_name_is_free_again_whatever_ended_it(gate: Any) -> None:
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


def test_who_waits_no_more_is_forgotten() -> None:
    """Timeouts on a quiet stream may come for months."""

    async def run() -> None:
        runtime = on_asyncio._Runtime(asyncio.get_running_loop())
        changed = Condition(runtime)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(changed.wait(), 0)
            waiting = asyncio.ensure_future(changed.wait())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(0)
        assert not changed._wakes
        waiting = asyncio.ensure_future(changed.wait())
        await asyncio.sleep(0)
        changed.notify_all()
        await waiting

    asyncio.run(run())


def test_an_outbox_of_another_life() -> None:
    """Its elements come behind what the subscriber has, whatever that was."""
    outbox = Outbox()
    outbox.add(b"1")
    outbox.rewind(None)
    outbox.rewind(7)
    assert (outbox.first, outbox.confirmed, outbox.take(9)) == (7, 0, [b"1"])
    outbox.add(b"2")
    outbox.rewind(8)
    assert (outbox.confirmed, outbox.resent, outbox.take(9)) == (1, 0, [b"2"])
    outbox.rewind(8)
    assert (outbox.resent, outbox.take(9)) == (1, [b"2"])
    with pytest.raises(ValueError, match="asked to go on"):
        outbox.rewind(7)


def test_an_outbox_of_all_elements() -> None:
    """… or they are given again from the first, and what is safe is not sent."""
    outbox = Outbox(whole=True)
    for element in (b"1", b"2", b"3"):
        outbox.add(element)
    outbox.rewind(2)
    assert (outbox.confirmed, outbox.take(9)) == (2, [b"3"])
    with pytest.raises(ValueError, match="asked to go on"):
        Outbox(whole=True).rewind(1)


def test_a_sender_that_was_started_again(gate: Any) -> None:
    """The same name and a new outbox: what it sends now comes behind what it sent."""

    async def life(endpoint: Endpoint, element: bytes) -> None:
        async with connect(endpoint, clock=gate.clock, name="meter") as peer:
            async with peer.publisher("events") as publisher:
                await publisher.send(element)

    for element in (b"1", b"2"):
        endpoint = Endpoint(gate)
        Running(endpoint, life(endpoint, element)).finish()
    rows = [decode(batch.body) for batch in gate.journal.submitted if batch.count]
    assert [list(each.seqs) for each in rows] == [[1], [2]]


def test_a_sender(gate: Any) -> None:
    """It publishes on connection after connection; what is safe, it never repeats."""
    endpoints: list[Endpoint] = []

    def again() -> Any:
        endpoints.append(Endpoint(gate))
        return connect(endpoints[-1], clock=gate.clock, name="meter")

    sender = Sender(again, clock=gate.clock)
    sender.start()
    first = Deferred.fromCoroutine(sender.send([b"1", b"2"]))
    endpoints[0].pump()
    gate.journal.store_all()  # that this life begins
    endpoints[0].pump()
    gate.journal.store_all()  # and nobody is told
    endpoints[0].connection.clear()
    endpoints[0].transport.loseConnection()
    second = Deferred.fromCoroutine(sender.send([b"3"]))
    gate.clock.advance(1)
    endpoints[1].pump()
    assert first.called
    assert not second.called
    gate.journal.store_all()
    endpoints[1].pump()
    assert second.called
    rows = [decode(batch.body) for batch in gate.journal.submitted]
    assert [one for each in rows for one in each.each()] == [b"1", b"2", b"3"]
    assert (sender.connections, sender.resent) == (2, 0)


def test_a_sender_that_is_stopped(gate: Any) -> None:
    """It says so to who still waits; it leaves with a goodbye if nobody does."""
    endpoint = Endpoint(gate)
    sender = Sender(lambda: connect(endpoint, clock=gate.clock), clock=gate.clock)
    sender.start()
    endpoint.pump()
    sent = Deferred.fromCoroutine(sender.send([b"1"]))
    endpoint.pump()
    gate.journal.store_all()
    endpoint.pump()
    assert sent.called
    stopped = sender.stop()
    endpoint.pump()
    assert stopped.called
    assert endpoint.connection.closed
    whys: list[Any] = []
    Deferred.fromCoroutine(sender.send([b"2"])).addErrback(whys.append)
    assert whys[0].check(Unacknowledged)


def test_a_sender_without_a_gateway() -> None:
    """Why there is no connection can be asked; stopping does not wait for one."""
    clock = Clock()
    attempts: list[Deferred[Any]] = []

    class Nowhere:
        def connect(self, factory: Any) -> Deferred[Any]:
            attempts.append(Deferred())
            return attempts[-1]

    target: Any = Nowhere()
    sender = Sender(lambda: connect(target, clock=clock), clock=clock)
    sender.start()
    attempts[0].errback(ConnectionRefusedError("nobody there"))
    assert "nobody there" in sender.trouble
    clock.advance(1)
    waiting = Deferred.fromCoroutine(sender.send([b"1"]))
    stopped = sender.stop()
    assert stopped.called
    assert len(attempts) == 2
    waiting.addErrback(lambda why: why.trap(Unacknowledged))


# Large elements


@pytest.mark.parametrize("others", [[b"x" * 1_000_000], [b"x" * 1000] * 1000])
def test_a_counter_beside_others(
    make_gate: Any, read: Any, others: list[bytes]
) -> None:
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


def test_large_elements_of_one_who_does_not_wait(gate: Any) -> None:
    """The end of the block waits until all parts are written, though nobody confirms."""
    endpoint = Endpoint(gate)

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("events", confirms=False) as publisher:
                await publisher.send(b"x" * 300_000)
                endpoint.protocol.pauseProducing()
                gate.clock.callLater(1, endpoint.protocol.resumeProducing)

    Running(endpoint, run()).finish()
    [batch] = gate.journal.submitted
    assert (batch.count, batch.payload_bytes) == (1, 300_000)


def test_large_elements_while_the_transport_is_full(gate: Any) -> None:
    """Their parts wait, as everything does."""
    endpoint = Endpoint(gate)

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("events") as publisher:
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


def test_much_at_once_compressed(make_gate: Any) -> None:
    """Blocks hold whole messages, whatever their size: the gateway takes them all."""
    gate = make_gate(window=10_000)
    endpoint = Endpoint(gate)
    chance = random.Random(5)
    elements = [chance.randbytes(size) for size in (1000,) * 1500 + (200_000,) * 3]

    async def run() -> None:
        async with connect(endpoint, clock=gate.clock, compress=True) as peer:
            async with peer.publisher("events") as publisher:
                await publisher.send(b"{}")
                await publisher.flush()
                await publisher.send_all(elements)

    Running(endpoint, run()).finish()
    rows = [decode(batch.body) for batch in gate.journal.submitted]
    assert [one for each in rows for one in each.each()] == [b"{}", *elements]
