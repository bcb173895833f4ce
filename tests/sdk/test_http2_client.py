"""The client side of HTTP/2, against h2's server."""

from collections.abc import Callable
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from hyperframe.frame import GoAwayFrame, PingFrame
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from gateway.sdk.http2_client import Http2Client
from gateway.sdk.outgoing import Http2, Streams
from gateway_testkit.streams import sliced

TYPE = "application/x-chat"
GRANTED = [(":status", "200"), ("content-type", TYPE)]


class Server:
    """h2 at the far end."""

    def __init__(self) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=False))
        self.h2.initiate_connection()
        self.events: list[Any] = []

    def hear(self, data: bytes) -> None:
        self.events += self.h2.receive_data(data)

    def say(
        self, head: list[tuple[str, str]] | None = None, data: bytes = b""
    ) -> bytes:
        """What it sends: an answer, octets."""
        if head:
            self.h2.send_headers(1, head)
        if data:
            self.h2.send_data(1, data)
        return self.h2.data_to_send()

    @property
    def data(self) -> bytes:
        return b"".join(e.data for e in self.events if isinstance(e, DataReceived))

    def credit(self) -> bytes:
        """Open the windows for all that came."""
        for event in self.events:
            if isinstance(event, DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length, 1)
        self.events = []
        return self.h2.data_to_send()


@pytest.fixture
def pair() -> tuple[Http2Client, Server]:
    """A client that has asked, and its server."""
    client, server = Http2Client("gw:1", "/chat?x=1", TYPE, tls=False), Server()
    server.hear(client.output())
    return client, server


def test_the_request_is_granted(pair):
    """It names all that a proxy goes by, and is open when it is answered."""
    client, server = pair
    [request] = [e for e in server.events if isinstance(e, RequestReceived)]
    assert {bytes(k): bytes(v) for k, v in request.headers} == {
        b":method": b"POST", b":scheme": b"http", b":authority": b"gw:1",
        b":path": b"/chat?x=1", b"content-type": TYPE.encode(),
    }  # fmt: skip
    assert not client.opened
    client.feed(server.say(GRANTED))
    assert client.opened
    assert not client.closed


@pytest.mark.parametrize(
    ("head", "trouble"),
    [
        ([(":status", "404"), ("content-type", "text/plain")], "404 (text/plain)"),
        ([(":status", "200"), ("content-type", "text/html")], "200 (text/html)"),
    ],
)
def test_a_request_that_is_refused(pair, head, trouble):
    """The client is closed, never was open, and says why."""
    client, server = pair
    assert client.feed(server.say(head, b"no such thing")) == b""
    assert (client.opened, client.closed) == (False, True)
    assert trouble in client.trouble


def test_something_else(pair):
    """A server without HTTP/2 is told apart at its first bytes."""
    client, _ = pair
    client.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert client.closed
    assert client.broken
    assert "no HTTP/2 there" in client.trouble


@given(data=st.data(), said=st.binary(min_size=1, max_size=300))
def test_any_slicing_is_the_same(data, said):
    """What the server says arrives, however the network cuts it."""
    client, server = Http2Client("gw", "/", TYPE, tls=False), Server()
    server.hear(client.output())
    stream = server.say(GRANTED)
    for at in range(0, len(said), 7):
        stream += server.say(data=said[at : at + 7])
    got = b"".join(client.feed(piece) for piece in data.draw(sliced(st.just(stream))))
    assert got == said


class User:
    """Of a stream in memory."""

    def __init__(self) -> None:
        self.got = b""
        self.ready: list[bool] = []
        self.why: str | None = None
        self.stream: Any = None

    def connected(self, stream: Any) -> None:
        self.stream = stream

    def opened(self) -> None:
        self.stream.when_choked(self.ready.append)

    def received(self, data: bytes) -> None:
        self.got += data

    def closed(self, why: Failure) -> None:
        self.why = why.getErrorMessage()


