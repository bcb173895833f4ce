"""What systemd is told."""

import os
import socket
from collections.abc import Iterator

import pytest

from gateway.daemon import notify


@pytest.fixture(params=["path", "abstract"])
def systemd(request, tmp_path, monkeypatch) -> Iterator[socket.socket]:
    """The other end of $NOTIFY_SOCKET, a file or an abstract name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        if request.param == "path":
            address = shown = str(tmp_path / "notify")
        else:
            name = f"gateway-test-{os.getpid()}"
            address, shown = f"\0{name}", f"@{name}"
        end.bind(address)
        end.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", shown)
        yield end


def test_every_message(systemd):
    """Each is one datagram of lines, as sd_notify(3) has them."""
    heard = []
    for tell in (
        lambda: notify.ready("taking events on tcp:5044"),
        notify.ready,
        lambda: notify.ready("a\nREADY=1  b"),
        notify.stopping,
        notify.watchdog,
    ):
        assert tell() is True
        heard.append(systemd.recv(4096))
    assert heard == [
        b"READY=1\nSTATUS=taking events on tcp:5044",
        b"READY=1",
        b"READY=1\nSTATUS=a READY=1 b",
        b"STOPPING=1",
        b"WATCHDOG=1",
    ]


def test_reloading_has_its_time(systemd):
    """systemd takes a reload only with the monotonic time that it began."""
    assert notify.reloading()
    first, second = systemd.recv(4096).split(b"\n")
    assert first == b"RELOADING=1"
    assert second.startswith(b"MONOTONIC_USEC=")
    assert int(second.partition(b"=")[2]) > 0


@pytest.mark.parametrize("address", [None, "", "/nowhere/notify", "@nobody", "tcp:1"])
def test_nobody_listens(monkeypatch, address):
    """Without systemd nothing happens, and nothing fails."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert notify.ready() is False


def test_watchdog_seconds():
    """Half of what the unit allows, if it is meant for this process."""
    mine = {"WATCHDOG_USEC": "30000000"}
    assert notify.watchdog_seconds(mine) == 15.0
    assert notify.watchdog_seconds({**mine, "WATCHDOG_PID": str(os.getpid())}) == 15.0
    assert notify.watchdog_seconds({**mine, "WATCHDOG_PID": "1"}) is None
    assert notify.watchdog_seconds({}) is None
    assert notify.watchdog_seconds({"WATCHDOG_USEC": "x"}) is None
    assert notify.watchdog_seconds({"WATCHDOG_USEC": "0"}) is None
