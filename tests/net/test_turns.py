"""Connections with much to do are served a turn at a time, and nobody waits for all of it."""

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway.net import MemoryBudget
from gateway.net.phase import Phase
from gateway.net.turns import Turns
from gateway.sdk.interfaces import Refusal


def hungry(
    turns: int, look: Callable[[Any], None] = lambda connection: None
) -> Callable[[Any, bytes], None]:
    """Wants so many turns more, for each connection; it looks before it asks."""
    taken: Counter[Any] = Counter()

    def act(connection: Any, data: bytes) -> None:
        look(connection)
        taken[connection] += 1
        if taken[connection] <= turns:
            connection.again()

    return act


def test_nothing_is_read_before_the_last_turn(make_net):
    """The server is asked to go on with no bytes; then reading goes on."""
    states: list[str] = []
    net = make_net(hungry(2, lambda _: states.append(peer.transport.producerState)))
    peer = net.peer()
    peer.send(b"much")
    net.clock.advance(0)
    assert states == ["producing", "paused", "paused"]
    assert peer.transport.producerState == "producing"
    assert net.server.chunks == [b"much", b"", b""]


def test_when_memory_is_tight_what_was_begun_is_finished_first(make_net):
    """Of one address one after the other, and each address in its turn."""
    order: list[str] = []
    tight = MemoryBudget(lambda _: True, left=lambda: 0)
    look = hungry(3, lambda asks: order.append(asks.origin.session))
    net = make_net(look, {"memory": tight})
    hosts = ("192.0.2.1", "192.0.2.1", "192.0.2.2")
    for peer in [net.peer(host) for host in hosts]:
        peer.send(b"much")
    net.clock.advance(0)
    assert order[:3] == ["s1", "s2", "s3"]
    assert order[3:] == ["s2", "s3"] * 3 + ["s1"] * 3


def test_what_others_have_ready_goes_before_a_turn(make_net):
    """It is not to wait for that turn as well."""
    order: list[str] = []
    net = make_net(hungry(2, lambda asks: order.append(asks.origin.session)))
    net.listener.turns.before.append(lambda: order.append("ready"))
    net.peer().send(b"much")
    net.clock.advance(0)
    assert order == ["s1", "ready", "s1", "ready", "s1"]


def test_a_turn_that_is_refused_ends(make_net):
    """It asks for no more, and the others go on."""
    calls: list[bytes] = []

    def act(connection: Any, data: bytes) -> None:
        calls.append(data)
        if len(calls) == 2:
            raise Refusal("too much")
        connection.again()

    net = make_net(act)
    peer = net.peer()
    peer.send(b"x")
    net.clock.advance(0)
    net.clock.advance(0)
    assert calls == [b"x", b""]
    assert net.listener.rejected == {"protocol": 1}


def test_a_lost_connection_has_no_turn(make_net):
    net = make_net(hungry(1))
    peer = net.peer()
    server = net.server
    peer.send(b"x")
    peer.lose()
    net.clock.advance(0)
    assert server.chunks == [b"x"]


def test_paused_beside_a_turn(make_net):
    """Reading needs both: no turn due, and a server that wants to read."""
    net = make_net(hungry(1))
    peer = net.peer()
    peer.send(b"x")
    connection = net.server.connection
    connection.pause()
    connection.resume()
    assert peer.transport.producerState == "paused"


def slow(net: Any, order: list[str], seconds: float = 0.005) -> None:
    """Its server takes so long for whatever comes."""

    def act(connection: Any, data: bytes) -> None:
        order.append(f"{connection.origin.session} {data.decode()}")
        net.clock.rightNow += seconds

    net.act = act


def test_what_many_send_at_once_is_served_a_bit_in_each_turn(net):
    """When reads have taken a turn's time, the rest is put off; an address that sends a
    little waits for one connection of one that has many.  A peer that sends more meanwhile is
    not read.
    """
    order: list[str] = []
    slow(net, order)
    crowd = [net.peer("198.51.100.7") for _ in range(4)]
    honest = net.peer("192.0.2.1")
    for peer in (*crowd, honest):
        peer.send(b"a")
    assert order == ["s1 a"]
    states = [peer.transport.producerState for peer in (*crowd, honest)]
    assert set(states) == {"producing"}
    assert crowd[0].connection.input.room()
    for peer in (crowd[1], honest):
        assert not peer.connection.input.room()
        assert peer.transport.producerState == "paused"
    crowd[1].send(b"b")  # of the read that was under way, say
    net.clock.advance(0)
    assert order == ["s1 a", "s2 ab", "s5 a", "s3 a", "s4 a"]
    assert {peer.transport.producerState for peer in crowd} == {"producing"}


def test_what_takes_no_time_is_served_at_once(net):
    """However many they are; and what a turn of the reactor took is forgotten behind it."""
    order: list[str] = []
    slow(net, order, 0.0001)
    peers = [net.peer(f"192.0.2.{number}") for number in range(30)]
    for peer in peers:
        peer.send(b"a")
    assert len(order) == 30
    net.clock.advance(0)
    for peer in peers:
        peer.send(b"b")
    assert len(order) == 60


def test_what_was_read_comes_in_order_and_goes_with_its_peer(net):
    """Whoever is waited for with it gets it first; nobody is served who is gone."""
    order: list[str] = []
    slow(net, order)
    first, second, third = (net.peer() for _ in range(3))
    for peer in (first, second, third):
        peer.send(b"a")
    assert second.connection.unread_input
    third.lose()
    net.clock.advance(0)
    second.send(b"b")
    net.clock.advance(0)
    assert order == ["s1 a", "s2 a", "s2 b"]


