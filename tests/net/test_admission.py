"""Which connections are accepted: limits by number, by peer, by file descriptors."""

import resource
import socket
import struct
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address

from gateway.config.listener import ProxyProtocol
from gateway.net.proxy import SIGNATURE_V2
from making import Make


def come(net: Any, host: str = "192.0.2.1") -> Any:
    return net.connect(IPv4Address("TCP", host, 4000))


def test_more_connections_than_allowed_are_rejected(make_net, warnings):
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


def test_one_peer_can_not_take_all(make_net, warnings):
    """limits.connections_per_peer is by address; others still get in."""
    net = make_net(limits={"connections_per_peer": 2})
    peers = [come(net) for _ in range(3)]
    assert peers[2] is None
    assert come(net, "192.0.2.2") is not None
    assert net.listener.rejected == {"connections_per_peer": 1}
    assert warnings()[0].endswith("limit 2 (limits.connections_per_peer)")
    peers[0].lose()
    assert come(net) is not None


def proxied(host: str, name: str) -> bytes:
    """A PROXY v2 header of a client from there, whose certificate has this name."""
    cn = name.encode()
    ssl = b"\x07" + bytes(4) + b"\x22" + struct.pack(">H", len(cn)) + cn
    tlv = b"\x20" + struct.pack(">H", len(ssl)) + ssl
    ends = socket.inet_aton(host) + socket.inet_aton("198.51.100.1") + bytes(4)
    head = SIGNATURE_V2 + b"\x21\x11" + struct.pack(">H", len(ends + tlv))
    return head + ends + tlv


class Crowd:
    """Connections of one address, to a listener of ten places, two of them for each."""

    def __init__(self, make_net: Make, **changes: Any) -> None:
        limits = {"connections": 10, "connections_per_peer": 2}
        self.net = make_net(limits=limits, **changes)

    def come(self, host: str = "192.0.2.1") -> Any:
        return come(self.net, host)

    def bring(self, host: str = "192.0.2.1") -> Any:
        """One that brings an event."""
        peer = self.come(host)
        peer.connection.count(events=1)
        return peer


def test_who_brings_a_message_leaves_room_for_others(make_net, warnings):
    """A site behind one address gets in, while half of all places are free; beyond that it
    has as many as anybody.
    """
    crowd = Crowd(make_net)
    peers = [crowd.bring() for _ in range(5)]
    assert crowd.come() is not None
    assert crowd.come() is None
    assert warnings()[0].endswith(
        "too many connections from one peer, half of limits.connections being taken, "
        "limit 2 (limits.connections_per_peer)"
    )
    assert all(crowd.come("192.0.2.2") for _ in range(2))
    for peer in peers:
        peer.lose()
    assert crowd.come() is not None


def test_who_brings_nothing_takes_no_more_places(make_net, warnings):
    """However many of its address have brought something, and whatever it sends."""
    crowd = Crowd(make_net)
    crowd.bring()
    strangers = [crowd.come() for _ in range(2)]
    assert crowd.come() is None
    assert "from one peer that have brought nothing yet, limit 2" in warnings()[0]
    for stranger in strangers:
        stranger.send(b"half a message")
    assert crowd.come() is None
    strangers[0].lose()
    assert crowd.come() is not None
    strangers[1].connection.introduced()
    assert crowd.come() is not None
    assert crowd.come() is None


def test_who_is_let_in_stays(make_net):
    """When half of the places are taken, nobody has to go; all are forgotten at the end."""
    crowd = Crowd(make_net)
    peers = [crowd.bring() for _ in range(5)]
    peers += [crowd.come(f"192.0.2.{number}") for number in range(2, 7)]
    assert crowd.net.listener.connections == 10
    for peer in peers:
        peer.connection.count(events=1)
        peer.lose()
    found = crowd.net.listener.traffic.peers
    assert not found.addresses | found.strangers | found.names


def test_a_principal_has_places_of_its_own(make_net):
    """Those that prove different names behind one address are different peers, however
    full the listener is; one name has as many as one address, and then counts for that.
    """
    crowd = Crowd(make_net)
    for number in range(6):
        peer = crowd.come()
        peer.connection.origin.principal = f"agent-{number}"
        peer.connection.count(events=1)
    peers = crowd.net.listener.traffic.peers
    assert peers.names.total() == 6
    assert not peers.addresses
    shared = [crowd.come() for _ in range(2)]
    for peer in shared:
        peer.connection.origin.principal = "agent-5"
        peer.connection.introduced()
    assert peers.names["agent-5"] == 2
    assert peers.addresses == {"192.0.2.1": 1}
    assert not peers.strangers
    shared[0].lose()
    shared[1].lose()
    assert peers.names["agent-5"] == 1


@pytest.mark.parametrize("named", [True, False])
def test_a_certificate_is_waited_for(make_net, make_tls, tls_peer, authority, named):
    """Half of the places are taken, and those of its address: who shows one is let in."""
    client_auth = {"client_auth": "optional", "client_ca": authority.ca}
    crowd = Crowd(make_net, tls=make_tls(**client_auth))
    names = crowd.net.listener.traffic.peers.names
    for number in range(6):
        cert = authority.issue(f"agent-{number}")
        peer = tls_peer(crowd.come(), cert=cert)
        peer.shake_hands()
    assert names.total() == 6
    peers = [tls_peer(crowd.come()) for _ in range(2)]
    for peer in peers:
        peer.shake_hands()
        peer.peer.connection.introduced()
    last = tls_peer(crowd.come(), cert=authority.issue("agent-7") if named else None)
    last.shake_hands()
    assert names.total() == 6 + named
    assert last.peer.transport.finished is not named
    rejected = crowd.net.listener.rejected
    assert rejected == ({} if named else {"connections_per_peer": 1})


def test_a_name_that_a_balancer_brings(make_net):
    """It is known with the header, and counts as one that a certificate proves."""
    crowd = Crowd(
        make_net, proxy_protocol=ProxyProtocol(trusted=["10.0.0.1"], names=True)
    )
    for number in range(8):
        peer = crowd.come("10.0.0.1")
        peer.send(proxied("192.0.2.1", f"agent-{number}"))
        assert not peer.transport.finished
    assert crowd.net.listener.traffic.peers.names.total() == 8


def test_an_ipv6_peer_is_its_network(make_net):
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


def test_behind_a_proxy_the_real_peer_counts(make_net):
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


def test_descriptors_are_left_for_the_disk(make_net, monkeypatch, warnings):
    """A connection that would take one of the last ones is rejected."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4, 4))
    net = make_net()
    assert come(net) is None
    assert net.listener.rejected == {"descriptors": 1}
    assert warnings()[0].endswith("too many open files, limit 2")


def test_it_survives_running_out_of_descriptors(with_reactor):
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
