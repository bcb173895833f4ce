"""`gateway top`: what it shows, and how it behaves in a real terminal."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from deadlines import environment, eventually
from gateway import cli
from gateway.cli._view import View

LISTENER = {
    "name": "beats",
    "protocol": "lumberjack",
    "address": "127.0.0.1:5044",
    "connections": 2,
    "events": 1000,
    "bytes": 1 << 20,
    "rejected": {"tls": 1},
}
WELL = {
    "node": "gw-1",
    "version": "1",
    "uptime_seconds": 90.0,
    "sentence": "All well: the newest event in the table is 1.8 s old.",
    "listeners": [LISTENER],
    "journal": {"durable_lsn": 1000},
    "spool": {"files": 1, "bytes": 2048},
    "spark": {"up": 1, "last_batch_seconds": 0.7, "rows": 900},
    "freshness": {
        "level": "good",
        "stands": None,
        "age_seconds": 1.8,
        "room_seconds": None,
        "waiting_bytes": 2048,
        "listeners": {"beats": 1.8},
    },
}
BAD = {
    **WELL,
    "sentence": "Spark has been silent for 4 min: start it.",
    "freshness": {
        **WELL["freshness"],  # type: ignore[dict-item]
        "level": "bad",
        "stands": "spark",
    },
}
SAMPLE = {"ack_p50": 0.0031, "ack_p99": 0.0125}
REJECTION = {"listener": "beats", "peer": "192.0.2.9:1", "why": "\x1b[2J", "count": 3}


def screen(view: View, width: int = 120) -> str:
    shown = StringIO()
    Console(file=shown, width=width, height=40).print(view)
    return shown.getvalue()


def told(view: View, status: dict[str, Any], at: float) -> None:
    view.heard("status", {"status": status, "sample": SAMPLE}, at)


def test_what_it_shows():
    """The sentence first; numbers; what happens in a second; listeners."""
    view = View("127.0.0.1:8080")
    assert screen(view).startswith("Asking the gateway at 127.0.0.1:8080 …")
    told(view, WELL, at=10.0)
    later = {**LISTENER, "events": 5000, "bytes": 3 << 20}
    told(view, {**WELL, "listeners": [later]}, at=12.0)
    text = screen(view)
    assert text.split("\n")[0].strip() == WELL["sentence"]
    assert "senders → listeners → journal → spool → spark → tables" in text
    assert "taken 2,000 events/s, 1.0 MiB/s" in text
    assert "acknowledged 3.1 ms median, 12.5 ms p99" in text
    assert "spark runs   last batch 0.7 s   rows 900" in text
    [row] = [line for line in text.splitlines() if line.startswith("beats")]
    assert row.split()[:7] == [
        "beats", "lumberjack", "127.0.0.1:5044", "2", "2,000", "1.0", "MiB",
    ]  # fmt: skip
    assert row.split()[-4:] == ["5,000", "1", "1.8", "s"]


def test_whom_it_rejected():
    """Lately; what a peer chose plays no tricks on the terminal."""
    view = View("127.0.0.1:8080")
    told(view, WELL, at=1.0)
    view.heard("rejections", [REJECTION] * 9, 1.0)
    rows = [line for line in screen(view).splitlines() if "192.0.2.9:1" in line]
    assert len(rows) == 5
    assert rows[0].split() == ["beats", "192.0.2.9:1", "\\u001b[2J", "3"]


def test_a_gateway_that_is_gone():
    """Is said in the first line, above the last that was known of it."""
    view = View("127.0.0.1:8080")
    told(view, WELL, at=1.0)
    view.trouble = "connection refused"
    first, *rest = screen(view).splitlines()
    assert first.strip() == (
        "No gateway answers at 127.0.0.1:8080: connection refused; trying again …"
    )
    assert not any("All well" in line for line in rest)
    told(view, WELL, at=2.0)
    assert "All well" in screen(view)


def test_a_daemon_that_was_started_again():
    """Its counters begin anew: nothing is less than nothing a second."""
    view = View("a")
    told(view, WELL, at=1.0)
    told(view, {**WELL, "listeners": [{**LISTENER, "events": 0, "bytes": 0}]}, at=2.0)
    assert "taken 0 events/s, 0 B/s" in screen(view)


def test_a_small_terminal():
    """Nothing is wider than it."""
    view = View("a")
    told(view, WELL, at=1.0)
    lines = screen(view, width=60).splitlines()
    assert max(map(len, lines)) <= 60
    [row] = [line for line in lines if line.startswith("beats")]
    assert row.split() == ["beats", "lumberjack", "2", "0", "1.8", "s"]


def test_elsewhere_than_in_a_terminal(capsys):
    """Is wrong use: there is `gateway status`."""
    assert cli.main(["top", "--address", "127.0.0.1:1"]) == 2
    assert "gateway status" in capsys.readouterr().err


class Tmux:
    """A real terminal."""

    def __init__(self, home: Path) -> None:
        self._socket = home / "tmux"

    def __call__(self, *words: object) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, "-f", "/dev/null", *map(str, words)],
            capture_output=True, text=True, env=environment(), check=False,
        )  # fmt: skip
        return done.stdout

    def shows(self, text: str) -> str:
        """Its screen, once that is on it."""

        def look() -> str:
            screen = self("capture-pane", "-p")
            return screen if text in screen else ""

        return str(eventually(look, f"{text!r} on the screen"))


@pytest.fixture
def tmux(tmp_path) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("there is no tmux")
    terminal = Tmux(tmp_path)
    yield terminal
    terminal("kill-server")


@pytest.mark.needs_apt
def test_in_a_terminal(tmux, serve):
    """It draws what it is told, at once; says who does not answer; takes keys; and leaves
    the terminal as it found it.
    """
    peers: list[socket.socket] = []

    def feed(peer: socket.socket) -> None:
        peer.recv(1 << 16)
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        tell(peer, WELL)
        peers.append(peer)
        peer.recv(1)  # until it leaves

    def tell(peer: socket.socket, status: dict[str, Any]) -> None:
        data = json.dumps({"status": status, "sample": SAMPLE})
        peer.sendall(f"event: status\ndata: {data}\n\n".encode())

    address = serve(feed)
    tmux("new-session", "-d", "-x", "110", "-y", "30", "bash --norc")
    command = f"{sys.executable} -m gateway top --address {address}; echo left=$?"
    tmux("send-keys", command, "Enter")
    screen = tmux.shows("All well: the newest event in the table is 1.8 s old.")
    assert "acknowledged 3.1 ms median, 12.5 ms p99" in screen
    assert "127.0.0.1:5044" in screen
    tell(peers[0], BAD)
    tmux.shows("Spark has been silent for 4 min: start it.")
    tmux("send-keys", "p")
    tmux.shows("the picture stands")
    tmux("send-keys", "p")
    peers[0].shutdown(socket.SHUT_RDWR)
    tmux.shows("All well")  # it connects again
    tmux("send-keys", "q")
    screen = tmux.shows("left=0")
    assert "All well" not in screen
