"""`gateway send pravega`: a program of its own, against our server in this one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway import cli
from gateway.protocols.pravega.container import Container
from gateway.protocols.pravega.records import decode
from gateway.protocols.pravega.server import accept
from gateway.testing import ManualJournal

Run = Callable[..., subprocess.CompletedProcess[str]]
DIALECTS = pytest.mark.parametrize("dialect", ["seed", "v17"])


class Store:
    """A segment store at a port."""

    def __init__(self, serve: Any, make_daemon: Any, mishap: int) -> None:
        clock = Clock()
        clock.advance(1_700_000_000)
        self.journal = ManualJournal()
        limits = SimpleNamespace(
            message_bytes=1 << 20, unacknowledged_bytes=1 << 20, segments=10,
            transaction_bytes=1, table_bytes=1, numbers=9, writers=10, reads=10,
        )  # fmt: skip
        settings: Any = SimpleNamespace(limits=limits, options=limits)
        listener = accept(settings, Container(self.journal, clock))
        daemon = make_daemon(listener, self.journal, clock, mishap=mishap)
        self.address: str = serve(daemon.talk)

    @property
    def rows(self) -> list[tuple[str | None, bytes]]:
        """Segment and payload of what is stored."""
        found = []
        for stored in self.journal.stored:
            rows = decode(stored.batch.body)
            found += [(rows.channel, payload) for payload in rows.payloads]
        return found


@pytest.fixture
def make_store(
    serve: Callable[..., str], make_daemon: Callable[..., Any]
) -> Callable[..., Store]:
    return lambda mishap=0: Store(serve, make_daemon, mishap)


@DIALECTS
def test_generated(
    make_store: Callable[..., Store], send: Run, tmp_path: Path, dialect: str
) -> None:
    """All made-up events arrive in the segment; their ids are on record."""
    store, acked = make_store(), tmp_path / "acked"
    run = send(
        "pravega", store.address, "--dialect", dialect, "--generate", "500",
        "--connections", "2", "--window", "40", "--segment", "a/b/0.#epoch.0",
        "--acked", str(acked), "--json", "--size", "300",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    totals = json.loads(run.stdout)
    assert (totals["acknowledged"], totals["complete"]) == (500, True)
    ids = [json.loads(payload)["event"]["id"] for _, payload in store.rows]
    assert sorted(ids) == sorted(acked.read_text().split())
    assert len(set(ids)) == 500
    assert {channel for channel, _ in store.rows} == {"a/b/0.#epoch.0"}
    assert {len(payload) for _, payload in store.rows} == {300}


@DIALECTS
@pytest.mark.parametrize("mishap", [1, 2, 3, 5])
def test_exactly_once(
    make_store: Callable[..., Store], send: Run, dialect: str, mishap: int
) -> None:
    """Acknowledgements are lost with the connection; nothing is stored twice."""
    store = make_store(mishap)
    run = send(
        "pravega", store.address, "--dialect", dialect, "--generate", "300",
        "--window", "16", "--json",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["connections"] == 2
    ids = [json.loads(payload)["event"]["id"] for _, payload in store.rows]
    assert len(ids) == len(set(ids)) == 300


def test_not_over_websocket(capsys: pytest.CaptureFixture[str]) -> None:
    """Pravega has none, so there is no such option."""
    assert cli.main(["send", "pravega", "gw:1", "--websocket", "/"]) == 2
    assert "--websocket" in capsys.readouterr().err