@pytest.fixture
def stream() -> tuple[User, Any, StringTransport, Callable[[bytes], None]]:
    """A user's stream, its server, its transport; and what carries from that to it."""
    user, server, transport = User(), Server(), StringTransport()
    made = Streams(user, None, http2=Http2("//gw/chat", TYPE, tls=True))
    protocol = made.buildProtocol(None)
    protocol.makeConnection(transport)

    def exchange(data: bytes = b"") -> None:
        while data or transport.value():
            if data:
                protocol.dataReceived(data)
            out = transport.value()
            transport.clear()
            server.hear(out)
            data = server.h2.data_to_send()

    exchange()
    exchange(server.say(GRANTED))
    return user, server, transport, exchange


def test_nobody_waits_for_the_answer():
    """What is sent at once comes with the request, and a refusal is why it is closed."""
    user, server, transport = User(), Server(), StringTransport()
    protocol = Streams(user, None, http2=Http2("//gw/chat", TYPE, tls=True))
    made = protocol.buildProtocol(None)
    user.opened = lambda: user.stream.send(b"hello")  # type: ignore[method-assign]
    made.makeConnection(transport)
    server.hear(transport.value())
    assert [e for e in server.events if isinstance(e, RequestReceived)]
    assert server.data == b"hello"
    refused = [(":status", "404"), ("content-type", "text/plain")]
    made.dataReceived(server.say(refused, b"no such thing"))
    assert transport.disconnecting
    made.connectionLost(Failure(ConnectionDone()))
    assert user.got == b""
    assert user.why == "the request is answered with 404 (text/plain)"


def test_windows_choke_a_stream(stream):
    """As a full socket does; when they open, all that waits goes out in order, and more
    may follow.
    """
    user, server, _, exchange = stream
    sent = bytes(n % 251 for n in range(300_000))
    user.stream.send(sent)
    assert user.ready == [False]
    exchange()
    assert server.data == sent[:65535]
    got = b""
    while len(got) < len(sent):
        got += server.data
        exchange(server.credit())
    assert got == sent
    assert user.ready == [False, True]


def test_a_close_waits_for_what_was_sent(stream):
    """Then the end of our side goes out, and the connection is closed."""
    user, server, transport, exchange = stream
    user.stream.send(bytes(100_000))
    user.stream.close()
    exchange()
    assert not transport.disconnecting
    exchange(server.credit())
    assert [e for e in server.events if isinstance(e, StreamEnded)]
    assert transport.disconnecting


def test_both_may_close(stream):
    """Ours ends once, whatever comes after it; what is sent too late goes nowhere."""
    user, server, transport, exchange = stream
    user.stream.close()
    user.stream.send(b"too late")
    exchange()
    server.h2.end_stream(1)
    exchange(server.h2.data_to_send())
    user.stream.close()
    exchange()
    assert len([e for e in server.events if isinstance(e, StreamEnded)]) == 1
    assert server.data == b""
    assert transport.disconnecting


def test_an_end_of_the_server_is_answered(stream):
    _, server, transport, exchange = stream
    server.h2.end_stream(1)
    exchange(server.h2.data_to_send())
    assert len([e for e in server.events if isinstance(e, StreamEnded)]) == 1
    assert transport.disconnecting


def test_a_server_that_leaves_is_left(stream):
    """As a proxy is that stops: what it sent before is heard, and nothing is sent into
    the void behind it.  Its reason is what counts, whatever comes behind that."""
    user, server, transport, exchange = stream
    leaves = GoAwayFrame(0, last_stream_id=1, error_code=11).serialize()
    exchange(server.say(data=b"last") + leaves)
    assert user.got == b"last"
    assert transport.disconnecting
    exchange(PingFrame(0, b"12345678").serialize())
    user.stream.connectionLost(Failure(ConnectionDone()))
    assert "ENHANCE_YOUR_CALM" in str(user.why)


def test_the_reason_is_that_of_http2(stream):
    """Not that of the socket, which was closed by us."""
    user = stream[0]
    user.stream._http2.trouble = "the request is answered with 503"
    user.stream.connectionLost(Failure(ConnectionDone()))
    assert user.why == "the request is answered with 503"
