"""Gateways of one machine that share ports, each with a node and a directory of its own."""

import ipaddress
import json
import socket
import ssl
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from daemons import Daemon, free_port, listener, tls
from deadlines import run
from gateway_testkit.certificates import Authority, Pair
from making import Make

WAYS = ("plain", "encrypted", "web")
EVENTS = 400


class Ports:
    """One for each way, the same for all daemons."""

    def __init__(self, authority: Authority, pair: Pair) -> None:
        self.numbers = {way: free_port() for way in WAYS}
        self._ca = authority.ca
        self._pair = pair

    def listeners(self, *, shared: bool = True) -> list[dict[str, Any]]:
        more: dict[str, dict[str, Any]] = {
            "plain": {},
            "encrypted": {"tls": tls(self._pair)},
            "web": {"websocket": {"path": "/beats"}},
        }
        return [
            listener(
                way,
                "lumberjack",
                listen=f"tcp:127.0.0.1:{number}",
                reuse_port=shared,
                **more[way],
            )
            for way, number in self.numbers.items()
        ]

    def send(self, way: str, acked: Path) -> int:
        """Over connections that the kernel spreads; how many were acknowledged."""
        options = {
            "plain": (),
            "encrypted": ("--tls", "--ca", str(self._ca)),
            "web": ("--websocket", "/beats"),
        }[way]
        done = run(
            sys.executable, "-m", "gateway.cli", "send", "lumberjack",
            f"127.0.0.1:{self.numbers[way]}", "--generate", EVENTS, "--window", "20",
            "--connections", "8", "--acked", acked, "--json", *options,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found: int = json.loads(done.stdout)["acknowledged"]
        return found


@pytest.fixture
def ports(authority, server_pair) -> Ports:
    return Ports(authority, server_pair)


@pytest.fixture
def gateways(prepare, ports) -> Make[list[Daemon]]:
    """Two, not started."""

    def make(**more: Any) -> list[Daemon]:
        return [
            prepare(node, node=node, listeners=ports.listeners(**more))
            for node in ("gw-1", "gw-2")
        ]

    return make


def ids(*daemons: Daemon) -> Counter[str]:
    """How often each event is in what they have published."""
    found: Counter[str] = Counter()
    for daemon in daemons:
        daemon.settled()
        found.update(json.loads(row["payload"])["event"]["id"] for row in daemon.rows())
    return found


def test_each_takes_connections_and_every_event_is_there_once(
    gateways, ports, tmp_path
):
    """Over TCP, TLS and WebSocket.  While one is away the other takes all, and the one
    that comes back gets its share again.
    """
    one, other = (daemon.start() for daemon in gateways())
    acked = tmp_path / "acked"
    for way in WAYS:
        while not all(each.listener(way)["events"] for each in (one, other)):
            assert ports.send(way, acked) == EVENTS
    one.terminate()
    before = other.listener("plain")["events"]
    assert ports.send("plain", acked) == EVENTS
    assert other.listener("plain")["events"] == before + EVENTS
    one.start()
    while not one.listener("plain")["events"]:
        assert ports.send("plain", acked) == EVENTS
    noted = acked.read_text().split()
    assert ids(one, other) == Counter(dict.fromkeys(noted, 1))
    assert len(noted) == len(set(noted))


def beats(**more: Any) -> list[dict[str, Any]]:
    return [listener("beats", "lumberjack", **more)]


def proxied(host: str, port: int) -> bytes:
    """A PROXY v2 header of a TCP connection."""
    addresses = [ipaddress.ip_address(each).packed for each in (host, "192.0.2.1")]
    body = b"".join(addresses) + struct.pack(">HH", port, 5044)
    family = 0x11 if len(addresses[0]) == 4 else 0x21
    signature = b"\r\n\r\n\0\r\nQUIT\n"
    return signature + struct.pack(">BBH", 0x21, family, len(body)) + body


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


@pytest.mark.parametrize(
    "sealed", [pytest.param(False, marks=pytest.mark.long), True], ids=["ws", "wss"]
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
    rows = daemon.settled_rows()
    found = [json.loads(row["payload"])["event"]["id"] for row in rows]
    assert found == acked.read_text().split()
    assert len(found) == 5000
