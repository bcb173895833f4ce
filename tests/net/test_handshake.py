"""Connection set-up: protocol detection, PROXY headers, and any bytes at all."""

import socket
import ssl
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import Request

from gateway.config.listener import ProxyProtocol
from gateway.net.detect import Expected, ForeignProtocol, detect, mismatch, undecided
from gateway.net.proxy import SIGNATURE_V2
from gateway.sdk.http2 import PREFACE

WEBSOCKET = SimpleNamespace(path="/ws", origins=[])
PROXY = ProxyProtocol(trusted=["10.0.0.0/8"])
HEADER = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 5044\r\n"
HTTP = b"GET / HTTP/1.1\r\nHost: gw\r\n\r\n"


# Protocol detection


def test_http_on_our_port_is_told_so(make_net, warnings):
    """An answer in HTTP, one line in the log, not a byte for the server."""
    net = make_net()
    peer = net.peer()
    peer.send(HTTP)
    assert peer.got().startswith(b"HTTP/1.1 400 ")
    assert peer.transport.finished
    assert net.server.data == b""
    assert warnings() == [
        "beats: 192.0.2.1:4000 refused: an HTTP request on a port that speaks lumberjack"
    ]
    assert net.listener.rejected == {"language": 1}


def test_what_was_held_back_is_delivered(make_net):
    """Bytes that only began like another protocol arrive whole."""
    net = make_net()
    peer = net.peer()
    peer.send(b"PR")
    assert net.server.data == b""
    peer.send(b"AVEGA")
    assert net.server.data == b"PRAVEGA"
    peer.send(HTTP)
    assert net.server.data == b"PRAVEGA" + HTTP


def test_a_probe_leaves_no_line(make_net, logged, warnings):
    """Connect and close, or connect and reset: debug only."""
    net = make_net()
    net.listener.connection_log.configure(lines=9, opened=True)
    net.peer().lose()
    assert warnings() == []
    assert [event["log_level"].name for event in logged] == ["debug"]
    assert not net.listener.rejected


# PROXY


