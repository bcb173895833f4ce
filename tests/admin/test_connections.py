"""The admin port under attack: whoever comes is served, nobody can sit there."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from gateway.admin.access import check
from gateway.admin.connections import Guard, LimitedFactory
from gateway.admin.metrics import Metrics
from gateway.admin.service import admin_site
from gateway.net.turns import Turns
from gateway.sdk.endpoint import parse_endpoint
from gateway.sdk.interfaces import Refusal
from gateway.sdk.protocol import Answer

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Client:
    """One connection."""

    def __init__(self, world: World, address: Any) -> None:
        self._lost = False
        self.transport = StringTransport(peerAddress=address)
        self.protocol = world.factory.buildProtocol(address)
        if self.protocol is not None:
            self.protocol.makeConnection(self.transport)

    def send(self, data: bytes) -> bytes:
        self.transport.clear()
        self.protocol.dataReceived(data)
        return self.transport.value()

    @property
    def gone(self) -> bool:
        return self.protocol is None or self.transport.disconnecting

    def lose(self) -> None:
        if self.protocol is not None and not self._lost:
            self._lost = True
            self.protocol.connectionLost(Failure(ConnectionError()))


class World:
    """A site that has a token, and whoever connects to it."""

    def __init__(self, daemon: Any) -> None:
        self.clock = Clock()
        self.reported: list[tuple[str, str, str]] = []
        self.wait = 0.0
        self.wrong: list[str] = []
        listen = parse_endpoint("tcp:127.0.0.1:0")
        site = admin_site(
            check(listen, "s3cret"),
            "s3cret",
            daemon.probe,
            Metrics(daemon.probe),
            self.clock,
            Guard(Turns(self.clock), self._report, self._wrong_token),
            more={"/stream": lambda _: None},
        )
        self.factory = LimitedFactory(site)

    def _report(self, host: str, peer: str, why: Refusal) -> None:
        self.reported.append((host, peer, str(why)))

    def _wrong_token(self, host: str, peer: str) -> float:
        self.wrong.append(host)
        return self.wait

    def connect(self, host: str = "127.0.0.1", port: int = 4000) -> Client:
        return Client(self, IPv4Address("TCP", host, port))


@pytest.fixture
def world(daemon: Any) -> World:
    return World(daemon)


def test_sockets_that_drip_block_nothing(world: World) -> None:
    """A probe is answered however many of them there are, from one address or many."""
    drips = []
    for number in range(1000):
        drips.append(world.connect(f"198.51.100.{number % 7}"))
        drips[-1].send(b"G")
        for one in drips:
            if one.gone:
                one.lose()
    assert len(world.factory.protocols) <= 256
    for host in ("127.0.0.1", "198.51.100.1"):
        assert world.connect(host).send(HEALTH).startswith(b"HTTP/1.1 200 OK")


def test_of_one_address_there_are_few(world: World) -> None:
    """It takes its own places, and nobody else's."""
    scraper = world.connect("192.0.2.9")
    assert b"200 OK" in scraper.send(HEALTH)
    crowd = [world.connect("198.51.100.1") for _ in range(70)]
    assert sum(not one.gone for one in crowd) == 64
    assert [one.gone for one in crowd[:6]] == [True] * 6
    assert not scraper.gone
    assert b"200 OK" in scraper.send(HEALTH)


def test_who_has_asked_lately_stays(world: World) -> None:
    """The one that waits longest without a whole request gives way."""
    first, second = world.connect(), world.connect()
    world.clock.advance(5)
    first.send(HEALTH)
    for _ in range(63):
        world.connect()
    assert second.gone
    assert not first.gone


def test_pages_that_stream_give_way_last(world: World) -> None:
    """Whoever watches has shown the token."""
    watching = world.connect()
    watching.send(
        b"GET /stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\n\r\n"
    )
    world.clock.advance(5)
    for _ in range(200):
        world.connect()
    assert not watching.gone


def test_a_socket_file_has_one_address(world: World) -> None:
    """Its clients share all places."""
    address = UNIXAddress(b"/run/admin")
    clients = [Client(world, address) for _ in range(256)]
    assert not any(one.gone for one in clients)
    assert Client(world, address).send(HEALTH).startswith(b"HTTP/1.1 200 OK")
    assert clients[0].gone


def test_those_that_are_closed_count_until_they_are_gone(world: World) -> None:
    """So that no flood takes more file descriptors than there are."""
    clients = [world.connect(f"10.0.{n // 250}.{n % 250}") for n in range(600)]
    assert len(world.factory.protocols) == 384
    assert clients[-1].protocol is None
    for one in clients:
        if one.gone:
            one.lose()
    assert len(world.factory.protocols) == 256


def test_a_request_must_be_whole_in_time(world: World) -> None:
    """Dripping does not help: it is dropped, and told."""
    client = world.connect()
    for letter in HEALTH[:-2]:
        client.send(bytes([letter]))
        world.clock.advance(1)
        if client.gone:
            break
    assert client.gone
    assert world.clock.seconds() == 15
    assert world.reported == [
        ("127.0.0.1", "127.0.0.1:4000", "request not complete, limit 15 s")
    ]
    client.lose()
    assert world.clock.getDelayedCalls() == []


