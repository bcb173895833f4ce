"""A gateway in processes of its own, and what it uses."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from _report import Broken

from gateway_testkit import daemon

__all__ = [
    "Consumer", "Gateway", "Memory", "Phased", "Usage", "certificate", "cpu_of", "load",
    "spawn",
]  # fmt: skip

ROOT = Path(__file__).resolve().parent.parent
_TICK = os.sysconf("SC_CLK_TCK")


def environment() -> dict[str, str]:
    """Ours, with the source tree importable and its Twisted plugin found.

    Whoever starts it again has its modules compiled.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    found = {**os.environ, "PYTHONPATH": path}
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def spawn(command: list[str], log: Path, **more: str) -> subprocess.Popen[bytes]:
    """A leader of its own session, beside its log and with its output at the end of it;
    *more* is in its environment, too.
    """
    return daemon.spawn(command, log, {**environment(), **more}, session=True)


@dataclass
class Usage:
    """Of all processes of a gateway, at one moment."""

    at: float
    cpu: float
    """Seconds, user and system, all threads, since the start."""
    threads: dict[int, float]
    """The same by thread."""
    rss: int
    """Bytes."""
    leader_rss: int
    """Of its first process: of a gateway the daemon, which holds the connections."""

    def since(self, before: Usage) -> tuple[float, float]:
        """Cores used, and cores used by the busiest thread."""
        seconds = self.at - before.at
        busiest = max(
            (cpu - before.threads.get(tid, 0.0) for tid, cpu in self.threads.items()),
            default=0.0,
        )
        return (self.cpu - before.cpu) / seconds, busiest / seconds


@dataclass
class Gateway:
    """Starts, watches and stops one daemon.

    *settings* are merged over a configuration with one Lumberjack listener named
    `beats`.  *stall* names a file: while it exists, the daemon's calls named by
    *stall_calls* wait (see _stalled.py).  *syncs* names a file for the seconds of each
    sync (see _timed.py), *viewed* one for what the live page costs (see _viewed.py).
    Without *kernel* it leaves `gateway-native` out, where that is installed.
    """

    home: Path
    settings: dict[str, Any] = field(default_factory=dict)
    stall: Path | None = None
    stall_calls: str = "fdatasync,fsync"
    syncs: Path | None = None
    viewed: Path | None = None
    kernel: bool = True
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.data = self.home / "data"
        self.config = self.home / "gateway.yaml"
        self.log = self.home / "gateway.log"
        self.admin_port = _free_port()
        self.configure()

    def configure(self) -> None:
        """Write the configuration.  JSON is YAML."""
        plain: dict[str, Any] = {
            "node": "bench",
            "data_dir": str(self.data),
            "listeners": [
                {
                    "name": "beats",
                    "protocol": "lumberjack",
                    "listen": "tcp:127.0.0.1:0",
                }
            ],
            "admin": {
                "listen": f"tcp:127.0.0.1:{self.admin_port}",
                "trust_loopback": True,
            },
        }
        self.config.write_text(json.dumps(_merged(plain, self.settings), indent=2))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, timeout: float = 60.0) -> float:
        """Run it until `/readyz` says 200; returns the seconds that took."""
        self.data.mkdir(exist_ok=True)
        begin = time.monotonic()
        more = {} if self.kernel else {"GATEWAY_NATIVE": "no"}
        self.process = spawn(self._command(), self.log, **more)
        try:
            self._wait_ready(begin + timeout)
        except BaseException:
            self.kill()
            raise
        return time.monotonic() - begin

    def _wait_ready(self, end: float) -> None:
        assert self.process is not None
        while not self.ready():
            if self.process.poll() is not None:
                raise Broken(
                    f"the gateway ended: {self.process.returncode}{self._tail()}"
                )
            if time.monotonic() > end:
                raise Broken(f"the gateway is not ready{self._tail()}")
            time.sleep(0.01)

    def _command(self) -> list[str]:
        arguments = ["-n", "--pidfile=", "gateway", "--config", str(self.config)]
        if self.stall is not None:
            stalled = str(Path(__file__).with_name("_stalled.py"))
            where = [stalled, str(self.stall), self.stall_calls]
            return [sys.executable, *where, *arguments]
        if self.syncs is not None:
            timed = str(Path(__file__).with_name("_timed.py"))
            return [sys.executable, timed, str(self.syncs), *arguments]
        if self.viewed is not None:
            viewed = str(Path(__file__).with_name("_viewed.py"))
            return [sys.executable, viewed, str(self.viewed), *arguments]
        run = "from twisted.scripts.twistd import run; run()"
        return [sys.executable, "-c", run, *arguments]

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-30:]
        return "\n  " + "\n  ".join(lines)

    def stop(self) -> None:
        """SIGTERM, then patience, then SIGKILL."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process = None

    def kill(self) -> None:
        """SIGKILL to it and its workers."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def ready(self) -> bool:
        try:
            return self._get("/readyz")[0] == 200
        except OSError:
            return False

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._page("/api/status"))
        return found

    def _page(self, path: str) -> bytes:
        code, body = self._get(path)
        if code != 200:
            raise Broken(f"{path}: {code} {body[:200]!r}")
        return body

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as why:
            raise OSError(str(why)) from why
        finally:
            connection.close()

    def address(self, listener: str = "beats") -> str:
        """HOST:PORT as bound."""
        for entry in self.status()["listeners"]:
            if entry["name"] == listener:
                port = int(str(entry["address"]).rpartition(":")[2])
                return f"127.0.0.1:{port}"
        raise Broken(f"no listener named {listener}")

    def groups(self) -> tuple[float, float]:
        """Commit groups so far, and their bytes."""
        name = "gateway_journal_commit_bytes"
        return self.metric(f"{name}_count"), self.metric(f"{name}_sum")

    def metric(self, name: str) -> float:
        """One that has no labels."""
        lines = self._page("/metrics").decode().splitlines()
        return float(dict(line.rsplit(" ", 1) for line in lines)[name])

    def lsns(self) -> tuple[int, int]:
        """Durable in the journal, published in the spool."""
        status = self.status()
        return status["journal"]["durable_lsn"], status["spool"]["published_lsn"]

    def waiting_bytes(self) -> int:
        """What `spool.max_bytes` bounds: the journal, and files nobody has taken."""
        total = 0
        for place in (self.data / "journal", self.data / "spool"):
            for path in place.rglob("*"):
                with contextlib.suppress(OSError):  # taken or removed meanwhile
                    total += path.stat().st_size if path.is_file() else 0
        return total

    def wait_published(self, timeout: float = 120.0) -> float:
        """Until Parquet holds all that is durable; returns the seconds that took."""
        begin = time.monotonic()
        while True:
            durable, published = self.lsns()
            if published >= durable:
                return time.monotonic() - begin
            if time.monotonic() - begin > timeout:
                raise Broken(f"published {published} of {durable} in {timeout:.0f} s")
            time.sleep(0.05)

    def usage(self) -> Usage:
        """Of every process of its session."""
        if self.process is None:
            raise Broken("the gateway is not running")
        return usage(self.process.pid)


