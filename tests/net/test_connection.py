"""One connection from its first byte to its last, in memory."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from twisted.internet.address import IPv6Address, UNIXAddress
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Request,
    TextMessage,
)

from gateway.net.connection import READ_BYTES

WEBSOCKET = SimpleNamespace(path="/ws", origins=[])
PROXY = SimpleNamespace(trusted=["10.0.0.0/8"])
HEADER = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 5044\r\n"
Make = Callable[..., Any]
Texts = Callable[[], list[str]]


def pausing(connection: Any, data: bytes) -> None:
    connection.pause()


# Plain


def test_bytes_reach_the_server_as_they_come(make_net: Make) -> None:
    """Nothing is added, held back or taken away."""
    net = make_net()
    peer = net.peer()
    peer.send(b"2")
    peer.send(b"W\0\0\0\1")
    assert net.server.chunks == [b"2", b"W\0\0\0\1"]
    net.server.connection.write(b"2A\0\0\0\1")
    assert peer.got() == b"2A\0\0\0\1"


def test_the_origin_says_who_it_is(make_net: Make) -> None:
    """Listener, protocol, session and peer; each connection has its own."""
    net = make_net()
    net.peer("192.0.2.1")
    net.peer("192.0.2.2")
    one, other = (server.connection.origin for server in net.servers)
    assert (one.protocol, one.listener, one.peer) == (
        "lumberjack", "beats", "192.0.2.1:4000",
    )  # fmt: skip
    assert other.peer == "192.0.2.2:4000"
    assert one.session != other.session
    assert one.principal is None


def test_ipv6_peers_are_written_readably(make_net: Make) -> None:
    """In brackets, and an IPv4 address in IPv6's clothes as what it is."""
    net = make_net()
    for host in ("2001:db8::1", "::ffff:192.0.2.1"):
        net.connect(IPv6Address("TCP", host, 9))
    peers = [server.connection.origin.peer for server in net.servers]
    assert peers == ["[2001:db8::1]:9", "192.0.2.1:9"]


def test_it_counts(make_net: Make) -> None:
    """Connections, bytes off the wire, events that the server says are durable."""
    net = make_net()
    peer = net.peer()
    peer.send(b"12345")
    net.server.connection.count(events=3)
    listener = net.listener
    assert (listener.accepted, listener.connections) == (1, 1)
    assert (listener.bytes, listener.events) == (5, 3)
    peer.lose()
    assert (listener.accepted, listener.connections) == (1, 0)


def test_the_server_is_told_of_the_end_once(make_net: Make) -> None:
    """And what it writes, pauses or closes then goes nowhere."""
    net = make_net()
    peer = net.peer()
    peer.lose()
    assert net.server.gone
    connection = net.server.connection
    for do in (connection.close, connection.abort, connection.pause, connection.resume):
        do()
    connection.write(b"late")
    assert peer.got() == b""


def test_pause_and_resume_reach_the_transport(make_net: Make) -> None:
    """Two pauses need one resume."""
    net = make_net(pausing)
    peer = net.peer()
    peer.send(b"x")
    net.server.connection.pause()
    assert peer.transport.producerState == "paused"
    net.server.connection.resume()
    assert peer.transport.producerState == "producing"


# The end


def test_close_sends_fin_and_waits_for_the_peers(make_net: Make) -> None:
    """Written bytes first; what comes then is dropped; the peer's FIN ends it."""
    net = make_net()
    peer = net.peer()
    net.server.connection.write(b"last")
    net.server.connection.close()
    net.server.connection.write(b"late")
    assert peer.got() == b"last"
    assert peer.transport.finished
    assert not peer.transport.disconnecting
    peer.send(b"too late")
    assert net.server.data == b""
    peer.fin()
    assert peer.transport.disconnecting


def test_a_paused_connection_reads_again_when_it_closes(make_net: Make) -> None:
    """Or it would never see the peer's FIN."""
    net = make_net(pausing)
    peer = net.peer()
    peer.send(b"x")
    net.server.connection.close()
    assert peer.transport.producerState == "producing"


def test_a_peer_that_does_not_answer_fin_is_dropped(make_net: Make) -> None:
    """After the linger time."""
    net = make_net()
    peer = net.peer()
    net.server.connection.close()
    net.pass_time(4)
    assert not peer.transport.disconnected
    net.pass_time(4)
    assert peer.transport.disconnected


