"""An edge, its line and a hub in memory."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import SecretStr
from twisted.internet import error
from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.task import Clock, deferLater
from twisted.python.failure import Failure

from forwarded import Sent
from gateway.config.model import Forward
from gateway.forward import Forwarder
from gateway.forward.files import ForwardedFiles
from gateway.protocols.forward.options import Options
from gateway.protocols.forward.server import ForwardListener
from gateway.protocols.forward.turns import Turns
from gateway.sdk.forwarding import Life, Said
from gateway.store.directories import Directories
from gateway.store.hub.arrivals import Arrivals
from gateway.store.lsns import Lsns
from gateway.store.node.incarnation import Incarnation
from gateway.store.system.disk import RealDisk
from gateway.testing import FakeConnection
from gateway_testkit.settings import options_of, settings
from incarnations import A

__all__ = ["ALL", "FILES", "Hub", "Line", "Pair", "Reading"]

FILES = [Sent(1, 200), Sent(201), Sent(204, 2), Sent(206, 500)]
ALL = {one.name: one.data for one in FILES}


_THEN = 1.8e9
"""What wall clocks show at the beginning."""


class Line:
    """A connection between the two, which may be cut after so many bytes from the edge, or
    from the hub.
    """

    def __init__(self, hub: Hub, user: Any, up: float, down: float) -> None:
        self.hub, self.user = hub, user
        self.up, self.down = up, down
        """Bytes until it is cut."""
        self.cut_off = False
        self.choked: Callable[[bool], None] = lambda _: None
        self.connection = FakeConnection(protocol="forward")
        self.connection.serve(hub.listener(self.connection))

    # What the edge does

    def send(self, data: bytes) -> None:
        if self.cut_off:
            return
        some = data[: int(min(len(data), self.up))]
        self.up -= len(data)
        if some:
            self.connection.deliver(some)
        if self.up < 0:
            self.cut()

    def abort(self) -> None:
        self.cut()

    close = abort

    def when_choked(self, tell: Callable[[bool], None]) -> None:
        self.choked = tell

    # What the hub does

    def pump(self) -> None:
        """What the hub has written comes to the edge."""
        if self.cut_off:
            return
        data, refused = self.connection.sent, self.connection.refused
        over = self.connection.closed
        self.connection.clear()
        if refused is not None:
            data += refused.reply
        self.arrive(data)
        if over:
            self.cut()

    def arrive(self, data: bytes) -> None:
        """At the edge, before it is cut."""
        some = data[: int(min(len(data), self.down))]
        self.down -= len(data)
        if some:
            self.user.received(some)
        if self.down < 0:
            self.cut()

    def cut(self) -> None:
        if self.cut_off:
            return
        self.cut_off = True
        if not self.connection.closed:
            self.connection.lose()
        self.user.closed(Failure(error.ConnectionDone()))


class Slow(Line):
    """One on which each byte takes its time, and then *latency* seconds more."""

    def __init__(
        self, hub: Hub, user: Any, cut: tuple[float, float], rate: float, latency: float
    ) -> None:
        super().__init__(hub, user, *cut)
        self.rate, self.latency = rate, latency
        self._free = hub.clock.seconds()
        self._up: list[tuple[float, bytes]] = []
        self._down: list[tuple[float, bytes]] = []

    @property
    def queued(self) -> int:
        return sum(len(data) for _, data in self._up)

    def send(self, data: bytes) -> None:
        self._free = max(self._free, self.hub.clock.seconds()) + len(data) / self.rate
        self._up.append((self._free + self.latency, data))
        if self.queued > 1 << 14:
            self.choked(False)

    def pump(self) -> None:
        now = self.hub.clock.seconds()
        full = self.queued > 1 << 14
        while self._up and self._up[0][0] <= now:
            super().send(self._up.pop(0)[1])
        if full and self.queued <= 1 << 14:
            self.choked(True)
        if self.cut_off or self.connection.closed:
            super().pump()
            return
        self._down.append((now + self.latency, self.connection.sent))
        self.connection.clear()
        while self._down and self._down[0][0] <= now and not self.cut_off:
            self.arrive(self._down.pop(0)[1])


class Hub:
    """One that keeps what it takes in a directory; `restart` is a kill."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.directories = Directories.under(folder)
        self.directories.spool.mkdir(parents=True, exist_ok=True)
        self.clock = clock
        self.ahead = 0.0
        """Of its wall clock, in seconds."""
        self.full: str | None = None
        self.options: dict[str, Any] = {}
        self.restart()

    def require(self, tokens: dict[str, str]) -> None:
        """Whoever comes must have one."""
        self.options = {
            "tokens": {name: SecretStr(token) for name, token in tokens.items()}
        }
        self.restart()

    def restart(self) -> None:
        arrivals = Arrivals("hub", self.directories, RealDisk(), lambda _: None)
        arrivals.recover()
        arrivals.watch(lambda _: self.full, lambda: len(self.files()))
        self.arrivals = arrivals
        self.listener = ForwardListener(
            settings(Options, **self.options), "hub", arrivals, self.clock, set(), int,
            Turns(maybeDeferred),
        )  # fmt: skip
        self.listener.wall_clock = lambda: _THEN + self.ahead + self.clock.seconds()

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
    """A disk on which a name that comes while a directory is read may be missed."""

    def __init__(self) -> None:
        self.missed: list[list[str]] = []
        """By each of the next looks into the spool, which find what came after them."""
        self.full = False

    def names(self, directory: Path) -> list[str]:
        found = super().names(directory)
        if directory.name != "spool" or not self.missed:
            return found
        missed = self.missed.pop(0)
        return [name for name in found if name not in missed]

    def rename(self, old: Path, new: Path) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
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
            directory.mkdir(parents=True)
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
        self.in_thread: Callable[..., Deferred[Any]] = maybeDeferred
        self.settings = options_of(Forward, to="tcp://hub:7410")
        self.begin()

    def is_ours(self, node: str) -> bool:
        """See `ForwardedFiles`."""
        return node in self.names

    def life_of(self, node: str) -> Life | None:
        """See `ForwardedFiles`."""
        return None

    def begin(
        self,
        words: Callable[[], Callable[[Mapping[str, Lsns]], list[Said]]] = lambda: (
            lambda _: []
        ),
    ) -> None:
        """The edge starts."""
        files = ForwardedFiles(
            "edge",
            SimpleNamespace(now=self.incarnation),
            self.edge,
            self.disk,
            self.is_ours,
            self.life_of,
        )
        self.forwarder = Forwarder(
            self.settings,
            files,
            self.clock,
            self.in_thread,
            self._connect,
            lambda: _THEN + self.ahead + self.clock.seconds(),
            words,
        )

    def _connect(
        self, reactor: object, to: str, settings: object, user: Any
    ) -> Deferred[Any]:
        if self.away or to in self.dead:
            return fail(error.ConnectionRefusedError())
        hub = self.hubs.get(to, self.hub)
        cut = next(self.cuts, (float("inf"), float("inf")))
        if self.slow is None:
            line = Line(hub, user, *cut)
        else:
            line = Slow(hub, user, cut, *self.slow)
        self.lines.append(line)
        user.connected(line)
        if not line.cut_off:
            user.opened()
        return succeed(None)

    def begin_with_slow_threads(self, chance: random.Random) -> None:
        """It starts, and from now on its threads end in any order, renames after up to 25
        seconds; those of an edge that was killed do nothing more.
        """

        def in_thread(
            do: Callable[..., Any], *words: Any, **more: Any
        ) -> Deferred[Any]:
            killed = self.forwarder

            def run() -> Deferred[Any]:
                if self.forwarder is not killed:
                    return Deferred()
                return maybeDeferred(do, *words, **more)

            renames = getattr(do, "func", do).__name__ == "have_arrived"
            share, most = (0.6, 25) if renames else (0.2, 2)
            if chance.random() < share:
                return deferLater(self.clock, chance.random() * most, run)
            return run()

        self.in_thread = in_thread
        self.begin()

    def publish(self, *files: Sent) -> None:
        for one in files:
            (self.edge.spool / one.name).write_bytes(one.data)

    def run(self, seconds: float = 5.0) -> None:
        """Time goes by."""
        for _ in range(int(seconds * 10)):
            for line in [one for one in self.lines if not one.cut_off][-3:]:
                line.pump()
            self.clock.advance(0.1)

    def waiting(self) -> list[str]:
        return sorted(path.name for path in self.edge.spool.iterdir())

    def archived(self) -> list[str]:
        return sorted(path.name for path in self.edge.archive.iterdir())
