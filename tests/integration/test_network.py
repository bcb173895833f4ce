"""What stands between a client and its protocol, on real sockets."""

from __future__ import annotations

import ipaddress
import json
import socket
import ssl
import struct
from typing import Any

import pytest

from daemons import listener, tls
from making import Make


def beats(**more: Any) -> list[dict[str, Any]]:
    return [listener("beats", "lumberjack", **more)]


def proxied(host: str, port: int) -> bytes:
    """A PROXY v2 header of a TCP connection."""
    addresses = [ipaddress.ip_address(each).packed for each in (host, "192.0.2.1")]
    body = b"".join(addresses) + struct.pack(">HH", port, 5044)
    family = 0x11 if len(addresses[0]) == 4 else 0x21
    signature = b"\r\n\r\n\0\r\nQUIT\n"
    return signature + struct.pack(">BBH", 0x21, family, len(body)) + body


def from_afar(connect: Make, daemon: Any) -> Any:
    """A connection that says it is 203.0.113.9:4711's, and sends an event."""
    made = connect(daemon.address())
    made.send(proxied("203.0.113.9", 4711) + made.window(b"{}"))
    return made


def test_a_proxy_names_the_real_peer(start, connect):
    """Behind a trusted balancer, `peer` is who is behind it; it is an attribute."""
    daemon = start(listeners=beats(proxy_protocol={"trusted": ["127.0.0.0/8"]}))
    balancer = from_afar(connect, daemon)
    assert balancer.ack() == 1
    daemon.settled()
    (row,) = daemon.rows()
    assert row["peer"] == "203.0.113.9:4711"
    assert row["attributes"]["proxy"] == balancer.name


def test_a_proxy_may_be_in_front_of_tls(start, authority):
    """A balancer that passes TLS through puts its header before it."""
    pair = authority.issue("gateway.example")
    trusted = {"trusted": ["127.0.0.0/8"]}
    daemon = start(listeners=beats(proxy_protocol=trusted, tls=tls(pair)))
    context = ssl.create_default_context(cafile=authority.ca)
    with socket.create_connection(daemon.address()) as plain:
        plain.sendall(proxied("203.0.113.9", 4711))
        with context.wrap_socket(plain, server_hostname="localhost") as sealed:
            sealed.sendall(bytes.fromhex("325700000001 324a 00000001 00000002 7b7d"))
            assert sealed.recv(6) == bytes.fromhex("324100000001")
    daemon.settled()
    (row,) = daemon.rows()
    assert row["peer"] == "203.0.113.9:4711"
    assert row["attributes"]["tls"] == "TLSv1.3"


def test_a_proxy_header_of_a_stranger_is_refused(start, connect):
    """Who is not trusted cannot choose its address."""
    daemon = start(listeners=beats(proxy_protocol={"trusted": ["127.0.0.9/32"]}))
    stranger = from_afar(connect, daemon)
    assert stranger.rest() == b""
    daemon.eventually(lambda: "proxy_protocol.trusted" in daemon.log, "it is told")
    assert daemon.status()["journal"]["durable_lsn"] == 0


@pytest.mark.parametrize(
    "sealed",
    [pytest.param(False, marks=pytest.mark.long), True],
    ids=["ws", "wss"],
)
def test_websocket_carries_lumberjack(
    start, authority, gateway_command, tmp_path, sealed
):
    """Events sent as binary messages are there, each once, like any others."""
    more: dict[str, Any] = {"websocket": {"path": "/beats"}}
    options: list[Any] = ["--websocket", "/beats"]
    if sealed:
        pair = authority.issue("gateway.example")
        more["tls"] = tls(pair)
        options += ["--tls", "--ca", authority.ca]
    daemon = start(listeners=beats(**more))
    acked = tmp_path / "acked"
    done = gateway_command(
        "send", "lumberjack", f"localhost:{daemon.address()[1]}",
        "--generate", 5000, "--window", 300, "--acked", acked, *options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    daemon.settled()
    rows = daemon.rows()
    found = [json.loads(row["payload"])["event"]["id"] for row in rows]
    assert found == acked.read_text().split()
    assert len(found) == 5000


HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(200)

WRONG = {
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 400", "HTTP request"),
    "tls": (HELLO, b"\x15\x03\x03\x00\x02\x02\x28", "TLS ClientHello"),
    "proxy": (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", b"", "PROXY header"),
    "text": (b"hello\r\n", b"", "not Lumberjack"),
    "ack": (bytes.fromhex("324100000001"), b"", "acknowledgement from a writer"),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_wrong_language_gets_an_answer_and_fin(start, connect, case):
    """Never RST, however much was sent already; one line in the log, even of five
    tries; and whoever speaks the right one is served meanwhile.
    """
    bytes_sent, answer, words = WRONG[case]
    daemon = start()
    address = daemon.address()
    friend = connect(address, source="127.0.0.2")
    names = []
    for _ in range(5):
        peer = connect(address, source="127.0.0.3")
        names.append(peer.name)
        peer.send(bytes_sent + bytes(200_000))
        said = peer.rest()
        assert said.startswith(answer)
        assert bool(said) == bool(answer)
        friend.send(friend.window(b"{}"))
        assert friend.ack() == friend.sequence
    complaints = warnings(daemon, "127.0.0.3")
    assert len(complaints) == 1
    assert f"{names[0]} refused: " in complaints[0]
    assert words in complaints[0]


def test_plain_bytes_on_a_tls_port_are_told_so(start, connect, authority):
    """A shipper without TLS gets FIN, and the log says what it did wrong."""
    pair = authority.issue("gateway.example")
    daemon = start(listeners=beats(tls=tls(pair)))
    peer = connect(daemon.address())
    peer.send(peer.window(b"{}"))
    assert peer.rest() == b""
    (line,) = warnings(daemon, peer.name)
    assert "on a port that expects TLS (tls)" in line


def warnings(daemon: Any, peer: str) -> list[str]:
    """Those about it; that a connection ended is said of everybody."""
    lines = [line for line in daemon.log.splitlines() if " warn " in line]
    return [line for line in lines if peer in line]


def test_probes_are_quiet(start, connect):
    """A balancer that connects and goes, politely or not, is not in the log."""
    daemon = start()
    address = daemon.address()
    before = daemon.log
    for number in range(20):
        probe = connect(address)
        if number % 2:
            linger = struct.pack("ii", 1, 0)
            probe.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        probe.socket.close()
    peer = connect(address)
    peer.send(peer.window(b"{}"))
    assert peer.ack() == 1
    assert daemon.log == before