def test_a_peer_that_has_sent_fin_still_gets_its_ack(make_net: Make) -> None:
    """While the server is busy the connection stays; then what is owed, then FIN."""
    net = make_net()
    peer = net.peer()
    peer.send(b"window")
    connection = net.server.connection
    connection.busy(True)
    peer.fin()
    assert not peer.transport.disconnecting
    connection.busy(False)
    connection.write(b"ack")
    net.pass_time(0.25)
    assert peer.got() == b"ack"
    assert peer.transport.disconnecting


def test_a_peer_that_is_owed_nothing_leaves_at_once(make_net: Make) -> None:
    """FIN from an idle peer closes."""
    net = make_net()
    peer = net.peer()
    peer.fin()
    assert peer.transport.disconnecting


def test_a_refusal_is_answered_logged_and_closed(
    make_net: Make, refuse: Any, logged: list[dict[str, Any]], warnings: Texts
) -> None:
    """One line with peer, rule, limit and key, in text and as fields."""
    told: list[str | None] = []
    net = make_net(refuse, {"on_refused": told.append})
    peer = net.peer()
    peer.send(b"x")
    assert peer.got() == b"bye"
    assert peer.transport.finished
    assert warnings() == [
        "beats: 192.0.2.1:4000 refused: bad frame, limit 7 (limits.frames)"
    ]
    [event] = [event for event in logged if "rule" in event]
    assert (event["rule"], event["limit"], event["key"]) == (
        "bad frame", 7, "limits.frames",
    )  # fmt: skip
    assert net.listener.rejected == {"protocol": 1}
    assert told == ["limits.frames"]


def test_refusals_of_one_peer_are_logged_once_a_minute(
    make_net: Make, refuse: Any, warnings: Texts
) -> None:
    """All are counted; the next line tells how many there were."""
    net = make_net(refuse)
    for _ in range(5):
        net.peer().send(b"x")
    net.pass_time(61)
    net.peer().send(b"x")
    assert len(warnings()) == 2
    assert warnings()[1].endswith("(4 more of this peer not logged)")
    assert net.listener.rejected["protocol"] == 6


# Time


def test_a_silent_peer_is_closed(make_net: Make, warnings: Texts) -> None:
    """After limits.idle, with FIN; that is no reason for a line in the log."""
    net = make_net(limits={"idle": 60.0})
    peer = net.peer()
    net.pass_time(55)
    peer.send(b"x")
    net.pass_time(58)
    assert not peer.transport.finished
    net.pass_time(6)
    assert peer.transport.finished
    assert warnings() == []
    assert net.listener.rejected == {"idle": 1}


def test_a_peer_that_waits_for_us_is_not_idle(make_net: Make) -> None:
    """Busy and paused connections are ours to end; then the time starts afresh."""
    net = make_net(limits={"idle": 10.0})
    busy, paused = net.peer(), net.peer()
    net.servers[0].connection.busy(True)
    net.servers[1].connection.pause()
    net.pass_time(60)
    assert not busy.transport.finished
    assert not paused.transport.finished
    net.servers[0].connection.busy(False)
    net.servers[1].connection.resume()
    net.pass_time(9)
    assert not busy.transport.finished
    net.pass_time(6)
    assert busy.transport.finished
    assert paused.transport.finished


# Peers that do not read


def test_we_stop_reading_from_a_peer_that_does_not_read(make_net: Make) -> None:
    """Its unread answers grow no further; when it has read, it goes on."""
    net = make_net()
    peer = net.peer()
    peer.transport.producer.pauseProducing()
    assert peer.transport.producerState == "paused"
    net.server.connection.pause()
    peer.transport.producer.resumeProducing()
    assert peer.transport.producerState == "paused"
    net.server.connection.resume()
    assert peer.transport.producerState == "producing"


def test_a_server_that_resumes_does_not_overrule_that(make_net: Make) -> None:
    """Reading needs both: a server that wants to and a peer that reads."""
    net = make_net()
    peer = net.peer()
    peer.transport.producer.pauseProducing()
    net.server.connection.resume()
    assert peer.transport.producerState == "paused"


