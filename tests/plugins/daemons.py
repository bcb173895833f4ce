"""The daemon as users start it, for the tests with real processes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from deadlines import environment, eventually, run
from gateway.testing.certificates import Pair

__all__ = ["Daemon", "free_port", "listener", "tls"]

BIN = Path(sys.executable).parent


def free_port() -> int:
    """A port that is free, and that no outgoing connection will be given meanwhile."""
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    while True:
        port = random.SystemRandom().randrange(
            10_000, max(20_000, int(text.split()[0]))
        )
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def listener(name: str, protocol: str, **more: Any) -> dict[str, Any]:
    """One of a configuration's listeners, on any port of 127.0.0.1."""
    plain = {"name": name, "protocol": protocol, "listen": "tcp:127.0.0.1:0"}
    return {**plain, **more}


def tls(pair: Pair, **more: Any) -> dict[str, Any]:
    """The `tls` of a listener with this certificate."""
    paths = {"certificate": str(pair.certificate), "private_key": str(pair.key)}
    return {**paths, **more}


class Daemon:
    """One `twistd gateway`, and what can be seen of it from outside.

    *settings* are merged over a configuration with one listener, `beats`.
    """

    def __init__(self, home: Path, settings: Mapping[str, Any]) -> None:
        self.data = home / "data"
        self.config = home / "gateway.yaml"
        self.spool, self.archive = self.data / "spool", self.data / "archive"
        self.process: subprocess.Popen[bytes] | None = None
        self._home = home
        self._log = home / "gateway.log"
        self.admin = f"127.0.0.1:{free_port()}"
        plain = {
            "node": "gw-1",
            "data_dir": str(self.data),
            "listeners": [listener("beats", "lumberjack")],
            "spool": {"roll_interval": "200ms"},
            "admin": {"listen": f"tcp:{self.admin}"},
        }
        home.mkdir(parents=True, exist_ok=True)
        # JSON is YAML.
        self.config.write_text(json.dumps(_merged(plain, settings), indent=2))

    # -- its life -------------------------------------------------------------

    @property
    def command(self) -> list[str]:
        arguments = ["-n", "--pidfile=", "gateway", "--config", str(self.config)]
        return [str(BIN / "twistd"), *arguments]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def launch(self) -> None:
        """Start it, and do not wait."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                env=environment(),
            )

    def start(self) -> Daemon:
        """Start it; returns once it takes events."""
        self.launch()
        eventually(self._ready, "the daemon is ready")
        return self

    def _ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            pytest.fail(f"the daemon ended: {self.process.returncode}\n{self.log}")
        with contextlib.suppress(OSError):
            self.get("/readyz")
            return True
        return False

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Start it where it is expected to end by itself."""
        return run(*self.command, *options, cwd=self._home)

    def kill(self) -> None:
        """As the kernel's out-of-memory killer would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def terminate(self) -> int:
        """As systemd would; returns the exit status."""
        assert self.process is not None
        self.process.terminate()
        eventually(lambda: self.process.poll() is not None, "the daemon has ended")
        return self.process.returncode

    def hang_up(self) -> None:
        os.kill(self.pid, signal.SIGHUP)

    # -- what it says ---------------------------------------------------------

    @property
    def log(self) -> str:
        """All it has written so far, in all its lives."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def get(self, path: str) -> bytes:
        """From the admin port.  Raises OSError, of which HTTPError is one."""
        return self._answer(f"http://{self.admin}{path}")

    def push(self, route: str, body: object, **to: object) -> dict[str, Any]:
        """Push to Pomelo clients; how many it was sent to, and how many not."""
        request = urllib.request.Request(
            f"http://{self.admin}/api/push",
            json.dumps({"route": route, "body": body, "to": to}).encode(),
            {"Content-Type": "application/json"},
        )
        found: dict[str, Any] = json.loads(self._answer(request))
        return found

    def _answer(self, request: str | urllib.request.Request) -> bytes:
        with urllib.request.urlopen(request) as answer:
            found: bytes = answer.read()
            return found

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/api/status"))
        return found

    def listener(self, name: str = "beats") -> dict[str, Any]:
        """Of the status, this listener's part."""
        for each in self.status()["listeners"]:
            if each["name"] == name:
                found: dict[str, Any] = each
                return found
        raise KeyError(name)

    def address(self, name: str = "beats") -> tuple[str, int]:
        host, _, port = self.listener(name)["address"].rpartition(":")
        return host, int(port)

    def memory(self) -> int:
        """The most bytes that were ever resident."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) * 1024

    # -- what it has stored ---------------------------------------------------

    def settled(self) -> None:
        """Wait until all that is durable is published."""

        def published() -> bool:
            status = self.status()
            last: int = status["journal"]["durable_lsn"]
            return bool(status["spool"]["published_lsn"] >= last)

        eventually(published, "everything durable is published")

    def segments(self) -> list[str]:
        """What is left in the journal."""
        return [
            path.name
            for path in (self.data / "journal" / "gw-1").iterdir()
            if path.name != "catalog"
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Every event that was published, in order; each lsn must be there once."""
        import pyarrow.parquet as pq

        rows: list[dict[str, Any]] = []
        for directory in (self.spool, self.archive):
            for path in directory.glob("events-*.parquet"):
                rows += pq.read_table(path).to_pylist(maps_as_pydicts="strict")
        rows.sort(key=lambda row: row["lsn"])
        assert [row["lsn"] for row in rows] == list(range(1, len(rows) + 1))
        return rows


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        both = isinstance(inner, dict) and isinstance(value, dict)
        merged[key] = _merged(inner, value) if both else value
    return merged


@pytest.fixture
def prepare(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Make daemons that are not started; they end with the test, and show their logs."""
    made: list[Daemon] = []

    def prepare(home: str = "gateway", **settings: Any) -> Daemon:
        made.append(Daemon(tmp_path / home, settings))
        return made[-1]

    yield prepare
    for each in made:
        each.kill()
        print(f"--- {each.config.parent.name}, the end of its log:")
        print(each.log[-10_000:])


@pytest.fixture
def start(prepare: Callable[..., Daemon]) -> Callable[..., Daemon]:
    """Start a daemon with these settings."""
    return lambda *home, **settings: prepare(*home, **settings).start()


@pytest.fixture(name="free_port")
def _free_port() -> Callable[[], int]:
    return free_port
