"""kill -9 under the load of RS.io publishers; then all that demand said is durable is.

A publisher that was granted G elements in all, W of them at first, knows that G - W of
what it sent are on disk.  With the offsets extension they are there once, and so is
everything else; without it, at least once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons import ROLLING, listener, spawn
from deadlines import eventually, finish
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Extension
from gateway.protocols.rsio.session import Session
from gateway.protocols.rsio.signals import (
    Cancelled,
    DemandAdded,
    GoodbyeReceived,
    Opened,
    SubscribeReceived,
)
from gateway.protocols.rsio.streams import Served
from gateway.sdk.interfaces import Refusal

SEED = int(
    os.environ.get("GATEWAY_KILL_SEED", str(random.SystemRandom().getrandbits(32)))
)
KILLS = 10

Ports = dict[str, int]

# `gateway send`: all of them have a name, and so send exactly once.
SENDERS = {
    "plain": ("--connections", "3"),
    "packed": ("--packed", "192"),
    "web": ("--websocket", "/", "--compress"),
    "token": ("--token", "a secret"),
}

# The library without a name, which sends again what it can not know to be safe.
NAMELESS = """
import json, sys
from twisted.internet import defer, endpoints, reactor, task
from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.client.sender import Sender

port, acked = int(sys.argv[1]), open(sys.argv[2], "a", buffering=1)
target = endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", port)
sender = Sender(lambda: connect(target, clock=reactor), clock=reactor)
sender.start()

async def publish(who):
    number = 0
    while True:
        ids = [f"nameless-{who}-{number + n}" for n in range(50)]
        number += 50
        await sender.send([json.dumps({"event": {"id": each}}).encode() for each in ids])
        print("\\n".join(ids), file=acked)
        await task.deferLater(reactor, 0.05)

for who in range(4):
    defer.ensureDeferred(publish(who)).addErrback(
        lambda why: (why.printTraceback(), reactor.stop()))