def usage(leader: int) -> Usage:
    """Of every process of the session that *leader* leads."""
    cpu, rss, leader_rss = 0.0, 0, 0
    threads: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = _stat(entry)
            if int(fields[3]) != leader:
                continue
            cpu += (int(fields[11]) + int(fields[12])) / _TICK
            resident = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
            rss += resident
            if int(entry.name) == leader:
                leader_rss = resident
            for task in (entry / "task").iterdir():
                with contextlib.suppress(OSError):
                    own = _stat(task)
                    threads[int(task.name)] = (int(own[11]) + int(own[12])) / _TICK
    return Usage(time.monotonic(), cpu, threads, rss, leader_rss)


def cpu_of(process: int) -> float:
    """Seconds of one process, user and system, all threads."""
    fields = _stat(Path("/proc") / str(process))
    return (int(fields[11]) + int(fields[12])) / _TICK


def _stat(entry: Path) -> list[str]:
    """The fields of proc(5) stat from `state` on: session is 3, utime is 11."""
    return (entry / "stat").read_text().rpartition(")")[2].split()


class Memory(threading.Thread):
    """Samples a gateway's resident memory until stopped."""

    def __init__(self, gateway: Gateway, every: float = 1.0) -> None:
        super().__init__(daemon=True)
        self.gateway = gateway
        self.every = every
        self.samples: list[int] = []
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(self.every):
            with contextlib.suppress(Broken):
                self.samples.append(self.gateway.usage().rss)

    def stop(self) -> int:
        """The highest sample, or the kernel's own high-water mark if it is higher."""
        self._end.set()
        self.join()
        peak = 0
        process = self.gateway.process
        if process is not None:
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{process.pid}/status").read_text()
                mark = status.partition("VmHWM:")[2].split()[0]
                peak = int(mark) * 1024
        return max([peak, *self.samples])


class Consumer(threading.Thread):
    """Takes published files out of the spool, as Spark's cleaning does.

    Without it the spool grows, and the gateway makes larger files the further its
    reader is behind: not what a deployment that keeps up looks like.  The newest
    file stays, as with Spark.
    """

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(daemon=True)
        self.spool = gateway.data / "spool"
        self.archive = gateway.data / "archive"
        self.files = 0
        self.bytes = 0
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.5):
            published = sorted(self.spool.glob("events-*.parquet"))
            self.archive.mkdir(exist_ok=True)
            for path in published[:-1]:
                self.files += 1
                self.bytes += path.stat().st_size
                path.rename(self.archive / path.name)

    def stop(self) -> None:
        self._end.set()
        self.join()


class Phased:
    """A program that says a line of JSON for each of its phases."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def until(self, phase: str) -> dict[str, Any]:
        """The line of that phase; `Broken` if the generator gives up before it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found: dict[str, Any] = json.loads(line)
            if found["phase"] == phase:
                return found
            if found["phase"] == "lost":
                raise Broken(f"the load generator gave up: {found['why']}")
        raise Broken(f"the load generator ended before it was {phase}")


class load(Phased):  # noqa: N801 - reads as a verb where it is used
    """A load generator as a process; iterate over its phases."""

    def __init__(self, reader: str, script: str = "_load.py", **options: Any) -> None:
        words = []
        for name, value in options.items():
            if isinstance(value, list):
                words += ["--" + name.replace("_", "-"), *value]
            elif value is True:
                words.append("--" + name.replace("_", "-"))
            elif value not in (None, False):
                words += ["--" + name.replace("_", "-"), str(value)]
        script = str(Path(__file__).with_name(script))
        super().__init__(sys.executable, script, reader, *words)


def certificate(home: Path) -> tuple[Path, Path]:
    """A fresh self-signed ECDSA certificate for localhost, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise Broken("the TLS case needs the openssl command")
    cert, key = home / "cert.pem", home / "key.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(cert)]
    command = [openssl, *words.split(), *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merged(merged[key], value)
        else:
            merged[key] = value
    return merged
