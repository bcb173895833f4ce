"""Fencing (extension 7): of the senders with one name the last that began publishes."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail

from gateway.protocols.rsio import _Service, events, messages, wire
from gateway.protocols.rsio.client import CanNotResume, Fenced, Outbox
from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.client.sender import Sender
from gateway.protocols.rsio.events import InstanceRecord
from gateway.protocols.rsio.messages import (
    Announce,
    Cancel,
    ClientHello,
    Goodbye,
    OnComplete,
    OnSubscribe,
    Subscribe,
    SubscribeFrom,
    Token,
)
from gateway.protocols.rsio.offsets import Key
from gateway.sdk.interfaces import NotStored
from making import Make
from rsio_clients import Endpoint, Running

from .announcing import HELLO, KEY, NAME, OLD_HELLO, Wire, heard_by, stored_elements


@pytest.fixture
def sender(gate, read) -> Any:
    """Makes a sender that has announced an instance of the name `meter`."""

    def make(instance: bytes, resumed: int = 0) -> tuple[Wire, list[Any]]:
        made = Wire(gate, read)
        return made, made.say(HELLO, NAME, Announce("events", instance, resumed))

    return make


# On the wire


def test_nothing_is_subscribed_to_that_is_not_announced(gate, read):
    """Who only reads takes the name from nobody; nor is what nobody asked for."""
    reader = Wire(gate, read)
    assert reader.say(HELLO, NAME)[1:] == []
    assert reader.say(Announce("another", b"1", 0)) == []
    assert reader.say(Announce("events", b"1", 0)) == [
        SubscribeFrom("events", 1, 1024, 0)
    ]


def test_a_life_is_in_the_journal_before_it_is_asked(gate):
    """What could be forgotten in a crash is told to nobody."""
    gate.say(HELLO, NAME, Announce("events", b"1", 0))
    assert not [one for one in gate.heard() if isinstance(one, SubscribeFrom)]
    [batch] = gate.journal.submitted
    assert (batch.count, events.decode(batch.body).count) == (0, 0)
    assert events.instance_record(batch.body) == InstanceRecord(
        "events", events.NAMED, 1, b"1", 0
    )
    gate.journal.store_all()
    assert gate.heard() == [SubscribeFrom("events", 1, 1024, 0)]


def test_the_later_life_has_the_name(sender, gate):
    """The earlier one is told at once; when it comes back, it is refused."""
    first, heard = sender(b"1")
    assert heard[-1] == SubscribeFrom("events", 1, 1024, 0)
    first.say(OnSubscribe(1, 0), wire.on_next(1, [b"a"]))
    _, heard = sender(b"2")
    assert heard[-1] == SubscribeFrom("events", 1, 1024, 1)
    [goodbye] = first.heard()
    assert goodbye == Goodbye("E412 another instance publishes 'events' of 'meter'")
    assert first.connection.closed
    assert first.connection.refused is not None
    again, heard = sender(b"1", resumed=1)
    assert heard[-1].reason.startswith("E412")
    assert again.connection.closed
    assert gate.offsets.fenced == 2


def test_a_life_goes_on_over_connections(sender, gate):
    """It is in the journal once, however often it connects."""
    for n in range(3):
        one, heard = sender(b"1", resumed=int(n > 0))
        assert heard[-1] == SubscribeFrom("events", 1, 1024, n)
        one.say(OnSubscribe(1, 0), wire.on_next(1, [b"a"]))
        one.connection.lose()
    assert sum(batch.count == 0 for batch in gate.journal.submitted) == 1
    assert gate.offsets.fenced == 0


def test_who_waits_is_told(sender, gate, read):
    """A claim without a stream yet, because elements are on their way to the disk."""
    first, _ = sender(b"1")
    first.connection.deliver(wire.encode(OnSubscribe(1, 0)) + wire.on_next(1, [b"a"]))
    gate.journal.take()
    first.connection.lose()
    waiting = [gate.connect()[0] for _ in range(3)]
    said = wire.encode(HELLO) + wire.encode(NAME)
    for connection, instance in zip(waiting, (b"2", b"3", b"3"), strict=True):
        connection.deliver(said + wire.encode(Announce("events", instance, 0)))
    fenced, evicted = (heard_by(one, read)[-1] for one in waiting[:2])
    assert fenced.reason.startswith("E412")
    assert evicted == Goodbye("E409 another connection publishes 'events' of 'meter'")
    gate.journal.store_all()
    assert heard_by(waiting[2], read)[-1] == SubscribeFrom("events", 1, 1024, 1)


def test_who_waits_is_told_in_edition_1(gate, read):
    """… of a sender that says no instance, too."""
    gate.say(OLD_HELLO, NAME, OnSubscribe(1, 0), wire.on_next(1, [b"a"]))
    gate.journal.take()
    gate.connection.lose()
    waiting, _ = gate.connect()
    waiting.deliver(wire.encode(OLD_HELLO) + wire.encode(NAME))
    other, _ = gate.connect()
    other.deliver(wire.encode(OLD_HELLO) + wire.encode(NAME))
    assert heard_by(waiting, read)[-1].reason.startswith("E409")
    gate.journal.store_all()
    assert heard_by(other, read)[-1] == SubscribeFrom("events", 1, 1024, 1)


def test_without_an_instance(sender, gate, read):
    """It takes over as ever, with or without the extension, and fences who has one."""
    old, without = Wire(gate, read), Wire(gate, read)
    assert old.say(OLD_HELLO, NAME)[-1] == SubscribeFrom("events", 1, 1024, 0)
    heard = without.say(HELLO, NAME, Announce("events", b"", 0))
    assert heard[-1] == SubscribeFrom("events", 1, 1024, 0)
    assert old.heard() == [Cancel(1)]
    assert not gate.journal.submitted  # nothing has changed that must be remembered
    first, _ = sender(b"1")
    assert without.heard() == [
        Goodbye("E412 another instance publishes 'events' of 'meter'")
    ]
    Wire(gate, read).say(OLD_HELLO, NAME)
    assert first.heard()[-1] == Cancel(1)
    assert sender(b"1", resumed=1)[1][-1].reason.startswith("E412")


def test_announce_is_for_clients(opened, happened):
    """… whose hello lists offsets as well."""
    said = wire.encode(Announce("events", b"1", 0))
    assert (
        happened(opened(2, 7, server=False), said)[1].rule == "announce from a server"
    )
    assert "not legal" in happened(opened(7), said)[1].rule


def test_again_in_the_read_that_ends_the_stream(sender, gate):
    """What came before it counts: none of it is asked for, or counted, again."""
    one, _ = sender(b"1")
    elements = wire.on_next(1, [b"a", b"b", b"c"])
    said = OnSubscribe(1, 0), OnComplete(1), Announce("events", b"1", 1)
    started, *rest = [wire.encode(one) for one in said]
    heard = one.say(b"".join([started, elements, *rest]))
    assert heard[-1] == SubscribeFrom("events", 2, 1024, 3)
    assert stored_elements(gate) == [b"a", b"b", b"c"]
    assert gate.offsets.known == [(KEY, 3)]


def test_a_journal_that_fails_in_between(sender, gate):
    """Nothing is subscribed to any more."""
    one, _ = sender(b"1")
    said = OnSubscribe(1, 0), OnComplete(1), Announce("events", b"1", 1)
    started, *rest = [wire.encode(one) for one in said]
    gate.journal.submit = lambda _: fail(NotStored("the disk is gone"))
    one.connection.deliver(b"".join([started, wire.on_next(1, [b"a"]), *rest]))
    [goodbye] = one.heard()
    assert goodbye.reason == "E503 can not store"


def test_without_a_name(gate, read):
    """Nobody is fenced, and everything is sent again that is not known to be stored."""
    one = Wire(gate, read)
    one.say(ClientHello(0, (2, 7)))
    assert one.say(Announce("events", b"1", 0)) == [Subscribe("events", 1, 1024)]


def test_a_life_that_can_not_be_stored(gate):
    """The sender is told, and comes again."""
    gate.say(HELLO, NAME, Announce("events", b"1", 0))
    gate.journal.refuse()
    assert gate.heard()[-1] == Goodbye("E503 can not store")
    gate.connection, _ = gate.connect()
    gate.say(HELLO, NAME, Announce("events", b"1", 0))
    gate.journal.store_all()
    assert gate.heard()[-1] == SubscribeFrom("events", 1, 1024, 0)


# Who may, and who it is


def test_a_name_with_a_token(make_gate, read):
    """A fleet with one secret: each has numbers of its own."""
    gate = make_gate(tokens={"meters": "s3cret"})
    for name, stored in ((b"a", 0), (b"b", 0), (b"a", 1)):
        one = Wire(gate, read)
        heard = one.say(
            HELLO, Token("bearer", b"s3cret"), Token("name", name),
            Announce("events", name, int(stored > 0)),
        )  # fmt: skip
        assert heard[-1] == SubscribeFrom("events", 1, 1024, stored)
        one.say(OnSubscribe(1, 0), wire.on_next(1, [name]))
        assert one.connection.origin.principal == "meters"
        one.connection.lose()
    assert gate.offsets.known == [
        (Key("meters", "events", proved=True, name="b"), 1),
        (Key("meters", "events", proved=True, name="a"), 2),
    ]


def test_a_name_without_the_token(make_gate):
    """… is nobody."""
    gate = make_gate(tokens={"meters": "s3cret"})
    gate.say(HELLO, Token("name", b"a"))
    assert gate.heard()[-1].reason.startswith("E401")


def test_what_the_admin_port_shows(sender, gate):
    """How many names there are, and how often one was fenced."""
    context: Any = None
    service = _Service(context)
    service._offsets = gate.offsets
    sender(b"1")
    sender(b"2")
    sender(b"1", resumed=1)
    gate.offsets.forgotten = 3
    [section] = service.statistics()
    assert section.name == "rsio"
    assert section.by_name == {"names": 1, "fenced": 2, "forgotten": 3}


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


def test_told_of_more_than_it_sent(endpoint, gate):
    """A gateway that does not fence, or lies: an error, and nothing is taken for stored."""
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
