"""Senders and their outbox: what is safe is never repeated, over connections and lives."""

# ruff: noqa: SIM117 - blocks are nested as in the documentation

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from gateway.protocols.rsio.client import Disconnected, Outbox, TooLarge
from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.client.sender import Sender
from gateway.protocols.rsio.events import decode
from gateway.sdk.sender import Unacknowledged
from rsio_clients import Endpoint, Running


def test_a_sender_that_can_not_connect_at_all():
    """The same on Twisted, which also logs it."""

    def mistaken() -> Any:
        raise ValueError("no such option")

    sender = Sender(mistaken, clock=Clock())
    whys: list[Any] = []
    sender.start()
    Deferred.fromCoroutine(sender.send([b"1"])).addErrback(whys.append)
    assert whys[0].check(ValueError)
    assert sender.trouble == "no such option"


def test_an_outbox_of_another_life():
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


def test_an_outbox_of_all_elements():
    """… or they are given again from the first, and what is safe is not sent."""
    outbox = Outbox(whole=True)
    for element in (b"1", b"2", b"3"):
        outbox.add(element)
    outbox.rewind(2)
    assert (outbox.confirmed, outbox.take(9)) == (2, [b"3"])
    with pytest.raises(ValueError, match="asked to go on"):
        Outbox(whole=True).rewind(1)


def test_a_sender(gate):
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


def test_a_sender_that_is_stopped(endpoint, gate):
    """It says so to who still waits; it leaves with a goodbye if nobody does."""
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


def test_a_sender_without_a_gateway():
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


def test_a_request_that_nobody_answers():
    """For a WebSocket: it is given up after ten seconds, so that a sender tries again."""
    clock, transport = Clock(), StringTransport()

    class Silent:
        def connect(self, factory: Any) -> Deferred[Any]:
            made = factory.buildProtocol(None)
            made.makeConnection(transport)
            return succeed(made)

    async def run() -> None:
        async with connect(Silent(), clock=clock, websocket="//gw/rsio"):  # type: ignore[arg-type]
            raise AssertionError("it never opens")

    whys: list[Any] = []
    Deferred.fromCoroutine(run()).addErrback(whys.append)
    clock.advance(9.9)
    assert not whys
    clock.advance(0.1)
    assert whys[0].check(Disconnected)
    assert "no answer within 10 s" in whys[0].getErrorMessage()
    assert transport.disconnected
    assert not clock.getDelayedCalls()


def test_an_element_that_is_too_large(make_gate):
    """It is refused by itself, with the limit, before anything is sent; others go on."""
    gate = make_gate(element_bytes=100)
    endpoint = Endpoint(gate)
    sender = Sender(lambda: connect(endpoint, clock=gate.clock), clock=gate.clock)
    sender.start()
    whys: list[Any] = []
    Deferred.fromCoroutine(sender.send([b"1", b"x" * 101])).addErrback(whys.append)
    good = Deferred.fromCoroutine(sender.send([b"x" * 100]))
    endpoint.pump()
    gate.journal.store_all()
    endpoint.pump()
    assert (whys[0].value.octets, whys[0].value.most) == (101, 100)
    assert good.called
    [batch] = gate.journal.stored
    assert list(decode(batch.batch.body).each()) == [b"x" * 100]


def test_a_publisher_hears_of_one_that_is_too_large(make_gate):
    """`send` raises, and the stream goes on."""
    gate = make_gate(element_bytes=100)
    endpoint = Endpoint(gate)

    async def publish() -> None:
        async with connect(endpoint, clock=gate.clock) as peer:
            async with peer.publisher("events") as publisher:
                with pytest.raises(TooLarge, match="101 octets; the subscriber takes"):
                    await publisher.send(b"x" * 101)
                await publisher.send(b"1")

    Running(endpoint, publish()).finish()
    [batch] = gate.journal.stored
    assert list(decode(batch.batch.body).each()) == [b"1"]


def test_a_size_that_is_too_large(make_gate):
    """All elements of a sender are: none is sent, and each `send` says so, as it does of
    another size.
    """
    gate = make_gate(element_bytes=100)
    endpoint = Endpoint(gate)
    sender = Sender(
        lambda: connect(endpoint, clock=gate.clock), clock=gate.clock, size=200
    )
    sender.start()
    whys: list[Any] = []
    Deferred.fromCoroutine(sender.send([b"x" * 200])).addErrback(whys.append)
    endpoint.pump()
    assert whys[0].check(TooLarge)
    Deferred.fromCoroutine(sender.send([b"x" * 99])).addErrback(whys.append)
    assert whys[1].check(ValueError)
    assert "E413" in sender.trouble


def test_a_smaller_limit_behind_a_restart(make_gate):
    """What was taken on under the larger one is not dropped: the sender says what it is."""
    gates = [make_gate(element_bytes=100), make_gate(element_bytes=50)]
    endpoints = [Endpoint(gate) for gate in gates]
    clock, waiting = gates[0].clock, iter(endpoints)
    sender = Sender(lambda: connect(next(waiting), clock=clock), clock=clock)
    sender.start()
    sent = Deferred.fromCoroutine(sender.send([b"x" * 100]))
    endpoints[0].pump()
    endpoints[0].transport.loseConnection()
    clock.advance(1)
    endpoints[1].pump()
    assert not sent.called
    assert sender.trouble == "E413 element of 100 octets, 50 at most"