def test_a_peer_that_does_not_read_is_cut_off(make_net: Make, warnings: Texts) -> None:
    """When more than `unread_bytes` are written to it, with one line."""
    net = make_net(keywords={"unread_bytes": 100})
    peer = net.peer()
    connection = net.server.connection
    peer.transport.unsent = READ_BYTES + 1
    peer.transport.producer.pauseProducing()
    connection.write(bytes(100))
    assert not peer.transport.disconnected
    peer.transport.unsent += 100
    peer.transport.producer.pauseProducing()  # Twisted's transport says so at every write
    connection.write(b"x")
    assert peer.transport.disconnected
    [line] = warnings()
    assert f"does not read what we send, limit {READ_BYTES + 100}" in line
    assert net.listener.rejected == {"unread": 1}


def test_a_peer_that_reads_again_starts_afresh(make_net: Make) -> None:
    """Slow is fine, stuck is not."""
    net = make_net(keywords={"unread_bytes": 100})
    peer = net.peer()
    for _ in range(10):
        peer.transport.unsent = READ_BYTES + 1
        peer.transport.producer.pauseProducing()
        net.server.connection.write(bytes(100))
        peer.transport.unsent = 0
        peer.transport.producer.resumeProducing()
    assert not peer.transport.disconnected


def test_a_peer_that_reads_as_fast_as_we_write_stays(make_net: Make) -> None:
    """However much goes through: what waits for it is what counts."""
    net = make_net(keywords={"unread_bytes": 100})
    peer = net.peer()
    peer.transport.unsent = READ_BYTES + 1
    peer.transport.producer.pauseProducing()
    for _ in range(10):
        net.server.connection.write(bytes(100))
    assert not peer.transport.disconnected


def test_a_peer_that_never_reads_is_cut_off_in_time(
    make_net: Make, warnings: Texts
) -> None:
    """45 s in which nothing is sent, even when nothing more is written."""
    net = make_net()
    peer = net.peer()
    peer.transport.unsent = READ_BYTES + 1
    peer.transport.producer.pauseProducing()
    net.pass_time(43)
    assert not peer.transport.disconnected
    net.pass_time(6)
    assert peer.transport.disconnected
    assert len(warnings()) == 1


def test_a_slow_but_steady_reader_is_not_cut_off(make_net: Make) -> None:
    """Neither as stuck nor as idle, while the least bit goes out, all the time."""
    net = make_net(limits={"idle": 60.0})
    peer = net.peer()
    peer.transport.unsent = READ_BYTES + 1
    peer.transport.producer.pauseProducing()
    for _ in range(10):
        net.pass_time(40)
        peer.transport.unsent -= 1
    net.pass_time(40)
    assert not peer.transport.disconnected
    assert not peer.transport.finished
    net.pass_time(10)
    assert peer.transport.disconnected


def test_what_we_write_meanwhile_does_not_hide_what_it_reads(make_net: Make) -> None:
    """Nor does it pass for it."""
    net = make_net(keywords={"unread_bytes": 1000})
    reads, deaf = net.peer(), net.peer()
    for peer in (reads, deaf):
        peer.transport.unsent = READ_BYTES + 1
        peer.transport.producer.pauseProducing()
    for _ in range(3):
        net.pass_time(20)
        for server in net.servers:
            server.connection.write(bytes(10))
        reads.transport.unsent += 9
        deaf.transport.unsent += 10
    assert not reads.transport.disconnected
    assert deaf.transport.disconnected


# Servers that stop writing instead


def publishing(net: Any) -> list[bool]:
    """Let its server be one that can stop; what it is told."""
    told: list[bool] = []
    net.server.writable = told.append
    return told


def test_a_publisher_is_heard_while_its_peer_does_not_read(make_net: Make) -> None:
    """It is told to send nothing, and to go on; reading is up to it alone."""
    net = make_net()
    peer = net.peer()
    told = publishing(net)
    choke, free = (
        peer.transport.producer.pauseProducing,
        peer.transport.producer.resumeProducing,
    )
    choke()
    choke()  # Twisted's transport says so at every write
    assert told == [False]
    assert peer.transport.producerState == "producing"
    peer.send(b"cancel")
    assert net.server.data == b"cancel"
    net.server.connection.pause()
    net.server.connection.resume()
    assert peer.transport.producerState == "producing"
    net.server.connection.pause()
    free()
    assert told == [False, True]
    assert peer.transport.producerState == "paused"


