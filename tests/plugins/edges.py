"""An edge, its line and a hub in memory; the edge's threads take turns on one."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import SecretStr
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from forwarded import Sent
from gateway.config.model import Forward
from gateway.forward import Forwarder
from gateway.forward.forwarder import Words
from gateway.protocols.forward.options import Options
from gateway.protocols.forward.server import ForwardListener
from gateway.protocols.forward.turns import Turns
from gateway.sdk.http1 import METHODS
from gateway.store.directories import Directories
from gateway.store.hub.arrivals import Arrivals
from gateway.store.node.incarnation import Incarnation, new_id
from gateway.store.system.disk import RealDisk
from gateway.testing import FakeConnection
from gateway_testkit.settings import options_of, settings
from incarnations import A
from simulation.scheduler import Scheduler

__all__ = ["ALL", "FILES", "Hub", "Line", "Pair", "Reading"]

FILES = [Sent(1, 200), Sent(201), Sent(204, 2), Sent(206, 500)]
ALL = {one.name: one.data for one in FILES}

_THEN = 1.8e9
"""What wall clocks show at the beginning."""


class Line:
    """A connection between the two, which may be cut after so many bytes from the edge, or
    from the hub; what the edge sees of it is a socket.
    """

    def __init__(self, pair: Pair, hub: Hub, up: float, down: float) -> None:
        self.pair, self.hub = pair, hub
        self.up, self.down = up, down
        """Bytes until it is cut."""
        self.carried = 0
        """Bytes that have come to the hub."""
        self.timeout = 60.0
        self.cut_off = self.dead = False
        """It has ended; nothing gets through, and nobody knows."""
        self.connection = FakeConnection(protocol="forward", prefixes=METHODS)
        self.connection.serve(hub.listener(self.connection))
        self._free = pair.clock.seconds()
        self._up: list[tuple[float, bytes]] = []
        self._down: list[tuple[float, bytes]] = []

    def settimeout(self, seconds: float) -> None:
        self.timeout = seconds

    def sendall(self, data: bytes) -> None:
        self._living()
        if self.pair.slow is None:
            self._deliver(data)
            return
        rate, latency = self.pair.slow
        self._free = max(self._free, self.pair.line_free, self._now)
        self._free = self.pair.line_free = self._free + len(data) / rate
        self._up.append((self._free + latency, data))
        while sum(len(each) for _, each in self._up) > 1 << 14:
            self._wait()

    def recv(self, _: int) -> bytes:
        until = self._now + self.timeout
        while (data := self._came()) is None:
            if not self.timeout:
                raise BlockingIOError
            if self._now > until:
                raise TimeoutError
            self._wait()
        return data

    def _came(self) -> bytes | None:
        self._living()
        self.pump()
        if not self._down or self._down[0][0] > self._now or self.dead:
            return None
        _, data = self._down.pop(0)
        some = data[: int(min(len(data), self.down))]
        self.down -= len(data)
        if self.down < 0:
            self.cut()
        if not some and data:
            self._living()
        return some

    def shutdown(self, _: int) -> None:
        self.cut()

    def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        if not self.cut_off:
            self.cut_off = True
            if not self.connection.closed:
                self.connection.lose()

    def pump(self) -> None:
        """What was sent gets to the hub, and what the hub has written on its way."""
        while self._up and self._up[0][0] <= self._now:
            self._deliver(self._up.pop(0)[1])
        latency = 0.0 if self.pair.slow is None else self.pair.slow[1]
        if data := self.connection.sent:
            self.connection.clear()
            self._down.append((self._now + latency, data))
        over = self.connection.closed or self.connection.aborted
        if over and not (self._down and not self._down[-1][1]):
            self._down.append((self._now + latency, b""))

    def _deliver(self, data: bytes) -> None:
        if self.dead:
            return
        some = data[: int(min(len(data), self.up))]
        self.up -= len(data)
        self.carried += len(some)
        if some:
            self.connection.deliver(some)
        if self.up < 0:
            self.cut()
            self._living()

    def _living(self) -> None:
        if self.cut_off:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    def _wait(self) -> None:
        self.pair.threads.pause(0.05)
        self._living()
        self.pump()

    @property
    def _now(self) -> float:
        return self.pair.clock.seconds()


class Hub:
    """One that keeps what it takes in a directory; `restart` is a kill."""

    def __init__(self, folder: Path, clock: Clock, node: str = "hub") -> None:
        self.directories = Directories.under(folder)
        self.directories.spool.mkdir(parents=True, exist_ok=True)
        self.clock, self.node = clock, node
        self.ahead = 0.0
        """Of its wall clock, in seconds."""
        self.full: str | None = None
        self.options: dict[str, Any] = {}
        self.told: list[str] = []
        self.arrivals: Arrivals | None = None
        self.restart()

    def require(self, tokens: dict[str, str]) -> None:
        """Whoever comes must have one."""
        self.options = {
            "tokens": {name: SecretStr(token) for name, token in tokens.items()}
        }
        self.restart()

    def restart(self) -> None:
        if self.arrivals is not None:
            assert self.arrivals._spool_lock is not None
            self.arrivals._spool_lock.release()
        by = new_id()
        self.arrivals = arrivals = Arrivals(
            self.node, self.directories, RealDisk(), self.told.append,
            lambda: _THEN + self.clock.seconds(), by=lambda: by,
        )  # fmt: skip
        arrivals.open()
        arrivals.watch(lambda _: self.full, lambda: len(self.files()))
        self.listener = ForwardListener(
            settings(Options, **self.options), arrivals, self.clock, set(), int,
            Turns(maybeDeferred),
        )  # fmt: skip
        self.listener.wall_clock = lambda: _THEN + self.ahead + self.clock.seconds()

    @property
    def taker(self) -> Arrivals:
        assert self.arrivals is not None
        return self.arrivals

    def lsns(self, node: str = "edge") -> dict[str, list[tuple[int, int]]]:
        """What it says that it has of a node."""
        found = self.taker.known(node).lsns
        return {by: [*lsns] for by, lsns in found.items()}

    def forget(self, *files: Sent) -> None:
        """It was put back: it lacks these, and `restart`s."""
        for one in files:
            (self.directories.spool / one.name).unlink()
        for path in self.directories.arrivals.glob("*"):
            path.unlink()
        self.restart()
        for path in sorted(self.directories.spool.glob("events-*")):
            node = path.name.split("-", 1)[1].partition("_")[0]
            known = self.taker._known(node)
            from gateway.store.names import parse_file_name

            named = parse_file_name(path.name)
            assert named is not None
            self.taker.note(known, named)

    @property
    def troubles(self) -> list[str]:
        """What it says of those who are connected."""
        found = (one.trouble for one in self.listener.connections)
        return [one for one in found if one is not None]

    def files(self) -> dict[str, bytes]:
        spool = self.directories.spool
        return {
            path.name: path.read_bytes()
            for path in sorted(spool.iterdir())
            if path.name[0] != "."
        }


class Reading(RealDisk):
    """A disk that may be full, and whose renames may take their time."""

    def __init__(self) -> None:
        self.full = False
        self.pause: Callable[[], None] = lambda: None

    def rename(self, old: Path, new: Path) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.pause()
        super().rename(old, new)


class Pair:
    """An edge with files, its forwarder, and a hub."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = Reading()
        self.names = {"edge"}
        """Those that it has, and had."""
        self.clock = Clock()
        self.ahead = 0.0
        """Of the edge's wall clock, in seconds."""
        self.hub = Hub(folder / "hub", self.clock)
        self.edge = Directories.under(folder / "edge")
        for directory in (self.edge.spool, self.edge.archive):
            directory.mkdir(parents=True, exist_ok=True)
        self.incarnation = Incarnation(A, 1, 0)
        self.lines: list[Line] = []
        self.cuts: Iterator[tuple[float, float]] = iter(())
        """Of the next connections."""
        self.away = False
        self.hubs: dict[str, Hub] = {}
        """Others than that, by address."""
        self.dead: set[str] = set()
        """Addresses where nobody answers."""
        self.slow: tuple[float, float] | None = None
        """The line's bytes a second, and its latency."""
        self.line_free = 0.0
        """When all that was sent is through."""
        self.threads = Scheduler(self.clock.seconds)
        self.settings = options_of(Forward, to="http://hub:7410")
        self.begin()

    def is_ours(self, node: str) -> bool:
        """See `Forwarder`."""
        return node in self.names

    def begin(self, words: Callable[[], Words] = lambda: lambda _: []) -> None:
        """The edge starts; the one that ran is killed."""
        self.threads.kill()
        self.cut()
        self.threads = Scheduler(self.clock.seconds)
        self.forwarder = Forwarder(
            self.settings,
            "edge",
            SimpleNamespace(now=self.incarnation, holes={}),  # type: ignore[arg-type]
            self.edge,
            self.disk,
            self.is_ours,
            words,
            self._connect,
            self.clock.seconds,
            lambda: _THEN + self.ahead + self.clock.seconds(),
            self.threads,
        )

    def restart(self) -> None:
        """The edge is killed, and starts."""
        self.begin()
        self.forwarder.start(0)

    def _connect(self, to: str, settings: object) -> Line:
        if self.away or to in self.dead:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        hub = self.hubs.get(to, self.hub)
        cut = next(self.cuts, (float("inf"), float("inf")))
        self.lines.append(Line(self, hub, *cut))
        return self.lines[-1]

    def cut(self) -> None:
        """All lines."""
        for line in self.lines:
            line.cut()

    @property
    def open(self) -> list[Line]:
        """Lines that are not cut."""
        return [line for line in self.lines if not line.cut_off]

    def slow_renames(self, chance: random.Random) -> None:
        """Renames take up to 25 seconds from now on."""

        def pause() -> None:
            if self.threads.current and chance.random() < 0.6:
                self.threads.pause(chance.random() * 25)

        self.disk.pause = pause

    def publish(self, *files: Sent) -> None:
        for one in files:
            (self.edge.spool / one.name).write_bytes(one.data)
            self.forwarder.uploads.add(one.name)

    def forward(self, *files: Sent, seconds: float = 5.0) -> None:
        """The forwarder starts, with these files too, and time goes by."""
        self.publish(*files)
        self.forwarder.start(0)
        self.run(seconds)

    def run(self, seconds: float = 5.0) -> None:
        """Time goes by."""
        for _ in range(int(seconds * 10)):
            self.step()
            self.clock.advance(0.1)
        self.step()

    def step(self) -> None:
        """All do what they can do now."""
        while tasks := self.threads.ready():
            for task in tasks:
                if task in self.threads.tasks and task.ready(self.clock.seconds()):
                    self.threads.step(task)
                    assert task.failed is None, task.failed
        for line in self.open:
            line.pump()

    def waiting(self) -> list[str]:
        names = (path.name for path in self.edge.spool.iterdir())
        return sorted(name for name in names if name[0] != ".")

    def archived(self) -> list[str]:
        return sorted(path.name for path in self.edge.archive.iterdir())
