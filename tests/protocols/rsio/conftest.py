"""Fixtures of the RS.io tests: a listener on test doubles, messages in both directions."""

from typing import Any

import pytest

from doubles import OneConnection
from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.decoder import Decoder, Run, elements
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.offsets import Offsets
from gateway.protocols.rsio.options import Options
from gateway.protocols.rsio.server import RsioListener
from gateway.protocols.rsio.session import Session
from gateway.protocols.rsio.streams import Consumed
from gateway.sdk.interfaces import Refusal
from gateway_testkit.settings import settings as settings_of
from making import Make
from rsio_check import Target
from rsio_clients import Endpoint

HELLO = messages.ClientHello(0, ())


def settings(**changes: Any) -> Any:
    """A listener's configuration; keyword arguments change limits or options."""
    usual = {"message_bytes": 1 << 24, "unacknowledged_bytes": 1 << 25}
    return settings_of(Options, **usual | changes)


class Gate(OneConnection):
    """A listener on test doubles, and one connection to it."""

    protocol = "rsio"

    def __init__(self, **changes: Any) -> None:
        self.offsets = changes.pop("offsets_known", None) or Offsets()
        asked = settings(**{"check_publishers": True} | changes)
        super().__init__(RsioListener, asked, offsets=self.offsets)
        self.publishers = self.listener.publishers

    def say(self, *said: Any) -> None:
        """Messages, or bytes, arrive."""
        for one in said:
            self.connection.deliver(one if isinstance(one, bytes) else wire.encode(one))
        if self.connection.failure is not None:
            raise self.connection.failure

    def greet(self) -> list[Any]:
        """The smallest hello arrives; what is answered."""
        self.say(HELLO)
        return self.heard()

    def turns(self) -> bytes:
        """What is written from now on, as long as there is something to do at once."""
        self.connection.clear()
        self.clock.advance(0)
        return self.connection.sent

    def heard(self) -> list[Any]:
        """What was written since the last call; runs as (Id, elements)."""
        data = self.connection.sent
        self.connection.clear()
        return read(data)


class MemoryTransport:
    """A connection to a listener in this process; waiting advances its clock."""

    def __init__(self, gate: Any) -> None:
        self._gate = gate
        self._connection, _ = gate.connect()
        self._told = False

    def send(self, data: bytes) -> None:
        """Deliver."""
        if not self._connection.closed:
            self._connection.deliver(data)
            if self._connection.failure is not None:
                raise self._connection.failure

    def receive(self, seconds: float) -> bytes | None:
        """Wait until something is written, or the time is over."""
        left = seconds
        while True:
            self._gate.journal.store_all()
            if data := self._connection.sent:
                self._connection.clear()
                return data
            if self._connection.closed or self._connection.aborted:
                return b""
            if left <= 0:
                return None
            self._gate.clock.advance(0.05)
            left -= 0.05

    def close(self) -> None:
        """Lose the connection."""
        if not self._told:
            self._told = True
            self._connection.lose()

    reset = close


class _Any(dict[int, Consumed]):
    """A stream for every Id."""

    def get(self, number: int, default: Any = None) -> Consumed:
        if number not in self:
            stream = self[number] = Consumed(number, "", 2**62, 0)
            stream.size = 0
        return self[number]


def read(data: bytes, sizes: dict[int, int] | None = None) -> list[Any]:
    """All messages in *data*; whole elements as (Id, [element, …])."""
    streams = _Any()
    for number, size in (sizes or {}).items():
        streams.get(number).size = size
    decoder = Decoder(streams, Limits(), frozenset(messages.Code))
    decoder.feed(data)
    found: list[Any] = []
    while (token := decoder.next()) is not None:
        if isinstance(token, Run):
            size = token.stream.size
            found.append((token.stream.id, list(elements(token.messages, size))))
            continue
        if isinstance(token, messages.OnSubscribe):
            streams.get(token.subscriber).size = token.size
        found.append(token)
    assert not decoder.held_bytes, "no message is cut off"
    return found


def happened(session: Session, *pieces: bytes) -> tuple[list[Any], Refusal | None]:
    """The signals of a session for some bytes, and the refusal if there is one."""
    events: list[Any] = []
    try:
        for piece in pieces:
            events += session.received(piece)
    except Refusal as why:
        return events, why
    return events, None


def opened(
    *extensions: int, server: bool = True, limits: Limits | None = None
) -> Session:
    """A session after both hellos, which are written."""
    offered = [messages.Extension(each) for each in extensions]
    session = Session(limits or Limits(), server=server, offered=offered)
    if server:
        hello: Any = messages.ClientHello(0, extensions)
    else:
        session.greet()
        hello = messages.ServerHello(0, extensions)
    list(session.received(wire.encode(hello)))
    session.take()
    return session


@pytest.fixture
def gate() -> Gate:
    """A listener with the default options, and a connection without a hello."""
    return Gate()


@pytest.fixture
def endpoint(gate) -> Endpoint:
    """A client's way to the gate."""
    return Endpoint(gate)


@pytest.fixture
def make_gate() -> Make[Gate]:
    """Makes one with other options."""
    return Gate


@pytest.fixture
def make_target() -> Make[Target]:
    """Makes targets for the conformance tests, each with a listener of its own."""

    def make(**changes: Any) -> Target:
        gate = Gate(**{"subscribe": ("events", "more"), "window": 128} | changes)
        return Target(lambda: MemoryTransport(gate), patience=3.0)

    return make


@pytest.fixture(scope="session", name="opened")
def _opened() -> Make[Session]:
    return opened


@pytest.fixture(scope="session", name="read")
def _read() -> Make[list[Any]]:
    return read


@pytest.fixture(scope="session", name="happened")
def _happened() -> Make:
    return happened
