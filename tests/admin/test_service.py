"""The admin port as a service: binding, saying where, closing."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import reactor as real_reactor
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock, StringTransport

from gateway.admin.access import Misconfigured
from gateway.admin.connections import Guard
from gateway.admin.metrics import Metrics
from gateway.admin.service import Admin, admin_site
from gateway.net.turns import Turns
from gateway.sdk.endpoint import Tcp, parse_endpoint


def make(
    daemon: Any, listen: str, token: str | None = None, reactor: Any = None
) -> Admin:
    reactor, metrics = reactor or MemoryReactorClock(), Metrics(daemon.probe)
    where = parse_endpoint(listen)
    return Admin(
        admin_site(where, token, daemon.probe, metrics, reactor, Guard(Turns(reactor))),
        metrics,
        reactor,
    )


def stop(admin: Admin) -> None:
    """Stop it and let the reactor close what it has to."""
    stopped = admin.stopService()
    while not stopped.called:
        real_reactor.iterate(0)


def connect(reactor: MemoryReactorClock) -> tuple[Any, StringTransport]:
    """One more connection to the only port, as the reactor would make it."""
    factory = reactor.tcpServers[0][1]
    protocol = factory.buildProtocol(None)
    transport = StringTransport()
    if protocol is not None:
        protocol.makeConnection(transport)
    return protocol, transport


def test_unguarded_is_refused_before_it_binds(daemon: Any) -> None:
    """A reachable port without a token is no service at all."""
    with pytest.raises(Misconfigured, match=r"admin\.token"):
        make(daemon, "tcp:0.0.0.0:8080")
    assert make(daemon, "tcp:0.0.0.0:8080", "s3cret").url == "http://127.0.0.1:8080/"


def test_binds_where_told(daemon: Any) -> None:
    """It binds the configured host and port, at start and not before."""
    reactor = MemoryReactorClock()
    admin = make(daemon, "tcp:127.0.0.1:8080", reactor=reactor)
    assert reactor.tcpServers == []
    admin.startService()
    port, _, _, interface = reactor.tcpServers[0]
    assert (interface, port) == ("127.0.0.1", 8080)


def test_port_zero(daemon: Any) -> None:
    """With port 0 the address and the URL show the port that was found."""
    admin = make(daemon, "tcp:127.0.0.1:0", reactor=real_reactor)
    assert admin.address == "tcp:127.0.0.1:0"
    admin.startService()
    port = int(admin.address.rpartition(":")[2])
    try:
        assert port > 0
        assert admin.url == f"http://127.0.0.1:{port}/"
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    finally:
        stop(admin)


def test_ipv6_is_bracketed(daemon: Any) -> None:
    """An IPv6 host stands in brackets wherever it is shown."""
    admin = make(daemon, "tcp:[::1]:8080")
    assert admin.address == "tcp:[::1]:8080"
    assert admin.url == "http://[::1]:8080/"


def test_taken_port(daemon: Any) -> None:
    """A port that is taken fails the start with its address."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        admin = make(daemon, f"tcp:127.0.0.1:{number}", reactor=real_reactor)
        with pytest.raises(CannotListenError, match=rf"127\.0\.0\.1:{number}"):
            admin.startService()


def test_socket_file(daemon: Any, tmp_path: Path) -> None:
    """A socket file is for its owner and group, and gone after the stop."""
    path = tmp_path / "admin"
    admin = make(daemon, f"unix:{path}", reactor=real_reactor)
    admin.startService()
    assert admin.address == f"unix:{path}"
    assert admin.url is None
    assert path.stat().st_mode & 0o777 == 0o660
    stop(admin)
    assert list(tmp_path.iterdir()) == []


def test_stop_closes_connections(daemon: Any) -> None:
    """After the stop nobody is connected, nothing is scheduled."""
    reactor = MemoryReactorClock()
    admin = make(daemon, "tcp:127.0.0.1:8080", reactor=reactor)
    admin.startService()
    protocol, transport = connect(reactor)
    protocol.dataReceived(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in transport.value()
    admin.stopService()
    assert transport.disconnecting
    protocol.connectionLost(None)
    assert reactor.getDelayedCalls() == []


def test_stop_before_start(daemon: Any) -> None:
    """A service whose start failed can be stopped."""
    make(daemon, "tcp:127.0.0.1:8080").stopService()


def test_watches_the_reactor(daemon: Any) -> None:
    """While it runs, the reactor's lag is observed every second."""
    reactor = MemoryReactorClock()
    metrics = Metrics(daemon.probe)
    site = admin_site(
        Tcp("127.0.0.1", 0), None, daemon.probe, metrics, reactor, Guard(Turns(reactor))
    )
    admin = Admin(site, metrics, reactor)
    admin.startService()
    reactor.advance(1)
    reactor.advance(1)
    admin.stopService()
    name = "gateway_reactor_lag_seconds_count"
    assert metrics.registry.get_sample_value(name) == 2


def test_a_probe_behind_a_crowd(daemon: Any) -> None:
    """Sockets that came in the same turn of the reactor, before it, take nothing from it."""
    metrics = Metrics(daemon.probe)
    where = Tcp("127.0.0.1", 0)
    site = admin_site(
        where, None, daemon.probe, metrics, real_reactor, Guard(Turns(real_reactor))
    )
    admin = Admin(site, metrics, real_reactor, most_connections=8)
    admin.startService()
    host, port = admin.address.removeprefix("tcp:").rsplit(":", 1)
    with contextlib.ExitStack() as sockets:

        def connect() -> socket.socket:
            return sockets.enter_context(socket.create_connection((host, int(port))))

        for _ in range(40):
            connect()
        probe = connect()
        probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        probe.setblocking(False)
        answer = b""
        while not answer.endswith(b"ok\n"):
            real_reactor.iterate(0)
            with contextlib.suppress(BlockingIOError):
                some = probe.recv(1000)
                assert some, answer
                answer += some
        stop(admin)
