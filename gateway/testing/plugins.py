r"""A protocol's service without a daemon: what `gateway.sdk.protocol.Context` lends, doubled.

daemon = FakeDaemon(protocol, tmp_path, options={"timezone": "Europe/Oslo"})
connection = daemon.connect()
connection.deliver(b"<13>hello\n")
daemon.store()
assert daemon.rows() == [...]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from gateway.config import Listener
from gateway.config.listener import NoOptions
from gateway.event import Decode, DecodeTogether, Origin, Rows, Stored
from gateway.feeds.live import Live, Tap
from gateway.feeds.replay import Replay
from gateway.sdk.endpoint import Tcp
from gateway.sdk.limits import Limits
from gateway.sdk.protocol import Context, Protocol
from gateway.store.directories import Directories
from gateway.store.finder import Finder
from gateway.store.hub.arrivals import Arrivals
from gateway.store.system.disk import RealDisk
from gateway.testing import FakeConnection, ManualJournal

__all__ = ["FakeDaemon", "Row", "lend", "listener_of", "rows_of", "rows_together"]

_EPOCH = 1_700_000_000


def lend(
    protocol: Protocol,
    data_dir: Path,
    listeners: Sequence[Listener] = (),
    *,
    node: str = "node",
    journal: Any = None,
    reactor: Any = None,
) -> Context:
    """A context on a journal in memory and a clock that the test moves.

    Directories are made below *data_dir*; nothing listens, so every address is
    `127.0.0.1:1`.
    """
    journal = ManualJournal() if journal is None else journal
    reactor = Clock() if reactor is None else reactor
    directories = Directories.under(data_dir)
    for path in (
        directories.journal_of(node),
        directories.spool,
        directories.archive,
    ):
        path.mkdir(parents=True, exist_ok=True)
    decode = protocol.decoder([listener.options for listener in listeners])
    live = Live(
        node,
        {protocol.name: decode},
        durable_lsn=lambda: 0,
        in_thread=maybeDeferred,
        clock=reactor,
    )
    return Context(
        node=node,
        listeners=listeners,
        journal=journal,
        reactor=reactor,
        decode=decode,
        feeds={
            "tap": Tap(live),
            "events": Replay(live, directories, in_thread=maybeDeferred),
        },
        data_dir=data_dir,
        disk=RealDisk(),
        files=Finder(directories, node, retained=True),
        address=lambda name: "127.0.0.1:1",
        arrivals=Arrivals(node, directories, RealDisk(), lambda _: None),
    )


class Row(NamedTuple):
    """An event as its protocol's decoder gives it."""

    payload: bytes
    seq: int | None
    channel: str | None
    kind: str
    content_type: str
    flaw: str | None
    attributes: dict[str, str]


def rows_of(stored: Iterable[Stored], decode: Decode) -> list[Row]:
    """The events of these batches; AssertionError if a batch has not its `count`."""
    found: list[Row] = []
    for one in stored:
        rows = decode(one.batch.body)
        counts = {rows.count, one.batch.count}
        counts |= set() if rows.seqs is None else {len(rows.seqs)}
        assert len(counts) == 1, f"a batch's count, its rows and their seqs: {counts}"
        found += _each(rows, [one.batch.origin] * rows.count)
    return found


def rows_together(
    stored: Sequence[Stored], decode: DecodeTogether
) -> tuple[int, list[Row]]:
    """How many batches, from the first on, are decoded in one go, and their events."""
    batches = [one.batch for one in stored]
    counts = [batch.count for batch in batches]
    rows = decode.together([batch.body for batch in batches], counts)
    taken = [0, *accumulate(counts)].index(rows.count)
    origins = [batch.origin for batch in batches[:taken] for _ in range(batch.count)]
    return taken, _each(rows, origins)


def _each(rows: Rows, origins: Sequence[Origin]) -> list[Row]:
    return [
        Row(
            payload,
            None if rows.seqs is None else int(rows.seqs[row]),
            rows.channels.get(row, rows.channel),
            rows.kinds.get(row, rows.kind),
            rows.content_types.get(row, rows.content_type),
            rows.flaws.get(row),
            {**origin.attributes, **rows.attributes},
        )
        for row, (payload, origin) in enumerate(zip(rows.each(), origins, strict=True))
    ]


class FakeDaemon:
    """One listener of a protocol in a daemon without network, disk and time.

    Everything is durable when the test says so (`store`), and late when it says so
    (`advance`).
    """

    def __init__(
        self,
        protocol: Protocol,
        data_dir: Path,
        *,
        options: Mapping[str, object] | None = None,
        limits: Mapping[str, object] | None = None,
        snapshot: bytes | None = None,
        replay: Sequence[Stored] = (),
        listener: Listener | None = None,
    ) -> None:
        """*options* and *limits* are as in the configuration file; or *listener* is the
        one that was read from it.

        *snapshot* and *replay* are what an earlier run left: what its protocol
        remembered, and the batches that are in its journal.
        """
        self.protocol = protocol
        self.clock = Clock()
        self.clock.advance(_EPOCH)
        last = replay[-1] if replay else None
        self.journal = ManualJournal(
            first_lsn=last.lsn + last.batch.count if last else 1
        )
        self.listener = listener or listener_of(
            protocol, data_dir, options or {}, limits or {}
        )
        self.context = lend(
            protocol,
            data_dir,
            [self.listener],
            journal=self.journal,
            reactor=self.clock,
        )
        self.service = protocol.service(self.context)
        memory = self.service.memory
        if memory is not None:
            if snapshot is not None:
                memory.restore(snapshot)
            for stored in replay:
                memory.replay(stored)
        self.ports = {port.suffix: port for port in self.service.ports(self.listener)}
        self.port = next(iter(self.ports.values()))
        if memory is not None:
            memory.start()
        self.service.start()
        self.store()

    def connect(self, suffix: str = "") -> FakeConnection:
        """A connection to the listener's port with this *suffix*; `Port.prefixes` apply."""
        port = self.ports[suffix] if suffix else self.port
        connection = FakeConnection(
            protocol=self.protocol.name,
            memory=self.journal.memory,
            prefixes=port.prefixes,
        )
        connection.serve(port.accept(connection))
        return connection

    def store(self) -> None:
        """Make all that was submitted durable, and tell those that wait for it."""
        self.clock.advance(0)
        while self.journal.pending:
            self.journal.store_all()
            self.clock.advance(0)

    def advance(self, seconds: float) -> None:
        """Time passes, in steps of a tenth of a second."""
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)

    def rows(self) -> list[Row]:
        """All events that are durable."""
        return rows_of(self.journal.stored, self.context.decode)

    def snapshot(self) -> bytes:
        """The protocol's memory, as a checkpoint would save it."""
        memory = self.service.memory
        assert memory is not None, "the protocol remembers nothing"
        found: list[bytes] = []
        snapshot: Deferred[bytes] = memory.snapshot()
        snapshot.addCallback(found.append)
        for _ in range(1000):
            if found:
                break
            self.store()
        [data] = found
        return data


def listener_of(
    protocol: Protocol,
    folder: Path,
    options: Mapping[str, object],
    limits: Mapping[str, object],
) -> Listener:
    """A listener as read from a file in *folder*, of a protocol that need not be installed."""
    kind = protocol.options() or NoOptions
    return Listener.model_construct(
        name="test",
        protocol=protocol.name,
        listen=Tcp("127.0.0.1", 1),
        websocket=None,
        proxy_protocol=None,
        tls=None,
        limits=Limits.model_validate({**protocol.limits, **limits}),
        options=kind.model_validate(dict(options), context={"folder": folder}),
    )
