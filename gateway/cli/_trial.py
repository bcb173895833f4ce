"""Runs one case of `gateway test`: input through a listener's protocol, in memory.

There is no network, no disk and no time.  What is sent are bytes as they are, or events by
the protocol's own client, that of `gateway send`.  Rows are what the protocol's decoder
makes of the stored batches; rows of tables are what the Spark job makes of the file that
the spool would get.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from gateway.cli import send
from gateway.config import Listener
from gateway.event import Origin
from gateway.plugins import installed
from gateway.store.spool import parquet
from gateway.store.spool.decoding import Decoder
from gateway.testing import FakeConnection
from gateway.testing.plugins import FakeDaemon

Row = dict[str, Any]
_PEER = "192.0.2.1:4000"
_ROUNDS = 300
"""Rounds of a tenth of a second; longer than any client waits before it tries again."""


class CanNot(Exception):
    """The case can not be run; the text says why."""


@define(eq=False)
class Outcome:
    _daemon: FakeDaemon
    rows: list[Row]
    refused: str
    """The rule that was broken, with limit and key; empty: none."""
    trouble: str
    """Why not everything was acknowledged, or what raised; empty: all is fine."""

    def write(self, path: Path, node: str) -> None:
        """The events as a file of the spool."""
        daemon = self._daemon
        decoder = Decoder({daemon.protocol.name: daemon.context.decode})
        stored = daemon.journal.stored
        with path.open("wb") as file:
            parquet.write(stored, file, node=node, decoder=decoder, compression="zstd")


class _Daemon:
    def __init__(self, listener: Listener, folder: Path) -> None:
        protocol = installed().protocols[listener.protocol]
        try:
            self.fake = FakeDaemon(protocol, folder, listener=listener)
        except Exception as why:
            raise CanNot(
                f"{listener.protocol} does not start in memory: {why}"
            ) from why
        self.name = listener.name
        self.connections: list[FakeConnection] = []

    def connect(self) -> FakeConnection:
        number = len(self.connections) + 1
        protocol = self.fake.protocol.name
        connection = FakeConnection(
            Origin(protocol, self.name, f"session-{number}", _PEER),
            memory=self.fake.journal.memory,
        )
        self.connections.append(connection)
        connection.serve(self.fake.port.accept(connection))
        return connection

    def outcome(self, trouble: str = "") -> Outcome:
        refused = next(
            (str(one.refused) for one in self.connections if one.refused), ""
        )
        failed = next((one.failure for one in self.connections if one.failure), None)
        rows = [
            {
                "protocol": self.fake.protocol.name,
                "listener": self.name,
                **row._asdict(),
            }
            for row in self.fake.rows()
        ]
        if failed is not None:
            trouble = f"the protocol raised {type(failed).__name__}: {failed}"
        return Outcome(self.fake, rows, refused, trouble)


def send_bytes(listener: Listener, data: bytes) -> Outcome:
    """Send just these bytes, close, and return what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = _Daemon(listener, Path(folder))
        connection = daemon.connect()
        connection.deliver(data)
        daemon.fake.store()
        daemon.fake.advance(0.2)
        connection.lose()
        daemon.fake.store()
        return daemon.outcome()


def send_events(
    listener: Listener, events: Sequence[bytes], options: Sequence[str]
) -> Outcome:
    """Send *events* by the protocol's own client, with *options* of `gateway send`, to the end."""
    sender = installed().protocols[listener.protocol].sender()
    if sender is None:
        raise CanNot(f"{listener.protocol} has no client here; say text, hex or base64")
    args = _arguments([listener.protocol, "localhost:1", *options])
    with tempfile.TemporaryDirectory() as folder:
        daemon = _Daemon(listener, Path(folder))
        endpoint = _Endpoint(daemon)
        args.reactor = reactor = _Reactor(daemon.fake.clock)
        args.endpoint = endpoint
        args.events = [(str(n), event) for n, event in enumerate(events, 1)]
        sending = resolve_name(sender.sending)(args)
        sending.begin()
        for _ in range(_ROUNDS):
            endpoint.pump()
            daemon.fake.store()
            endpoint.pump()
            if reactor.stopped:
                break
            daemon.fake.clock.advance(0.1)
        daemon.fake.store()
        missing = len(events) - sending.totals.acknowledged
        trouble = ""
        if missing:
            trouble = f"{missing} of {len(events)} events were not acknowledged"
            trouble += f": {sending.trouble}" if sending.trouble else ""
        return daemon.outcome(trouble)


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="with", add_help=False)
    send.add_arguments(parser)
    try:
        return parser.parse_args(words)
    except SystemExit:
        raise CanNot(f"with: {json.dumps(words[2:])} are no options of it") from None


class _Reactor:
    """A clock, and what `gateway send` stops when it is done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


class ClientTransport(StringTransport):
    """A client's end; `gone` once it has hung up."""

    protocol: Any = None
    gone = False

    def loseConnection(self) -> None:
        if not self.gone:
            self.gone = True
            self.protocol.connectionLost(Failure(ConnectionDone()))

    def abortConnection(self) -> None:
        self.loseConnection()


class _Endpoint:
    """Connects a client to the daemon, in memory."""

    def __init__(self, daemon: _Daemon) -> None:
        self._daemon = daemon
        self._open: list[tuple[ClientTransport, FakeConnection]] = []

    def connect(self, factory: Any) -> Deferred[Any]:
        protocol, transport = factory.buildProtocol(None), ClientTransport()
        transport.protocol = protocol
        self._open.append((transport, self._daemon.connect()))
        protocol.makeConnection(transport)
        return succeed(protocol)

    def pump(self) -> None:
        """Carry bytes to and fro until all are quiet."""
        while sum(self._carry(*each) for each in tuple(self._open)):
            self._daemon.fake.store()

    def _carry(self, transport: ClientTransport, connection: FakeConnection) -> bool:
        said, answer = transport.value(), connection.sent
        transport.clear()
        connection.clear()
        if said:
            connection.deliver(said)
        if answer and not transport.gone:
            transport.protocol.dataReceived(answer)
        over = connection.closed or connection.aborted
        if transport.gone or (over and not connection.sent):
            self._open.remove((transport, connection))
            transport.loseConnection()
            connection.lose()
        return bool(said or answer)
