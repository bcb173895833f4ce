"""An earlier version, and this one after it, on one directory; and back again.

`data-dir-2026-11-22.tar.xz` is of commit 75775e2, the first with journals of format 2:
twenty events in each of four protocols, a stop, twenty more, kill -9; and the ids that
were acknowledged.

The earlier versions that run are the last tag of the repository, and that commit.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from daemons import Daemon, free_port, listener
from deadlines import ROOT, environment, eventually, finish
from gateway.protocols.pravega.wire import AppendSetup, SetupAppend
from pravega_socket import Client

ARCHIVE = Path(__file__).parents[1] / "vectors" / "data-dir-2026-11-22.tar.xz"
PROTOCOLS = ("lumberjack", "pomelo", "pravega", "rsio")
LISTENERS = dict(zip(("beats", "game", "streams", "reactive"), PROTOCOLS, strict=True))
FIRST = "75775e2"
ONCE = ("streams", "reactive")
"""Whose senders know, after a kill, what is stored."""


def test_nothing_that_an_earlier_version_took_is_lost(
    prepare: Callable[..., Any], tmp_path: Path
) -> None:
    """What it had published stays, what it had not is published once; and what it
    remembered of writers and senders is remembered.
    """
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    daemon: Daemon = prepare(listeners=[listener(*each) for each in LISTENERS.items()])
    (tmp_path / "data").rename(daemon.data)
    daemon.start()
    daemon.settled(160)
    rows = daemon.rows()
    assert {row["flaw"] for row in rows} == {None}
    stored = [json.loads(row["payload"]) for row in rows if row["kind"] != "session"]
    said = [str(event) for event in stored]
    for protocol in PROTOCOLS:
        acknowledged = (tmp_path / f"acked.{protocol}").read_text().split()
        assert len(acknowledged) == 40
        for one in acknowledged:
            assert sum(one in event for event in said) == 1, one

    last = [row for row in rows if row["protocol"] == "pravega"][-1]
    writer = Client(daemon.address("streams"))
    told = writer.ask(
        SetupAppend(1, UUID(last["attributes"]["writer"]).bytes, last["channel"], ""),
        AppendSetup,
    )
    writer.close()
    assert told.last_event == int(last["attributes"]["event_number"])
    assert b"gateway_rsio_names 2.0\n" in daemon.get("/metrics")


def git(*words: str) -> bytes:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True).stdout


def versions() -> list[str]:
    """The last release, and the first commit whose data is read; that alone, until there
    is a release.
    """
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        tags = git(
            *("tag", "--merged", "HEAD", "--no-contains", "HEAD"),
            *("--sort=-creatordate", "v*"),
        ).split()
        return [*(tag.decode() for tag in tags[:1]), FIRST]
    return [FIRST]


@pytest.fixture(scope="module", params=versions())
def earlier(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The code of an earlier version; skipped where its history is not there."""
    folder = tmp_path_factory.mktemp("earlier")
    try:
        code = git("archive", request.param, "gateway", "twisted")
    except (OSError, subprocess.CalledProcessError) as why:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"needs the repository's history: {why}")
    with tarfile.open(fileobj=io.BytesIO(code)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class Versions(Daemon):
    """Of one version or the other, with the same directory and ports."""

    def __init__(self, home: Path, names: tuple[str, ...]) -> None:
        self.ports = {name: free_port() for name in names}
        listeners = [
            listener(name, LISTENERS[name], listen=f"tcp:127.0.0.1:{port}")
            for name, port in self.ports.items()
        ]
        super().__init__(home, {"listeners": listeners})
        settings = json.loads(self.config.read_text())
        del settings["admin"]["trust_loopback"]  # unknown to the first one
        self.config.write_text(json.dumps(settings))
        self.code: Path | None = None
        """None: this version."""

    @property
    def environment(self) -> dict[str, str]:
        mine = super().environment
        return mine if self.code is None else {**mine, "PYTHONPATH": str(self.code)}

    def begin(self, code: Path | None) -> None:
        """As that version."""
        self.code = code
        self.start()

    def more_came(self) -> None:
        """Of each protocol, since now."""
        before = {name: self.listener(name)["events"] for name in self.ports}
        eventually(
            lambda: all(
                self.listener(name)["events"] > count + 20
                for name, count in before.items()
            ),
            "more of all",
        )

    def numbers(self) -> dict[str, Counter[int]]:
        """How often each number that was sent is there, by listener."""
        found: dict[str, Counter[int]] = {name: Counter() for name in self.ports}
        for row in self.rows():
            assert row["flaw"] is None
            if row["kind"] != "session":
                found[row["listener"]][json.loads(row["payload"])["n"]] += 1
        return found

    def files(self) -> dict[str, str]:
        """Everything that is kept, but for who has it locked."""
        return {
            str(path.relative_to(self.data)): hashlib.sha256(
                path.read_bytes()
            ).hexdigest()
            for path in sorted(self.data.rglob("*"))
            if path.is_file() and path.name != "lock"
        }


@contextlib.contextmanager
def sending(daemon: Versions) -> Iterator[Callable[[], dict[str, int]]]:
    """A real client for each listener, until the function is called; that gives how many
    events each sent, all of which are acknowledged.
    """
    over = threading.Event()
    processes = {
        name: subprocess.Popen(
            [
                *(sys.executable, "-m", "gateway.cli", "send", LISTENERS[name]),
                *(f"127.0.0.1:{port}", "--stdin", "--patience", "100000", "--json"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )
        for name, port in daemon.ports.items()
    }
    sent = dict.fromkeys(processes, 0)

    def feed(name: str) -> None:
        into = processes[name].stdin
        assert into is not None
        with contextlib.suppress(BrokenPipeError), into:
            while not over.wait(0.02):
                into.write(b'{"n":%d}\n' % sent[name])
                into.flush()
                sent[name] += 1

    threads = [threading.Thread(target=feed, args=(name,)) for name in processes]
    for each in threads:
        each.start()

    def stop() -> dict[str, int]:
        over.set()
        for each in threads:
            each.join()
        for name, process in processes.items():
            process.stdin = None  # which is closed
            told = json.loads(finish(process)[0])
            assert told["complete"], (name, told)
        return sent

    try:
        yield stop
    finally:
        over.set()
        for each in threads:
            each.join()
        for process in processes.values():
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.long
def test_an_upgrade_under_load(earlier: Path, tmp_path: Path) -> None:
    """The earlier version is killed while all protocols send, and this one goes on: what
    was acknowledged by either is there, and once where the protocol can tell.
    """
    daemon = Versions(tmp_path / "gateway", tuple(LISTENERS))
    try:
        daemon.begin(earlier)
        with sending(daemon) as stop:
            daemon.more_came()
            daemon.kill()
            daemon.begin(None)
            daemon.more_came()
            sent = stop()
        daemon.settled(sum(sent.values()))
        stored = daemon.numbers()
        for name, count in sent.items():
            assert sorted(stored[name]) == list(range(count)), name
            if name in ONCE:
                assert set(stored[name].values()) == {1}, name
    finally:
        daemon.kill()
        print(daemon.log[-10_000:])


@pytest.mark.slow
@pytest.mark.long
def test_going_back(earlier: Path, tmp_path: Path) -> None:
    """After a stop of this version the earlier one goes on with its directory, where
    nothing is remembered beside events: each is there once.
    """
    daemon = Versions(tmp_path / "gateway", ("beats", "game"))
    try:
        daemon.begin(None)
        with sending(daemon) as stop:
            daemon.more_came()
            assert daemon.terminate() == -signal.SIGTERM
            assert daemon.segments() == []
            daemon.begin(earlier)
            daemon.more_came()
            sent = stop()
        daemon.settled(sum(sent.values()))
        stored = daemon.numbers()
        assert stored == {name: Counter(range(count)) for name, count in sent.items()}
    finally:
        daemon.kill()
        print(daemon.log[-10_000:])
