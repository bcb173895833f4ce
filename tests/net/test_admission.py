"""Which connections are accepted: limits by number, by peer, by file descriptors."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address

from gateway.config.listener import ProxyProtocol

Make = Callable[..., Any]
Run = Callable[..., dict[str, Any]]
Texts = Callable[[], list[str]]


def come(net: Any, host: str = "192.0.2.1") -> Any:
    return net.connect(IPv4Address("TCP", host, 4000))


def test_more_connections_than_allowed_are_rejected(
    make_net: Make, warnings: Texts
) -> None:
    """Counted, one line with the key; when one leaves, the next is accepted."""
    net = make_net(limits={"connections": 2})
    one, _ = come(net, "192.0.2.1"), come(net, "192.0.2.2")
    assert come(net, "192.0.2.3") is None
    assert come(net, "192.0.2.3") is None
    assert net.listener.rejected == {"connections": 2}
    assert warnings() == [
        "beats: 192.0.2.3:4000 refused: too many connections, limit 2 (limits.connections)"
    ]
    one.lose()
    assert come(net, "192.0.2.3") is not None
    assert (net.listener.traffic.accepted, net.listener.connections) == (3, 2)


def test_one_peer_can_not_take_all(make_net: Make, warnings: Texts) -> None:
    """limits.connections_per_peer is by address; others still get in."""
    net = make_net(limits={"connections_per_peer": 2})
    peers = [come(net) for _ in range(3)]
    assert peers[2] is None
    assert come(net, "192.0.2.2") is not None
    assert net.listener.rejected == {"connections_per_peer": 1}
    assert warnings()[0].endswith("limit 2 (limits.connections_per_peer)")
    peers[0].lose()
    assert come(net) is not None


def test_an_ipv6_peer_is_its_network(make_net: Make) -> None:
    """2^64 addresses of one peer share one limit; mapped IPv4 addresses do not."""
    net = make_net(limits={"connections_per_peer": 2})

    def come(host: str) -> Any:
        return net.connect(IPv6Address("TCP", host, 4000))

    first = come("2001:db8::1")
    assert come("2001:db8::2") is not None
    assert come("2001:db8::3") is None
    assert come("2001:db8:0:1::1") is not None
    first.lose()
    assert come("2001:db8::3") is not None
    assert all(come(f"::ffff:192.0.2.{number}") for number in range(1, 4))


def test_behind_a_proxy_the_real_peer_counts(make_net: Make) -> None:
    """All connections come from the load balancer; the limit is not for it."""
    net = make_net(
        proxy_protocol=ProxyProtocol(trusted=["10.0.0.1"]),
        limits={"connections_per_peer": 2},
    )

    def announce(real: str) -> Any:
        peer = come(net, "10.0.0.1")
        peer.send(f"PROXY TCP4 {real} 198.51.100.1 1 2\r\n".encode())
        return peer

    first = announce("192.0.2.1")
    assert not announce("192.0.2.1").transport.finished
    assert announce("192.0.2.1").transport.finished
    assert not announce("192.0.2.2").transport.finished
    assert net.listener.rejected == {"connections_per_peer": 1}
    first.lose()
    assert not announce("192.0.2.1").transport.finished


def test_descriptors_are_left_for_the_disk(
    make_net: Make, monkeypatch: pytest.MonkeyPatch, warnings: Texts
) -> None:
    """A connection that would take one of the last ones is rejected."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4, 4))
    net = make_net()
    assert come(net) is None
    assert net.listener.rejected == {"descriptors": 1}
    assert warnings()[0].endswith("too many open files, limit 2")


def test_it_survives_running_out_of_descriptors(with_reactor: Run) -> None:
    """Too many connections are rejected; the port lives, and the disk too."""
    result = with_reactor("""
        import resource, subprocess

        FLOOD = (
            "import socket, sys;"
            "from gateway.net.descriptors import raise_descriptor_limit as more; more();"
            "where = sys.argv[1], int(sys.argv[2]);"
            "clients = [socket.create_connection(where) for _ in range(400)];"
            "print(flush=True); sys.stdin.read()"
        )

        def talk():
            listener = serve()
            flood = subprocess.Popen(
                [sys.executable, "-c", FLOOD, *map(str, where(listener))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            flood.stdout.readline()
            until(lambda: listener.traffic.accepted + listener.rejected["descriptors"] >= 400)
            open("/dev/null").close()
            result["held"] = listener.connections
            result["rejected"] = listener.rejected["descriptors"]
            flood.communicate(b"")
            until(lambda: listener.connections == 0)
            client = connect(listener)
            client.sendall(b"still alive")
            result["echo"] = client.recv(99).decode()

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        run(talk)
    """)
    assert 100 < result["held"] <= 193
    assert result["rejected"] >= 200
    assert result["echo"] == "still alive"