@pytest.mark.parametrize(
    "header",
    [HEADER, b"PROXY UNKNOWN\r\n", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"],
    ids=["a peer's", "nobody's", "version 2's own"],
)
def test_a_probe_behind_a_header_leaves_no_line(make_net, logged, header):
    """As HAProxy looks each second whether a server is there that wants its headers."""
    net = make_net(proxy_protocol=PROXY)
    net.listener.connection_log.configure(lines=9, opened=False)
    probe = net.peer("10.0.0.1")
    probe.send(header)
    probe.lose()
    assert logged == []
    peer = net.peer("10.0.0.1")
    peer.send(header + b"2W")
    peer.lose()
    (line,) = logged
    assert line["bytes"] == 2


def test_a_header_names_the_real_peer(make_net):
    """However it is cut; the server sees the peer from the start, and every byte."""
    for cut in range(1, len(HEADER)):
        net = make_net(proxy_protocol=PROXY)
        peer = net.peer("10.0.0.1")
        assert net.servers == []
        peer.send(HEADER[:cut])
        peer.send(HEADER[cut:] + b"2W")
        origin = net.server.connection.origin
        assert origin.peer == "192.0.2.7:40000"
        assert origin.attributes["proxy"] == "10.0.0.1:4000"
        assert net.server.data == b"2W"


NAMED = bytes.fromhex(  # HAProxy's: 127.0.0.1, TLS 1.3, a certificate of web-1
    "0d0a0d0a000d0a515549540a2111 0026 7f0000017f00000199c84424"
    "20 0017 07 00000000 21 0007 544c5376312e33 22 0005 7765622d31"
)


@pytest.mark.parametrize(("names", "principal"), [(True, "CN=web-1"), (False, None)])
def test_a_header_names_the_client(make_net, names, principal):
    """Where `proxy_protocol.names` says that this balancer may."""
    proxy = ProxyProtocol(trusted=["10.0.0.0/8"], names=names)
    net = make_net(proxy_protocol=proxy)
    net.peer("10.0.0.1").send(NAMED + b"2W")
    assert net.server.connection.origin.principal == principal
    stranger = net.peer("192.0.2.7")
    stranger.send(NAMED + b"2W")
    assert net.server.connection.origin.principal is None


def test_a_header_for_nobody_leaves_the_peer(make_net):
    """A health check of the load balancer itself is served as such."""
    net = make_net(proxy_protocol=PROXY)
    peer = net.peer("10.0.0.1")
    peer.send(b"PROXY UNKNOWN\r\n2W")
    assert net.server.connection.origin.peer == "10.0.0.1:4000"
    assert net.server.data == b"2W"


def test_a_trusted_source_must_send_a_header(make_net, warnings):
    """Or its peers could pass for the load balancer."""
    net = make_net(proxy_protocol=PROXY)
    peer = net.peer("10.0.0.1")
    peer.send(b"2W\0\0\0\1")
    assert net.servers == []
    assert peer.transport.finished
    assert "no PROXY header" in warnings()[0]
    assert net.listener.rejected == {"proxy": 1}


def test_a_header_of_a_stranger_is_refused(make_net, warnings):
    """Nobody else may say who they are; without a header they are served."""
    net = make_net(proxy_protocol=PROXY)
    peer = net.peer("192.0.2.66")
    peer.send(HEADER + b"2W")
    assert net.server.data == b""
    assert "not trusted (proxy_protocol.trusted)" in warnings()[0]
    direct = net.peer("192.0.2.67")
    direct.send(b"2W")
    assert net.server.data == b"2W"
    assert net.server.connection.origin.peer == "192.0.2.67:4000"


def test_a_header_where_none_is_wanted_is_named(make_net, warnings):
    """The line names the key to turn on."""
    net = make_net()
    net.peer().send(HEADER)
    assert warnings()[0].endswith(
        "a PROXY header on a port that speaks lumberjack (proxy_protocol)"
    )


def test_a_slow_header_is_cut_off(make_net, warnings):
    """limits.handshake is for all of it, however steadily it drips."""
    net = make_net(proxy_protocol=PROXY)
    peer = net.peer("10.0.0.1")
    for at in range(13):
        peer.send(HEADER[at : at + 1])
        net.pass_time(1)
    assert peer.transport.finished
    assert warnings() == [
        "beats: 10.0.0.1:4000 refused: handshake not finished, limit 10 s (limits.handshake)"
    ]


def test_no_deadline_is_for_what_we_have_not_read(make_net, warnings):
    """A peer whose bytes wait for us, in the kernel or in a line of ours, is not cut; once
    they are read, it has its whole time for the rest: after a minute, or just in time.
    """
    for put_off, seconds in ((False, 60), (True, 60), (False, 9), (True, 9)):
        net = make_net(proxy_protocol=PROXY)
        peer = net.peer("10.0.0.1")
        peer.send(HEADER[:5])
        ours, theirs = socket.socketpair()
        with ours, theirs:
            peer.transport.fileno = ours.fileno
            if put_off:
                peer.connection.input.put_off_more(HEADER[5:9])
            else:
                theirs.send(HEADER[5:9])
            net.pass_time(seconds)
            assert not peer.transport.finished
            if put_off:
                peer.send(peer.connection.input.take_put_off())
            else:
                peer.send(ours.recv(99))
            net.pass_time(7)
            peer.send(HEADER[9:] + b"2W")
            assert net.server.data == b"2W"
    peer = net.peer("10.0.0.1")
    peer.send(HEADER[:5])
    net.pass_time(13)
    assert peer.transport.finished
    assert len(warnings()) == 1


def test_nobody_is_idle_whose_bytes_we_have_not_read(make_net):
    """… nor too slow with the rest of a message."""
    net = make_net(limits={"idle": 60.0, "minimum_rate": 100})
    peer = net.peer()
    peer.send(b"x")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer.transport.fileno = ours.fileno
        theirs.send(b"y")
        net.pass_time(100)
        assert not peer.transport.finished
        net.server.connection.hold(1000)
        net.pass_time(100)
        assert not peer.transport.finished
        assert not net.listener.rejected
        peer.send(ours.recv(99))
        net.pass_time(50)
        assert net.listener.rejected == {"protocol": 1}


def test_whoever_never_says_anything_is_cut_off_quietly(make_net, warnings):
    """A port that somebody keeps open is closed, at debug."""
    net = make_net(proxy_protocol=PROXY)
    peer = net.peer("10.0.0.1")
    net.pass_time(13)
    assert peer.transport.finished
    assert warnings() == []
    assert net.listener.rejected == {"handshake": 1}


# Anything


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, 60), max_size=12))
def test_slicing_does_not_matter(make_net, cuts):
    """PROXY header, request and frames in one stream, cut anywhere."""
    net = make_net(websocket=WEBSOCKET, proxy_protocol=PROXY)
    client = WSConnection(ConnectionType.CLIENT)
    stream = HEADER + client.send(Request(host="gw", target="/ws"))
    mask = b"\0\0\0\0"
    stream += b"\x82\x86" + mask + b"2W\0\0\0\1" + b"\x89\x80" + mask
    peer = net.peer("10.0.0.1")
    for cut in [*cuts, len(stream)]:
        if stream[:cut]:
            peer.send(stream[:cut])
        stream = stream[cut:]
    assert net.server.data == b"2W\0\0\0\1"
    assert net.server.connection.origin.peer == "192.0.2.7:40000"
    assert peer.got().endswith(b"\x8a\x00")


