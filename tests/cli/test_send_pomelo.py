"""`gateway send pomelo`: a program of its own, against a server in this one."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.interfaces import Refusal
from gateway.protocols.pomelo.auth import admission
from gateway.protocols.pomelo.events import decode
from gateway.protocols.pomelo.handshake import Handshake, Handshaker
from gateway.protocols.pomelo.routes import NONE
from gateway.protocols.pomelo.session import Ready, Session


class Server:
    """Answers 200 to all, at once; hangs up once after *mishap* batches."""

    address = ""

    def __init__(self, mishap: int, token: str | None) -> None:
        self.payloads: list[bytes] = []
        self.requests = 0
        self._mishap = mishap
        self._token = token

    def _session(self) -> Session:
        admit = admission(self._token, None)
        handshaker = Handshaker(
            NONE, admit, heartbeat=0, user_bytes=100, profiles={}, clients={}
        )
        return Session(
            handshaker, message_bytes=1 << 20, handshake_bytes=1 << 16, patience=100
        )

    def talk(self, peer: socket.socket) -> None:
        session = self._session()
        with contextlib.suppress(Refusal):
            while data := peer.recv(1 << 16):
                for step in session.received(data):
                    if isinstance(step, Handshake):
                        peer.sendall(step.reply)
                    elif isinstance(step, Ready):
                        rows = decode(step.body(1 << 20))
                        self.payloads += rows.payloads
                        self.requests += len(step.ids)
                        self._mishap -= 1
                        if not self._mishap:
                            return
                        peer.sendall(b"".join(session.answers(step)))


@pytest.fixture
def make_server(serve: Callable[..., str]) -> Callable[..., Server]:
    """Starts servers."""

    def make(mishap: int = 0, token: str | None = None) -> Server:
        server = Server(mishap, token)
        server.address = serve(server.talk)
        return server

    return make


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(name="send")
def _send(send: Run) -> Run:
    """Run `gateway send pomelo …`."""
    return lambda *words, **more: send("pomelo", *words, **more)


@pytest.mark.parametrize("extra", [[], ["--notify"]])
def test_generated(
    make_server: Callable[..., Server], send: Run, tmp_path: Path, extra: list[str]
) -> None:
    """All made-up events arrive; their ids are on record; the totals agree."""
    server = make_server()
    acked = tmp_path / "acked"
    run = send(server.address, "--generate", "500", "--connections", "2",
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


def test_a_server_that_hangs_up(make_server: Callable[..., Server], send: Run) -> None:
    """What was not answered is sent again; nothing is missing."""
    server = make_server(mishap=3)
    run = send(server.address, "--generate", "300", "--depth", "5", "--json")
    assert run.returncode == 0, run.stderr
    totals = json.loads(run.stdout)
    assert totals["connections"] == 2
    assert totals["resent"] > 0
    ids = {json.loads(payload)["event"]["id"] for payload in server.payloads}
    assert len(ids) == 300


def test_standard_input_and_a_token(
    make_server: Callable[..., Server], send: Run
) -> None:
    """Lines that are objects are sent as they are."""
    server = make_server(token="t0k")
    run = send(server.address, "--stdin", "--token", "t0k", stdin='{"a":1}\nplain\n')
    assert run.returncode == 0, run.stderr
    assert server.payloads[0] == b'{"a":1}'
    assert json.loads(server.payloads[1])["message"] == "plain"


def test_who_is_not_admitted(make_server: Callable[..., Server], send: Run) -> None:
    """The server's reason is told when patience ends."""
    server = make_server(token="t0k")
    run = send(server.address, "--patience", "1", "--token", "no")
    assert run.returncode == 1
    assert "nothing was acknowledged for 1 s" in run.stderr
