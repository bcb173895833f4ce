"""A listener drains: in memory, and with real sockets."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.net.connection import AcceptedConnection
from gateway.net.looks import Looks
from gateway.sdk.interfaces import Refusal
from making import Make


def test_drain_lets_servers_finish(net):
    """It fires when the last connection is gone, and not before."""
    one, other = net.peer("192.0.2.1"), net.peer("192.0.2.2")
    net.drain()
    assert [server.drained for server in net.servers] == [True, True]
    one.lose()
    assert not net.drained
    other.lose()
    assert net.drained


@pytest.fixture
def in_socket(monkeypatch) -> list[int]:
    """As many bytes lie in every peer's socket."""
    found = [0]
    monkeypatch.setattr("gateway.net.pacing.unread_bytes", lambda _: found[0])
    return found


def test_what_is_here_is_delivered_before_the_drain(net, in_socket):
    """All that its socket has by then, and nothing behind that, however much comes."""
    peer = net.peer()
    in_socket[0] = 5
    net.drain()
    assert peer.connection.input.room() == 5
    peer.send(b"win")
    net.pass_time(0.25)
    assert not net.server.drained
    assert peer.connection.input.room() == 2
    peer.send(b"do")
    assert peer.transport.producerState == "paused"
    net.pass_time(0.25)
    assert net.server.drained
    assert net.server.data == b"windo"
    assert peer.transport.producerState == "producing"


def test_what_waits_for_its_turn_is_used_before_the_drain(make_net):
    """The server has it, and is not done with it."""
    net = make_net(lambda connection, data: data and connection.again())
    peer = net.peer()
    peer.send(b"windows")
    net.listener.turns.remove(peer.connection.input)  # it is not its turn for long
    net.drain()
    net.pass_time(0.75)
    assert not net.server.drained
    peer.connection.input.take_turn()
    net.pass_time(0.25)
    assert net.server.drained


def test_what_was_put_off_is_used_before_the_drain(net):
    """It was read, and the server has not seen it."""
    peer = net.peer()
    net.listener.turns.crowded = True
    peer.send(b"window")
    net.drain()
    assert net.server.data == b""
    assert not net.server.drained
    net.pass_time(0.25)
    assert net.server.data == b"window"
    assert net.server.drained


@pytest.mark.parametrize("takes", [False, True])
def test_a_server_that_takes_nothing_is_drained_all_the_same(
    make_net, in_socket, takes
):
    """After a fifth of the time: what is left has time to be answered."""
    net = make_net(lambda connection, data: connection.pause())
    peer = net.peer()
    peer.send(b"window")
    in_socket[0] = 1
    net.drain()
    net.pass_time(0.75)
    assert not net.server.drained
    if takes:
        net.server.act = lambda connection, data: None
        net.server.connection.resume()
        peer.send(b"s")
    net.pass_time(0.5)
    assert net.server.drained
    assert net.server.data == (b"windows" if takes else b"window")


def test_drain_of_nobody_is_done_at_once(net):
    """Nothing to wait for, nothing left ticking."""
    net.drain()
    assert net.drained


def test_whoever_does_not_finish_is_dropped(make_net, warnings):
    """After the deadline; one that is still shaking hands is not waited for."""
    net = make_net(websocket=SimpleNamespace(path="/", origins=[]))
    peer = net.peer()
    peer.send(b"GET / HTTP/1.1\r\nHost: gw\r\nUpgrade: websocket\r\n")
    net.drain()
    assert peer.transport.finished
    net.pass_time(1.5)
    assert peer.transport.disconnected
    net.pass_time(4)
    assert warnings() == ["beats: 1 connections did not finish in time"]
    peer.lose()
    assert net.drained


@pytest.mark.parametrize("origins", [[], ["https://app.example"]])
def test_pages_that_may_connect(make_net, origins):
    """Any, unless the configuration names some."""
    upgrade = make_net(
        websocket=SimpleNamespace(path="/", origins=origins)
    ).listener.upgrade_parser()
    request = (
        b"GET / HTTP/1.1\r\nHost: gw\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        b"Sec-WebSocket-Version: 13\r\nOrigin: https://other.example\r\n\r\n"
    )
    if origins:
        with pytest.raises(Refusal, match="page"):
            upgrade.feed(request)
    else:
        assert upgrade.feed(request) is not None


def test_many_are_looked_at_in_turns(make_net):
    """Others are served between two parts of a look; everybody is looked at once."""
    net = make_net(limits={"idle": 60.0, "connections_per_peer": 1000})
    peers = [net.peer() for _ in range(600)]
    net.pass_time(58)
    net.clock.rightNow += 10.0
    ended = []
    for _ in range(3):
        net.clock.calls.pop(0).func()
        ended.append(sum(peer.transport.finished for peer in peers))
    assert ended == [256, 512, 600]
    assert net.listener.rejected == {"idle": 600}


def in_the_middle_of_a_look(make_net: Make) -> tuple[Any, list[Any]]:
    """300 connections that are idle for too long, and those not looked at yet."""
    net = make_net(limits={"idle": 60.0})
    peers = [net.peer() for _ in range(300)]
    net.pass_time(58)
    net.clock.rightNow += 10.0
    net.clock.calls.pop(0).func()
    left = [peer for peer in peers if not peer.transport.finished]
    assert len(left) == 300 - 256
    return net, left


def test_who_is_lost_in_the_middle_of_a_look(make_net):
    net, left = in_the_middle_of_a_look(make_net)
    for peer in left[::2]:
        peer.lose()
    net.clock.calls.pop(0).func()
    assert all(peer.transport.finished for peer in left[1::2])
    assert net.listener.connections == 300 - len(left[::2])


def test_one_whose_look_fails_ends_no_others(make_net, monkeypatch):
    """All that come behind it in that look are looked at."""
    net, left = in_the_middle_of_a_look(make_net)
    look = Looks.look
    failed: list[AcceptedConnection] = []

    def fails_once(self: Looks, connection: AcceptedConnection, now: float) -> None:
        if not failed:
            failed.append(connection)
            raise ZeroDivisionError("planted")
        look(self, connection, now)

    monkeypatch.setattr(Looks, "look", fails_once)
    with pytest.raises(ZeroDivisionError):
        net.clock.calls.pop(0).func()
    net.clock.calls.pop(0).func()
    assert sum(not peer.transport.finished for peer in left) == 1
