"""The client side of WebSocket, against wsproto's server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    Request,
)

from gateway.sdk.websocket_client import WebSocketClient
from gateway_testkit.streams import sliced


class Pair:
    """A client, and the server that it talks to."""

    def __init__(self, *, granted: bool = True) -> None:
        self.client = WebSocketClient("gw.example", "/rs?x=1", ["rsio.v0", "other"])
        self.server = WSConnection(ConnectionType.SERVER)
        [self.request] = self.heard(self.client.output())
        if granted:
            assert self.say(AcceptConnection("rsio.v0")) == b""

    def heard(self, data: bytes) -> list[Any]:
        self.server.receive_data(data)
        return list(self.server.events())

    def say(self, *events: Any) -> bytes:
        return self.client.feed(b"".join(map(self.server.send, events)))


def test_the_request_is_granted():
    """It names host, path and subprotocols; messages may be sent when it is granted."""
    pair = Pair(granted=False)
    assert isinstance(pair.request, Request)
    assert (pair.request.host, pair.request.target) == ("gw.example", "/rs?x=1")
    assert pair.request.subprotocols == ["rsio.v0", "other"]
    assert not pair.client.opened
    pair.say(AcceptConnection())
    assert pair.client.opened
    assert not pair.client.closed
    assert pair.client.output() == b""


def test_a_request_that_is_rejected():
    """The client is closed, never was open, and says why."""
    pair = Pair(granted=False)
    pair.say(RejectConnection(status_code=404))
    assert (pair.client.opened, pair.client.closed) == (False, True)
    assert not pair.client.broken
    assert pair.client.trouble == "the WebSocket is answered with 404"


@pytest.mark.parametrize("line", [b"SSH-2.0", b"HTTP/1.1 101 x\r\nConnection: \xff"])
def test_a_server_that_is_none(line):
    """Another protocol's bytes break it."""
    client = Pair(granted=False).client
    assert client.feed(line + b"\r\n\r\n") == b""
    assert (client.opened, client.closed, client.broken) == (False, True, True)
    assert client.trouble.startswith("no WebSocket there: ")


def test_a_message_for_each_payload():
    """Binary ones."""
    pair = Pair()
    sent = pair.client.message(b"one") + pair.client.message(b"two")
    assert [bytes(event.data) for event in pair.heard(sent)] == [b"one", b"two"]


@given(st.lists(st.binary(max_size=300), max_size=5), st.data())
def test_the_payload_is_the_same_in_any_slicing(payloads, data):
    """What comes right behind the grant included."""
    pair = Pair(granted=False)
    stream = pair.server.send(AcceptConnection()) + b"".join(
        pair.server.send(BytesMessage(payload)) for payload in payloads
    )
    reads = filter(None, data.draw(sliced(st.just(stream))))
    assert b"".join(map(pair.client.feed, reads)) == b"".join(payloads)
    assert pair.client.opened


def test_a_ping_is_answered_once():
    """By the next output."""
    pair = Pair()
    assert pair.say(Ping(b"x"), BytesMessage(b"data")) == b"data"
    assert pair.heard(pair.client.output()) == [Pong(b"x")]
    assert pair.client.output() == b""


def test_a_close_is_answered_and_ends_it():
    """What came before it is delivered; nothing is sent behind the answer."""
    pair = Pair()
    end = CloseConnection(1008, "window of 9 events")
    assert pair.say(BytesMessage(b"last"), end) == b"last"
    assert pair.client.closed
    [answer] = pair.heard(pair.client.output())
    assert (type(answer), answer.code) == (CloseConnection, 1008)
    assert pair.client.feed(b"more") == b""
    assert not pair.client.broken
    assert pair.client.trouble == "the WebSocket ends with 1008: window of 9 events"
    assert pair.client.message(b"late") == b""


@pytest.mark.parametrize("bad", [b"\x83\x00", b"\x82\x81\0\0\0\0x", b"\x00\x01x"])
def test_a_frame_that_is_wrong_ends_it(bad):
    """An unknown opcode, a mask, a continuation of nothing: Close says so."""
    pair = Pair()
    assert pair.client.feed(pair.server.send(BytesMessage(b"fine")) + bad) == b"fine"
    assert pair.client.closed
    [answer] = pair.heard(pair.client.output())
    assert (type(answer), answer.code) == (CloseConnection, 1002)
