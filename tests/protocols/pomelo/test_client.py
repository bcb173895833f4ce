"""The client on a transport: answers, pushes, heartbeats, and how it ends."""

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from wsproto import ConnectionType, WSConnection, events

from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.client import Client, Disconnected

from .conftest import push

ANSWER = wire.package(wire.HANDSHAKE, b'{"code":200,"sys":{"heartbeat":3}}')


class _Transport(StringTransport):
    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True


class Peer:
    """An endpoint in memory, and the server's end of its connection."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.transport = _Transport()
        self.pushes: list[tuple[str, bytes]] = []
        self.ended: list[str] = []
        self.refuse: Exception | None = None
        self.hang = False
        self.client = Client(
            self,  # type: ignore[arg-type]
            clock=self.clock,
            on_push=lambda route, body: self.pushes.append((route, body)),
            on_closed=self.ended.append,
            **options,
        )

    def connect(self, factory: Any) -> Deferred[Any]:
        """What an endpoint does."""
        if self.refuse is not None:
            return fail(self.refuse)
        connected: Deferred[Any] = Deferred()
        if not self.hang:
            self.protocol = factory.buildProtocol(None)
            self.protocol.makeConnection(self.transport)
            connected.callback(self.protocol)
        return connected

    def say(self, data: bytes) -> None:
        """The server says something."""
        self.protocol.dataReceived(data)

    def heard(self) -> bytes:
        """What the client has said since the last time."""
        data: bytes = self.transport.value()
        self.transport.clear()
        return data

    def end(self) -> None:
        """The connection ends."""
        self.protocol.connectionLost(Failure(ConnectionDone("over")))


def _state(deferred: Deferred[Any]) -> list[Any]:
    """What it fired with, if it did."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    return found


def _why(found: list[Any]) -> str:
    [failure] = found
    assert failure.check(Disconnected)
    why: str = failure.getErrorMessage()
    return why


@pytest.fixture
def peer() -> Peer:
    """A client that is at work."""
    peer = Peer()
    connected = _state(peer.client.connect())
    assert peer.heard()[0] == wire.HANDSHAKE
    peer.say(ANSWER)
    assert connected == [None]
    assert peer.heard() == wire.package(wire.ACK)
    return peer


def test_against_the_server(make_reader, pomelo):
    """Requests are answered when they are durable; pushes arrive."""
    reader = make_reader(routes=pomelo.routes, server_protos=pomelo.server_protos)
    peer = Peer(user={"uid": "alice"})
    connected = _state(peer.client.connect())

    def exchange() -> None:
        while said := peer.heard():
            reader.deliver(said)
            answer, reader.connection.written = reader.sent, []
            if answer:
                peer.say(answer)

    exchange()
    assert connected == [None]
    answer = _state(peer.client.request("area.player.move", b'{"x":1}'))
    peer.client.notify("chat.room.say", b"{}")
    exchange()
    assert answer == []
    reader.journal.store_all()
    peer.say(reader.sent)
    assert answer == [b'{"code":200}']
    assert [event[2] for event in reader.events()] == pomelo.routes
    reader.connection.clear()
    registry = reader.listener.registry
    push(registry, registry.user("alice"), "onMove", b'{"id":1}')
    peer.say(reader.sent)
    assert peer.pushes == [("onMove", b'{"id":1}')]


def test_answers_find_their_requests(peer):
    """In whatever order they come."""
    answers = [_state(peer.client.request("a", b"{}")) for _ in range(3)]
    peer.say(wire.response(3, b"3") + wire.response(1, b"1"))
    assert answers == [[b"1"], [], [b"3"]]


def test_what_is_not_answered_fails(peer):
    """With the reason why the connection ended: a kick's, if there was one."""
    answer = _state(peer.client.request("a", b"{}"))
    peer.say(wire.kick("shutdown"))
    peer.end()
    assert _why(answer) == "kicked: shutdown"
    assert peer.ended == ["kicked: shutdown"]
    assert _why(_state(peer.client.request("a", b"{}"))) == "kicked: shutdown"
    with pytest.raises(Disconnected, match="shutdown"):
        peer.client.notify("a", b"{}")
    assert peer.clock.getDelayedCalls() == []


def test_nothing_before_the_handshake():
    """The server would refuse it."""
    peer = Peer()
    assert "not connected" in _why(_state(peer.client.request("a", b"{}")))
    _state(peer.client.connect())
    peer.heard()
    assert "not connected" in _why(_state(peer.client.request("a", b"{}")))
    with pytest.raises(Disconnected):
        peer.client.notify("a", b"{}")
    assert peer.heard() == b""


