"""Fencing with our own clients: fleets of one name, rolling restarts, wrong memories."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.client import CanNotResume, Fenced, Outbox
from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.client.sender import Sender
from making import Make
from rsio_clients import Endpoint, Running

from .announcing import (
    stored_elements,
)


class Fleet:
    """Senders of one name, of one token or of both, at one gateway."""

    def __init__(self, gate: Any, **who: Any) -> None:
        self.gate, self._who = gate, who
        self.endpoints: list[Endpoint] = []
        self.senders: list[Sender] = []
        self.acknowledged: list[bytes] = []
        self.told: list[Exception] = []

    def sender(self, **who: Any) -> Sender:
        """One more, started."""

        def again() -> Any:
            self.endpoints.append(Endpoint(self.gate))
            options = {**self._who, **who}
            return connect(self.endpoints[-1], clock=self.gate.clock, **options)

        made = Sender(again, clock=self.gate.clock)
        self.senders.append(made)
        made.start()
        return made

    def stop(self) -> None:
        """All its senders."""
        stopped = [sender.stop() for sender in self.senders]
        self.settle()
        assert all(each.called for each in stopped)

    def send(self, sender: Sender, element: bytes) -> None:
        """Give it an element; it is acknowledged, or the sender is told otherwise."""
        sent = Deferred.fromCoroutine(sender.send([element]))
        sent.addCallbacks(
            lambda _: self.acknowledged.append(element),
            lambda why: self.told.append(why.value),
        )

    def settle(self, seconds: float = 5.0) -> None:
        """Until nothing happens any more."""
        while seconds > 0:
            for endpoint in list(self.endpoints):
                self._carry(endpoint)
            self.gate.journal.store_all()
            self.gate.clock.advance(0.1)
            seconds -= 0.1

    def _carry(self, endpoint: Endpoint) -> None:
        if not endpoint.connection.closed:
            endpoint.pump()
        if endpoint.connection.closed and not endpoint.lost:
            endpoint.lost = True
            endpoint.protocol.dataReceived(endpoint.connection.sent)
            endpoint.transport.loseConnection()


@pytest.fixture
def make_fleet() -> Iterator[Make[Fleet]]:
    """Fleets whose senders stop when the test is over."""
    made: list[Fleet] = []

    def make(gate: Any, **who: Any) -> Fleet:
        made.append(Fleet(gate, **who))
        return made[-1]

    yield make
    for fleet in made:
        fleet.stop()


def _elements_named() -> Iterator[bytes]:
    number = 0
    while True:
        yield b'{"n":%d}' % number
        number += 1


def _each_once(fleet: Fleet, gate: Any) -> None:
    stored = stored_elements(gate)
    assert len(set(stored)) == len(stored)
    assert set(fleet.acknowledged) <= set(stored)


@pytest.mark.parametrize("count", [2, 10])
@pytest.mark.parametrize(
    "who", [{"name": "m"}, {"token": "s"}, {"name": "m", "token": "s"}]
)
def test_live_senders_of_one_name(make_gate, make_fleet, count, who):
    """All but the last are told, and nothing that one of them has acknowledged is lost."""
    gate = make_gate(tokens={"meters": "s"} if "token" in who else {})
    fleet, elements = make_fleet(gate, **who), _elements_named()
    senders = []
    for _ in range(count):
        senders.append(fleet.sender())
        for each in senders:
            fleet.send(each, next(elements))
        fleet.settle(1.0)
    for each in senders:
        fleet.send(each, next(elements))
    fleet.settle()
    _each_once(fleet, gate)
    assert len(fleet.acknowledged) + len(fleet.told) == count * (count + 1) // 2 + count
    assert all(isinstance(why, Fenced) for why in fleet.told)
    assert gate.offsets.fenced == count - 1
    assert [one.trouble.startswith("E412") for one in senders] == [
        *([True] * (count - 1)), False,
    ]  # fmt: skip


def test_a_fleet_with_one_token(make_gate, make_fleet):
    """With a name for each, all publish side by side."""
    gate = make_gate(tokens={"meters": "s"})
    fleet, elements = make_fleet(gate, token="s"), _elements_named()
    senders = [fleet.sender(name=f"m{n}") for n in range(10)]
    for _ in range(3):
        for each in senders:
            fleet.send(each, next(elements))
        fleet.settle(1.0)
    assert sorted(stored_elements(gate)) == sorted(fleet.acknowledged)
    assert (len(fleet.acknowledged), fleet.told) == (30, [])
    assert all(one.connections == 1 for one in senders)


def test_rolling_restarts(gate, make_fleet):
    """The old one runs until the new one has begun, sixty times; and the gateway loses
    connections all the while.
    """
    fleet, elements = make_fleet(gate, name="meter"), _elements_named()
    old = fleet.sender()
    for n in range(60):
        fleet.send(old, next(elements))
        fleet.settle(0.2)
        new = fleet.sender()
        fleet.send(new, next(elements))
        fleet.send(old, next(elements))
        if n % 3 == 0:
            fleet.endpoints[-1].transport.loseConnection()
        fleet.settle(1.5)
        old.stop()
        old = new
    fleet.send(old, next(elements))
    fleet.settle()
    _each_once(fleet, gate)
    assert len(fleet.acknowledged) + len(fleet.told) == 181
    assert fleet.acknowledged[-1] == b'{"n":180}'
    assert gate.offsets.names == 1


def test_told_of_more_than_it_sent(gate):
    """A gateway that does not fence, or lies: an error, and nothing is taken for stored."""
    endpoint = Endpoint(gate)
    outbox = Outbox()

    async def run() -> None:
        async with (
            connect(endpoint, clock=gate.clock, name="m") as peer,
            peer.publisher("events", outbox=outbox) as publisher,
        ):
            await publisher.send_all([b"1", b"2"])
            lie = wire.encode(messages.Stored(1, 3))
            endpoint.protocol.dataReceived(lie)
            await publisher.flush()

    with pytest.raises(CanNotResume, match="3 elements are stored of 2"):
        Running(endpoint, run()).finish()
    assert len(outbox) == 2


def test_asked_to_go_on_behind_more_than_it_sent():
    """The elements are another sender's: ours wait, and the program is told."""
    outbox = Outbox()
    for element in (b"1", b"2", b"3"):
        outbox.add(element)
    outbox.rewind(10)
    assert outbox.take(2) == [b"1", b"2"]
    with pytest.raises(ValueError, match="another sender has this name"):
        outbox.rewind(13)
    outbox.rewind(12)
    assert (outbox.confirmed, outbox.take(9)) == (2, [b"3"])


def test_a_life_keeps_to_what_placed_it():
    """Begun at a gateway that knows no instances, it goes on without one."""
    outbox = Outbox()
    assert len(outbox.instance) == 8
    outbox.rewind(5, announced=True)
    assert outbox.resumed
    outbox = Outbox()
    outbox.rewind(5)
    assert (outbox.instance, outbox.resumed) == (b"", False)
    outbox.rewind(5, announced=True)
    assert (outbox.instance, outbox.resumed) == (b"", False)