def test_a_publisher_is_cut_off_like_others(make_net: Make, warnings: Texts) -> None:
    """By its peer's silence, and by what it writes nevertheless."""
    net = make_net(keywords={"unread_bytes": 100})
    stuck, flooded = net.peer(), net.peer()
    for peer, server in zip((stuck, flooded), net.servers, strict=True):
        server.writable = lambda ready: None
        peer.transport.unsent = READ_BYTES + 1
        peer.transport.producer.pauseProducing()
    net.servers[1].connection.write(bytes(101))
    assert flooded.transport.disconnected
    net.pass_time(50)
    assert stuck.transport.disconnected
    assert net.listener.rejected == {"unread": 2}


def test_a_publisher_hears_nothing_of_it_at_its_end(make_net: Make) -> None:
    """Once it has closed, its transport is none of its business."""
    net = make_net()
    peer = net.peer()
    told = publishing(net)
    net.server.connection.close()
    peer.transport.producer.pauseProducing()
    peer.transport.producer.resumeProducing()
    peer.lose()
    peer.transport.producer.resumeProducing()
    assert told == []


def test_a_publisher_over_tls_and_websocket_is_told_too(
    make_net: Make, make_tls: Make, tls_peer: Make
) -> None:
    """What lies between does not matter: its socket is what fills."""
    net = make_net(tls=make_tls(), websocket=WEBSOCKET)
    peer = net.peer()
    tls = tls_peer(peer)
    tls.shake_hands()
    client = WSConnection(ConnectionType.CLIENT)
    tls.send(client.send(Request("localhost", "/ws")))
    client.receive_data(tls.read())
    told = publishing(net)
    peer.transport.producer.pauseProducing()
    tls.send(client.send(BytesMessage(b"cancel")))
    assert net.server.data == b"cancel"
    peer.transport.producer.resumeProducing()
    assert told == [False, True]


def test_a_dead_peer_is_noticed_though_paused(make_net: Make) -> None:
    """A reset ends a connection that nobody reads; a mere FIN does not."""
    net = make_net(pausing)
    ours, theirs = socket.socketpair()
    peer = net.peer()
    peer.transport.fileno = ours.fileno  # type: ignore[method-assign]
    peer.send(b"x")
    theirs.shutdown(socket.SHUT_WR)
    net.pass_time(5)
    assert not peer.transport.disconnected
    theirs.close()  # both directions are shut: what a reset looks like to poll()
    net.pass_time(5)
    assert peer.transport.disconnected
    ours.close()


# The wrong language

HTTP = b"GET / HTTP/1.1\r\nHost: gw\r\n\r\n"


def test_http_on_our_port_is_told_so(make_net: Make, warnings: Texts) -> None:
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


def test_http_byte_by_byte_is_recognised_too(make_net: Make) -> None:
    """Slicing does not slip it past."""
    net = make_net()
    peer = net.peer()
    for at in range(len(HTTP)):
        peer.send(HTTP[at : at + 1])
    assert peer.got().startswith(b"HTTP/1.1 400 ")
    assert net.server.data == b""


def test_what_was_held_back_is_delivered(make_net: Make) -> None:
    """Bytes that only began like another language arrive whole."""
    net = make_net()
    peer = net.peer()
    peer.send(b"PR")
    assert net.server.data == b""
    peer.send(b"AVEGA")
    assert net.server.data == b"PRAVEGA"
    peer.send(HTTP)
    assert net.server.data == b"PRAVEGA" + HTTP


def test_a_probe_leaves_no_line(
    make_net: Make, logged: list[dict[str, Any]], warnings: Texts
) -> None:
    """Connect and close, or connect and reset: debug only."""
    net = make_net()
    net.peer().lose()
    assert warnings() == []
    assert [event["log_level"].name for event in logged] == ["debug"]
    assert not net.listener.rejected


# PROXY


def test_a_header_names_the_real_peer(make_net: Make) -> None:
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


def test_a_header_for_nobody_leaves_the_peer(make_net: Make) -> None:
    """A health check of the load balancer itself is served as such."""
    net = make_net(proxy_protocol=PROXY)
    peer = net.peer("10.0.0.1")
    peer.send(b"PROXY UNKNOWN\r\n2W")
    assert net.server.connection.origin.peer == "10.0.0.1:4000"
    assert net.server.data == b"2W"


