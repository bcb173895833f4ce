"""A real `twistd gateway` in a process of its own, for tests with real clients.

with Daemon(tmp_path, {"listeners": [listener("logs", "syslog")]}) as daemon:
    host, port = daemon.address("logs")
    ...
    daemon.settled()
    assert [row["payload"] for row in daemon.rows()] == [...]
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import gateway

__all__ = ["Daemon", "environment", "free_port", "listener", "spawn"]

_PATIENCE = 120.0
_ROOT = Path(gateway.__file__).parents[1]

_T = TypeVar("_T")


def environment() -> dict[str, str]:
    """Ours, with this gateway importable and its Twisted plugin found."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def spawn(
    command: Sequence[str],
    log: Path,
    env: Mapping[str, str] | None = None,
    *,
    session: bool = False,
) -> subprocess.Popen[bytes]:
    """Run a program in the folder of *log*; what it says is added to that.

    *env* is `environment()` unless it is given.  With *session* the program leads a
    session of its own, so that all of its processes can be killed together.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env=env or environment(),
            start_new_session=session,
        )


_RESERVED: deque[socket.socket] = deque()
_MOST_RESERVED = 64


def free_port() -> int:
    """A free port that no other test gets soon.

    No outgoing connection gets it either.  A socket stays bound to it that does not listen.
    A server, which sets SO_REUSEADDR, can listen there beside it; another `free_port`, which
    does not, is told that it is taken.
    """
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    while True:
        port = random.SystemRandom().randrange(
            10_000, max(20_000, int(text.split()[0]))
        )
        bound = socket.socket()
        try:
            bound.bind(("127.0.0.1", port))
        except OSError:
            bound.close()
            continue
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _RESERVED.append(bound)
        if len(_RESERVED) > _MOST_RESERVED:
            _RESERVED.popleft().close()
        return port


def listener(name: str, protocol: str, **more: Any) -> dict[str, Any]:
    """One of a configuration's listeners, on any port of 127.0.0.1."""
    plain = {"name": name, "protocol": protocol, "listen": "tcp:127.0.0.1:0"}
    return {**plain, **more}


class Daemon:
    """One `twistd gateway`, and what can be seen of it from outside.

    All of its files are below *home*.  *settings* are merged over a configuration that
    has no listener and publishes what is durable five times a second.
    """

    def __init__(self, home: Path, settings: Mapping[str, Any]) -> None:
        self.data = home / "data"
        self.config = home / "gateway.yaml"
        self.spool, self.archive = self.data / "spool", self.data / "archive"
        self.process: subprocess.Popen[bytes] | None = None
        self.admin = f"127.0.0.1:{free_port()}"
        self._home = home
        self._log = home / "gateway.log"
        plain = {
            "node": "gw-1",
            "data_dir": str(self.data),
            "spool": {"roll_interval": "200ms"},
            "admin": {"listen": f"tcp:{self.admin}", "trust_loopback": True},
        }
        home.mkdir(parents=True, exist_ok=True)
        # JSON is YAML.
        self.config.write_text(json.dumps(_merged(plain, settings), indent=2))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    # -- its life -------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        return environment()

    @property
    def command(self) -> list[str]:
        """Starts it in the foreground."""
        twistd = Path(sys.executable).parent / "twistd"
        arguments = ["-n", "--pidfile=", "gateway", "--config", str(self.config)]
        return [str(twistd), *arguments]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def launch(self) -> None:
        self.process = spawn(self.command, self._log, self.environment)

    def start(self) -> Self:
        """Start it; returns once it takes events."""
        self.launch()
        self.eventually(self._ready, "the daemon is ready")
        return self

    def _ready(self) -> bool:
        assert self.process is not None
        status = self.process.poll()
        assert status is None, f"the daemon ended: {status}\n{self.log}"
        with contextlib.suppress(OSError):
            self.get("/readyz")
            return True
        return False

    def kill(self) -> None:
        """Kill it as the kernel's out-of-memory killer would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def terminate(self) -> int:
        """Stop it as systemd would; returns the exit status."""
        process = self.process
        assert process is not None
        process.terminate()
        self.eventually(lambda: process.poll() is not None, "the daemon has ended")
        return process.returncode

    def hang_up(self) -> None:
        """Ask it to read certificates and definitions again."""
        os.kill(self.pid, signal.SIGHUP)

    def eventually(self, look: Callable[[], _T], what: str) -> _T:
        """The first true answer of *look*; AssertionError if there is none in time."""
        end = time.monotonic() + _PATIENCE
        while not (found := look()):
            assert time.monotonic() < end, f"in {_PATIENCE:g} s not seen: {what}"
            time.sleep(0.02)
        return found

    # -- what it says ---------------------------------------------------------

    @property
    def log(self) -> str:
        """All it has written so far, in all its lives."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def get(self, path: str) -> bytes:
        """Get a page of the admin port.  Raises OSError, of which HTTPError is one."""
        return self.answer(f"http://{self.admin}{path}")

    def answer(self, request: str | urllib.request.Request) -> bytes:
        """The answer to an HTTP request.  Raises OSError, of which HTTPError is one."""
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own port
            found: bytes = answer.read()
            return found

    def status(self) -> dict[str, Any]:
        """The answer of `/api/status`."""
        found: dict[str, Any] = json.loads(self.get("/api/status"))
        return found

    def listener(self, name: str) -> dict[str, Any]:
        for each in self.status()["listeners"]:
            if each["name"] == name:
                found: dict[str, Any] = each
                return found
        raise KeyError(name)

    def address(self, name: str) -> tuple[str, int]:
        host, _, port = self.listener(name)["address"].rpartition(":")
        return host, int(port)

    # -- what it has stored ---------------------------------------------------

    def settled(self, events: int = 0) -> None:
        """Wait until all that is durable is published, and that is *events* at least."""

        def published() -> bool:
            status = self.status()
            last: int = status["journal"]["durable_lsn"]
            return last >= events and bool(status["spool"]["published_lsn"] >= last)

        self.eventually(published, f"{events} events, and all of them published")

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

    def audit(self, *words: str | Path) -> dict[str, Any]:
        """The report of `gateway audit`; AssertionError if events are missing or doubled."""
        said = self._home / "audit.json"
        said.unlink(missing_ok=True)
        command = [sys.executable, "-m", "gateway", "audit", "--json", *map(str, words)]
        status = spawn([*command, "--config", str(self.config)], said).wait()
        assert status == 0, f"audit: {status}\n{said.read_text()[-5000:]}"
        report: dict[str, Any] = json.loads(said.read_text())
        assert report["complete"], report
        return report


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        if isinstance(inner, dict) and isinstance(value, dict):
            merged[key] = _merged(inner, value)
        else:
            merged[key] = value
    return merged
