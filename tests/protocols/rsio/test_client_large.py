"""Large elements of a client, whole and in parts."""

# ruff: noqa: SIM117 - blocks are nested as in the documentation

import random
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.events import decode
from gateway.protocols.rsio.messages import (
    OnNextLastPart,
    OnNextPart,
)
from rsio_clients import Endpoint, Running


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


def test_large_elements_of_one_who_does_not_wait(gate):
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


def test_large_elements_while_the_transport_is_full(gate):
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


def test_much_at_once_compressed(make_gate):
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