BEGINNINGS = [
    b"",
    HEADER,
    HEADER[:9],
    HTTP[:5],
    b"\x16\x03\x01",
    b"GET /ws HTTP/1.1\r\n",
]


@pytest.mark.parametrize("proxy", [None, PROXY])
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("websocket", [None, WEBSOCKET])
def test_no_bytes_make_it_fail(make_net, make_tls, proxy, sealed, websocket):
    """Whatever comes, in whatever pieces, is taken or refused: none of it is a bug."""
    tls = make_tls() if sealed else None
    net = make_net(tls=tls, proxy_protocol=proxy, websocket=websocket)

    @hypothesis_settings(max_examples=60)
    @given(st.sampled_from(BEGINNINGS), st.lists(st.binary(min_size=1), max_size=5))
    def attack(beginning: bytes, pieces: list[bytes]) -> None:
        peer = net.peer("10.0.0.1")
        for piece in (beginning, *pieces):
            if piece:
                peer.send(piece)
        peer.lose()

    attack()
    assert net.listener.rejected["failure"] == 0
    assert net.listener.connections == 0


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
    (PREFACE, ForeignProtocol.HTTP),
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


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_what_a_port_calls_its_own_reaches_its_server(make_net, size):
    """However slowly it comes; other strangers are told where they are."""
    net = make_net(keywords={"prefixes": [PREFACE[:4]]})
    peer, browser = net.peer(), net.peer()
    for at in range(0, len(PREFACE), size):
        peer.send(PREFACE[at : at + size])
    assert b"".join(each.data for each in net.servers) == PREFACE
    browser.send(HTTP)
    assert browser.got().startswith(b"HTTP/1.1 400")


@given(st.binary(min_size=1, max_size=64))
def test_what_is_held_back_is_short(data):
    """No more than a dozen bytes ever wait for a verdict."""
    assert not undecided(data) or len(data) < len(SIGNATURE_V2)


PLAIN = Expected("lumberjack", tls=False, websocket=False, proxy=False)


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


def test_unknown_bytes_are_shown():
    """What is no known protocol is quoted, a little of it."""
    why = mismatch(None, b"2W" + bytes(100), PLAIN._replace(tls=True))
    assert str(why).startswith(repr(b"2W" + bytes(14)))
    assert why.key == "tls"
