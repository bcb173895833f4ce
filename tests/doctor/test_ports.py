"""The doctor looks at ports: free, the daemon's own, or somebody else's."""

import errno
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.config import Config
from gateway.doctor import ports
from gateway.doctor.look import Look
from gateway.doctor.ports import examine
from gateway.store.system.lock import Lock, lock
from gateway_testkit.daemon import free_port


def at(config: Config) -> Look:
    """The look at the listener."""
    [found] = [one for one in examine(config) if one.what.startswith("listeners[0]")]
    return found


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of this process."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def daemon(tmp_path) -> Iterator[Lock]:
    """This process has the data directory locked."""
    held = lock(tmp_path / "data/lock", "gateway gw-1")
    yield held
    held.release()


def test_a_free_port(make):
    """It is free afterwards, too; port 0 is any."""
    port = free_port()
    for listen in (f"tcp:127.0.0.1:{port}", f"tcp:{port}", "tcp:0", "systemd:x"):
        assert at(make(f"listen: '{listen}'")).state == "ok"
    socket.create_server(("127.0.0.1", port)).close()


def test_a_port_that_gateways_share(make, taken):
    """It is free for one more, if all of them say so."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        look = at(make(f"listen: 'tcp:127.0.0.1:{port}', reuse_port: true"))
        assert (look.state, look.detail) == (
            "ok",
            "free to share; listening there now: 1",
        )
        assert at(make(f"listen: 'tcp:127.0.0.1:{port}'")).state == "fail"
    look = at(make(f"listen: 'tcp:127.0.0.1:{taken}', reuse_port: true"))
    assert look.state == "fail"


@pytest.mark.parametrize("host", ["127.0.0.1:", ""])
def test_a_port_that_another_program_has(make, taken, host):
    look = at(make(f"listen: 'tcp:{host}{taken}'"))
    assert (look.state, look.detail) == ("fail", "another program listens there")
    assert "ss -ltnp" in look.advice


def test_a_port_of_the_running_daemon(make, taken, daemon):
    """It holds the lock and the port: that is as it should be."""
    config = make(f"listen: 'tcp:127.0.0.1:{taken}'")
    look = at(config)
    assert look == Look(
        "ok", look.what, f"taken by gateway gw-1, pid {os.getpid()}", ""
    )
    assert next(examine(config)).detail.startswith("gateway gw-1, pid")


@pytest.mark.parametrize(
    ("theirs", "ours", "state"),
    [
        (("127.0.0.1", False), "tcp:[::]:{}", "fail"),
        (("::", True), "tcp:[::]:{}", "fail"),
        (("::", True), "tcp:{}", "ok"),
        (("::", False), "tcp:{}", "fail"),
    ],
)
def test_addresses_of_both_kinds(make, theirs, ours, state):
    """As the daemon binds them: a port alone is IPv4, `[::]` is both."""
    address, alone = theirs
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as other:
        if family == socket.AF_INET6:
            other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, alone)
        other.bind((address, 0))
        other.listen()
        port = other.getsockname()[1]
        assert at(make(f"listen: '{ours.format(port)}'")).state == state


def test_the_port_of_the_job(make, taken, tmp_path):
    """A job that runs has its own; one whose port is taken goes on without."""
    config = make(spark=f"{{admin: {{listen: 'tcp:127.0.0.1:{taken}'}}}}")

    def look() -> Look:
        [found] = [one for one in examine(config) if one.what.startswith("spark.")]
        return found

    assert look().state == "warn"
    held = lock(tmp_path / "data/lake/.gateway/lock", "gateway spark")
    assert (look().state, look().detail) == (
        "ok",
        f"taken by gateway spark, pid {os.getpid()}",
    )
    held.release()
    config = make(spool="{after: keep}")
    assert not [one for one in examine(config) if one.what.startswith("spark.")]


def test_a_daemon_runs_and_somebody_else_has_its_port(make, taken, daemon, monkeypatch):
    monkeypatch.setattr(ports, "_sockets_of", lambda holder: {"1"})
    look = at(make(f"listen: 'tcp:127.0.0.1:{taken}'"))
    assert look.state == "fail"
    assert "another program than gateway gw-1" in look.detail


def test_a_daemon_of_another_user(make, taken, daemon, monkeypatch):
    """Whose sockets can not be told has its ports."""
    monkeypatch.setattr(ports, "_sockets_of", lambda holder: None)
    assert at(make(f"listen: 'tcp:127.0.0.1:{taken}'")).state == "ok"


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (errno.EACCES, "CAP_NET_BIND_SERVICE"),
        (errno.EADDRNOTAVAIL, "no such address"),
        (errno.EINVAL, "choose another"),
    ],
)
def test_a_port_that_can_not_be_bound(make, monkeypatch, number, word):
    def bind(self: object, address: object) -> None:
        raise OSError(number, os.strerror(number))

    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket, "socket", Socket)
    look = at(make("listen: 'tcp:127.0.0.1:80'"))
    assert look.state == "fail"
    assert word in look.advice


def test_a_name_that_nobody_knows(make):
    look = at(make("listen: 'tcp:nobody.invalid:7'"))
    assert look.state == "fail"
    assert "nobody.invalid" in look.detail


def test_unix_sockets(make, tmp_path, daemon):
    """Free; left by a process that is gone; taken; no socket; no directory."""
    path = tmp_path / "s"
    config = make(f"listen: 'unix:{path}'")
    assert at(config).detail == "free"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        assert at(config).detail.startswith("taken by gateway gw-1")
        daemon.release()
        assert at(config).state == "fail"
    assert at(config).state == "ok"
    assert "is replaced" in at(config).detail
    path.unlink()
    path.touch()
    assert at(config).state == "fail"
    look = at(make(f"listen: 'unix:{tmp_path}/none/s'"))
    assert look.state == "fail"
    assert "RuntimeDirectory" in look.advice


def test_a_unix_socket_in_a_directory_of_somebody_else(make, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    look = at(make(f"listen: 'unix:{tmp_path}/s'"))
    assert look.state == "fail"
    assert "chown" in look.advice
