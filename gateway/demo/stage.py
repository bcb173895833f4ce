"""The demo's processes: exactly the commands that a user would type."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.demo.scene import Scene, Traffic

__all__ = ["Failed", "Process", "Sender", "Stage"]

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0


class Failed(Exception):
    """A process of the demo ended as it should not; the text has its last lines."""


class Process:
    """A child with its output in a file."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.command = command
        self.log = log
        with log.open("wb") as output:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    @property
    def status(self) -> int | None:
        """Its exit status, or None while it runs."""
        return self._child.poll()

    def check(self) -> None:
        """Raise `Failed` if it has ended."""
        if self.status is not None:
            raise Failed(
                f"{self.name} ended with status {self.status}; "
                f"the end of {self.log}:\n{tail(self.log)}"
            )

    def stop(self) -> int:
        """Ask it to end, wait, and insist if it does not; its exit status."""
        if self.status is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
        return self._child.wait()


class Sender(Process):
    """A `gateway send` with the ids of what was acknowledged in a file."""

    def __init__(
        self, traffic: Traffic, address: str, directory: Path, events: int, rate: int
    ) -> None:
        self.traffic = traffic
        name = traffic.title.lower().translate(str.maketrans(" ", "-", "()"))
        self.acknowledged_ids = directory / f"{name}.acked"
        command = [
            sys.executable, "-m", "gateway.cli", "send", traffic.protocol, address,
            "--generate", str(events), "--rate", str(rate), "--json",
            "--acked", str(self.acknowledged_ids), *traffic.arguments,
        ]  # fmt: skip
        super().__init__(traffic.title, command, directory / f"{name}.log")

    def totals(self) -> Mapping[str, Any]:
        """What it says it did.  Raises `Failed` unless all of it was acknowledged."""
        if self.status != 0:
            raise Failed(
                f"sender {self.name!r} ended with status {self.status}:\n{tail(self.log)}"
            )
        totals: Mapping[str, Any] = json.loads(self.log.read_text().splitlines()[-1])
        return totals


class Stage:
    """Daemon and Spark job of one scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.daemon: Process | None = None
        self.spark: Process | None = None
        self.senders: list[Sender] = []
        self.players: Process | None = None
        self.tap: Process | None = None

    def start_daemon(self) -> None:
        """Start it and wait until it takes events."""
        scene = self.scene
        self.daemon = Process(
            "gateway",
            [
                str(Path(sys.executable).with_name("twistd")), "-n", "--pidfile=",
                "gateway", "--config", str(scene.config),
            ],
            scene.directory / "gateway.log",
        )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while True:
            self.daemon.check()
            with contextlib.suppress(OSError):
                if self.status().get("ready"):
                    return
            if time.monotonic() > deadline:
                raise Failed(f"the gateway is not ready; see {self.daemon.log}")
            time.sleep(0.1)

    def start_spark(self) -> None:
        """Start it, with the scores beside; it reads on as soon as it is up."""
        scene = self.scene
        self.spark = Process(
            "the Spark job",
            [
                sys.executable, "-m", "gateway.demo.scores", str(scene.config),
            ],
            scene.directory / "spark.log",
        )  # fmt: skip

    def start_senders(self, events: int, rate: int) -> None:
        """Start all of the scene's traffic, *events* and *rate* for each sender."""
        addresses = {one["name"]: one["address"] for one in self.status()["listeners"]}
        self.senders = [
            Sender(one, addresses[one.listener], self.scene.directory, events, rate)
            for one in self.scene.traffic
        ]
        self.players = Process(
            "the players",
            [sys.executable, "-m", "gateway.demo.players", addresses["game"]],
            self.scene.directory / "players.log",
        )
        self.tap = Process(
            "the tap",
            [
                sys.executable, "-m", "gateway.cli", "tap", addresses["meters"],
                "--protocol", "pravega", "--count", "3",
            ],
            self.scene.directory / "tap.log",
        )  # fmt: skip

    def acknowledged_ids(self) -> Sequence[str]:
        """Of the events that the senders count on."""
        return [
            name
            for sender in self.senders
            for name in sender.acknowledged_ids.read_text().splitlines()
        ]

    def tapped(self) -> Sequence[Mapping[str, Any]]:
        """A few events, as `gateway tap` showed them while they came."""
        return _objects(self.tap)

    def pushes(self) -> Sequence[Mapping[str, Any]]:
        """What reached the players so far."""
        return _objects(self.players)

    def status(self) -> Mapping[str, Any]:
        """`/api/status` now.  Raises OSError."""
        connection = http.client.HTTPConnection(self.scene.admin, timeout=5)
        try:
            connection.request("GET", "/api/status")
            found: Mapping[str, Any] = json.loads(connection.getresponse().read())
        except http.client.HTTPException as why:
            raise OSError(str(why)) from why
        finally:
            connection.close()
        return found

    def spark_running(self) -> bool:
        """Whether the job has its session and reads."""
        assert self.spark is not None
        return '"running"' in self.spark.log.read_text(errors="replace")

    def check(self) -> None:
        """Raise `Failed` if something that must run does not."""
        for process in (self.daemon, self.spark, self.players):
            if process is not None:
                process.check()
        for sender in self.senders:
            if sender.status is not None:
                sender.totals()

    @contextlib.contextmanager
    def running(self) -> Iterator[Stage]:
        """End every process at the end, whatever happens."""
        try:
            yield self
        finally:
            for process in (
                *self.senders,
                self.tap,
                self.players,
                self.daemon,
                self.spark,
            ):
                if process is not None:
                    process.stop()


def _objects(process: Process | None) -> Sequence[Mapping[str, Any]]:
    """The lines of JSON that it has written so far, whole."""
    if process is None:
        return []
    whole, _, _ = process.log.read_text(errors="replace").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    text = path.read_text(errors="replace").splitlines()[-lines:]
    return os.linesep.join(f"  | {line}" for line in text) or "  (it said nothing)"
