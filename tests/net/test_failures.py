"""A protocol whose code raises: its connection ends, and nothing else does."""

from types import SimpleNamespace
from typing import Any

import pytest
from wsproto.events import BytesMessage

from gateway.sdk.interfaces import Publishing, Refusal
from making import Make

WEBSOCKET = SimpleNamespace(path="/ws", origins=[])


class Broken(Exception):
    """Nothing that the network knows."""


class Unspeakable(Exception):
    """One that can not even say what it is."""

    def __str__(self) -> str:
        raise Broken


def raises(error: BaseException) -> Make[None]:
    """A callback that does just that."""

    def callback(*arguments: object) -> None:
        raise error

    return callback


def break_server(net: Any, callback: str, error: BaseException) -> Any:
    """A peer whose server raises *error* in *callback*; what makes it do so."""
    if callback == "accept":
        works, net.listener.accept = net.listener.accept, raises(error)
        peer = net.peer()
        net.listener.accept = works
        return peer, lambda: peer.send(b"x")
    peer = net.peer()
    if callback == "writable":
        net.server.declare(Publishing, writable=raises(error))
    else:
        setattr(net.server, callback, raises(error))
    return peer, {
        "received": lambda: peer.send(b"x"),
        "writable": peer.transport.producer.pauseProducing,
        "drain": peer.connection.calls.drain,
        "closed": peer.lose,
    }[callback]


CALLBACKS = ["accept", "received", "writable", "drain", "closed"]


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize("error", [Broken("bad luck"), SystemExit("bad luck")])
def test_it_costs_one_connection(net, warnings, callback, error):
    """Dropped and counted once, with one line that names all; others go on."""
    other = net.peer("192.0.2.2")
    served = net.server
    peer, act = break_server(net, callback, error)
    act()
    assert callback == "closed" or peer.transport.disconnected
    raised = f"{callback}() of lumberjack raised {type(error).__name__}: bad luck"
    assert warnings() == [f"beats: 192.0.2.1:4000 dropped: {raised}"]
    assert net.listener.rejected == {"failure": 1}
    other.send(b"2W")
    assert served.data == b"2W"
    assert not other.transport.disconnected
    net.peer("192.0.2.3").send(b"2W")
    assert net.server.data == b"2W"


@pytest.mark.parametrize("callback", CALLBACKS)
def test_it_is_no_longer_counted_as_open(make_net, callback):
    """Neither among all nor for its host, which may connect again."""
    net = make_net(limits={"connections": 1, "connections_per_peer": 1})
    for _ in range(3):
        peer, act = break_server(net, callback, Broken())
        act()
        if callback != "closed":
            peer.lose()
        assert net.listener.connections == 0
    assert net.listener.rejected == {"failure": 3}


@pytest.mark.parametrize("callback", CALLBACKS)
def test_a_drain_does_not_wait_for_it(net, callback):
    """It fires when the connections are gone, and no timer is left."""
    peer, act = break_server(net, callback, Broken())
    other = net.peer("192.0.2.2")
    net.drain()
    assert net.servers[-1].drained
    if callback != "closed":
        act()
    peer.lose()
    assert not net.drained
    other.lose()
    assert net.drained


def test_bytes_that_come_later_are_dropped(make_net):
    """The server that failed is called once more, to be told that it is closed."""
    net = make_net(raises(Broken()))
    peer = net.peer()
    peer.send(b"one")
    peer.send(b"two")
    assert net.server.chunks == [b"one"]
    peer.lose()
    assert net.server.gone


def test_a_second_failure_of_a_connection_is_not_counted(make_net, warnings):
    """What raised in `received` often raises in `closed` too."""
    net = make_net(raises(Broken()))
    peer = net.peer()
    net.server.closed = raises(Broken())
    peer.send(b"x")
    peer.lose()
    assert net.listener.rejected == {"failure": 1}
    assert len(warnings()) == 1
    assert net.listener.connections == 0


def test_lines_are_rate_limited_like_those_of_refusals(make_net, warnings):
    """One a minute for each host and cause, and one that tells how many more."""
    net = make_net(raises(Broken("bad luck")))
    for _ in range(5):
        net.peer().send(b"x")
    net.pass_time(61)
    net.peer().send(b"x")
    first, more, last = warnings()
    assert first.endswith("Broken: bad luck")
    assert more == (
        "beats: 192.0.2.1: 4 more in the last minute: received() raised Broken"
    )
    assert last == first
    assert net.listener.rejected == {"failure": 6}


def test_the_traceback_is_logged_once(make_net, logged):
    """With the first line about a place in the code; another place has its own."""
    net = make_net(raises(Broken()))
    for number in range(3):
        net.peer(f"192.0.2.{number}").send(b"x")

    def elsewhere(*arguments: object) -> None:
        raise Broken

    net.act = elsewhere
    net.peer("192.0.2.9").send(b"x")
    traced = [
        event["log_failure"].getTraceback()
        for event in logged
        if "log_failure" in event
    ]
    assert len(traced) == 2
    assert "in callback" in traced[0]
    assert "in elsewhere" in traced[1]


