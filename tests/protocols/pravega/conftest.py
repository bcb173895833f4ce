"""What the Pravega tests share: blocks, and a state that is made durable at will."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway.protocols.pravega.codec import REPLIES, Message, decode, encode
from gateway.protocols.pravega.container import Container
from gateway.protocols.pravega.frames import MAX_LENGTH, Frames
from gateway.protocols.pravega.options import Options
from gateway.protocols.pravega.records import decode as decode_rows
from gateway.protocols.pravega.segments import Change, Segments
from gateway.protocols.pravega.server import PravegaListener
from gateway.protocols.pravega.wire import NEVER, AppendSetup, Hello, SetupAppend
from gateway.testing import FakeConnection, ManualJournal
from gateway_testkit.settings import settings as settings_of
from making import Make

from .places import Places, events

W, X = b"w" * 16, b"x" * 16
"""Two writers."""
TXN = "s#transaction.0000000000000000000000000000000a"
"""A transaction's segment, of `s`."""

Block = Make[bytes]


class Model:
    """`Segments` whose changes are remembered, and durable when told."""

    def __init__(self) -> None:
        self.state = Segments()
        self.bodies: list[bytes] = []
        self.stored_lsns: list[int] = []
        self.lsn = 1
        self.create("s")

    def keep(self, change: Change) -> Change:
        self.bodies.append(change.body)
        self.stored_lsns.append(self.lsn)
        list(self.state.stored(change.body, self.lsn))
        self.lsn += change.count
        return change

    def create(self, name: str) -> Change:
        return self.keep(self.state.create(name, 0))

    def append(
        self,
        data: bytes,
        number: int,
        *,
        name: str = "s",
        writer: bytes = b"w" * 16,
        **more: Any,
    ) -> Change:
        segment = self.state.segments.get(name)
        last = NEVER if segment is None else segment.number_of(writer)
        more = {"claimed": 1, "last": last} | more
        return self.keep(self.state.append(name, writer, number, data, 0, **more))

    def replayed(self, *, onto: Segments | None = None) -> Segments:
        """What a restart makes of the journal."""
        state = onto or Segments()
        for body, lsn in zip(self.bodies, self.stored_lsns, strict=True):
            list(state.replay(body, lsn, 0))
        return state


@pytest.fixture
def model() -> Model:
    """Segments with one, `s`, that is empty."""
    return Model()


@pytest.fixture(scope="session", name="block")
def _block() -> Make[bytes]:
    """`block(*events)`: as they lie in blocks and segments."""
    return events


def settings(**changes: Any) -> Any:
    """A listener's configuration; keyword arguments change limits or options."""
    usual = {
        "message_bytes": MAX_LENGTH,
        "unacknowledged_bytes": 1 << 20,
        "segments": 1000,
        "transaction_bytes": 1 << 20,
        "internal_bytes": 1 << 20,
        "table_bytes": 1 << 20,
        "numbers": 1000,
        "writers": 100,
        "reads": 100,
    }
    return settings_of(Options, **usual | changes)


class Peer:
    """One client: messages there, messages back."""

    def __init__(self, store: Store, *, hello: bool = True) -> None:
        self.connection = FakeConnection(
            protocol="pravega", memory=store.journal.memory
        )
        self.server = store.listener(self.connection)
        self.connection.serve(self.server)
        self.store = store
        if hello:
            self.send(Hello(17, 5))
            assert self.got == [Hello(17, 5)]

    def send(self, *messages: Message) -> None:
        """They arrive together."""
        self.connection.deliver(b"".join(map(encode, messages)))

    @property
    def got(self) -> list[Message]:
        """What came since the last look."""
        raw = self.connection.sent
        self.connection.clear()
        return [decode(*each) for each in Frames(REPLIES).feed(raw)]

    def ask(self, *messages: Message) -> list[Message]:
        """Send, let all become durable, and look."""
        self.send(*messages)
        self.store.store()
        return self.got

    def setup(self, name: str = "s", writer: bytes = b"w" * 16) -> int:
        """Set a writer up; its last event number."""
        [reply] = self.ask(SetupAppend(1, writer, name))
        assert isinstance(reply, AppendSetup)
        return reply.last_event

    @property
    def refused(self) -> str:
        """Why the connection was closed; empty if it was not."""
        why = self.connection.refused
        return "" if why is None else str(why)


class Store:
    """A container on doubles, with a segment `s`."""

    def __init__(
        self, *, state: Segments | None = None, reader: Any = None, **changes: Any
    ) -> None:
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.journal = ManualJournal()
        more = {
            name: changes.pop(name)
            for name in ("recent_bytes", "writer_retention")
            if name in changes
        }
        check = changes.pop("check", None)
        check = check or (lambda *_: None)  # everybody may do everything
        self.container = Container(self.journal, self.clock, reader=reader, **more)
        if state is not None:
            self.container.state = self.container.reads.state = state
        self.listener = PravegaListener(
            settings(**changes), self.container, lambda *_: check
        )
        if state is None:
            self.container.submit(self.container.state.create("s", 0))
            self.store()

    def peer(self, *, hello: bool = True) -> Peer:
        """A new connection."""
        return Peer(self, hello=hello)

    def store(self) -> None:
        """Everything submitted becomes durable, as one group commit."""
        self.journal.store_all()
        self.clock.advance(0)

    def restarted(self) -> Store:
        """Another run, from the journal of this one."""
        again = Store(state=Segments())
        for stored in self.journal.stored:
            again.container.replay(stored)
        again.container.start()
        return again

    @property
    def rows(self) -> list[tuple[str | None, bytes]]:
        """Channel and payload of every row that is durable."""
        found = []
        for stored in self.journal.stored:
            rows = decode_rows(stored.batch.body)
            assert rows.count == stored.batch.count
            found += [
                (rows.channels.get(n, rows.channel), payload)
                for n, payload in enumerate(rows.each())
            ]
        return found


@pytest.fixture
def store() -> Store:
    """A container with the usual limits."""
    return Store()


@pytest.fixture
def peer(store) -> Peer:
    """A client that has said hello."""
    return store.peer()


@pytest.fixture
def writer(peer) -> Peer:
    """A client whose writer is set up on `s`."""
    peer.setup()
    return peer


@pytest.fixture(scope="session")
def make_store() -> Make[Store]:
    """Makes a container with other limits, a state, a reader."""
    return Store


@pytest.fixture(scope="session", name="pravega_settings")
def _settings() -> Make:
    """A listener's configuration, with other limits or options."""
    return settings


@pytest.fixture
def places(tmp_path) -> Places:
    """Nothing in them yet."""
    return Places(tmp_path)
