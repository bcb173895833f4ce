"""The daemon as users start it, for the tests with real processes."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

import deadlines
import warm
from gateway_testkit import daemon
from gateway_testkit.certificates import Pair
from gateway_testkit.daemon import free_port, listener

__all__ = [
    "ROLLING",
    "TERMINATED",
    "Daemon",
    "archiving",
    "free_port",
    "full_spool",
    "listener",
    "nothing_is_kept",
    "send",
    "spawn",
    "tls",
]

ROLLING = {
    "journal": {"segment_bytes": "256KiB"},
    "spool": {"roll_interval": "300ms"},
    "logging": {"level": "warn"},
}
"""Settings with which a daemon under load seals and publishes all the time."""

T = TypeVar("T")


def tls(pair: Pair, **more: Any) -> dict[str, Any]:
    """The `tls` of a listener with this certificate."""
    paths = {"certificate": str(pair.certificate), "private_key": str(pair.key)}
    return {**paths, **more}


def spawn(
    words: Sequence[object],
    log: Path,
    env: Mapping[str, str] | None = None,
    *,
    session: bool = False,
    fresh: bool = False,
) -> subprocess.Popen[bytes]:
    """Run a program in the folder of *log*; what it says is added to that.

    With *session* it leads a session of its own, so that all of its processes can be killed
    together.  With *fresh* it is no fork of what has imported it (`warm`).
    """
    kind: Any = subprocess.Popen if fresh else warm.start
    with log.open("ab") as output:
        process: subprocess.Popen[bytes] = kind(
            [*map(str, words)],
            env=env or deadlines.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            start_new_session=session,
        )
    return process


TERMINATED = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""twistd ends by the signal that it was sent, or says so as a shell would."""


def nothing_is_kept(daemon: Daemon) -> bool:
    """No file is in its spool any more, or in its archive."""
    return not [*daemon.spool.glob("events-*"), *daemon.archive.glob("events-*")]


daemon.spawn = spawn
"""So are those who use the kit's own, as plug-ins do."""


class Daemon(daemon.Daemon):
    """One `twistd gateway` that has a listener, `beats`, unless it is told another."""

    fresh = False
    """It has an interpreter of its own, and is no fork of what has imported it (`warm`)."""

    def __init__(self, home: Path, settings: Mapping[str, Any]) -> None:
        beats = [listener("beats", "lumberjack")]
        super().__init__(home, {"listeners": beats, **settings})

    def launch(self) -> None:
        self.process = spawn(
            self.command, self._log, self.environment, fresh=self.fresh
        )

    def restart(self) -> None:
        """It is killed, and starts."""
        self.kill()
        self.start()

    def settled_rows(self) -> list[dict[str, Any]]:
        """Its rows, once all that it took is published."""
        self.settled()
        return self.rows()

    def eventually(self, look: Callable[[], T], what: str) -> T:
        return deadlines.eventually(look, what)

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Start it where it is expected to end by itself."""
        return deadlines.run(*self.command, *options, cwd=self._home)

    def kill_again_and_again(
        self, times: int, chance: random.Random, heard: Callable[[], object]
    ) -> None:
        """So many lives; one in five ends before it is ready, the others under load.

        *heard* changes whenever a client is acknowledged something.
        """
        for _ in range(times):
            before = heard()
            if chance.random() < 0.2:
                self.launch()
                time.sleep(chance.uniform(0.0, 0.3))  # forked, it is ready after that
            else:
                self.start()
                self.eventually(
                    lambda before=before: before != heard(),
                    "an acknowledgement after a restart",
                )
                time.sleep(chance.uniform(0.0, 1.0))
            self.kill()

    def push(self, route: str, body: object, **to: object) -> dict[str, Any]:
        """Push to Pomelo clients; how many it was sent to, and how many not."""
        request = urllib.request.Request(
            f"http://{self.admin}/api/push",
            json.dumps({"route": route, "body": body, "to": to}).encode(),
            {"Content-Type": "application/json"},
        )
        found: dict[str, Any] = json.loads(self.answer(request))
        return found

    def listener(self, name: str = "beats") -> dict[str, Any]:
        return super().listener(name)

    def address(self, name: str = "beats") -> tuple[str, int]:
        return super().address(name)

    def memory(self) -> int:
        """The most bytes that were ever resident; of a `fresh` one only."""
        assert self.process is not None
        assert not warm.is_fork(self.process), "mark the test `fresh`"
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) * 1024

    def segments(self) -> list[str]:
        """What is left in the journal."""
        return [
            path.name
            for path in (self.data / "journal" / "gw-1").iterdir()
            if path.name != "catalog"
        ]


@contextlib.contextmanager
def archiving(daemon: daemon.Daemon) -> Iterator[None]:
    """In place of the Spark job: files of the spool are moved to the archive."""
    stopping = threading.Event()

    def archive() -> None:
        while not stopping.wait(0.05):
            for path in sorted(daemon.spool.glob("events-*.parquet")):
                path.rename(daemon.archive / path.name)

    thread = threading.Thread(target=archive)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@pytest.fixture
def prepare(tmp_path, request) -> Iterator[Callable[..., Daemon]]:
    """Make daemons that are not started; they end with the test, and show their logs."""
    made: list[Daemon] = []
    fresh = request.node.get_closest_marker("fresh") is not None

    def prepare(home: str = "gateway", **settings: Any) -> Daemon:
        made.append(Daemon(tmp_path / home, settings))
        made[-1].fresh = fresh
        return made[-1]

    yield prepare
    for each in made:
        each.kill()
        print(f"--- {each.config.parent.name}, the end of its log:")
        print(each.log[-10_000:])


@pytest.fixture
def start(prepare) -> Callable[..., Daemon]:
    """Start a daemon with these settings."""
    return lambda *home, **settings: prepare(*home, **settings).start()


@pytest.fixture(name="free_port")
def _free_port() -> Callable[[], int]:
    return free_port


def send(daemon: Daemon, *events: bytes) -> None:
    """One window of Lumberjack, acknowledged."""
    with socket.create_connection(daemon.address()) as peer:
        frames = b"".join(
            struct.pack(">2sII", b"2J", number, len(event)) + event
            for number, event in enumerate(events, 1)
        )
        peer.sendall(struct.pack(">2sI", b"2W", len(events)) + frames)
        assert peer.recv(6) == struct.pack(">2sI", b"2A", len(events))


@contextlib.contextmanager
def full_spool(daemon: Daemon) -> Iterator[None]:
    """The spool, small and not compressed, is full, by a sender who stays."""
    event = b"x" * 100_000
    window = struct.pack(">2sI2sII", b"2W", 1, b"2J", 1, len(event)) + event
    filling = socket.create_connection(daemon.address())

    def fill() -> None:
        with contextlib.suppress(OSError):
            filling.sendall(window * 50)

    threading.Thread(target=fill, daemon=True).start()
    deadlines.eventually(
        lambda: daemon.status()["journal"]["why_full"], "the spool is full"
    )
    yield
    filling.close()
