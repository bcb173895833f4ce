"""A protocol in HTTP/1.1 as attackers, proxies and hurried clients speak it."""

import gzip
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from gateway.sdk.http1 import END, BadRequest, Request, Requests
from gateway.sdk.http_server import (
    Body,
    HttpListener,
    HttpOptions,
    HttpSession,
    Steps,
    Stores,
    inflated,
)
from gateway.sdk.protocol import Answer
from gateway.testing import FakeConnection, ManualJournal
from gateway_testkit.settings import settings
from unclear_lengths import UNCLEAR_LENGTHS

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
DONE = b"HTTP/1.1 200 "


def post(body: bytes = b"x", *fields: bytes) -> bytes:
    lines = [b"Content-Length: %d" % len(body), *fields, b"", body]
    return HEAD + b"\r\n".join(lines)


class Session(HttpSession):
    """Each line of a body is an event."""

    def refusal(self, request: Request) -> Answer | None:
        return None if request.path == "/" else self.error(404, "only /")

    def asked(self, request: Request, body: Body) -> Steps[Answer | Stores]:
        yield from ()
        if request.method != "POST":
            return Answer(b"hello\n")
        count = len(body.plain.splitlines())
        return Stores(count, body.sent, len(body.plain), Answer(b"stored\n"))


class Port:
    def __init__(self, **values: Any) -> None:
        self.journal, self.clock = ManualJournal(), Clock()
        asked = settings(HttpOptions, **values)
        self.listener = HttpListener(asked, self.journal, self.clock, Session)
        self.connection = FakeConnection(memory=self.journal.memory)
        self.connection.serve(self.listener(self.connection))

    def said(self, *pieces: bytes) -> bytes:
        """What is answered, once all is stored."""
        for piece in pieces:
            self.connection.deliver(piece)
        self.journal.store_all()
        assert self.connection.failure is None
        return self.connection.sent

    def codes(self, *pieces: bytes) -> list[int]:
        return [int(part[:3]) for part in self.said(*pieces).split(b"HTTP/1.1 ")[1:]]

    @property
    def bodies(self) -> list[bytes]:
        return [stored.batch.body for stored in self.journal.stored]


@pytest.fixture
def port() -> Port:
    return Port()


def test_kept_alive_and_in_order(port):
    """Requests that come in one piece are answered one after the other, once durable."""
    port.connection.deliver(
        post(b"a") + b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + post(b"b")
    )
    assert port.connection.sent == b""
    port.journal.store_all()
    first, second, third = port.connection.sent.split(DONE)[1:]
    assert first.endswith(b"\r\n\r\nstored\n")
    assert second.endswith(b"Content-Length: 6\r\n\r\n")
    assert third.endswith(b"\r\n\r\nstored\n")
    assert port.bodies == [b"a", b"b"]
    assert not port.connection.closed


def test_the_client_ends_it():
    """`Connection: close`, and HTTP/1.0: answered, then closed, and nothing is logged."""
    for request in (
        post(b"a", b"Connection: close"),
        post(b"a").replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    ):
        port = Port()
        assert port.codes(request) == [200]
        assert port.connection.closed
        assert port.connection.refused is None


def test_chunks(port):
    """A body without a length."""
    body = b"1\r\na\r\n3;x=y\r\n\nbc\r\n0\r\n\r\n"
    assert port.codes(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body + post()) == [
        200,
        200,
    ]
    assert port.bodies == [b"a\nbc", b"x"]


def test_leave_to_send():
    """`Expect: 100-continue` is answered before the body comes, unless that is too much."""
    port = Port(message_bytes=10)
    head, body = post(b"abc", b"Expect: 100-continue").split(b"\r\n\r\n")
    assert port.codes(head + b"\r\n\r\n") == [100]
    assert port.codes(body) == [100, 200]
    assert port.codes(head.replace(b": 3", b": 30") + b"\r\n\r\n") == [100, 200, 413]


def test_a_refused_header(port):
    """Its body is not read, so the connection ends with the answer."""
    assert port.codes(post(b"").replace(b"POST /", b"POST /x") + post()) == [404, 200]
    assert port.codes(post(b"abc").replace(b"POST /", b"POST /x") + post()) == [
        404,
        200,
        404,
    ]
    assert port.connection.closed
    assert b"\r\nConnection: close\r\n" in port.connection.sent
    assert port.connection.reported == []


