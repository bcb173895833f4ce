"""`gateway send pomelo`: a program of its own, against a server in this one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.interfaces import Refusal
from gateway.pomelo import decode
from gateway.pomelo.auth import admission
from gateway.pomelo.handshake import Greeter, Greeting
from gateway.pomelo.routes import NONE
from gateway.pomelo.session import Ready, Session

_ROOT = Path(__file__).parents[2]


class Server(threading.Thread):
    """Answers 200 to all, at once; hangs up once after *mishap* batches."""

    def __init__(self, mishap: int = 0, token: str | None = None) -> None:
        super().__init__(daemon=True)
        self.payloads: list[bytes] = []
        self.routes: set[str | None] = set()
        self.requests = 0
        self._mishap = mishap
        self._token = token
        self._port = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._port.getsockname()[1]}"

    def run(self) -> None:
        while True:
            try:
                peer, _ = self._port.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[peer], daemon=True).start()

    def _session(self) -> Session:
        admit = admission(self._token, None)
        greeter = Greeter(
            NONE, admit, heartbeat=0, user_bytes=100, profiles={}, clients={}
        )
        return Session(
            greeter, message_bytes=1 << 20, handshake_bytes=1 << 16, patience=100
        )

    def _serve(self, peer: socket.socket) -> None:
        session = self._session()
        with peer, contextlib.suppress(Refusal):
            while data := peer.recv(1 << 16):
                for step in session.received(data):
                    if isinstance(step, Greeting):
                        peer.sendall(step.reply)
                    elif isinstance(step, Ready):
                        rows = decode(step.body(1 << 20))
                        self.payloads += rows.payloads
                        self.requests += len(step.ids)
                        self._mishap -= 1
                        if not self._mishap:
                            return
                        peer.sendall(b"".join(session.answers(step)))

    def close(self) -> None:
        self._port.close()


@pytest.fixture
def make_server() -> Iterator[Callable[..., Server]]:
    """Starts servers; ends them."""
    servers = []

    def make(**options: Any) -> Server:
        server = Server(**options)
        servers.append(server)
        server.start()
        return server

    yield make
    for server in servers:
        server.close()


def _send(
    *arguments: str, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    program = "import sys; from gateway.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", program, "send", "pomelo", *arguments],
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("extra", [[], ["--notify"]])
def test_generated(
    make_server: Callable[..., Server], tmp_path: Path, extra: list[str]
) -> None:
    """All made-up events arrive; their ids are on record; the totals agree."""
    server = make_server()
    acked = tmp_path / "acked"
    run = _send(server.address, "--generate", "500", "--connections", "2",
                "--acked", str(acked), "--json", *extra)  # fmt: skip
    assert run.returncode == 0, run.stderr
    totals = json.loads(run.stdout)
    assert (totals["sent"], totals["acknowledged"], totals["complete"]) == (
        500, 500, True,
    )  # fmt: skip
    assert server.requests < 50 if extra else server.requests == 500
    ids = {json.loads(payload)["event"]["id"] for payload in server.payloads}
    assert len(ids) == len(server.payloads) == 500
    assert sorted(ids) == sorted(acked.read_text().split())


def test_a_server_that_hangs_up(make_server: Callable[..., Server]) -> None:
    """What was not answered is sent again; nothing is missing."""
    server = make_server(mishap=3)
    run = _send(server.address, "--generate", "300", "--depth", "5", "--json")
    assert run.returncode == 0, run.stderr
    totals = json.loads(run.stdout)
    assert totals["connections"] == 2
    assert totals["resent"] > 0
    ids = {json.loads(payload)["event"]["id"] for payload in server.payloads}
    assert len(ids) == 300


def test_standard_input_and_a_token(make_server: Callable[..., Server]) -> None:
    """Lines that are objects are sent as they are."""
    server = make_server(token="t0k")
    run = _send(server.address, "--stdin", "--token", "t0k", stdin='{"a":1}\nplain\n')
    assert run.returncode == 0, run.stderr
    assert server.payloads[0] == b'{"a":1}'
    assert json.loads(server.payloads[1])["message"] == "plain"


def test_who_is_not_admitted(make_server: Callable[..., Server]) -> None:
    """The server's reason is told when patience ends."""
    server = make_server(token="t0k")
    run = _send(server.address, "--patience", "1", "--token", "no")
    assert run.returncode == 1
    assert "nothing was acknowledged for 1 s" in run.stderr