def test_what_nobody_acknowledges_is_served_of_who_is_gone(make_net):
    """It was read, and is not sent again."""
    order: list[str] = []
    net = make_net(keywords={"acknowledges": False})
    slow(net, order)
    first, second = net.peer(), net.peer()
    first.send(b"a")
    second.send(b"a")
    second.lose()
    net.clock.advance(0)
    assert order == ["s1 a", "s2 a"]
    assert net.servers[1].gone


def test_an_address_has_one_turn_then_the_next(make_net):
    """However many of its connections wait."""
    order: list[str] = []
    net = make_net(hungry(2, lambda asks: order.append(asks.origin.session)))
    for host in ("198.51.100.7", "198.51.100.7", "192.0.2.1"):
        net.peer(host).send(b"much")
    net.clock.advance(0)
    assert order == ["s1", "s2", "s3", "s1", "s3", "s2", "s3", "s1", "s2"]


def test_what_is_put_off_is_bounded(net):
    """However many are read at one moment: the more is put off, the less is read."""
    slow(net, [])
    turns = net.listener.turns
    first, second, third = (net.peer() for _ in range(3))
    first.send(b"1")
    assert turns.crowded
    assert turns.room == 16 << 20
    second.send(b"2" * (1 << 20))
    assert turns.room == 15 << 20
    third.send(b"3" * (16 << 20))
    assert turns.room == 2 << 10
    third.lose()
    net.clock.advance(0)
    assert turns.put_off_bytes == 0
    assert not turns.crowded


def test_a_turn_that_was_asked_for_is_not_lost(net, monkeypatch):
    """By what was put off and had nothing for the server, as a ping has."""
    slow(net, [])
    first, second = net.peer(), net.peer()
    first.send(b"1")
    second.send(b"ping")
    connection = net.servers[1].connection
    connection.again()
    monkeypatch.setattr(type(connection.input), "take", lambda *_: None)
    net.clock.advance(0)
    net.clock.advance(0)
    assert net.servers[1].chunks == [b""]
    assert second.transport.producerState == "producing"


@dataclass(eq=False)
class Shaking:
    """A peer whose handshake is so many steps, each of which takes a turn's time."""

    turns: Turns
    steps: list[str]
    name: str
    left: int = 2
    shakes_hands: bool = False
    host: str = "192.0.2.1"

    def take_turn(self) -> None:
        self.steps.append(self.name)
        self.shakes_hands, self.left = True, self.left - 1
        self.turns.spent(0.005)
        if self.left:
            self.turns.put_off(self)


def test_a_handshake_is_finished_before_another_begins():
    """If all come at once, the first is not done as late as the last."""
    clock, steps = Clock(), list[str]()
    turns = Turns(clock)
    for name in "abc":
        turns.put_off(Shaking(turns, steps, name))
    clock.advance(0)
    assert "".join(steps) == "aabbcc"
    assert not turns.crowded


def test_others_wait_for_seven_in_their_handshakes():
    """However many those are, others are served."""
    clock, steps = Clock(), list[str]()
    turns = Turns(clock)
    for _ in range(3):
        turns.put_off(Shaking(turns, steps, ".", left=50, shakes_hands=True))
    for _ in range(3):
        turns.put_off(Shaking(turns, steps, "a", left=1))
    clock.advance(0)
    assert "".join(steps[:24]) == ".......a" * 3


@pytest.fixture
def late(tls_peer) -> Iterator[Callable[[Any], tuple[Any, socket.socket]]]:
    """Makes a peer of a listener, its bytes being put off, and the end of its socket."""
    pairs = []

    def make(net: Any) -> tuple[Any, socket.socket]:
        ours, theirs = socket.socketpair()
        pairs.extend((ours, theirs))
        peer = tls_peer(net.peer())
        peer.peer.transport.fileno = ours.fileno
        net.listener.turns.crowded = True
        peer.step()
        peer.step()
        assert peer.peer.connection.phase is Phase.CLIENT_HELLO
        return peer, theirs

    yield make
    for each in pairs:
        each.close()


def test_who_has_left_before_its_handshake_began_costs_none(tls_net, late):
    """A sender that gave up has come again on another connection by then."""
    waits, _ = late(tls_net)
    left, its_socket = late(tls_net)
    its_socket.close()
    tls_net.clock.advance(0)
    assert left.peer.transport.disconnected
    assert not left.peer.got()
    assert not waits.peer.transport.disconnected
    assert waits.peer.connection.phase is Phase.TLS_HANDSHAKE


@pytest.mark.parametrize("acknowledges", [True, False])
def test_who_has_left_in_its_handshake_is_heard_if_it_never_sends_again(
    make_net, tls, late, acknowledges
):
    """What is acknowledged its sender has, and sends again."""
    net = make_net(tls=tls, keywords={"acknowledges": acknowledges})
    peer, its_socket = late(net)
    net.clock.advance(0)
    net.listener.turns.crowded = True
    peer.step()
    peer.tls.write(b"events")
    peer.step()
    assert not net.servers
    its_socket.close()
    net.clock.advance(0)
    heard = [server.data for server in net.servers]
    assert heard == ([] if acknowledges else [b"events"])
    assert peer.peer.transport.disconnected is acknowledges