def test_a_refused_handshake():
    """`connect` fails with what the server said."""
    peer = Peer()
    connected = _state(peer.client.connect())
    told = json.dumps({"code": 500, "msg": "wrong token"}).encode()
    peer.say(wire.package(wire.HANDSHAKE, told))
    assert peer.transport.aborted
    peer.end()
    assert "wrong token" in _why(connected)


def test_nobody_there():
    """`connect` fails with the endpoint's reason."""
    peer = Peer()
    peer.refuse = ConnectionDone("nobody")
    assert "nobody" in _why(_state(peer.client.connect()))
    assert peer.clock.getDelayedCalls() == []
    assert _state(peer.client.stop()) == [None]


@pytest.mark.parametrize("hang", [True, False])
def test_a_server_that_says_nothing(hang):
    """Neither a connection nor a handshake is waited for beyond the timeout."""
    peer = Peer(timeout=5.0)
    peer.hang = hang
    connected = _state(peer.client.connect())
    peer.clock.advance(5)
    if not hang:
        assert peer.transport.aborted
        peer.end()
    assert "5 s" in _why(connected)
    assert peer.clock.getDelayedCalls() == []


def test_stop_while_connecting():
    peer = Peer()
    peer.hang = True
    connected = _state(peer.client.connect())
    assert _state(peer.client.stop()) == [None]
    assert _why(connected) == "stopped"
    assert peer.clock.getDelayedCalls() == []


def test_stop(peer):
    """It fires when the connection is closed; what waits fails."""
    answer = _state(peer.client.request("a", b"{}"))
    stopped = _state(peer.client.stop())
    assert peer.transport.disconnecting
    assert stopped == []
    peer.end()
    assert stopped == [None]
    assert _why(answer) == "stopped"


def test_heartbeats(peer):
    """Often enough for any server, until the server is silent for twice its interval."""
    for _ in range(10):
        peer.clock.advance(1.5)
        assert peer.heard() == wire.package(wire.HEARTBEAT)
        peer.say(wire.package(wire.HEARTBEAT))
    for _ in range(5):
        assert not peer.transport.aborted
        peer.clock.advance(1.5)
    peer.clock.advance(1.5)
    assert peer.transport.aborted
    peer.end()
    assert peer.ended == ["the server gives no sign of life"]


def test_garbage(peer):
    """A server that speaks something else is left."""
    peer.say(b"\xff")
    assert peer.transport.aborted
    peer.end()
    assert "type 255" in peer.ended[0]


# WebSocket


class Socket(Peer):
    """The same over WebSocket, wsproto being the server."""

    def __init__(self) -> None:
        super().__init__(websocket="//gw.example/play")
        self.frames = WSConnection(ConnectionType.SERVER)
        self.connected = _state(self.client.connect())
        [self.request] = self.events()

    def events(self) -> list[Any]:
        self.frames.receive_data(self.heard())
        return list(self.frames.events())

    def send(self, event: Any) -> None:
        self.say(self.frames.send(event))


def test_one_package_per_message():
    """Handshake, acknowledgement, request: a binary message each."""
    socket = Socket()
    assert isinstance(socket.request, events.Request)
    assert (socket.request.host, socket.request.target) == ("gw.example", "/play")
    socket.send(events.AcceptConnection())
    [hello] = socket.events()
    assert hello.data[0] == wire.HANDSHAKE
    socket.send(events.BytesMessage(ANSWER))
    assert socket.connected == [None]
    answer = _state(socket.client.request("a", b"{}"))
    assert [event.data for event in socket.events()] == [
        wire.package(wire.ACK),
        wire.request(1, "a", b"{}"),
    ]
    socket.send(events.BytesMessage(wire.response(1, b"{}")))
    assert answer == [b"{}"]


def test_websocket_controls():
    """Pings are answered, closes too; a server that is no WebSocket is left."""
    socket = Socket()
    socket.send(events.AcceptConnection())
    socket.events()
    socket.send(events.Ping(b"x"))
    assert socket.events() == [events.Pong(b"x")]
    socket.send(events.CloseConnection(1001))
    assert socket.transport.disconnecting
    rejected = Socket()
    rejected.send(events.RejectConnection(status_code=404))
    assert rejected.transport.disconnecting
    other = Socket()
    other.say(b"SSH-2.0\r\n\r\n")
    assert other.transport.aborted
