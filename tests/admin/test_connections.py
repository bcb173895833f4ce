"""The admin port under attack: whoever comes is served, nobody can sit there."""

from typing import Any

import pytest
from twisted.internet.address import UNIXAddress

from gateway.admin.stream import EventStream
from gateway.sdk.protocol import Answer

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
TOKEN = b"Authorization: Bearer s3cret\r\n\r\n"


class Penalties:
    """Makes whoever guesses wait for so long."""

    wait = 0.0

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def add(self, host: str) -> float:
        self.wrong.append(host)
        return self.wait


@pytest.fixture
def penalties() -> Penalties:
    return Penalties()


@pytest.fixture
def port(open_port, penalties) -> Any:
    """One that has a token."""
    stream = {"/stream": lambda _: EventStream(lambda: None, b"data: 1\n\n")}
    return open_port(token="s3cret", more=stream, penalties=penalties)


def test_sockets_that_drip_block_nothing(port):
    """A probe is answered however many of them there are, from one address or many."""
    drips = []
    for number in range(1000):
        drips.append(port.come(f"198.51.100.{number % 7}"))
        drips[-1].send(b"G")
        for one in drips:
            if one.gone:
                one.lose()
    assert port.listener.connections <= 256
    for host in ("127.0.0.1", "198.51.100.1"):
        assert port.come(host).send(HEALTH).startswith(b"HTTP/1.1 200 OK")


def test_of_one_address_there_are_few(port):
    """It takes its own places, and nobody else's."""
    scraper = port.come("192.0.2.9")
    assert b"200 OK" in scraper.send(HEALTH)
    crowd = [port.come("198.51.100.1") for _ in range(70)]
    assert sum(not one.gone for one in crowd) == 64
    assert [one.gone for one in crowd[:6]] == [True] * 6
    assert not scraper.gone
    assert b"200 OK" in scraper.send(HEALTH)


def test_who_has_asked_lately_stays(port):
    """The one that waits longest without a whole request gives way."""
    first, second = port.come(), port.come()
    port.clock.advance(5)
    first.send(HEALTH)
    for _ in range(63):
        port.come()
    assert second.gone
    assert not first.gone


def test_pages_that_stream_give_way_last(port):
    """Whoever watches has shown the token."""
    watching = port.come()
    watching.send(
        b"GET /stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\n\r\n"
    )
    port.clock.advance(5)
    for _ in range(200):
        port.come()
    assert not watching.gone


def test_a_socket_file_has_one_address(port):
    """Its clients share all places."""
    address = UNIXAddress(b"/run/admin")
    clients = [port.come_from(address) for _ in range(256)]
    assert not any(one.gone for one in clients)
    assert port.come_from(address).send(HEALTH).startswith(b"HTTP/1.1 200 OK")
    assert clients[0].gone


def test_those_that_are_closed_count_until_they_are_gone(port):
    """So that no flood takes more file descriptors than there are."""
    clients = [port.come(f"10.0.{n // 250}.{n % 250}") for n in range(600)]
    assert port.listener.connections == 384
    assert clients[-1].connection is None
    for one in clients:
        if one.gone:
            one.lose()
    assert port.listener.connections == 256


def test_a_request_must_be_whole_in_time(client, port):
    """Dripping does not help: it is dropped, and told."""
    for letter in HEALTH[:-2]:
        client.send(bytes([letter]))
        port.clock.advance(1)
        if client.gone:
            break
    assert client.gone
    assert port.clock.seconds() == 15
    assert b"HTTP/1.1 408 " in client.got
    assert port.reported == [("127.0.0.1:4000", "request not complete, limit 15 s")]
    client.lose()
    assert port.scheduled == 0


def test_a_body_too(client, port):
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
    for _ in range(20):
        client.send(b"x")
        port.clock.advance(1)
    assert client.gone


@pytest.mark.parametrize("part", [HEALTH[:3], HEALTH[:-2]], ids=["line", "fields"])
def test_a_request_behind_another_too(client, port, part):
    """Though its beginning came with the end of the one before."""
    assert b"200 OK" in client.send(HEALTH + part)
    port.clock.advance(0)
    port.clock.advance(14)
    assert not client.gone
    port.clock.advance(2)
    assert client.gone
    client.lose()
    assert port.scheduled == 0


def test_a_connection_that_rests_is_not_late(client, port):
    """Between two scrapes there may be a minute; each request has its own time."""
    for _ in range(5):
        assert b"200 OK" in client.send(HEALTH[:10]) + client.send(HEALTH[10:])
        port.clock.advance(60)
    assert not client.gone
    assert port.reported == []


