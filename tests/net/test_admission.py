"""Which connections are accepted: limits by number, by peer, by file descriptors, by guesses."""

import resource
import socket
import struct
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.task import Clock

from gateway.config.listener import ProxyProtocol
from gateway.event import network_of
from gateway.net import descriptors, penalties
from gateway.net.descriptors import descriptor_ceiling
from gateway.net.penalties import Penalties
from gateway.net.proxy import SIGNATURE_V2
from gateway.sdk.interfaces import Connection, Refusal
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
    """)
    assert 100 < result["held"] <= 193
    assert result["rejected"] >= 200
    assert result["echo"] == "still alive"


_WRONG = Refusal("wrong password", key="options.users", wrong_credentials=True)


def deny(connection: Connection, data: bytes) -> None:
    raise Refusal(
        "wrong token", key="options.token", reply=b"no", wrong_credentials=True
    )


def test_each_guess_waits_longer():
    """Up to a limit; after a quiet minute the next one is a mistake again."""
    clock = Clock()
    waits = Penalties(clock)
    found = [waits.add("192.0.2.1") for _ in range(8)]
    assert found == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert waits.add("192.0.2.2") == 0.0
    clock.advance(60)
    assert waits.add("192.0.2.1") == 5.0
    clock.advance(61)
    assert waits.add("192.0.2.1") == 0.0


def test_it_forgets_the_oldest_host():
    """A million hosts do not fill the memory."""
    waits = Penalties(Clock())
    for number in range(penalties._MOST_HOSTS + 100):
        waits.add(f"host-{number}")
    assert len(waits._hosts) == penalties._MOST_HOSTS


def test_the_answer_to_a_guess_waits(make_net, warnings):
    """All are counted, one is logged; what is sent meanwhile is not looked at."""
    told: list[str] = []
    net = make_net(deny, keywords={"on_wrong_credentials": told.append})
    first, second = net.peer(), net.peer()
    first.send(b"guess")
    assert first.got() == b"no"
    assert first.transport.finished
    second.send(b"guess")
    second.send(b"another")
    assert net.server.data == b"guess"
    assert second.transport.producerState == "paused"
    assert not second.transport.finished
    net.pass_time(0.25)
    assert second.got() == b"no"
    assert second.transport.finished
    assert told == ["beats", "beats"]
    assert net.listener.rejected == {"protocol": 2}
    assert len(warnings()) == 1


def test_who_leaves_before_the_answer_is_gone(make_net):
    """Nothing is written to a connection that is over."""
    net = make_net(deny)
    net.peer().send(b"guess")
    peer = net.peer()
    peer.send(b"guess")
    peer.lose()
    net.pass_time(1)
    assert peer.got() == b""
    assert net.listener.connections == 1


def test_a_report_ends_nothing(make_net, warnings):
    """It is logged within the same quota as refusals are, and not counted as one."""
    told: list[str] = []

    def report(connection: Connection, data: bytes) -> None:
        connection.report(_WRONG)

    net = make_net(report, keywords={"on_wrong_credentials": told.append})
    peer = net.peer()
    for _ in range(500):
        peer.send(b"x")
    assert warnings() == ["beats: 192.0.2.1:4000: wrong password (options.users)"]
    assert not peer.transport.finished
    assert net.listener.rejected == {}
    assert len(told) == 500


def test_a_report_says_how_long_the_answer_is_to_wait(make_net):
    """On any connection of the address; what are no credentials costs nothing."""
    waits: list[float] = []

    def report(connection: Connection, data: bytes) -> None:
        waits.append(connection.report(_WRONG if data == b"guess" else Refusal("odd")))

    net = make_net(report)
    for data in (b"guess", b"odd", b"guess", b"guess"):
        net.peer().send(data)
    net.peer("192.0.2.2").send(b"guess")
    assert waits == [0.0, 0.0, 0.25, 0.5, 0.0]


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:0:1:2::3", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("unix", "unix"),
    ],
)
def test_whom_a_host_is_counted_with(host, network):
    """An IPv4 address that a PROXY header maps to IPv6 is itself."""
    assert network_of(host) == network


@pytest.mark.parametrize(
    ("soft", "ceiling"),
    [(100, 50), (256, 192), (1024, 922), (65_536, 64_512), (-1, 1 << 20)],
)
def test_some_descriptors_are_left(soft, ceiling, monkeypatch):
    """A tenth, at least 64, at most 1024, and never more than half."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert descriptor_ceiling() == ceiling


@pytest.mark.parametrize(
    ("soft", "most"), [(100, 16), (256, 21), (1024, 34), (65_536, 341), (-1, 341)]
)
def test_the_admin_port_takes_a_part_of_them(soft, most, monkeypatch):
    """The disk has the rest, even while half as many more are being closed."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert descriptors.admin_connections() == most


@pytest.mark.parametrize(
    ("before", "after"),
    [((1024, 4096), 4096), ((1024, -1), 1 << 20), ((4096, 4096), 4096), ((-1, -1), -1)],
)
def test_the_soft_limit_is_lifted_to_the_hard_one(before, after, monkeypatch):
    """As far as it goes, and never down."""
    now = [before]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: now.append(pair))
    assert descriptors.raise_descriptor_limit() == after
    assert now[-1][0] == after