def test_a_trusted_source_must_send_a_header(make_net: Make, warnings: Texts) -> None:
    """Or its peers could pass for the load balancer."""
    net = make_net(proxy_protocol=PROXY)
    peer = net.peer("10.0.0.1")
    peer.send(b"2W\0\0\0\1")
    assert net.servers == []
    assert peer.transport.finished
    assert "no PROXY header" in warnings()[0]
    assert net.listener.rejected == {"proxy": 1}


def test_a_header_of_a_stranger_is_refused(make_net: Make, warnings: Texts) -> None:
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


def test_a_header_where_none_is_wanted_is_named(
    make_net: Make, warnings: Texts
) -> None:
    """The line names the key to turn on."""
    net = make_net()
    net.peer().send(HEADER)
    assert warnings()[0].endswith(
        "a PROXY header on a port that speaks lumberjack (proxy_protocol)"
    )


def test_a_slow_header_is_cut_off(make_net: Make, warnings: Texts) -> None:
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


def test_whoever_never_says_anything_is_cut_off_quietly(
    make_net: Make, warnings: Texts
) -> None:
    """A port that somebody keeps open is closed, at debug."""
    net = make_net(proxy_protocol=PROXY)
    peer = net.peer("10.0.0.1")
    net.pass_time(13)
    assert peer.transport.finished
    assert warnings() == []
    assert net.listener.rejected == {"handshake": 1}


# WebSocket


def shaken(peer: Any, **request: Any) -> WSConnection:
    """wsproto's client, its upgrade granted."""
    client = WSConnection(ConnectionType.CLIENT)
    peer.send(client.send(Request(host="gw", target="/ws", **request)))
    client.receive_data(peer.got())
    assert isinstance(next(client.events()), AcceptConnection)
    return client


def test_messages_are_a_stream(make_net: Make) -> None:
    """Both ways: any messages in, one message per write out."""
    net = make_net(websocket=WEBSOCKET)
    peer = net.peer()
    client = shaken(peer)
    peer.send(client.send(BytesMessage(b"2W\0\0")) + client.send(BytesMessage(b"\0\1")))
    assert net.server.chunks == [b"2W\0\0\0\1"]
    net.server.connection.write(b"2A\0\0\0\1")
    net.server.connection.write(b"2A\0\0\0\2")
    client.receive_data(peer.got())
    events = list(client.events())
    assert [bytes(event.data) for event in events if isinstance(event, BytesMessage)] == [
        b"2A\0\0\0\1", b"2A\0\0\0\2",
    ]  # fmt: skip


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, 60), max_size=12))
def test_slicing_does_not_matter(make_net: Make, cuts: list[int]) -> None:
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
def test_no_bytes_make_it_fail(
    make_net: Make, make_tls: Make, proxy: Any, sealed: bool, websocket: Any
) -> None:
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


def test_the_server_comes_after_the_upgrade(make_net: Make) -> None:
    """No server for a request that is never finished, and its time is limited."""
    net = make_net(websocket=WEBSOCKET)
    peer = net.peer()
    peer.send(b"GET /ws HTTP/1.1\r\n")
    net.pass_time(13)
    assert net.servers == []
    assert peer.transport.finished
    assert net.listener.rejected == {"handshake": 1}


def test_the_subprotocol_is_kept(make_net: Make) -> None:
    """As an attribute of every event."""
    net = make_net(websocket=WEBSOCKET, keywords={"subprotocols": ["rsio.v0"]})
    shaken(net.peer(), subprotocols=["rsio.v0", "other"])
    attributes = net.server.connection.origin.attributes
    assert attributes == {"subprotocol": "rsio.v0"}


def test_both_kinds_on_a_mixed_port(make_net: Make) -> None:
    """The first bytes say which; a server knows whether its writes are messages."""
    net = make_net(websocket=WEBSOCKET, keywords={"mixed": True, "text": True})
    plain, web = net.peer(), net.peer()
    plain.send(b"\x01\0\0\0")
    assert not net.server.connection.framed
    client = shaken(web)
    assert net.server.connection.framed
    web.send(client.send(TextMessage("x")))
    assert not web.transport.finished


