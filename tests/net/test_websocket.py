"""A connection over WebSocket, from the upgrade to the Close; wsproto is the client."""

from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.extensions import PerMessageDeflate

from gateway.net.reading import LAYERED_READ_BYTES, READ_BYTES
from gateway.net.websocket_upgrade import UpgradeParser
from gateway.sdk.interfaces import Refusal

WEBSOCKET = SimpleNamespace(path="/ws", origins=[])
HTTP = b"GET / HTTP/1.1\r\nHost: gw\r\n\r\n"


def test_messages_are_a_stream(make_net):
    """Both ways: any messages in, one message per write out."""
    net = make_net(websocket=WEBSOCKET)
    peer = net.peer()
    client = peer.upgrade()
    peer.send(client.send(BytesMessage(b"2W\0\0")) + client.send(BytesMessage(b"\0\1")))
    assert net.server.chunks == [b"2W\0\0\0\1"]
    net.server.connection.write(b"2A\0\0\0\1")
    net.server.connection.write(b"2A\0\0\0\2")
    client.receive_data(peer.got())
    events = list(client.events())
    assert [bytes(event.data) for event in events if isinstance(event, BytesMessage)] == [
        b"2A\0\0\0\1", b"2A\0\0\0\2",
    ]  # fmt: skip


def test_the_server_comes_after_the_upgrade(make_net):
    """No server for a request that is never finished, and its time is limited."""
    net = make_net(websocket=WEBSOCKET)
    peer = net.peer()
    peer.send(b"GET /ws HTTP/1.1\r\n")
    net.pass_time(13)
    assert net.servers == []
    assert peer.transport.finished
    assert net.listener.rejected == {"handshake": 1}


def test_the_subprotocol_is_kept(make_net):
    """As an attribute of every event."""
    net = make_net(websocket=WEBSOCKET, keywords={"subprotocols": ["rsio.v0"]})
    net.peer().upgrade(subprotocols=["rsio.v0", "other"])
    attributes = net.server.connection.origin.attributes
    assert attributes == {"subprotocol": "rsio.v0"}


def test_little_is_read_at_once(make_net):
    """The least frames take long, before a turn can count what is in them."""
    net = make_net(websocket=WEBSOCKET, keywords={"mixed": True})
    plain, framed = net.peer(), net.peer()
    assert plain.transport.read_bytes == LAYERED_READ_BYTES
    plain.send(b"2W\0\0\0\1")
    assert plain.transport.read_bytes == READ_BYTES
    framed.upgrade()
    assert framed.transport.read_bytes == LAYERED_READ_BYTES


def test_both_kinds_on_a_mixed_port(make_net):
    """The first bytes say which; a server knows whether its writes are messages."""
    net = make_net(websocket=WEBSOCKET, keywords={"mixed": True, "text": True})
    plain, web = net.peer(), net.peer()
    plain.send(b"\x01\0\0\0")
    assert not net.server.connection.framed
    client = web.upgrade()
    assert net.server.connection.framed
    web.send(client.send(TextMessage("x")))
    assert not web.transport.finished


def test_what_is_written_together(make_net):
    """Many messages are one write; over WebSocket each is a message of its own."""
    net = make_net(websocket=WEBSOCKET, keywords={"mixed": True})
    plain, web = net.peer(), net.peer()
    plain.send(b"\x01\0\0\0")
    net.server.connection.write_each([b"one", b"two"])
    assert plain.got() == b"onetwo"
    client = web.upgrade()
    writes: list[bytes] = []
    web.transport.write = writes.append  # type: ignore[method-assign, assignment]
    net.server.connection.write_each([b"one", b"", b"x" * 200])
    [together] = writes
    client.receive_data(together)
    heard = [bytes(event.data) for event in client.events()]  # type: ignore[union-attr]
    assert heard == [b"one", b"", b"x" * 200]
    net.server.connection.close()
    net.server.connection.write_each([b"late"])
    assert b"late" not in b"".join(writes)


def test_a_close_is_answered_and_ends_it(make_net):
    """Close for Close, then FIN."""
    net = make_net(websocket=WEBSOCKET)
    peer = net.peer()
    client = peer.upgrade()
    peer.send(client.send(CloseConnection(1000)))
    client.receive_data(peer.got())
    [event] = client.events()
    assert isinstance(event, CloseConnection)
    assert peer.transport.finished


