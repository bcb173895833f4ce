"""The demo's child processes, started by the commands that a user would type."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from gateway_demo.setup import Setup, Traffic

__all__ = [
    "Demo",
    "Failed",
    "Gateway",
    "Job",
    "Process",
    "Processes",
    "Sender",
    "status_of",
]

_READY_SECONDS = 120.0
_STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.1
_LAST_LINES = 15

#: `twistd` of this Python, whichever scripts are beside it.
_TWISTD = "from twisted.scripts.twistd import run; run()"


class Failed(Exception):
    """A process ended that should run, or failed; the text has its last output."""


class Process:
    """A child process; its standard output and errors go to the file *log*.

    *more* is added to its environment.  With *family* it leads a session of its own, and
    `stop` ends what it has started, too.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        more: Mapping[str, str] | None = None,
        *,
        family: bool = False,
    ) -> None:
        self.name = name
        self.command = command
        self.log = log
        self._family = family
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(more or {})},
                start_new_session=family,
            )

    @property
    def status(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._child.poll()

    def check(self) -> None:
        """Raise `Failed` if it has ended."""
        if self.status is not None:
            raise Failed(
                f"{self.name} ended with status {self.status}; {self.end_of_log()}"
            )

    def told(self) -> str:
        return self.log.read_text(errors="replace")

    def end_of_log(self) -> str:
        text = self.told().splitlines()[-_LAST_LINES:]
        lines = os.linesep.join(f"  | {line}" for line in text)
        return f"the end of {self.log}:\n{lines or '  (it said nothing)'}"

    def wait_for(self, look: Callable[[], bool], seconds: float) -> None:
        """Wait until *look* is true.  Raises `Failed` if it ends, or after *seconds*."""
        end = time.monotonic() + seconds
        while not look():
            self.check()
            if time.monotonic() > end:
                raise Failed(
                    f"{self.name} is not ready after {seconds:.0f} s; {self.end_of_log()}"
                )
            time.sleep(_LOOK_SECONDS)

    def wait_to_say(self, text: str, seconds: float) -> None:
        """Wait until its log has this *text*.  Raises `Failed` as `wait_for` does."""
        self.wait_for(lambda: text in self.told(), seconds)

    def kill(self) -> None:
        """End it by SIGKILL, as a machine that is lost."""
        self._child.kill()
        self._child.wait()

    def stop(self) -> int:
        """End it by SIGTERM, or by SIGKILL if that takes too long; the exit status."""
        if self.status is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
        status = self._child.wait()
        if self._family:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
        return status


class Sender(Process):
    """A `gateway send` that writes the ids of its acknowledged events to a file."""

    def __init__(
        self,
        traffic: Traffic,
        address: str,
        directory: Path,
        events: int,
        rate: int,
        *,
        patience: float = 60.0,
    ) -> None:
        self.traffic = traffic
        name = traffic.title.lower().translate(str.maketrans(" ", "-", "()"))
        self.acknowledged_ids = directory / f"{name}.acked"
        command = [
            sys.executable, "-m", "gateway.cli", "send", traffic.protocol, address,
            "--generate", str(events), "--rate", str(rate), "--json",
            "--acked", str(self.acknowledged_ids), "--patience", str(patience),
            *traffic.arguments,
        ]  # fmt: skip
        super().__init__(traffic.title, command, directory / f"{name}.log")

    def totals(self) -> Mapping[str, Any]:
        """The totals of `gateway send --json`.  Raises `Failed` unless it succeeded."""
        if self.status != 0:
            raise Failed(
                f"sender {self.name!r} ended with status {self.status};"
                f" {self.end_of_log()}"
            )
        totals: Mapping[str, Any] = json.loads(self.log.read_text().splitlines()[-1])
        return totals


class Gateway(Process):
    """A daemon with that configuration, which writes its log beside it."""

    def __init__(self, name: str, config: Path, admin: str) -> None:
        self._admin = admin
        command = [sys.executable, "-c", _TWISTD, "-n", "--pidfile=", "gateway"]
        log = config.with_name(f"{name}.log")
        super().__init__(name, [*command, "--config", str(config)], log)

    def ready(self) -> None:
        """Wait until it takes events."""

        def ready() -> bool:
            with contextlib.suppress(OSError):
                return bool(status_of(self._admin).get("ready"))
            return False

        self.wait_for(ready, _READY_SECONDS)


class Job(Process):
    """`gateway spark` with that configuration; *more* is added to its environment."""

    def __init__(
        self, config: Path, log: Path, more: Mapping[str, str] | None = None
    ) -> None:
        command = [sys.executable, "-m", "gateway.cli", "spark", "--json"]
        super().__init__(
            "the Spark job", [*command, "--config", str(config)], log, more
        )

    def wait_to_read(self, seconds: float) -> None:
        """Wait until it has its Spark session and reads the spool."""
        self.wait_to_say('"running"', seconds)


class Demo(ABC):
    def __init__(self) -> None:
        self.senders: list[Sender] = []

    @abstractmethod
    def _needed(self) -> Sequence[Process | None]:
        """Processes that must run to the end, once they were started."""

    @abstractmethod
    def _all(self) -> Sequence[Process | None]:
        """All but the senders, in the order in which they are stopped."""

    def acknowledged_ids(self) -> Sequence[str]:
        return [
            name
            for sender in self.senders
            for name in sender.acknowledged_ids.read_text().splitlines()
        ]

    def check(self) -> None:
        """Raise `Failed` if a process has ended that must not have."""
        for process in self._needed():
            if process is not None:
                process.check()
        for sender in self.senders:
            if sender.status is not None:
                sender.totals()

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """A context that stops every process when it is left."""
        try:
            yield self
        finally:
            for process in (*self.senders, *self._all()):
                if process is not None:
                    process.stop()


class Processes(Demo):
    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.setup = setup
        self.daemon: Gateway | None = None
        self.spark: Process | None = None
        self.players: Process | None = None
        self.tap: Process | None = None

    def start_daemon(self) -> None:
        """Start it and wait until it takes events."""
        self.daemon = Gateway("gateway", self.setup.config, self.setup.admin)
        self.daemon.ready()

    def start_spark(self) -> None:
        """Start the job; it takes 10 to 30 seconds until `spark_running`."""
        setup = self.setup
        self.spark = Process(
            "the Spark job",
            [sys.executable, "-m", "gateway_demo.scores", str(setup.config)],
            setup.directory / "spark.log",
        )

    def start_senders(self, events: int, rate: int) -> None:
        """Start the senders (*events* each, *rate* a second), the players and the tap."""
        addresses = {one["name"]: one["address"] for one in self.status()["listeners"]}
        self.senders = [
            Sender(one, addresses[one.listener], self.setup.directory, events, rate)
            for one in self.setup.traffic
        ]
        self.players = Process(
            "the players",
            [sys.executable, "-m", "gateway_demo.players", addresses["game"]],
            self.setup.directory / "players.log",
        )
        self.tap = Process(
            "the tap",
            [
                sys.executable, "-m", "gateway.cli", "tap", addresses["meters"],
                "--protocol", "pravega", "--count", "3",
            ],
            self.setup.directory / "tap.log",
        )  # fmt: skip

    def tapped(self) -> Sequence[Mapping[str, Any]]:
        """The events that `gateway tap` has shown so far."""
        return _objects(self.tap)

    def pushes(self) -> Sequence[Mapping[str, Any]]:
        return _objects(self.players)

    def status(self) -> Mapping[str, Any]:
        """The answer of `/api/status`.  Raises OSError."""
        return status_of(self.setup.admin)

    def spark_running(self) -> bool:
        """Whether the job has its Spark session and reads the spool."""
        assert self.spark is not None
        return '"running"' in self.spark.told()

    def _needed(self) -> Sequence[Process | None]:
        return (self.daemon, self.spark, self.players)

    def _all(self) -> Sequence[Process | None]:
        return (self.tap, self.players, self.daemon, self.spark)


def status_of(admin: str) -> Mapping[str, Any]:
    """The answer of `/api/status` at `HOST:PORT`.  Raises OSError."""
    connection = http.client.HTTPConnection(admin, timeout=5)
    try:
        connection.request("GET", "/api/status")
        found: Mapping[str, Any] = json.loads(connection.getresponse().read())
    except (http.client.HTTPException, ValueError) as why:
        raise OSError(str(why)) from why
    finally:
        connection.close()
    return found


def _objects(process: Process | None) -> Sequence[Mapping[str, Any]]:
    """The complete lines of JSON that it has written so far."""
    if process is None:
        return []
    whole, _, _ = process.told().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