def test_a_body_too(world: World) -> None:
    """Whatever it declares."""
    client = world.connect()
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
    for _ in range(20):
        client.send(b"x")
        world.clock.advance(1)
    assert client.gone


@pytest.mark.parametrize("part", [HEALTH[:3], HEALTH[:-2]], ids=["line", "fields"])
def test_a_request_behind_another_too(world: World, part: bytes) -> None:
    """Though its beginning came with the end of the one before."""
    client = world.connect()
    assert b"200 OK" in client.send(HEALTH + part)
    world.clock.advance(0)
    world.clock.advance(14)
    assert not client.gone
    world.clock.advance(2)
    assert client.gone
    client.lose()
    assert world.clock.getDelayedCalls() == []


def test_a_connection_that_rests_is_not_late(world: World) -> None:
    """Between two scrapes there may be a minute; each request has its own time."""
    client = world.connect()
    for _ in range(5):
        assert b"200 OK" in client.send(HEALTH[:10]) + client.send(HEALTH[10:])
        world.clock.advance(60)
    assert not client.gone
    assert world.reported == []


def test_a_wrong_token_waits(world: World) -> None:
    """It is told each time; who brings none is only asked for it."""
    asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
    assert b" 401 " in world.connect().send(asked + b"\r\n")
    assert world.wrong == []
    world.wait = 2.0
    client = world.connect()
    guess = asked + b"Authorization: Bearer guess\r\n\r\n"
    assert client.send(guess) == b""
    assert world.wrong == ["127.0.0.1"]
    world.clock.advance(2)
    assert b" 401 " in client.transport.value()
    assert b"200 OK" in client.send(HEALTH)


def test_who_leaves_before_the_answer(world: World) -> None:
    """Nothing is left behind."""
    world.wait = 2.0
    client = world.connect()
    client.send(
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n"
    )
    client.lose()
    assert world.clock.getDelayedCalls() == []


def test_the_limit_is_the_daemons(daemon: Any) -> None:
    """Where file descriptors are few, connections are."""
    world = World(daemon)
    world.factory = LimitedFactory(world.factory.wrappedFactory, 21)
    clients: list[Client] = [world.connect(f"10.0.0.{n}") for n in range(60)]
    assert len(world.factory.protocols) == 32
    assert clients[-1].protocol is None


def served(client: Client) -> int:
    return client.transport.value().count(b"HTTP/1.1 200 OK")


def one_turn(world: World) -> None:
    """Of the reactor."""
    for call in world.clock.getDelayedCalls():
        if call.getTime() <= world.clock.seconds():
            world.clock.calls.remove(call)
            call.func()


@pytest.fixture
def slow(world: World, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To answer takes ten milliseconds."""

    def answer(_: Any) -> Answer:
        world.clock.rightNow += 0.01
        return Answer(b"ok")

    monkeypatch.setitem(world.factory.wrappedFactory._health, "/healthz", answer)


@pytest.mark.usefixtures("slow")
def test_requests_behind_each_other_have_a_turn_each(world: World) -> None:
    """A read may bring a thousand of them, and others are served in between."""
    client = world.connect()
    client.send(HEALTH * 900)
    assert served(client) == 1
    for number in range(2, 5):
        one_turn(world)
        assert served(client) == number
    probe = world.connect("192.0.2.9")
    probe.send(HEALTH)
    one_turn(world)
    one_turn(world)
    assert served(probe) == 1
    for _ in range(2000):
        one_turn(world)
    assert served(client) == 900
    client.send(HEALTH)
    one_turn(world)
    assert served(client) == 1


@pytest.mark.usefixtures("slow")
def test_requests_of_many_stand_in_line(world: World) -> None:
    """Nobody waits for all of them, and least of all another address."""
    crowd = [world.connect("198.51.100.7", port) for port in range(20)]
    probe = world.connect("192.0.2.9")
    for client in (*crowd, probe):
        client.send(HEALTH[:20])
        client.send(HEALTH[20:])
    assert sum(map(served, crowd)) == 1
    for _ in range(3):
        one_turn(world)
    assert served(probe) == 1
    assert sum(map(served, crowd)) < 5
    for _ in range(60):
        one_turn(world)
    assert sum(map(served, crowd)) == 20
    assert {one.transport.producerState for one in crowd} == {"producing"}


def test_who_takes_no_answer_gets_no_other(world: World) -> None:
    """Requests that came behind wait until there is room, or go with their connection."""
    client = world.connect()
    client.protocol.wrappedProtocol.pauseProducing()
    client.send(HEALTH * 10)
    for _ in range(20):
        one_turn(world)
    assert served(client) == 1
    client.protocol.wrappedProtocol.resumeProducing()
    for _ in range(20):
        one_turn(world)
    assert served(client) == 10
    client.protocol.wrappedProtocol.pauseProducing()
    client.send(HEALTH * 10)
    client.lose()
    for _ in range(20):
        one_turn(world)
    assert served(client) == 1


def test_who_takes_no_answer_is_read_no_more_and_leaves(world: World) -> None:
    """What it sends beyond that stays in its own kernel, and its time runs out."""
    client = world.connect()
    channel = client.protocol.wrappedProtocol
    channel.pauseProducing()
    client.send(HEALTH * 10)
    assert client.transport.producerState == "paused"
    world.clock.advance(channel.timeOut + 1)
    assert client.transport.disconnecting
