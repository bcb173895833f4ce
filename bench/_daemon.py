"""A gateway in processes of its own, and what it uses."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from _report import Broken

from gateway_testkit import daemon
from gateway_testkit.daemon import listener

__all__ = [
    "Consumer", "Gateway", "Memory", "Phased", "Usage", "cpu_of", "end", "listener",
    "load", "most_files", "spawn", "usage",
]  # fmt: skip

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
_TICK = os.sysconf("SC_CLK_TCK")


def environment() -> dict[str, str]:
    """Whoever starts it again has its modules compiled."""
    found = daemon.environment()
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def spawn(command: list[str], log: Path, **more: str) -> subprocess.Popen[bytes]:
    """A leader of its own session, beside its log and with its output at the end of it;
    *more* is in its environment, too.
    """
    return daemon.spawn(command, log, {**environment(), **more}, session=True)


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then patience, then SIGKILL to all of its session."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to all of its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def most_files() -> int:
    """As many open files as the system lets us have; how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


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


class Gateway(daemon.Daemon):
    """Starts, watches and stops one daemon.

    *settings* are merged over a configuration with one Lumberjack listener named
    `beats`.  *stall* names a file: while it exists, the daemon's calls named by
    *stall_calls* wait (see _stalled.py).  *syncs* names a file for the seconds of each
    sync (see _timed.py), *viewed* one for what the live page costs (see _viewed.py).
    Without *kernel* it leaves `gateway-native` out, where that is installed.
    """

    def __init__(
        self,
        home: Path,
        settings: dict[str, Any] | None = None,
        *,
        stall: Path | None = None,
        stall_calls: str = "fdatasync,fsync",
        syncs: Path | None = None,
        viewed: Path | None = None,
        kernel: bool = True,
    ) -> None:
        given = settings or {}
        plain = {
            "node": "bench",
            "listeners": [listener("beats", "lumberjack")],
            **given,
            "spool": {"roll_interval": "1s", **given.get("spool", {})},
        }
        super().__init__(home, plain)
        self._more = {} if kernel else {"GATEWAY_NATIVE": "no"}
        self._run = ["-c", "from twisted.scripts.twistd import run; run()"]
        if stall is not None:
            self._run = [str(HERE / "_stalled.py"), str(stall), stall_calls]
        elif syncs is not None:
            self._run = [str(HERE / "_timed.py"), str(syncs)]
        elif viewed is not None:
            self._run = [str(HERE / "_viewed.py"), str(viewed)]

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def admin_port(self) -> int:
        return int(self.admin.rpartition(":")[2])

    @property
    def command(self) -> list[str]:
        return [sys.executable, *self._run, *super().command[1:]]

    def launch(self) -> None:
        self.data.mkdir(exist_ok=True)
        self.process = spawn(self.command, self._log, **self._more)

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self, timeout: float = 60.0) -> float:
        """Run it until `/readyz` says 200; returns the seconds that took."""
        begin = time.monotonic()
        self.launch()
        try:
            self._wait_ready(begin + timeout)
        except BaseException:
            self.kill()
            raise
        return time.monotonic() - begin

    def _wait_ready(self, end: float) -> None:
        assert self.process is not None
        while self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.get("/readyz")
                return
            if time.monotonic() > end:
                raise Broken(f"the gateway is not ready{self._tail()}")
            time.sleep(0.01)
        raise Broken(f"the gateway ended: {self.process.returncode}{self._tail()}")

    def _tail(self) -> str:
        return "\n  " + "\n  ".join(self.log.splitlines()[-30:])

    def stop(self) -> None:
        """See `end`."""
        if self.process is not None:
            end(self.process)
            self.process = None

    def kill(self) -> None:
        """With its workers."""
        if self.process is not None:
            kill(self.process)
            self.process = None

    def get(self, path: str) -> bytes:
        """Nobody waits long for a daemon that hangs."""
        url = f"http://{self.admin}{path}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            found: bytes = answer.read()
            return found

    def address(self, listener: str = "beats") -> str:
        """HOST:PORT as bound."""
        _, port = super().address(listener)
        return f"127.0.0.1:{port}"

    def groups(self) -> tuple[float, float]:
        """Commit groups so far, and their bytes."""
        name = "gateway_journal_commit_bytes"
        return self.metric(f"{name}_count"), self.metric(f"{name}_sum")

    def metric(self, name: str) -> float:
        """One that has no labels."""
        lines = self.get("/metrics").decode().splitlines()
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

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
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