def test_our_close_begins_with_a_close_frame(make_net):
    """1000 when all is well, 1008 after a refusal and its reply."""
    net = make_net(websocket=WEBSOCKET)
    peer = net.peer()
    client = peer.upgrade()
    net.server.connection.close()
    client.receive_data(peer.got())
    [event] = client.events()
    assert (type(event), event.code) == (CloseConnection, 1000)
    assert peer.transport.finished


def test_a_refusal_over_websocket(make_net, refuse):
    """The protocol's reply as a message, then Close 1008 with the rule."""
    net = make_net(refuse, websocket=WEBSOCKET)
    peer = net.peer()
    client = peer.upgrade()
    peer.send(client.send(BytesMessage(b"x")))
    client.receive_data(peer.got())
    reply, bye = client.events()
    assert bytes(reply.data) == b"bye"
    assert (bye.code, bye.reason) == (1008, "bad frame")


def test_a_bad_frame_is_refused(make_net, warnings):
    """A 2^62 byte frame: Close 1009 from its head, FIN, one line with the key."""
    net = make_net(websocket=WEBSOCKET)
    peer = net.peer()
    client = peer.upgrade()
    peer.send(b"\x82\xff" + (1 << 62).to_bytes(8, "big"))
    client.receive_data(peer.got())
    [event] = client.events()
    assert event.code == 1009
    assert peer.transport.finished
    assert warnings()[0].endswith(
        f"WebSocket message of {1 << 62} bytes, limit {1 << 24} (limits.message_bytes)"
    )
    assert net.listener.rejected == {"websocket": 1}


def test_pings_of_a_patient_client_are_no_flood(make_net):
    """The listener's sweeps forgive."""
    net = make_net(websocket=WEBSOCKET)
    peer = net.peer()
    client = peer.upgrade()
    for _ in range(3):
        for _ in range(900):
            peer.send(client.send(Ping(b"")))
        net.pass_time(3)
    assert not peer.transport.finished


def test_other_protocols_on_a_websocket_port(make_net, warnings):
    """Plain bytes are quoted, plain HTTP is told to upgrade, no server is made."""
    net = make_net(websocket=WEBSOCKET)
    net.peer("192.0.2.1").send(b"2W\0\0\0\1")
    plain = net.peer("192.0.2.2")
    plain.send(HTTP)
    assert plain.got().startswith(b"HTTP/1.1 426 ")
    assert net.servers == []
    assert "on a port that expects a WebSocket (websocket)" in warnings()[0]


def test_one_port_for_both(make_net):
    """A mixed port lets the first bytes decide, however they are sliced."""
    net = make_net(websocket=WEBSOCKET, keywords={"mixed": True})
    plain = net.peer()
    plain.send(b"\x01")
    plain.send(b"\0\0\x02{}")
    assert net.server.data == b"\x01\0\0\x02{}"
    peer = net.peer()
    client = WSConnection(ConnectionType.CLIENT)
    request = client.send(Request(host="gw", target="/ws"))
    for at in range(len(request)):
        peer.send(request[at : at + 1])
    client.receive_data(peer.got())
    assert isinstance(next(client.events()), AcceptConnection)
    peer.send(client.send(BytesMessage(b"\x01\0\0\x02{}")))
    assert net.server.data == b"\x01\0\0\x02{}"


def client(**request: object) -> tuple[WSConnection, bytes]:
    """wsproto's client and its request."""
    connection = WSConnection(ConnectionType.CLIENT)
    defaults = {"host": "gw", "target": "/rs"}
    return connection, connection.send(Request(**(defaults | request)))  # type: ignore[arg-type]