reactor.run()
"""


class Publisher(threading.Thread):
    """Counts by the definition alone: a session on a socket, and its demand.

    What it publishes is `[who, 0]`, `[who, 1]` and so on, each as `{"event": {"id": …}}`;
    with a *name* under extension 2, else without any.  After a lost connection it goes
    on behind the first `safe` elements, or where it is asked to.
    """

    def __init__(self, port: int, who: str, *, named: bool) -> None:
        super().__init__(daemon=True)
        self.who = who
        self.safe = 0
        """So many it was told are durable."""
        self.sent = 0
        """The highest number ever sent."""
        self.connections = 0
        self.wrong: str | None = None
        self._port = port
        self._named = named
        self._stopping = threading.Event()

    def identity(self, number: int) -> str:
        return f"{self.who}-{number}"

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                with contextlib.suppress(OSError):
                    self._connection()
                time.sleep(0.05)
        except Exception as why:
            self.wrong = repr(why)
            raise

    def stop(self) -> None:
        self._stopping.set()
        eventually(lambda: not self.is_alive(), f"{self.who} has ended")

    def _connection(self) -> None:
        known = [Extension.AUTH, Extension.OFFSETS] if self._named else []
        session = Session(Limits(), server=False, offered=known)
        with socket.create_connection(("127.0.0.1", self._port), 5) as link:
            self.connections += 1
            session.greet()
            link.sendall(session.take())
            link.settimeout(0.02)
            stream: Served | None = None
            base = at = 0
            while not self._stopping.is_set():
                try:
                    data = link.recv(1 << 16)
                except TimeoutError:
                    data = None
                if data == b"":
                    return
                try:
                    events = list(session.received(data or b""))
                except Refusal as why:
                    raise AssertionError(f"the gateway broke a rule: {why}") from None
                for event in events:
                    match event:
                        case Opened() if self._named:
                            session.identify("name", self.who.encode())
                        case SubscribeReceived(asked):
                            stream = asked
                            base = at = self._begin(asked)
                            session.producer.accept(asked)
                        case DemandAdded(asked):
                            self._learn(base + asked.granted - asked.first, at)
                        case Cancelled() | GoodbyeReceived():
                            return
                if stream is not None and stream.live:
                    count = min(stream.demand.left, 40)
                    bodies = [
                        json.dumps({"event": {"id": self.identity(number)}}).encode()
                        for number in range(at, at + count)
                    ]
                    session.producer.send(stream, bodies)
                    at += count
                    self.sent = max(self.sent, at)
                link.sendall(session.take())

    def _begin(self, asked: Served) -> int:
        if not self._named:
            return self.safe
        assert asked.offset is not None, "a named publisher is asked to go on"
        # It may have more than we were told, and no less; and nothing that never was.
        assert self.safe <= asked.offset <= self.sent, "asked to go on elsewhere"
        self.safe = asked.offset
        return asked.offset

    def _learn(self, safe: int, at: int) -> None:
        assert safe <= at, "more was acknowledged than was sent"
        self.safe = max(self.safe, safe)


class Process:
    """A writer in a process of its own, that writes down what was acknowledged."""

    def __init__(self, home: Path, name: str, command: list[str]) -> None:
        self.acked = home / f"{name}.acked"
        self.process = spawn([sys.executable, *command], home / f"{name}.log")

    @property
    def heard(self) -> int:
        """How much it has written down."""
        return self.acked.stat().st_size if self.acked.exists() else 0

    def acknowledged(self) -> set[str]:
        """Whole lines."""
        return set(self.acked.read_text().split("\n")[:-1])

    def stop(self) -> None:
        assert self.process.poll() is None, "it ended by itself"
        self.process.terminate()
        finish(self.process)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Load:
    """Everyone that publishes."""

    def __init__(self, home: Path, ports: Ports) -> None:
        self.publishers = [
            Publisher(ports["open"], f"{kind}{n}", named=kind == "named")
            for kind in ("named", "anonymous")
            for n in range(2)
        ]
        self.processes: dict[str, Process] = {}
        for name, options in SENDERS.items():
            acked = str(home / f"{name}.acked")
            self.processes[name] = Process(home, name, [
                "-m", "gateway.cli", "send", "rsio", f"127.0.0.1:{ports[name]}",
                "--generate", "1000000000", "--rate", "300", "--patience", "100000",
                "--json", "--acked", acked, *options,
            ])  # fmt: skip
        acked = str(home / "nameless.acked")
        self.processes["nameless"] = Process(
            home, "nameless", ["-c", NAMELESS, str(ports["open"]), acked]
        )
        for each in self.publishers:
            each.start()

    def heard(self) -> list[int]:
        """How much each was acknowledged."""
        return [
            *(each.safe for each in self.publishers),
            *(each.heard for each in self.processes.values()),
        ]

    def stop(self) -> None:
        for publisher in self.publishers:
            publisher.stop()
        for process in self.processes.values():
            process.stop()

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()


@contextlib.contextmanager
def publishing(home: Path, ports: Ports) -> Iterator[Load]:
    load = Load(home, ports)
    try:
        yield load
    finally:
        for publisher in load.publishers:
            publisher._stopping.set()
        load.kill()


@pytest.fixture
def ports(free_port: Callable[[], int]) -> Ports:
    """Of each writer, in all lives of the daemon."""
    port, web, guarded = free_port(), free_port(), free_port()
    return {"open": port, "plain": port, "packed": port, "web": web, "token": guarded}


@pytest.fixture
def daemon(prepare: Callable[..., Any], ports: Ports) -> Any:
    """Not started yet; it rolls all the time."""
    plain = listener(
        "open", "rsio", listen=f"tcp:127.0.0.1:{ports['open']}", options={"window": 64}
    )
    listeners = [
        plain,
        {**plain, "name": "web", "listen": f"tcp:127.0.0.1:{ports['web']}",
         "websocket": {"path": "/"}, "options": {"window": 256}},
        {**plain, "name": "guarded", "listen": f"tcp:127.0.0.1:{ports['token']}",
         "options": {"tokens": {"meters": "a secret"}}},
    ]  # fmt: skip
    return prepare(listeners=listeners, **ROLLING)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kill_the_daemon_while_publishers_stream(
    tmp_path: Path, daemon: Any, ports: Ports, gateway_command: Callable[..., Any]
) -> None:
    """Many kills: what demand acknowledged is in the files, from named publishers
    exactly once and without a hole, from others at least once.
    """
    print(f"GATEWAY_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    with publishing(tmp_path, ports) as load:
        daemon.kill_again_and_again(KILLS, chance, load.heard)
        daemon.start()
        before = load.heard()
        eventually(
            lambda: all(map(int.__gt__, load.heard(), before)),
            "everyone is acknowledged again",
        )
        load.stop()
    assert [each.wrong for each in load.publishers] == [None] * len(load.publishers)
    assert all(each.connections > 1 for each in load.publishers)
    daemon.settled()
    daemon.terminate()

    files = [each.acked for each in load.processes.values()]
    audit = gateway_command(
        "audit", "--config", daemon.config, "--json", "--acknowledged", *files
    )
    assert audit.returncode == 0, audit.stdout[-5000:] + audit.stderr[-5000:]
    assert json.loads(audit.stdout)["complete"]

    stored: dict[str, list[str]] = {}  # ids in order, by who sent them
    for row in daemon.rows():
        assert row["flaw"] is None
        identity = json.loads(row["payload"])["event"]["id"]
        stored.setdefault(identity.rpartition("-")[0], []).append(identity)
    for publisher in load.publishers:
        ids = stored.pop(publisher.who)
        wanted = [publisher.identity(number) for number in range(publisher.safe)]
        assert set(wanted) <= set(ids), "acknowledged and not there"
        if publisher.who.startswith("named"):
            assert ids == [publisher.identity(number) for number in range(len(ids))]
    nameless = {who: ids for who, ids in stored.items() if who.startswith("nameless")}
    assert load.processes["nameless"].acknowledged() <= {
        each for ids in nameless.values() for each in ids
    }
    counts = Counter(
        each for who, ids in stored.items() if who not in nameless for each in ids
    )
    assert [each for each, count in counts.items() if count > 1] == [], "doubles"
    for name in SENDERS:
        assert load.processes[name].acknowledged() <= counts.keys()
