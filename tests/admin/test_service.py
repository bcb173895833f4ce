"""The admin port as a service: binding, saying where, another certificate, closing."""

import contextlib
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import SecretStr
from twisted.internet import reactor as real_reactor

from gateway.access import Access
from gateway.admin.metrics import Metrics
from gateway.admin.page import fixed_pages
from gateway.admin.site import Site
from gateway.config.listener import Tls
from gateway.config.model import Admin as AdminSettings
from gateway.daemon.admin_port import AdminPort
from gateway.net import CannotListen
from gateway.sdk.endpoint import parse_endpoint
from gateway_testkit.certificates import Authority
from gateway_testkit.daemon import free_port

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
Make = Callable[..., AdminPort]


def settings_of(
    listen: str, token: str | None = None, tls: Tls | None = None
) -> AdminSettings:
    return AdminSettings.model_validate(
        {
            "listen": parse_endpoint(listen),
            "token": None if token is None else SecretStr(token),
            "tls": tls,
        }
    )


@pytest.fixture
def make(daemon) -> Iterator[Make]:
    """Ports that are not open yet; the test's end closes them."""
    made: list[AdminPort] = []

    def make(listen: str, most: int = 256, **more: Any) -> AdminPort:
        settings, metrics = settings_of(listen, **more), Metrics(daemon.probe)
        site = Site(Access.to(settings), fixed_pages(daemon.probe, metrics), {})
        port = AdminPort(site, settings, metrics, real_reactor, most_connections=most)
        made.append(port)
        return port

    yield make
    for port in made:
        if port.running:
            stop(port)


def stop(admin: AdminPort) -> None:
    """Stop it and let the reactor close what it has to."""
    turn_until(admin.stopService, lambda stopped: stopped.called)


def turn_until(begin: Callable[[], Any], done: Callable[[Any], bool]) -> None:
    begun = begin()
    while not done(begun):
        real_reactor.iterate(0.01)  # type: ignore[attr-defined]


def connect(admin: AdminPort) -> socket.socket:
    host, number = admin.address.removeprefix("tcp:").rsplit(":", 1)
    return socket.create_connection((host, int(number)), timeout=10)


def answer(connection: Any) -> bytes:
    """What it is sent for a look at its health."""
    connection.sendall(HEALTH)
    return hear(connection, lambda got: got.endswith(b"ok\n"))


def hear(connection: Any, done: Callable[[bytes], bool]) -> bytes:
    """What it is sent, up to that or its end."""
    connection.setblocking(False)
    got = b""
    while not done(got):
        real_reactor.iterate(0.01)  # type: ignore[attr-defined]
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
            some = connection.recv(1000)
            if not some:
                return got
            got += some
    return got


def shaken(connection: socket.socket, authority: Authority) -> ssl.SSLSocket:
    """TLS with our port, whose loop this is."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    connection.setblocking(False)
    wrapped = context.wrap_socket(
        connection, server_hostname="localhost", do_handshake_on_connect=False
    )
    while True:
        real_reactor.iterate(0.01)  # type: ignore[attr-defined]
        with contextlib.suppress(ssl.SSLWantReadError):
            wrapped.do_handshake()
            return wrapped


def test_binds_where_told(make):
    """It binds the configured host and port, at start and not before."""
    number = free_port()
    admin = make(f"tcp:127.0.0.1:{number}")
    assert admin.address == f"tcp:127.0.0.1:{number}"
    with pytest.raises(ConnectionRefusedError):
        connect(admin)
    admin.startService()
    with connect(admin) as client:
        assert answer(client).startswith(b"HTTP/1.1 200 OK")


def test_a_reload_brings_another_certificate(make, tmp_path):
    """To connections that come; those that are there go on, the port stays open."""
    authority = Authority(tmp_path)
    admin = make("tcp:127.0.0.1:0")
    admin.startService()
    bound = admin.address
    with connect(admin) as plain:
        assert b"200 OK" in answer(plain)
        for name in ("one", "two"):
            tls = tls_of(authority, name)
            wanted = settings_of("tcp:127.0.0.1:0", tls=tls)
            admin.commit(admin.prepare(wanted), wanted)
            assert admin.address == bound
            with shaken(connect(admin), authority) as client:
                shown = client.getpeercert(binary_form=True)
                assert (
                    ssl.DER_cert_to_PEM_cert(shown or b"")
                    in tls.certificate.read_text()
                )
                assert b"200 OK" in answer(client)
        assert b"200 OK" in answer(plain)
    unusable = tls_of(authority, "three")
    unusable.certificate.write_text("nothing")
    with pytest.raises(CannotListen, match="listener admin: tls: "):
        admin.prepare(settings_of("tcp:127.0.0.1:0", tls=unusable))
    with shaken(connect(admin), authority) as client:
        assert b"200 OK" in answer(client)


def tls_of(authority: Authority, name: str) -> Tls:
    made = authority.issue(name)
    return Tls.model_construct(certificate=made.certificate, private_key=made.key)


def test_stop_closes_connections(make):
    """After the stop nobody is connected, nothing is scheduled."""
    admin = make("tcp:127.0.0.1:0")
    before = len(real_reactor.getDelayedCalls())  # type: ignore[attr-defined]
    admin.startService()
    with connect(admin) as client:
        assert b"200 OK" in answer(client)
        stopped = admin.stopService()
        assert hear(client, lambda _: False) == b""
    turn_until(lambda: stopped, lambda _: bool(stopped.called))
    left = real_reactor.getDelayedCalls()  # type: ignore[attr-defined]
    assert len(left) == before


def test_stop_before_start(make):
    """A service whose start failed can be stopped."""
    assert make("tcp:127.0.0.1:8080").stopService().called


def test_watches_the_reactor(make):
    """While it runs, the reactor's lag is observed every second."""
    admin = make("tcp:127.0.0.1:0")
    admin.startService()
    with connect(admin) as client:
        scrape = HEALTH.replace(b"healthz", b"metrics").replace(
            b"localhost\r\n", b"localhost\r\nAccept: application/openmetrics-text\r\n"
        )
        while True:
            client.setblocking(True)
            client.sendall(scrape)
            got = hear(client, lambda got: got.endswith(b"# EOF\n"))
            [count] = re.findall(rb"gateway_reactor_lag_seconds_count (\S+)", got)
            if float(count) > 1:
                break


def test_a_probe_behind_a_crowd(make):
    """Sockets that came in the same turn of the reactor, before it, take nothing from it."""
    admin = make("tcp:127.0.0.1:0", most=8)
    admin.startService()
    with contextlib.ExitStack() as sockets:
        for _ in range(40):
            sockets.enter_context(connect(admin))
        probe = sockets.enter_context(connect(admin))
        assert answer(probe).endswith(b"ok\n")