def test_errors_of_any_shape_are_logged(make_net, warnings):
    """Without a text, without a working `__str__`, with far too long a text."""
    errors = [Broken(), Unspeakable(), Broken("x" * 100_000)]
    for number, error in enumerate(errors):
        net = make_net(raises(error))
        net.peer(f"192.0.2.{number}").send(b"x")
        assert net.listener.rejected == {"failure": 1}
    assert warnings()[0].endswith("raised Broken")
    assert "raised Unspeakable: " in warnings()[1]
    assert len(warnings()[2]) < 1000


@pytest.mark.parametrize("callback", ["accept", "received", "writable", "drain"])
def test_a_refusal_is_none(net, warnings, callback):
    """Wherever it is raised: answered, logged and counted as what it is, then FIN."""
    peer, act = break_server(net, callback, Refusal("not now", reply=b"bye"))
    act()
    assert peer.got() == b"bye"
    assert peer.transport.finished
    assert not peer.transport.disconnected
    assert warnings() == ["beats: 192.0.2.1:4000 refused: not now"]
    assert net.listener.rejected == {"protocol": 1}


@pytest.mark.parametrize("callback", ["accept", "received", "writable", "drain"])
def test_a_refusal_whose_reply_is_no_bytes(net, callback):
    refusal = Refusal("not now", reply="bye")  # type: ignore[arg-type]
    peer, act = break_server(net, callback, refusal)
    act()
    assert peer.transport.disconnected
    assert net.listener.rejected["failure"] == 1


def test_a_server_that_is_none(net, warnings):
    """`accept` that forgets its return, and a server that lacks a method."""
    net.listener.accept = lambda connection: None
    net.peer("192.0.2.1").send(b"x")
    net.listener.accept = lambda connection: object()
    peer = net.peer("192.0.2.2")
    peer.connection.calls.drain()
    peer.lose()
    assert "AssertionError: accept() returned None" in warnings()[0]
    assert "drain() of lumberjack raised AttributeError: " in warnings()[1]
    assert net.listener.rejected == {"failure": 2}


def test_over_tls_and_websocket(make_net, make_tls, tls_peer, warnings):
    """What lies between does not matter, and is not blamed."""
    net = make_net(raises(Broken()), tls=make_tls(), websocket=WEBSOCKET)
    peer = net.peer()
    tls = tls_peer(peer)
    tls.shake_hands()
    client = tls.upgrade()
    tls.send(client.send(BytesMessage(b"x")) * 2)
    assert peer.transport.disconnected
    peer.lose()
    assert warnings() == [
        "beats: 192.0.2.1:4000 dropped: received() of lumberjack raised Broken"
    ]
    assert net.listener.connections == 0


def test_accept_on_a_port_for_both(make_net):
    """There the server is made late, with the first bytes at hand."""
    net = make_net(websocket=WEBSOCKET, keywords={"mixed": True})
    net.listener.accept = raises(Broken())
    peer = net.peer()
    peer.send(b"\x01\0\0")
    peer.send(b"\x01\0\0")
    assert peer.transport.disconnected
    peer.lose()
    assert net.listener.rejected == {"failure": 1}
    assert net.listener.connections == 0


def test_real_sockets_are_closed(with_reactor):
    """The peers see the end, the port goes on, the drain comes to its end."""
    result = with_reactor("""
        class Bad(Echo):
            def received(self, data):
                if data == b"bad":
                    raise ZeroDivisionError
                super().received(data)
            def closed(self):
                raise ZeroDivisionError
            def drain(self):
                raise ZeroDivisionError

        def accept(connection):
            if len(Bad.made) == 2:
                Bad.made.append(None)
                raise ZeroDivisionError
            return Bad(connection)

        def ended(client):
            try:
                return client.recv(99) == b""
            except ConnectionResetError:
                return True

        def talk():
            listener = serve(accept)
            clients = []
            for number in range(3):
                clients.append(connect(listener))
                until(lambda: listener.traffic.accepted == number + 1)
            good, bad, refused = clients
            bad.sendall(b"bad")
            result["ended"] = [ended(bad), ended(refused)]
            good.sendall(b"good")
            result["echo"] = good.recv(99).decode()
            in_reactor(listener.stop)
            in_reactor(listener.drain, 60.0)
            result["ended"].append(ended(good))
            result["left"] = listener.connections
            result["rejected"] = dict(listener.rejected)
    """)
    assert result == {
        "ended": [True, True, True],
        "echo": "good",
        "left": 0,
        "rejected": {"failure": 3},
    }
