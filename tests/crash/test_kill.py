"""kill -9 under load, again and again; then every acknowledged event is there once.

Writers are `gateway send`: they reconnect, send again what was not acknowledged, and
write down the ids that were.  The daemon is killed at instants drawn from a seed, in
the middle of its start too.  What must be true is asked of `gateway audit` and of the
files themselves.
"""

import contextlib
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons import ROLLING, TERMINATED, listener, spawn
from deadlines import eventually, finish
from samples import some_of

SEED = int(os.environ.get("GATEWAY_KILL_SEED", "20261121"))
KILLS = some_of(20, 3)

Ports = tuple[int, int]

# Old version, small windows, nothing compressed, everything pipelined, WebSocket: ways
# in which a window may be half there.
WRITERS = (
    ("--window", "500", "--pipelining", "4"),
    ("--window", "25", "--compression", "0", "--connections", "3"),
    ("--window", "100", "--v1"),
    ("--window", "200", "--websocket", "/"),
)


class Writer:
    """A `gateway send` that never comes to an end by itself."""

    def __init__(self, home: Path, number: int, ports: Ports, rate: int) -> None:
        options = WRITERS[number]
        self.acked = home / f"writer-{number}.acked"
        self._log = home / f"writer-{number}.log"
        port = ports["--websocket" in options]
        command = [
            sys.executable, "-m", "gateway.cli", "send", "lumberjack",
            f"127.0.0.1:{port}", "--generate", "1000000000", "--rate", str(rate),
            "--patience", "100000", "--json", "--acked", str(self.acked), *options,
        ]  # fmt: skip
        self.process = spawn(command, self._log, session=True)

    @property
    def acknowledged(self) -> int:
        """How much it has written down."""
        return self.acked.stat().st_size if self.acked.exists() else 0

    def stop(self) -> dict[str, Any]:
        """Its totals."""
        self.process.terminate()
        finish(self.process)
        log = self._log.read_text()
        assert self.process.returncode == 1, log
        totals: dict[str, Any] = json.loads(log.splitlines()[-1])
        return totals


@contextlib.contextmanager
def writing(home: Path, ports: Ports, rate: int) -> Iterator[list[Writer]]:
    """One of each kind; *rate* is in events a second."""
    writers: list[Writer] = []
    try:
        for number in range(len(WRITERS)):
            writers.append(Writer(home, number, ports, rate))  # noqa: PERF401 - may raise
        yield writers
    finally:
        for writer in writers:
            writer.process.kill()
            writer.process.wait()


@pytest.fixture
def ports(free_port) -> Ports:
    """Of the two listeners, in all lives of the daemon."""
    return free_port(), free_port()


@pytest.fixture
def daemon(prepare, ports) -> Any:
    """Not started yet; it rolls all the time."""
    beats, web = (f"tcp:127.0.0.1:{port}" for port in ports)
    listeners = [
        listener("beats", "lumberjack", listen=beats),
        listener("web", "lumberjack", listen=web, websocket={"path": "/"}),
    ]
    return prepare(listeners=listeners, **ROLLING)


def heard(writers: list[Writer]) -> list[int]:
    """How much each has written down; none has given up."""
    assert all(writer.process.poll() is None for writer in writers)
    return [writer.acknowledged for writer in writers]


def everyone_is_heard(writers: list[Writer]) -> list[dict[str, Any]]:
    """Wait until each writer was acknowledged again, then stop them; their totals."""
    before = heard(writers)
    eventually(
        lambda: all(map(int.__gt__, heard(writers), before)),
        "every writer is acknowledged again",
    )
    return [writer.stop() for writer in writers]


def acknowledged(writers: list[Writer]) -> set[str]:
    found: list[str] = []
    for writer in writers:
        found += writer.acked.read_text().split()
    assert len(found) == len(set(found))
    return set(found)


def event_id(row: dict[str, Any]) -> str:
    """Nested, or with a dot as the old version's flat frames have it."""
    event = json.loads(row["payload"])
    found: str = event["event.id"] if "event.id" in event else event["event"]["id"]
    return found


def in_order(rows: list[dict[str, Any]]) -> None:
    """Within a connection, events keep the order in which they were sent."""
    latest: dict[tuple[str, str], str] = {}
    for row in rows:
        run, _, number = event_id(row).partition("-")
        assert number > latest.get((row["session"], run), "")
        latest[row["session"], run] = number


def audited(daemon: Any, writers: list[Writer]) -> dict[str, Any]:
    """What the audit says; it must be satisfied."""
    files = [writer.acked for writer in writers]
    report: dict[str, Any] = daemon.audit(
        "--content", "--chain", "--acknowledged", *files
    )
    assert report["acknowledged"]["missing"] == []
    assert report["chain"]["whole"]
    assert report["payloads"]["unknown"] == 0
    return report


@pytest.mark.slow
def test_kill_the_daemon(tmp_path, daemon, ports):
    """Many kills: nothing acknowledged is missing, no lsn is there twice or not at
    all, right after a kill as well as after a clean stop.
    """
    chance = random.Random(SEED)
    with writing(tmp_path, ports, some_of(2500, 750)) as writers:
        daemon.kill_again_and_again(KILLS, chance, lambda: heard(writers))
        # Journal and spool as the last kill has left them.
        audited(daemon, writers)
        daemon.start()
        totals = everyone_is_heard(writers)
    assert daemon.terminate() in TERMINATED
    assert daemon.segments() == []
    report = audited(daemon, writers)

    rows = daemon.rows()  # every lsn from 1 on, each once
    assert len(rows) == report["events"]
    assert acknowledged(writers) <= {event_id(row) for row in rows}
    assert {row["flaw"] for row in rows} == {None}
    in_order(rows)
    # Who waits longer and longer between attempts may have met the last life only.
    assert sum(each["connections"] - 1 for each in totals) > 1
    assert sum(each["resent"] for each in totals)
