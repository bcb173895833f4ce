"""How every `gateway send` tries again: beside a gateway that refuses an event, kicks, hangs
up or never answers.  In memory, by a clock of the test's own.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from gateway.cli import send
from gateway.cli._trial import ClientTransport
from gateway.plugins import installed
from gateway.sdk.sending import Totals
from gateway.testing import FakeConnection
from gateway.testing.plugins import FakeDaemon

SEGMENT = ("--segment", "a/b/0.#epoch.0")
WAYS = {
    "lumberjack": ("lumberjack",),
    "lumberjack v1": ("lumberjack", "--v1", "--compression", "0"),
    "pomelo": ("pomelo",),
    "pomelo notifies": ("pomelo", "--notify"),
    "pravega, draft": ("pravega", *SEGMENT, "--dialect", "seed"),
    "pravega v17": ("pravega", *SEGMENT, "--dialect", "v17"),
    "rsio": ("rsio",),
    "rsio, named": ("rsio", "--name", "me"),
}
LIMIT = 1 << 16
LIMITS = {
    "lumberjack": ({}, {"inflated_bytes": LIMIT}),
    "pomelo": ({}, {"message_bytes": LIMIT}),
    "pravega": ({}, {"message_bytes": LIMIT}),
    "rsio": ({"element_bytes": LIMIT}, {}),
}
EVENTS_COME = {"lumberjack": 1, "pomelo": 2, "pravega": 2, "rsio": 2}
"""With which of a sender's words to a new gateway; Pravega's later, if it asks first."""
Fault = Callable[["Link", bytes], bool]


class Link:
    """One connection of a sender to the gateway."""

    def __init__(self, gateway: FakeDaemon, factory: Any) -> None:
        self.gateway = gateway
        self.connection = FakeConnection(
            protocol=gateway.protocol.name, memory=gateway.journal.memory
        )
        self.connection.serve(gateway.port.accept(self.connection))
        self.client = factory.buildProtocol(None)
        self.transport = ClientTransport()
        self.transport.protocol = self.client
        self.reads = 0

    def carry(self, fault: Fault) -> bool:
        """Bytes to and fro; whether there were any."""
        connection, transport = self.connection, self.transport
        said = transport.value()
        transport.clear()
        if said and not transport.gone:
            self.reads += 1
            if fault(self, said):
                return True
            connection.deliver(said)
        self.gateway.store()
        answer = connection.sent
        connection.clear()
        if answer and not transport.gone:
            self.client.dataReceived(answer)
        if connection.closed or connection.aborted:
            transport.loseConnection()
        return bool(said or answer)


class Reactor:
    """A clock, a gateway at the other end of all connections, and a loop over both."""

    def __init__(self, gateway: FakeDaemon, fault: Fault) -> None:
        self.clock: Clock = gateway.clock
        self.stopped = False
        self.connected: list[float] = []
        """When."""
        self._gateway = gateway
        self._fault = fault
        self._links: list[Link] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.clock, name)

    def connect(self, factory: Any) -> Deferred[Any]:
        link = Link(self._gateway, factory)
        self.connected.append(self.clock.seconds())
        self._links.append(link)
        link.client.makeConnection(link.transport)
        return succeed(link.client)

    def callWhenRunning(self, call: Callable[[], None]) -> None:
        self.clock.callLater(0, call)

    def addSystemEventTrigger(self, *_: Any) -> None:
        pass

    def stop(self) -> None:
        self.stopped = True

    def run(self) -> None:
        ends = self.clock.seconds() + 600
        while not self.stopped:
            assert self.clock.seconds() < ends, "it outlives its patience"
            self.clock.advance(0.05)
            while sum(link.carry(self._fault) for link in self._links):
                pass
            for link in self._links:
                if link.transport.gone:
                    link.connection.lose()
            self._links = [each for each in self._links if not each.transport.gone]

    def most_in(self, seconds: float) -> int:
        """The most connections within so many seconds."""
        return max(
            sum(begin <= at < begin + seconds for at in self.connected)
            for begin in self.connected
        )


class Run:
    """A gateway with that fault, and what came of a run."""

    def __init__(
        self, folder: Path, way: str, fault: Fault, sizes: list[int], *words: str
    ) -> None:
        protocol, *options = WAYS[way]
        own, common = LIMITS[protocol]
        if protocol == "pomelo":
            own = {"session_events": False}
        self.gateway = FakeDaemon(
            installed().protocols[protocol], folder, options=own, limits=common
        )
        self.reactor = Reactor(self.gateway, fault)
        parser = argparse.ArgumentParser()
        send.add_arguments(parser)
        args = parser.parse_args([protocol, "gw:1", *options, *words])
        args.reactor, args.endpoint = self.reactor, self.reactor
        args.events = [
            (f"line-{n}", json.dumps({"n": n, "x": "x" * size}).encode())
            for n, size in enumerate(sizes, 1)
        ]
        sender = installed().protocols[protocol].sender()
        assert sender is not None
        self.totals: Totals = resolve_name(sender.sending)(args).run()

    @property
    def numbers(self) -> list[int]:
        """Of the events that are stored."""
        rows = [json.loads(row.payload) for row in self.gateway.rows()]
        return [int(row["n"]) for row in rows if "n" in row]


def nothing(_: Link, __: bytes) -> bool:
    """A gateway without a fault of its own."""
    return False


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", [1, 12, 30])
def test_an_event_that_is_refused(tmp_path, capsys, way, at):
    """It alone is left out and named; all others arrive; the status is not 0."""
    sizes = [10] * 30
    sizes[at - 1] = LIMIT + 1000
    run = Run(tmp_path, way, nothing, sizes)
    assert set(run.numbers) == {*range(1, 31)} - {at}
    assert run.totals.acknowledged == 29
    assert not run.totals.complete
    size = len(json.dumps({"n": at, "x": "x" * sizes[at - 1]}))
    assert f"line-{at} ({size:,} bytes)" in capsys.readouterr().err
    assert run.reactor.most_in(60) < 45


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("reads", [1, 2, 4])
def test_a_gateway_that_hangs_up(tmp_path, way, reads):
    """Whenever it hears something, for a minute: nobody hammers it, and all arrives."""
    since: list[float] = []

    def fault(link: Link, _: bytes) -> bool:
        now = link.gateway.clock.seconds()
        since.append(now)
        if link.reads < reads or now > since[0] + 45:
            return False
        link.transport.loseConnection()
        return True

    run = Run(tmp_path, way, fault, [10] * 40)
    assert run.totals.complete
    assert set(run.numbers) == {*range(1, 41)}
    assert run.reactor.most_in(60) < 60


@pytest.mark.parametrize("way", WAYS)
def test_a_gateway_that_kicks(tmp_path, way):
    """It says in its protocol that it does not go on, and does so for all time."""
    run = Run(tmp_path, way, _kick, [10] * 40)
    assert not run.numbers
    assert run.totals.acknowledged == 0
    assert not run.totals.complete
    assert run.reactor.most_in(60) < 25


def _kick(link: Link, data: bytes) -> bool:
    if link.reads < EVENTS_COME[link.gateway.protocol.name]:
        return False
    link.connection.deliver(b"\xff" * 64)  # answered as what breaks the rules
    link.client.dataReceived(link.connection.sent)
    link.transport.loseConnection()
    return True


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("greets", [False, True])
def test_a_gateway_that_never_answers(tmp_path, way, *, greets):
    """The sender gives up when its patience ends, and says so by its status."""
    first = EVENTS_COME[WAYS[way][0]] if greets else 1
    run = Run(tmp_path, way, lambda link, _: link.reads >= first, [10] * 40)
    assert not run.numbers
    assert not run.totals.complete
    assert run.reactor.most_in(60) < 25