@pytest.mark.parametrize("coding", ["gzip", "deflate", "GZIP", "identity"])
def test_codings(coding):
    """A body is counted as it is unpacked, and stored as it came."""
    pack = {"deflate": zlib.compress, "identity": bytes}.get(coding, gzip.compress)
    sent = pack(b"a\nb\n" * 100)
    port = Port()
    assert port.codes(post(sent, b"Content-Encoding: " + coding.encode())) == [200]
    assert port.bodies == [sent]
    assert port.journal.stored[0].batch.count == 200


@pytest.mark.parametrize(
    ("body", "coding", "code"),
    [
        (b"plain", b"gzip", 400),
        (gzip.compress(b"a" * 100, mtime=0)[:-3], b"gzip", 400),
        (gzip.compress(b"a", mtime=0) + b"more", b"gzip", 400),
        (gzip.compress(b"a", mtime=0), b"br", 415),
        (gzip.compress(b"a", mtime=0), b"gzip, gzip", 415),
    ],
)
def test_a_coding_that_is_none(body, coding, code, port):
    """It is answered, and logged; nothing is stored."""
    assert port.codes(post(body, b"Content-Encoding: " + coding)) == [code]
    assert len(port.connection.reported) == 1
    assert port.bodies == []


def unpacked(packed: bytes, coding: str, most: int) -> bytes | None:
    """None: it is refused."""
    steps = inflated(packed, coding, most)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    except ValueError:
        return None


@given(st.binary(max_size=1 << 17), st.sampled_from(["gzip", "deflate"]))
def test_inflated(data, coding):
    """It is what was packed; what is damaged raises nothing but ValueError."""
    packed = (gzip.compress if coding == "gzip" else zlib.compress)(data)
    assert unpacked(packed, coding, 1 << 20) == data
    unpacked(data, coding, 1 << 20)
    unpacked(packed[: len(packed) // 2] + data, coding, 1 << 20)


def test_a_bomb():
    """It is not unpacked beyond the limit, but for what one call makes."""
    made = unpacked(gzip.compress(bytes(1 << 22)), "gzip", 1000)
    assert made is not None
    assert 1000 < len(made) <= 1000 + (1 << 17)


# What is not to be trusted


@pytest.mark.parametrize("lengths", UNCLEAR_LENGTHS)
def test_lengths_that_two_could_read_in_two_ways(lengths, port):
    """What is behind such a body is no request."""
    chunks = b"3\r\nabc\r\n0\r\n\r\n"
    port.connection.deliver(HEAD + lengths + b"\r\n" + chunks + post())
    port.journal.store_all()
    assert port.bodies == []
    assert port.connection.refused is not None
    assert port.connection.sent[9:12] in (b"400", b"413", b"501")


@pytest.mark.parametrize(
    "chunks",
    [b"3\r\nabcd\r\n0\r\n\r\n", b"-1\r\n", b"g\r\n", b"0x3\r\nabc\r\n", b"1" * 99 + b"\r\n",
     b"3\nabc\n0\n\n"],
)  # fmt: skip
def test_chunks_that_lie(chunks, port):
    """They are refused, and what they have brought is not stored."""
    port.said(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + post())
    assert port.bodies == []
    assert port.connection.refused is not None


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (b"X:\r\n" * 3_000, b"431"),
        (b"X: " + b"y" * (1 << 20), b"431"),
        (b"\r\n", b"400"),
        (b"\0\r\n\r\n", b"400"),
    ],
    ids=["fields", "a field", "no host", "no field"],
)
def test_headers(head, code, port):
    """They are bounded in number and size, and nothing of them is kept."""
    line = b"POST / HTTP/1.1\r\n" + (b"" if code == b"400" else b"Host: a\r\n")
    assert port.said(line + head)[9:12] == code
    assert port.connection.held_bytes == 0
    assert port.connection.closed


def test_too_much():
    """By what is declared, what comes in chunks, and what it unpacks to."""
    for request, key in (
        (post(b"x" * 101), "limits.message_bytes"),
        (
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 101,
            "limits.message_bytes",
        ),
        (
            post(gzip.compress(b"x" * (1 << 14), mtime=0), b"Content-Encoding: gzip"),
            "limits.inflated_bytes",
        ),
    ):
        port = Port(message_bytes=100, inflated_bytes=1 << 13)
        assert port.codes(request) == [413]
        assert port.connection.refused is not None
        assert port.connection.refused.key == key
        assert port.bodies == []


