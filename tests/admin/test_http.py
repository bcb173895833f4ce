"""HTTP/1.1 as attackers, proxies and hurried clients speak it."""

import json
from collections.abc import Iterator
from typing import Any

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from gateway.access import Access
from gateway.admin.http import HttpServer
from gateway.admin.site import Site
from gateway.sdk.endpoint import Unix
from gateway.sdk.protocol import Answer
from gateway.testing import FakeConnection

HEAD = b"Host: localhost\r\n"
JSON = HEAD + b"Content-Type: application/json\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n"


@pytest.fixture
def port(open_port) -> Any:
    """One that answers a post with what was posted."""
    return open_port(posts={"/api/x": Answer}, trust_loopback=True)


def answers(sent: bytes, method: str = "GET") -> Iterator[tuple[int, bytes]]:
    """Status and body of each, as h11's other side reads them."""
    ours = h11.Connection(h11.CLIENT)
    while sent:
        ours.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        ours.send(h11.EndOfMessage())
        ours.receive_data(sent)
        status, body = 0, b""
        while not isinstance(event := ours.next_event(), h11.EndOfMessage):
            assert event is not h11.NEED_DATA, sent
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
        yield status, body
        sent, _ = ours.trailing_data
        ours = h11.Connection(h11.CLIENT)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /healthz HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET  /healthz HTTP/1.1\r\n" + HEAD + b"\r\n",
        b"GET /healthz HTTP/1.1 x\r\n" + HEAD + b"\r\n",
        b"GET /healthz HTTP/9.9\r\n" + HEAD + b"\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HEAD + HEAD + b"\r\n",
        b"G\0T /healthz HTTP/1.1\r\n" + HEAD + b"\r\n",
    ],
)
def test_what_is_no_request_ends_the_connection(client, port, request_):
    """With a status that says so; who sent it is told to the operator."""
    client.send(request_ + HEALTH)
    port.clock.advance(0)
    [(status, _)] = answers(client.got)
    assert status in (400, 505)
    assert client.gone
    told = [why for _, why in port.reported if why.startswith("no HTTP request: ")]
    assert len(told) == ("Transfer" not in request_.decode())