def refused(upgrade: UpgradeParser, request: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        upgrade.feed(request)
    return caught.value


def test_a_request_is_granted_in_any_slicing():
    """The answer satisfies the client, and the frame right behind is not lost."""
    connection, request = client()
    request += b"early frame"
    for cut in range(len(request)):
        upgrade = UpgradeParser("/rs")
        first, rest = upgrade.feed(request[:cut]), request[cut:]
        granted = first or upgrade.feed(rest)
        assert granted is not None
        behind = granted.rest + (rest if first else b"")
        assert behind == b"early frame"
    connection.receive_data(granted.response)
    assert list(connection.events()) == [AcceptConnection()]


def test_the_first_subprotocol_of_ours_is_chosen():
    """Our order decides; without overlap the client gets none."""
    _, request = client(subprotocols=["x", "b", "a"])
    granted = UpgradeParser("/rs", subprotocols=["a", "b"]).feed(request)
    assert granted is not None
    assert granted.subprotocol == "a"
    assert b"sec-websocket-protocol: a\r\n" in granted.response.lower()
    granted = UpgradeParser("/rs", subprotocols=["c"]).feed(request)
    assert granted is not None
    assert granted.subprotocol is None


def test_compression_is_never_agreed_to():
    """permessage-deflate is offered and not taken."""
    _, request = client(extensions=[PerMessageDeflate()])
    assert b"permessage-deflate" in request
    granted = UpgradeParser("/rs").feed(request)
    assert granted is not None
    assert b"xtensions" not in granted.response


def test_another_path_is_not_found():
    """404, and a query does not count."""
    _, request = client(target="/other")
    why = refused(UpgradeParser("/rs"), request)
    assert why.reply.startswith(b"HTTP/1.1 404 ")
    assert why.key == "websocket.path"
    _, request = client(target="/rs?token=1")
    assert UpgradeParser("/rs").feed(request) is not None


@pytest.mark.parametrize(
    ("allowed", "origin", "granted"),
    [
        ([], None, True),
        ([], b"https://evil.example", False),
        (["https://App.example/"], b"https://app.example", True),
        (["https://app.example"], b"https://app.example.evil.example", False),
        (["https://app.example"], b"http://app.example", False),
        (["https://app.example"], None, True),
        (["*"], b"null", True),
    ],
)
def test_pages_connect_only_from_the_listed_origins(allowed, origin, granted):
    """Programs have no Origin and may; a page may if it is listed."""
    headers = [] if origin is None else [(b"Origin", origin)]
    _, request = client(extra_headers=headers)
    upgrade = UpgradeParser("/rs", allowed)
    if granted:
        assert upgrade.feed(request) is not None
    else:
        why = refused(upgrade, request)
        assert why.reply.startswith(b"HTTP/1.1 403 ")
        assert why.key == "websocket.origins"


@pytest.mark.parametrize(
    "headers",
    [
        b"Upgrade: websocket\r\nConnection: upgrade\r\n",
        (
            b"Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 8\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        ),
        b"Upgrade: websocket\r\nbad header\r\n",
        b"\xff\xfe: \x00\r\nUpgrade: websocket\r\n",
    ],
)
def test_a_bad_upgrade_gets_400(headers):
    """Wrong version, missing key, broken HTTP."""
    why = refused(
        UpgradeParser("/rs"), b"GET /rs HTTP/1.1\r\nHost: gw\r\n" + headers + b"\r\n"
    )
    assert why.reply.startswith(b"HTTP/1.1 400 ")


def test_an_endless_head_is_refused():
    """8 KiB of headers are enough, in one piece or many."""
    upgrade = UpgradeParser("/rs")
    assert upgrade.feed(b"GET /rs HTTP/1.1\r\n") is None
    for _ in range(8192 - 18):
        assert upgrade.feed(b"x") is None
    assert refused(upgrade, b"x").reply.startswith(b"HTTP/1.1 431 ")
    _, request = client(extra_headers=[(b"X", b"y" * 9000)])
    assert refused(UpgradeParser("/rs"), request).reply.startswith(b"HTTP/1.1 431 ")


@given(st.binary(max_size=200))
def test_any_request_is_read_or_refused(data):
    """Nothing but a refusal comes out of the request's parser."""
    head = b"GET /rs HTTP/1.1\r\nUpgrade: websocket\r\n"
    with suppress(Refusal):
        UpgradeParser("/rs").feed(head + data + b"\r\n\r\n")


def test_a_refused_request_is_a_rejection_for_the_client():
    """wsproto's client understands our HTTP."""
    connection, request = client(target="/other")
    connection.receive_data(refused(UpgradeParser("/rs"), request).reply)
    events = list(connection.events())
    assert isinstance(events[0], RejectConnection)
    assert events[0].status_code == 404
