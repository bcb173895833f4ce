"""What stands between a client and its protocol, on real sockets."""

import ipaddress
import json
import socket
import ssl
import struct
from typing import Any

import pytest

from daemons import listener, tls


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