def test_other_protocols_are_named(port):
    """TLS on a plain port, a PROXY header, HTTP/2: each gets its name in the log."""
    for beginning in (
        bytes.fromhex("16 0301 0200 01 0001fc 0303"),
        b"PROXY TCP4 192.0.2.1 192.0.2.2 4000 80\r\n" + HEALTH,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        client = port.come()
        client.send(beginning)
        assert client.gone
        assert b"200 OK" not in client.got
    assert {why for _, why in port.reported} == {
        "a TLS ClientHello on a port that speaks http (tls)",
        "a PROXY header on a port that speaks http (proxy_protocol)",
        "an HTTP request on a port that speaks http",
    }


def test_a_body_in_chunks(client, port):
    """As long as it comes in time; however small they are, others have their turns."""
    client.send(
        b"POST /api/x HTTP/1.1\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
    )
    text = json.dumps(list(range(500))).encode()
    client.send(b"".join(b"1\r\n%c\r\n" % each for each in text))
    turns = 0
    client.send(b"0\r\n\r\n")
    while not client.got:
        port.clock.advance(0)
        turns += 1
    [(status, body)] = answers(client.got)
    assert (status, body) == (200, text)
    assert not client.gone


def test_chunks_without_end(client, port):
    """1 MiB of them is taken, as of a body that says how long it is."""
    client.send(
        b"POST /api/x HTTP/1.1\r\n" + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    for _ in range(17):
        client.send(chunk)
        port.clock.advance(0)
    assert client.got.startswith(b"HTTP/1.1 413 ")
    assert client.gone


def test_who_asks_before_it_sends(port):
    """Expect: 100-continue has it go on, or refuses before the body is on its way."""
    expects = JSON + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    client = port.come()
    assert (
        client.send(b"POST /api/x HTTP/1.1\r\n" + expects) == b"HTTP/1.1 100 \r\n\r\n"
    )
    assert client.send(b"[1]").startswith(b"HTTP/1.1 200 OK\r\n")
    assert not client.gone
    refused = port.come()
    assert refused.send(b"POST /api/y HTTP/1.1\r\n" + expects).startswith(
        b"HTTP/1.1 405"
    )
    assert refused.gone


def test_upgrades_are_not_taken(client, port):
    """To WebSocket, to HTTP/2: the page is answered, as if nobody had asked."""
    for upgrade in (b"websocket", b"h2c"):
        more = b"Connection: Upgrade\r\nUpgrade: " + upgrade + b"\r\n\r\n"
        got = client.send(b"GET /healthz HTTP/1.1\r\n" + HEAD + more)
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")
        port.clock.advance(0)
    assert client.send(HEALTH).startswith(b"HTTP/1.1 200 OK\r\n")
    tunnel = b"CONNECT localhost:80 HTTP/1.1\r\n" + HEAD + b"\r\n"
    assert client.send(tunnel).startswith(b"HTTP/1.1 405 ")


def test_who_closes_one_direction_gets_its_answer(open_port):
    """As `nc` does: also if that takes a while."""
    done: Deferred[Answer] = Deferred()
    port = open_port(posts={"/api/x": lambda _: done}, trust_loopback=True)
    client = port.come()
    client.send(b"POST /api/x HTTP/1.1\r\n" + JSON + b"Content-Length: 2\r\n\r\n{}")
    client.connection.input.readConnectionLost()
    assert not client.gone
    done.callback(Answer(b"done"))
    assert client.got.endswith(b"\r\n\r\ndone")
    port.clock.advance(0)
    assert client.gone


def test_who_was_asked_to_close_does(client, port):
    """`Connection: close` ends it behind the answer, and what came behind is dropped."""
    closes = b"GET /healthz HTTP/1.1\r\n" + HEAD + b"Connection: close\r\n\r\n"
    client.send(closes + HEALTH)
    port.clock.advance(0)
    assert [status for status, _ in answers(client.got)] == [200]
    assert client.gone


def test_fields_of_a_page_that_are_none(open_port, logged):
    """Nobody writes a second response through them; it is a failure as others."""
    split = {"X-Name": "a\r\nSet-Cookie: b"}
    more = {
        "/split": lambda _: Answer(b"", headers=split),
        "/text": lambda _: Answer("no bytes"),  # type: ignore[arg-type]
        "/code": lambda _: Answer(b"", code=42),
    }
    port = open_port(more=more)
    for path in more:
        reply = port.ask(path)
        assert reply.code == 500
        assert "Set-Cookie" not in reply.headers
    assert sum("log_failure" in event for event in logged) == len(more)


@pytest.mark.parametrize(
    "framing", [{"content-length": "1"}, {"Transfer-Encoding": "chunked"}], ids=str
)
def test_how_long_a_response_is_no_page_says(open_port, framing):
    """It is as long as its body is, at once or later, and the connection is good."""
    done: Deferred[Answer] = Deferred()
    answer = Answer(b"abc", headers=framing)
    port = open_port(
        more={"/now": lambda _: answer},
        posts={"/api/x": lambda _: done},
        trust_loopback=True,
    )
    client = port.come()
    client.send(b"GET /now HTTP/1.1\r\n" + HEAD + b"\r\n")
    assert [*answers(client.got)] == [(200, b"abc")]
    client.send(b"POST /api/x HTTP/1.1\r\n" + JSON + b"Content-Length: 2\r\n\r\n{}")
    done.callback(answer)
    assert [*answers(client.got)] == [(200, b"abc")]
    assert client.send(HEALTH).startswith(b"HTTP/1.1 200 OK\r\n")


def test_codes_without_a_body(open_port):
    """What a page says with 204 or 304 is left out, and the connection is good."""
    port = open_port(more={"/none": lambda _: Answer(b"x", code=204)})
    client = port.come()
    got = client.send(b"GET /none HTTP/1.1\r\n" + HEAD + b"\r\n")
    assert got.endswith(b"\r\n\r\n")
    assert client.send(HEALTH).startswith(b"HTTP/1.1 200 OK\r\n")


def test_the_daemon_stops(open_port):
    """Who waits for an answer gets it, and everybody's connection ends."""
    done: Deferred[Answer] = Deferred()
    port = open_port(posts={"/api/x": lambda _: done}, trust_loopback=True)
    idle, waiting = port.come(), port.come()
    idle.send(HEALTH)
    waiting.send(b"POST /api/x HTTP/1.1\r\n" + JSON + b"Content-Length: 2\r\n\r\n{}")
    for client in (idle, waiting):
        client.connection.calls.drain()
    assert idle.gone
    assert not waiting.gone
    done.callback(Answer(b"done"))
    assert b"\r\nConnection: close\r\n" in waiting.got
    assert waiting.got.endswith(b"done")
    assert waiting.gone


def test_real_peers_are_behind_the_balancer(open_port):
    """Its PROXY header says who it is that guesses, and whose places are taken."""
    port = open_port(
        token="s3cret", proxy_protocol={"trusted": ["127.0.0.0/8"]}, most=8
    )
    ask = (
        b"GET /metrics HTTP/1.1\r\nHost: gw.example\r\nAuthorization: Bearer no\r\n\r\n"
    )
    client = port.come()
    client.send(b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\n" + ask)
    assert client.got.startswith(b"HTTP/1.1 401 ")
    assert port.reported == [("192.0.2.7:4711", "wrong token (admin.token)")]
    crowd = [port.come() for _ in range(4)]
    for number, one in enumerate(crowd):
        one.send(b"PROXY TCP4 198.51.100.1 127.0.0.1 %d 80\r\n" % (5000 + number))
    assert [one.gone for one in crowd] == [True, True, False, False]
    assert not client.gone


PARTS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                HEALTH,
                b"HEAD /healthz HTTP/1.1\r\n" + HEAD + b"\r\n",
                b"POST /api/x HTTP/1.1\r\n" + JSON + b"Content-Length: 3\r\n\r\n[1]",
                b"POST /api/x HTTP/1.1\r\n" + JSON,
                b"Transfer-Encoding: chunked\r\n\r\n",
                b"3\r\n[1]\r\n",
                b"0\r\n\r\n",
                b"Content-Length: 99\r\n\r\n",
                b"\r\n",
            ]
        ),
        st.binary(max_size=30),
    ),
    max_size=8,
).map(b"".join)


@settings(deadline=None)
@given(PARTS, st.integers(1, 60))
def test_no_bytes_break_it(sent, step):
    """Whatever comes, in whatever pieces: the same answers, and nothing is raised."""
    assert _served(sent, step) == _served(sent, len(sent) + 1)


def _served(sent: bytes, step: int) -> list[bytes]:
    """The status lines that are answered."""
    health = {"/healthz": lambda _: Answer(b"ok\n")}
    site = Site(Access(Unix(None)), health, {"/api/x": Answer})  # type: ignore[arg-type]
    connection, clock = FakeConnection(), Clock()
    connection.serve(HttpServer(connection, site, clock, lambda *_: None))
    for at in range(0, len(sent), step):
        connection.deliver(sent[at : at + step])
    assert connection.failure is None
    replied = connection.sent + (
        connection.refused.reply if connection.refused else b""
    )
    connection.lose()
    assert clock.getDelayedCalls() == []
    return [line for line in replied.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
