"""HTTP, TLS and PROXY are detected; the port's own protocol is never touched."""

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.net.detect import Expected, ForeignProtocol, detect, mismatch, undecided
from gateway.net.proxy import SIGNATURE_V2


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(
        incoming, outgoing, server_hostname="x"
    )
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


FOREIGN = [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ForeignProtocol.HTTP),
    (b"POST /x HTTP/1.1\r\n", ForeignProtocol.HTTP),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ForeignProtocol.HTTP),
    (client_hello(), ForeignProtocol.TLS),
    (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", ForeignProtocol.PROXY),
    (SIGNATURE_V2 + b"\x21\x11\0\x0c", ForeignProtocol.PROXY),
]

OURS = [
    b"2W\0\0\0\x01", b"1W\0\0\0\x01", b"2C\0\0\0\x01", b"2J", b"1D",
    b"\xff\xff\xff\x81\0\0\0\x08", b"\0\0\0\x01\0\0\0\x20", b"\0\0\0\x64",
    b"\x01\0\0\x20{", b"\x01\0\0", b"\x02\0\0",
]  # fmt: skip


@pytest.mark.parametrize(("head", "protocol"), FOREIGN)
def test_it_is_recognised_in_any_slicing(head, protocol):
    """Every prefix is either undecided or already detected as the same."""
    verdicts = [
        detect(head[:size])
        for size in range(1, len(head) + 1)
        if not undecided(head[:size])
    ]
    assert set(verdicts) == {protocol}


@pytest.mark.parametrize("head", OURS)
def test_our_protocols_are_neither_held_back_nor_accused(head):
    """From the first byte on, ours is let through at once."""
    for size in range(1, len(head) + 1):
        assert not undecided(head[:size])
        assert detect(head[:size]) is None


@pytest.mark.parametrize(("head", "protocol"), FOREIGN)
@pytest.mark.parametrize("length", [1, 4, 8])
def test_what_a_port_calls_its_own_is_never_accused(head, protocol, length):
    """A prefix is awaited, and then it is the port's own; the like of it is foreign."""
    own = (head[:length],)
    for size in range(1, len(head) + 1):
        assert undecided(head[:size], own) == (size < length)
        assert size < length or detect(head[:size], own) is None
    assert detect(head, (head[:3] + b"?",)) is protocol


@given(st.binary(min_size=1, max_size=64))
def test_what_is_held_back_is_short(data):
    """No more than a dozen bytes ever wait for a verdict."""
    assert not undecided(data) or len(data) < len(SIGNATURE_V2)


PLAIN = Expected("lumberjack", tls=False, websocket=False, proxy=False)


def test_http_gets_an_answer_in_http():
    """A browser reads why it is in the wrong place."""
    why = mismatch(ForeignProtocol.HTTP, b"GET / HTTP/1.1\r\n", PLAIN)
    assert why.reply.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert why.reply.endswith(b"an HTTP request on a port that speaks lumberjack.\n")


def test_a_websocket_on_a_plain_port_is_named():
    """An upgrade request is told apart from other HTTP."""
    head = b"GET /rs HTTP/1.1\r\nUpgrade: WebSocket\r\n"
    why = mismatch(ForeignProtocol.HTTP, head, PLAIN)
    assert why.rule == "a WebSocket upgrade on a port that speaks lumberjack"
    assert why.key == "websocket"


def test_tls_on_a_plain_port_gets_an_alert():
    """A TLS client reports handshake_failure instead of a broken connection."""
    why = mismatch(ForeignProtocol.TLS, client_hello(), PLAIN)
    assert why.key == "tls"
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(incoming, outgoing, server_hostname="x")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    incoming.write(why.reply)
    with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
        client.do_handshake()


def test_a_header_from_a_stranger_is_told_from_one_that_nobody_wants():
    """The key to change is `trusted` where PROXY is on, the section where it is off."""
    head = b"PROXY TCP4 "
    assert mismatch(ForeignProtocol.PROXY, head, PLAIN).key == "proxy_protocol"
    expected = PLAIN._replace(proxy=True)
    assert (
        mismatch(ForeignProtocol.PROXY, head, expected).key == "proxy_protocol.trusted"
    )


def test_unknown_bytes_are_shown():
    """What is no known protocol is quoted, a little of it."""
    why = mismatch(None, b"2W" + bytes(100), PLAIN._replace(tls=True))
    assert str(why).startswith(repr(b"2W" + bytes(14)))
    assert why.key == "tls"