def test_a_wrong_token_waits(port, penalties):
    """It is told each time; who brings none is only asked for it."""
    asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
    assert b" 401 " in port.come().send(asked + b"\r\n")
    assert penalties.wrong == []
    penalties.wait = 2.0
    client = port.come()
    guess = asked + b"Authorization: Bearer guess\r\n\r\n"
    assert client.send(guess) == b""
    assert penalties.wrong == ["127.0.0.1"]
    port.clock.advance(2)
    assert b" 401 " in client.got
    assert b"200 OK" in client.send(HEALTH)


def test_a_request_behind_a_wrong_token_too(port, penalties):
    """Its time begins when the answer that had to wait is out."""
    penalties.wait = 2.0
    client = port.come()
    client.send(
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n"
    )
    port.clock.advance(2)
    assert b" 401 " in client.got
    for letter in HEALTH[:-2]:
        client.send(bytes([letter]))
        port.clock.advance(1)
        if client.gone:
            break
    assert client.gone
    assert port.clock.seconds() == 2 + 15
    client.lose()
    assert port.scheduled == 0


def test_who_leaves_before_the_answer(port, penalties):
    """Nothing is left behind."""
    penalties.wait = 2.0
    client = port.come()
    client.send(
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n"
    )
    client.lose()
    assert port.scheduled == 0


def test_the_limit_is_the_daemons(open_port):
    """Where file descriptors are few, connections are."""
    port = open_port(most=21)
    clients = [port.come(f"10.0.0.{n}") for n in range(60)]
    assert port.listener.connections == 32
    assert clients[-1].connection is None


def served(client: Any) -> int:
    return int(client.transport.value().count(b"HTTP/1.1 200 OK"))


def one_turn(port: Any) -> None:
    """Of the reactor."""
    for call in tuple(port.clock.getDelayedCalls()):
        if call.getTime() <= port.clock.seconds():
            port.clock.calls.remove(call)
            call.func(*call.args)


@pytest.fixture
def slow(port) -> None:
    """To answer takes ten milliseconds."""

    def answer(_: Any) -> Answer:
        port.clock.rightNow += 0.01
        return Answer(b"ok")

    port.site.add({"/healthz": answer}, {})


@pytest.mark.usefixtures("slow")
def test_requests_behind_each_other_have_a_turn_each(client, port):
    """A read may bring a thousand of them, and others are served in between."""
    client.send(HEALTH * 900)
    assert served(client) == 1
    for number in range(2, 5):
        one_turn(port)
        assert served(client) == number
    probe = port.come("192.0.2.9")
    probe.send(HEALTH)
    one_turn(port)
    one_turn(port)
    assert served(probe) == 1
    for _ in range(2000):
        one_turn(port)
    assert served(client) == 900
    client.send(HEALTH)
    one_turn(port)
    assert served(client) == 1


@pytest.mark.usefixtures("slow")
def test_requests_of_many_stand_in_line(port):
    """Nobody waits for all of them, and least of all another address."""
    crowd = [port.come("198.51.100.7", number) for number in range(20)]
    probe = port.come("192.0.2.9")
    for client in (*crowd, probe):
        client.send(HEALTH[:20])
        client.send(HEALTH[20:])
    assert sum(map(served, crowd)) == 1
    for _ in range(3):
        one_turn(port)
    assert served(probe) == 1
    assert sum(map(served, crowd)) < 5
    for _ in range(60):
        one_turn(port)
    assert sum(map(served, crowd)) == 20
    assert {one.transport.producerState for one in crowd} == {"producing"}


def test_who_takes_no_answer_gets_no_other(client, port):
    """Requests that came behind wait until there is room, or go with their connection."""
    client.send(HEALTH)
    client.stop_reading()
    client.send(HEALTH * 10)
    for _ in range(20):
        one_turn(port)
    assert served(client) == 0
    client.read_on()
    for _ in range(20):
        one_turn(port)
    assert served(client) == 10
    client.stop_reading()
    client.send(HEALTH * 10)
    client.lose()
    for _ in range(20):
        one_turn(port)
    assert served(client) == 0


def test_who_takes_no_answer_is_read_no_more_and_leaves(client, port):
    """What it sends beyond that stays in its own kernel, and its time runs out."""
    client.send(HEALTH)
    client.stop_reading()
    client.send(HEALTH * 10)
    assert client.transport.producerState == "paused"
    for _ in range(20):
        port.clock.advance(2.5)
    assert client.gone
    assert port.reported == [
        ("127.0.0.1:4000", "peer does not read what we send, limit 45 s")
    ]
