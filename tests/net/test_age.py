"""Connections that are as old as `limits.connection_age` lets them be."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.sdk.interfaces import Aging


def aging(net: Any) -> list[None]:
    """The latest server is told of its age, and closes."""
    told: list[None] = []
    server = net.server

    def aged() -> None:
        told.append(None)
        server.connection.close()

    server.declare(Aging, aged=aged)
    return told


def test_its_server_is_told_once(make_net):
    """Not before its age, whatever it does; within a fifth of that, and of a look, after."""
    net = make_net(limits={"connection_age": 100.0, "idle": 1000.0})
    peer = net.peer()
    told: list[None] = []
    net.server.declare(Aging, aged=lambda: told.append(None))
    net.pass_time(99)
    peer.send(b"window")
    assert not told
    net.pass_time(24)
    assert len(told) == 1
    net.pass_time(200)
    assert len(told) == 1


def test_who_came_together_does_not_leave_together(make_net):
    """Else all would come to the next gateway at once, as after a restart."""
    net = make_net(limits={"connection_age": 1000.0, "idle": 10_000.0})
    for number in range(200):
        net.peer(f"192.0.2.{number}")
        aging(net)
    net.pass_time(1000)
    left = []
    for _ in range(4):
        net.pass_time(50)
        left.append(sum(server.connection.transport.finished for server in net.servers))
    net.pass_time(5)
    assert all(server.connection.transport.finished for server in net.servers)
    assert 20 < left[0] < 80
    assert 120 < left[2] < 180


def test_a_server_that_can_not_is_left_alone(make_net):
    """As one of a protocol whose peers would lose something."""
    net = make_net(limits={"connection_age": 10.0})
    peer = net.peer()
    net.pass_time(60)
    assert not peer.transport.finished


def test_who_has_no_server_yet_is_told_later(make_net):
    """It is shaking hands, for which it has a limit of its own."""
    net = make_net(
        limits={"connection_age": 5.0, "handshake": 60.0},
        websocket=SimpleNamespace(path="/ws", origins=[]),
    )
    peer = net.peer()
    net.pass_time(20)
    assert not peer.transport.finished
    peer.upgrade()
    told = aging(net)
    net.pass_time(3)
    assert told == [None]


@pytest.mark.parametrize("left", [True, False])
def test_the_log_says_why(make_net, left):
    """That it was its age; or the peer, if that left before."""
    net = make_net(limits={"connection_age": 10.0})
    peer = net.peer()
    aging(net)
    if not left:
        net.pass_time(15)
    peer.fin()
    assert peer.connection.ending.why == ("peer" if left else "age")
