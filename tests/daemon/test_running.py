"""What a daemon says of itself and to systemd, as it runs and stops, and what time it goes by."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.task import LoopingCall
from twisted.scripts.twistd import ServerOptions

from deadlines import run
from gateway.daemon import notify
from gateway.daemon.clock import make_monotonic
from gateway.daemon.running import Running
from gateway.store.journal import Journal
from memory_daemon import listener

BEATS = listener("beats", "lumberjack", 5044)


def test_it_is_not_ready_while_the_journal_takes_nothing(start, monkeypatch):
    """A balancer sends elsewhere what would wait here; ready again once that is over."""
    running = start(BEATS).running
    assert running.status().ready
    with monkeypatch.context() as full:
        full.setattr(Journal, "why_full", "the disk is full")
        assert running.status().not_ready_reason == "the disk is full"
    assert running.status().ready


def test_it_is_not_ready_once_it_stops(start):
    """From its first step on: the admin port stays open until all is published."""
    running = start(BEATS).running
    seen: list[str | None] = []

    def stop() -> None:
        seen.append(running.status().not_ready_reason)
        raise EOFError

    running.opened.live.stop = stop  # type: ignore[method-assign]
    with pytest.raises(EOFError):
        running.stop().send(None)
    assert seen == ["stopping"]


@pytest.mark.parametrize(
    ("published", "said"),
    [
        (20, "Stopped: everything acknowledged (lsn {lsn}) is published"),
        (15, "Stopped: {waiting} acknowledged events (up to lsn {lsn}) wait in the "),
    ],
)
def test_its_last_word_says_whether_all_is_published(logged, published, said):
    """Whoever takes the disk away goes by that."""
    stopped: Any = Running.__new__(Running)
    stopped.opened = SimpleNamespace(
        storage=SimpleNamespace(
            journal=SimpleNamespace(durable_lsn=20),
            spool=SimpleNamespace(published_lsn=published, uploads=None),
        )
    )
    stopped._tell_stopped()
    [last] = logged
    assert last["log_format"].startswith(said)
    assert (last["lsn"], last["waiting"]) == (20, 20 - published)


def test_nobody_is_let_in_before_what_was_left_is_in_files(monkeypatch):
    """With `ack: spool`: whoever resumes is told how far it is."""
    monkeypatch.setattr("gateway.daemon.running.gc.freeze", lambda: None)
    served: list[bool] = []
    starts, ready = SimpleNamespace(start=lambda *_: None), Deferred[None]()
    waiting: Any = Running.__new__(Running)
    waiting.opened = SimpleNamespace(
        storage=SimpleNamespace(
            start=lambda: None,
            ready=ready,
            waits_for="what the last run left",
            journal=SimpleNamespace(durable_lsn=5),
        ),
        lake=SimpleNamespace(begin=lambda _: None),
        forwarder=None,
        protocols=starts,
    )
    waiting._loops = SimpleNamespace(every=lambda *_: None)
    waiting._others = SimpleNamespace(look=None)
    waiting.serve = lambda: served.append(True)
    waiting.start()
    assert not served
    assert waiting._phase == "what the last run left"
    ready.callback(None)
    assert served


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


class World:
    """A reactor that runs nothing by itself, a wall clock that can be set."""

    def __init__(self) -> None:
        self.monotonic, self.wall = 77.0, 1_700_000_000.0
        self.reactor = EPollReactor()
        make_monotonic(
            self.reactor, monotonic=lambda: self.monotonic, wall_clock=lambda: self.wall
        )

    def pass_time(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds
        self.reactor.runUntilCurrent()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    for call in world.reactor.getDelayedCalls():
        call.cancel()
    world.reactor.removeAll()


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_timers_do_not_follow_the_wall_clock(world, step):
    """Neither is called an hour early, nor an hour late, nor twice."""
    calls: list[str] = []
    world.reactor.callLater(10, calls.append, "once")
    loop = LoopingCall(calls.append, "loop")
    loop.clock = world.reactor
    loop.start(4, now=False)
    world.wall += step
    world.pass_time(3)
    assert calls == []
    world.pass_time(1)
    world.pass_time(4)
    assert calls == ["loop", "loop"]
    world.wall -= step
    world.pass_time(2)
    assert calls == ["loop", "loop", "once"]
    assert world.reactor.timeout() == 2
    loop.stop()


def test_time_begins_with_the_wall_clock(world):
    """So that a point in time that was kept over a restart means the same."""
    assert world.reactor.seconds() == 1_700_000_000.0
    world.pass_time(2.5)
    world.wall -= 3600
    assert world.reactor.seconds() == 1_700_000_002.5


@pytest.mark.parametrize(
    ("words", "pid_file"),
    [
        (["-n"], ""),
        ([], "twistd.pid"),
        (["-n", "--pidfile=/run/gw.pid"], "/run/gw.pid"),
    ],
)
def test_the_foreground_leaves_no_pid_file(tmp_path, words, pid_file):
    """twistd would leave one in whatever folder one is; who names one gets it."""
    file = tmp_path / "gateway.yaml"
    file.write_text(
        "listeners: [{name: beats, protocol: lumberjack, listen: 'tcp:127.0.0.1:0'}]"
    )
    options = ServerOptions()
    options.parseOptions([*words, "gateway", "--config", str(file)])
    assert options["pidfile"] == (pid_file and str(Path(pid_file).absolute()))


@pytest.mark.parametrize("words", [["--uid", "1"], ["--gid", "1"], ["--chroot", "/"]])
def test_nobody_becomes_somebody_else(tmp_path, capsys, words):
    """twistd would after the start, whose files would not be the daemon's to write."""
    options = ServerOptions()
    with pytest.raises(SystemExit):
        options.parseOptions(["-n", *words, "gateway", "--config", str(tmp_path)])
    assert "start it as the user that it is to be" in capsys.readouterr().err


def test_the_disk_reads_while_the_daemon_is_imported():
    """What takes long to import is not needed before the configuration was read."""
    code = "import sys, gateway.daemon.start; print(*sys.modules)"
    loaded = run(sys.executable, "-c", code).stdout.split()
    late = {"gateway.daemon.service", "pyarrow", "twisted.internet.reactor"}
    assert "gateway.config" in loaded
    assert not late.intersection(loaded)
