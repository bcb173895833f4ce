"""File descriptors are few and somebody takes them: the disk and the probes have theirs."""

import contextlib
import socket
from collections.abc import Iterator

import pytest
from pylogbeat import PyLogBeatClient

from daemons import Daemon
from deadlines import eventually

FEW = 256


@pytest.fixture
def daemon(prepare, monkeypatch) -> Daemon:
    """One that may open few files."""
    made = prepare()
    command = ["sh", "-c", f'ulimit -n {FEW}; exec "$@"', "sh", *made.command]
    monkeypatch.setattr(Daemon, "command", property(lambda _: command))
    return made


@contextlib.contextmanager
def drips(address: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    """Connections that say a byte and no more."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(stack.enter_context(socket.create_connection(address, 60)))
            with contextlib.suppress(OSError):
                made[-1].send(b"G")
        yield made


def test_nobody_takes_the_last_ones(daemon):
    """400 sockets at either port: health answers, windows become files, the log is short."""
    daemon = daemon.start()
    host, port = daemon.admin.rsplit(":", 1)
    with (
        PyLogBeatClient(*daemon.address()) as client,
        drips((host, int(port)), 400),
        drips(daemon.address(), 400),
    ):
        assert daemon.get("/healthz") == b"ok\n"
        for number in range(5):
            client.send([{"number": number}])
        eventually(lambda: len(daemon.rows()) == 5, "all are published")
        assert daemon.get("/readyz") == b"ready\n"
    assert len(daemon.log.splitlines()) < 200
    assert "can not be published" not in daemon.log
