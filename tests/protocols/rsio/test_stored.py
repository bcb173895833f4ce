"""Stored (extension 2): what is on disk is told, apart from demand."""

from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.messages import (
    ClientHello,
    OnSubscribe,
    Request,
)
from rsio_clients import Endpoint, Running


def test_stored_while_there_is_no_room(gate):
    """Named or not, who knows extension 2 hears what is on disk; demand comes later."""
    gate.say(ClientHello(0, (2,)), OnSubscribe(1, 0))
    gate.heard()
    gate.journal.full = True
    gate.say(wire.on_next(1, [b"{}"] * 3))
    gate.journal.store_all()
    assert gate.heard() == [messages.Stored(1, 3)]
    gate.say(wire.on_next(1, [b"{}"]))
    gate.journal.store_all()
    assert gate.heard() == [messages.Stored(1, 4)]
    gate.journal.full = False
    assert gate.heard() == [Request(1, 4)]


def test_flush_while_there_is_no_room(gate):
    """A program without a name learns that its elements are on disk."""
    endpoint = Endpoint(gate)

    async def run() -> int:
        async with (
            connect(endpoint, clock=gate.clock) as peer,
            peer.publisher("events") as publisher,
        ):
            gate.journal.full = True
            for _ in range(2):
                await publisher.send_all([b"1", b"2"])
                await publisher.flush()
            return publisher.outbox.confirmed

    assert Running(endpoint, run()).finish() == 4
