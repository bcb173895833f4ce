"""Somebody sets the machine's clock while the daemon runs: only the times in events
follow it.
"""

import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pylogbeat import PyLogBeatClient

from daemons import Daemon
from deadlines import eventually

TWISTD = """
import signal, sys, time
from pathlib import Path

real, offset = time.time, 0.0
time.time = lambda: real() + offset

def set_clock(*_):
    global offset
    offset = float(Path("offset").read_text())
    Path("offset").rename("done")

signal.signal(signal.SIGUSR2, set_clock)
sys.argv[0] = "twistd"
from twisted.scripts.twistd import run
run()
"""
HOUR = 3600


@pytest.fixture
def daemon(prepare, monkeypatch, tmp_path) -> Daemon:
    """One whose wall clock is the test's."""
    script = tmp_path / "twistd.py"
    script.write_text(TWISTD)
    made = prepare()
    command = [sys.executable, str(script), *made.command[1:]]
    monkeypatch.setattr(Daemon, "command", property(lambda _: command))
    return made.start()


def set_clock(daemon: Daemon, seconds: float) -> None:
    """So many seconds from what it really is."""
    home = Path(f"/proc/{daemon.pid}/cwd").resolve()
    (home / "offset").write_text(str(seconds))
    os.kill(daemon.pid, signal.SIGUSR2)
    eventually((home / "done").exists, "the clock is set")
    (home / "done").unlink()


def timers_go_on(daemon: Daemon) -> None:
    """For so long that the listener has looked for idle connections."""

    def ticks() -> int:
        name = b"gateway_reactor_lag_seconds_count "
        return int(float(daemon.get("/metrics").partition(b"\n" + name)[2].split()[0]))

    before = ticks()
    eventually(lambda: ticks() >= before + 4, "timers go on")


def times(daemon: Daemon) -> list[datetime]:
    daemon.settled()
    return [row["received_at"] for row in daemon.rows()]


def test_an_hour_forward_and_two_back(daemon):
    """Connections stay open, windows are acknowledged, files published, as ever."""
    with PyLogBeatClient(*daemon.address()) as client:
        client.send([{"number": 1}])
        timers_go_on(daemon)
        set_clock(daemon, HOUR)
        timers_go_on(daemon)
        client.send([{"number": 2}])
        first, ahead = times(daemon)
        assert ahead - first >= timedelta(hours=1)
        set_clock(daemon, -HOUR)
        timers_go_on(daemon)
        client.send([{"number": 3}])
        assert times(daemon)[2:] == [ahead], "it does not run backwards"
        with PyLogBeatClient(*daemon.address()) as other:
            other.send([{"number": 4}])
        back = times(daemon)[3]
        assert back < datetime.now(UTC) - timedelta(minutes=30)
    assert daemon.listener()["rejected"] == {}