def test_requests_that_bring_nothing():
    """They are control messages, and so is what is refused."""
    port = Port(control_messages=100)
    codes = port.codes(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 200)
    assert codes == [200] * 101
    assert port.connection.refused is not None
    assert port.connection.refused.key == "limits.control_messages"


@given(st.lists(st.binary(max_size=40) | st.sampled_from([HEAD, post(), b"\r\n\r\n"])))
def test_whatever_comes(pieces):
    """Nothing but `BadRequest` is raised."""
    requests = Requests()
    with suppress(BadRequest):
        for piece in pieces:
            requests.feed(piece)
            while (event := requests.next()) is not None:
                if isinstance(event, Request):
                    asked = event
                if event is END:
                    requests.answer(Answer(b"x"), asked)


# Who it is


def test_tokens():
    """A bearer's, a key, or a password; its name is the principal of its events."""
    port = Port(tokens={"shop": "s3cret", "till": "0ther"})
    for shown in (
        b"Bearer s3cret",
        b"ApiKey s3cret",
        b"Basic YWJjOnMzY3JldA==",
        b"bearer 0ther",
    ):
        assert port.codes(post(b"x", b"Authorization: " + shown))[-1] == 200
    origins = [stored.batch.origin for stored in port.journal.stored]
    assert [origin.principal for origin in origins] == ["shop", "shop", "shop", "till"]
    assert len({id(origin) for origin in origins}) == 2


@pytest.mark.parametrize(
    "shown", [b"", b"Bearer ", b"Bearer no", b"Basic !", b"Digest s3cret"]
)
def test_no_token(shown):
    """Told so; a wrong one is counted, and answered later each time."""
    port = Port(tokens={"shop": "s3cret"})
    assert port.codes(post(b"x", b"Authorization: " + shown)) == [401]
    why = port.connection.refused
    assert why is not None
    assert (why.key, why.wrong_credentials) == ("options.tokens", shown == b"Bearer no")
    assert port.bodies == []


# What can not be stored


def test_what_can_not_be_stored(port):
    """503, when to come again, and the connection goes on."""
    port.connection.deliver(post())
    port.journal.refuse()
    assert port.connection.sent.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 5\r\n" in port.connection.sent
    assert port.codes(post()) == [503, 200]


def test_a_disk_that_hangs(port):
    """A client waits some seconds, and what it sends again is stored once."""
    port.connection.deliver(post(b"a"))
    port.clock.advance(5)
    assert port.connection.sent.startswith(b"HTTP/1.1 503 ")
    assert port.codes(post(b"a")) == [503, 200]
    assert port.bodies == [b"a"]
    port.connection.clear()
    port.connection.deliver(post(b"b"))
    port.journal.take()
    port.clock.advance(60)
    assert port.connection.sent == b""  # it is being written
    assert port.codes() == [200]


def test_a_disk_that_hangs_at_the_limit():
    """What was withdrawn makes room, so its connection goes on."""
    port = Port(unacknowledged_bytes=1)
    port.connection.deliver(post(b"a"))
    assert port.connection.paused
    port.clock.advance(5)
    assert port.codes(post(b"b")) == [503, 200]
    assert port.bodies == [b"b"]


@pytest.mark.parametrize("part", [20, -1], ids=["header", "body"])
def test_a_request_that_does_not_come_on(part, port):
    """It is held, and so must make progress: `limits.minimum_rate`."""
    port.connection.deliver(post(b"x" * 100)[:part])
    assert port.connection.held_bytes >= 20
    assert not port.connection.waiting
    port.connection.deliver(post(b"x" * 100)[part:])
    assert port.connection.held_bytes == 0


@pytest.mark.parametrize(("own", "code"), [(False, b"503"), (True, b"429")])
def test_no_room(own, code, port):
    """A request that is not read is answered all the same; 429 if others' would be."""
    if own:
        port.journal.over.add("192.0.2.1")
    else:
        port.journal.full = True
    port.connection.deliver(post(b"a")[:-1])
    assert port.connection.sent == b""
    port.clock.advance(5)
    assert port.connection.sent.startswith(b"HTTP/1.1 " + code)
    assert b"\r\nRetry-After: 5\r\n" in port.connection.sent
    assert port.connection.closed
