"""The request for a WebSocket and its response, against wsproto's client."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, Request
from wsproto.extensions import PerMessageDeflate

from gateway.net.websocket_upgrade import UpgradeParser
from gateway.sdk.interfaces import Refusal


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


def test_byte_by_byte():
    """The last byte of the head brings the verdict."""
    _, request = client()
    upgrade = UpgradeParser("/rs")
    for at in range(len(request) - 1):
        assert upgrade.feed(request[at : at + 1]) is None
    assert upgrade.feed(request[-1:]) is not None


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


def test_plain_http_is_told_to_upgrade():
    """426 for a request that asks for no WebSocket."""
    why = refused(UpgradeParser("/rs"), b"GET /rs HTTP/1.1\r\nHost: gw\r\n\r\n")
    assert why.reply.startswith(b"HTTP/1.1 426 ")


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