def test_silence_on_a_mixed_port_is_limited(make_net: Make) -> None:
    """Nobody can tell which kind it is to be, and there is no server to ask."""
    net = make_net(websocket=WEBSOCKET, keywords={"mixed": True})
    peer = net.peer()
    net.pass_time(13)
    assert net.servers == []
    assert peer.transport.finished


def test_what_the_kernel_has_not_taken(make_net: Make) -> None:
    """Written bytes count as unsent until Twisted's socket has handed them on."""
    net = make_net()
    peer = net.peer()
    connection = net.server.connection
    assert connection.unsent_bytes == 0
    peer.transport.dataBuffer, peer.transport.offset, peer.transport.unsent = (
        b"12345",
        2,
        4,
    )
    assert connection.unsent_bytes == 7


def test_a_close_is_answered_and_ends_it(make_net: Make) -> None:
    """Close for Close, then FIN."""
    net = make_net(websocket=WEBSOCKET)
    peer = net.peer()
    client = shaken(peer)
    peer.send(client.send(CloseConnection(1000)))
    client.receive_data(peer.got())
    [event] = client.events()
    assert isinstance(event, CloseConnection)
    assert peer.transport.finished


def test_our_close_begins_with_a_close_frame(make_net: Make) -> None:
    """1000 when all is well, 1008 after a refusal and its reply."""
    net = make_net(websocket=WEBSOCKET)
    peer = net.peer()
    client = shaken(peer)
    net.server.connection.close()
    client.receive_data(peer.got())
    [event] = client.events()
    assert (type(event), event.code) == (CloseConnection, 1000)
    assert peer.transport.finished


def test_a_refusal_over_websocket(make_net: Make, refuse: Any) -> None:
    """The protocol's reply as a message, then Close 1008 with the rule."""
    net = make_net(refuse, websocket=WEBSOCKET)
    peer = net.peer()
    client = shaken(peer)
    peer.send(client.send(BytesMessage(b"x")))
    client.receive_data(peer.got())
    reply, bye = client.events()
    assert bytes(reply.data) == b"bye"
    assert (bye.code, bye.reason) == (1008, "bad frame")


def test_a_bad_frame_is_refused(make_net: Make, warnings: Texts) -> None:
    """A 2^62 byte frame: Close 1009 from its head, FIN, one line with the key."""
    net = make_net(websocket=WEBSOCKET)
    peer = net.peer()
    client = shaken(peer)
    peer.send(b"\x82\xff" + (1 << 62).to_bytes(8, "big"))
    client.receive_data(peer.got())
    [event] = client.events()
    assert event.code == 1009
    assert peer.transport.finished
    assert warnings()[0].endswith(
        f"WebSocket message of {1 << 62} bytes, limit {1 << 24} (limits.message_bytes)"
    )
    assert net.listener.rejected == {"websocket": 1}


def test_pings_of_a_patient_client_are_no_flood(make_net: Make) -> None:
    """The listener's sweeps forgive."""
    net = make_net(websocket=WEBSOCKET)
    peer = net.peer()
    client = shaken(peer)
    for _ in range(3):
        for _ in range(900):
            peer.send(client.send(Ping(b"")))
        net.pass_time(3)
    assert not peer.transport.finished


def test_other_languages_on_a_websocket_port(make_net: Make, warnings: Texts) -> None:
    """Plain bytes are quoted, plain HTTP is told to upgrade, no server is made."""
    net = make_net(websocket=WEBSOCKET)
    net.peer("192.0.2.1").send(b"2W\0\0\0\1")
    plain = net.peer("192.0.2.2")
    plain.send(HTTP)
    assert plain.got().startswith(b"HTTP/1.1 426 ")
    assert net.servers == []
    assert "on a port that expects a WebSocket (websocket)" in warnings()[0]


def test_one_port_for_both(make_net: Make) -> None:
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


def test_a_unix_peer_is_named_by_its_user(make_net: Make, make_transport: Make) -> None:
    """It has no address; the kernel knows who it is."""
    net = make_net()
    ours, theirs = socket.socketpair()
    wire = make_transport()
    wire.getHandle = lambda: ours
    net.connect(UNIXAddress(b"/x"), wire)
    assert (
        net.server.connection.origin.peer == f"unix:uid={os.getuid()},pid={os.getpid()}"
    )
    ours.close()
    theirs.close()
