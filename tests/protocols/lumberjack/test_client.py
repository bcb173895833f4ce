"""The writer on Twisted, against the real reader, without a network."""

import json
from itertools import islice
from typing import Any

import pytest
from twisted.internet import error
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from wsproto import ConnectionType, WSConnection
from wsproto.events import RejectConnection

from gateway.protocols.lumberjack import wire
from gateway.protocols.lumberjack.client import Client, Unacknowledged
from gateway.protocols.lumberjack.events import decode
from gateway.protocols.lumberjack.sending import access_log
from gateway.protocols.lumberjack.writer import Writer

_V2 = b"2"[0]


class _Transport(StringTransport):
    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True


class _Endpoint:
    """Connects when it is asked to, as long as `up`."""

    def __init__(self) -> None:
        self.up = True
        self.attempts = 0
        self.protocol: Any = None
        self.transport = _Transport()

    def connect(self, factory: Any) -> Deferred[Any]:
        self.attempts += 1
        if not self.up:
            return fail(error.ConnectionRefusedError())
        self.protocol = factory.buildProtocol(None)
        self.transport = _Transport()
        self.protocol.makeConnection(self.transport)
        return succeed(self.protocol)

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(error.ConnectionDone()))

    def sent(self) -> bytes:
        data = self.transport.value()
        self.transport.clear()
        return data


class _Sender:
    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.endpoint = _Endpoint()
        writer = Writer(slow_start=False, window=10, pipelining=2, compression=1)
        self.client = Client(self.endpoint, clock=self.clock, writer=writer, **options)

    def exchange(self, reader: Any) -> None:
        """Carry bytes to a reader whose disk is quick, and back."""
        while data := self.endpoint.sent():
            reader.deliver(data)
            reader.journal.store_all()
            answers = reader.sent
            reader.connection.clear()
            self.endpoint.protocol.dataReceived(answers)


@pytest.fixture
def sender() -> _Sender:
    return _Sender()


def _result(deferred: Deferred[Any]) -> list[Any]:
    seen: list[Any] = []
    deferred.addBoth(seen.append)
    return seen


def test_events_arrive(sender, reader):
    """A send is done when all its windows are durable at the other end."""
    sender.client.start()
    events = [b'{"n":%d}' % n for n in range(35)]
    done = _result(sender.client.send(events))
    assert not done
    sender.exchange(reader)
    assert done == [{}]
    stored = [p for s in reader.journal.stored for p in decode(s.batch.body).payloads]
    assert stored == events
    assert not sender.clock.getDelayedCalls()


def test_nothing_is_done_before_its_ack(sender, reader):
    """… and not before."""
    sender.client.start()
    done = _result(sender.client.send([b"{}"]))
    reader.deliver(sender.endpoint.sent())
    reader.clock.pump([1.0] * 4)
    sender.endpoint.protocol.dataReceived(reader.sent)  # a keepalive
    assert sender.client.writer.keepalives == 1
    assert not done


def test_sending_nothing_is_done(sender):
    """No events, nothing to wait for."""
    assert _result(sender.client.send([])) == [{}]


def test_pauses_grow(sender):
    """A reader that is down is asked less and less often, and found when it is up."""
    sender.endpoint.up = False
    sender.client.start()
    sender.clock.pump([0.05] * 20 * 60)
    assert 5 < sender.endpoint.attempts < 25
    sender.endpoint.up = True
    sender.clock.pump([0.05] * 20 * 11)
    assert sender.client.connections == 1


def test_a_silent_reader_is_left(sender):
    """Without a sign of life for `timeout` we try another connection."""
    sender.client.start()
    _result(sender.client.send([b"{}"]))
    sender.clock.advance(29)
    sender.endpoint.protocol.dataReceived(wire.ack(_V2, 0))
    sender.clock.advance(29)
    assert not sender.endpoint.transport.aborted
    sender.clock.advance(2)
    assert sender.endpoint.transport.aborted
    sender.endpoint.lose()
    sender.clock.advance(1)
    assert sender.client.connections == 2


def test_a_wrong_ack_ends_the_connection(sender):
    """An acknowledgement of what was never sent proves nothing."""
    sender.client.start()
    first = _result(sender.client.send([b"{}"]))
    second = _result(sender.client.send([b"{}"]))
    sender.endpoint.protocol.dataReceived(wire.ack(_V2, 1) + wire.ack(_V2, 9))
    assert sender.endpoint.transport.aborted
    assert first == [{}]
    assert not second


@pytest.mark.parametrize("when", ["connected", "refused"])
def test_stop(sender, when):
    """Stopping fails what is not acknowledged, and ends all there is."""
    sender.endpoint.up = when == "connected"
    sender.client.start()
    done = _result(sender.client.send([b"{}"]))
    stopped = _result(sender.client.stop())
    assert done[0].check(Unacknowledged)
    if when == "connected":
        assert sender.endpoint.transport.disconnecting
        assert not stopped
        sender.endpoint.lose()
    assert stopped == [None]
    assert not sender.clock.getDelayedCalls()


def test_stop_while_it_connects():
    """A connection attempt that nobody answers is given up, whatever it says to that."""

    class Waiting:
        def connect(self, factory: Any) -> Deferred[Any]:
            return Deferred(lambda d: d.errback(error.ConnectionClosed("cancelled")))

    client = Client(Waiting(), clock=Clock())
    client.start()
    unsent = client.send([b"{}"])
    stopped: list[None] = []
    client.stop().addCallback(stopped.append)
    assert stopped == [None]
    assert isinstance(unsent.result, Failure)
    unsent.addErrback(lambda why: why.trap(Unacknowledged))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("rejects", "answered with 400"),
        ("nonsense", "no WebSocket there"),
        ("silence", ""),
    ],
)
def test_no_websocket(answer, said):
    """A server that does not upgrade is asked again later, and what it said is known."""
    sender = _Sender(websocket="//gw.example/x")
    sender.client.start()
    far = WSConnection(ConnectionType.SERVER)
    far.receive_data(sender.endpoint.sent())
    list(far.events())
    transport = sender.endpoint.transport
    if answer == "rejects":
        sender.endpoint.protocol.dataReceived(far.send(RejectConnection()))
    elif answer == "nonsense":
        sender.endpoint.protocol.dataReceived(b"\0\1\2\3\r\n\r\n")
    else:
        sender.clock.advance(31)
    assert transport.disconnecting or transport.aborted
    sender.endpoint.lose()
    assert said in sender.client.trouble
    sender.clock.advance(1)
    assert sender.endpoint.attempts == 2


def test_made_up_events():
    """Made-up events are JSON objects, about 530 bytes, each with its own id."""
    made = list(islice(access_log(1), 500))
    found = [json.loads(event) for _, event in made]
    assert [event["event"]["id"] for event in found] == [
        identity for identity, _ in made
    ]
    assert len({identity for identity, _ in made}) == 500
    assert 500 < sum(len(event) for _, event in made) / 500 < 560
    assert {"@timestamp", "message", "host"} <= found[0].keys()
    assert [i for i, _ in islice(access_log(2), 500)] != [i for i, _ in made]
