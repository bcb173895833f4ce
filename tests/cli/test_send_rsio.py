"""`gateway send rsio`: a program of its own, against our server in this one."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway import cli
from gateway.protocols.rsio.events import decode
from gateway.protocols.rsio.options import Options
from gateway.protocols.rsio.server import accept
from gateway.testing import ManualJournal
from gateway.testing.settings import settings as settings_of

Run = Callable[..., subprocess.CompletedProcess[str]]


class Gate:
    """A gateway at a port."""

    def __init__(
        self, serve: Any, make_daemon: Any, *, mishap: int = 0, **options: Any
    ) -> None:
        clock = Clock()
        clock.advance(1_700_000_000)
        self.journal = ManualJournal()
        settings = settings_of(Options, {}, **options)
        listener = accept(settings, self.journal, clock)
        daemon = make_daemon(listener, self.journal, clock, mishap=mishap)
        self.address: str = serve(daemon.talk)

    @property
    def payloads(self) -> list[bytes]:
        """What is stored."""
        found: list[bytes] = []
        for stored in self.journal.stored:
            found += decode(stored.batch.body).each()
        return found

    @property
    def ids(self) -> list[str]:
        return [json.loads(payload)["event"]["id"] for payload in self.payloads]


@pytest.fixture
def make_gate(
    serve: Callable[..., str], make_daemon: Callable[..., Any]
) -> Callable[..., Gate]:
    return lambda **options: Gate(serve, make_daemon, **options)


@pytest.mark.parametrize(
    "extra", [[], ["--packed", "200"], ["--compress"], ["--name", "me"]]
)
def test_generated(
    make_gate: Callable[..., Gate], send: Run, tmp_path: Path, extra: list[str]
) -> None:
    """All made-up events arrive, however they travel; their ids are on record."""
    gate, acked = make_gate(window=50), tmp_path / "acked"
    run = send(
        "rsio", gate.address, "--generate", "500", "--connections", "2",
        "--acked", str(acked), "--json", *extra,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    totals = json.loads(run.stdout)
    assert (totals["acknowledged"], totals["complete"]) == (500, True)
    assert sorted(gate.ids) == sorted(acked.read_text().split())
    assert len(set(gate.ids)) == 500
    if "--packed" in extra:
        assert {len(payload) for payload in gate.payloads} == {200}


@pytest.mark.parametrize("mishap", [2, 3, 4, 6])
def test_exactly_once(make_gate: Callable[..., Gate], send: Run, mishap: int) -> None:
    """Acknowledgements are lost with the connection; nothing is stored twice."""
    gate = make_gate(window=16, mishap=mishap)
    run = send("rsio", gate.address, "--generate", "300", "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["connections"] == 2
    assert len(gate.ids) == len(set(gate.ids)) == 300


def test_at_least_once(make_gate: Callable[..., Gate], send: Run) -> None:
    """… without the extension, nothing is missing."""
    gate = make_gate(window=16, mishap=4, offsets=False)
    run = send("rsio", gate.address, "--generate", "300", "--json")
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["resent"] == len(gate.ids) - 300 > 0
    assert len(set(gate.ids)) == 300


def test_another_run_with_the_same_token(
    make_gate: Callable[..., Gate], send: Run
) -> None:
    """It is the same sender to the gateway, and comes behind what that has sent."""
    gate = make_gate(tokens={"meter": "s3cret"})
    for line in ("one", "two"):
        run = send("rsio", gate.address, "--stdin", "--token", "s3cret", stdin=line)
        assert run.returncode == 0, run.stderr
    assert [json.loads(one)["message"] for one in gate.payloads] == ["one", "two"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--token", "wrong"], "E401"),
        (["--publisher", "nobody"], "nobody subscribes to 'nobody'"),
    ],
)
def test_trouble(
    make_gate: Callable[..., Gate], send: Run, arguments: list[str], complaint: str
) -> None:
    """It says why nothing is acknowledged."""
    gate = make_gate(tokens={"meter": "s3cret"})
    run = send("rsio", gate.address, "--patience", "1", "--token", "s3cret", *arguments)
    assert run.returncode == 1
    assert complaint in run.stderr


def test_too_long_for_its_place(make_gate: Callable[..., Gate], send: Run) -> None:
    """An event that does not fit ends the run."""
    run = send("rsio", make_gate().address, "--packed", "20")
    assert run.returncode == 1
    assert "does not fit --packed 20" in run.stderr


def test_one_name_for_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A token is one sender; two connections of it would fight."""
    words = ["send", "rsio", "gw:1", "--token", "t", "--connections", "2"]
    assert cli.main(words) == 2
    assert "--connections needs a name for each" in capsys.readouterr().err


def test_trouble_is_no_trick_on_a_terminal(
    serve: Callable[..., str], send: Run
) -> None:
    """What the other end says is spelled where it is not printable."""

    def rude(peer: socket.socket) -> None:
        peer.recv(100)
        peer.sendall(b"\x02\x00\x00\x03\x07\x1b[2Jbye")  # hello and goodbye

    run = send("rsio", serve(rude), "--patience", "1")
    assert run.returncode == 1
    assert "\\u001b[2Jbye" in run.stderr
    assert "\x1b[2J" not in run.stderr
