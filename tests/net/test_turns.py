"""Connections with much to do are served a turn at a time, and nobody waits for all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from gateway.interfaces import Refusal

Make = Callable[..., Any]


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


def test_nothing_is_read_before_the_last_turn(make_net: Make) -> None:
    """The server is asked to go on with no bytes; then reading goes on."""
    states: list[str] = []
    net = make_net(hungry(2, lambda _: states.append(peer.transport.producerState)))
    peer = net.peer()
    peer.send(b"much")
    net.clock.advance(0)
    assert states == ["producing", "paused", "paused"]
    assert peer.transport.producerState == "producing"
    assert net.server.chunks == [b"much", b"", b""]


def test_turns_go_round(make_net: Make) -> None:
    """One connection in each turn of the event loop, in the order of asking."""
    order: list[str] = []
    net = make_net(hungry(3, lambda asks: order.append(asks.origin.session)))
    first, second = net.peer(), net.peer()
    first.send(b"a")
    second.send(b"b")
    net.clock.advance(0)
    assert order == ["s1", "s2"] * 4


def test_what_others_have_ready_goes_before_a_turn(make_net: Make) -> None:
    """It is not to wait for that turn as well."""
    order: list[str] = []
    net = make_net(hungry(2, lambda asks: order.append(asks.origin.session)))
    net.listener.turns.before.append(lambda: order.append("ready"))
    net.peer().send(b"much")
    net.clock.advance(0)
    assert order == ["s1", "ready", "s1", "ready", "s1"]


def test_a_turn_that_is_refused_ends(make_net: Make) -> None:
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


def test_a_lost_connection_has_no_turn(make_net: Make) -> None:
    """It is forgotten."""
    net = make_net(hungry(1))
    peer = net.peer()
    server = net.server
    peer.send(b"x")
    peer.lose()
    net.clock.advance(0)
    assert server.chunks == [b"x"]


def test_paused_beside_a_turn(make_net: Make) -> None:
    """Reading needs both: no turn due, and a server that wants to read."""
    net = make_net(hungry(1))
    peer = net.peer()
    peer.send(b"x")
    connection = net.server.connection
    connection.pause()
    connection.resume()
    assert peer.transport.producerState == "paused"
