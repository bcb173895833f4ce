"""What the Pomelo tests share: clients made of bytes, and real servers."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from doubles import OneConnection
from gateway.event import Origin, Rows
from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.auth import admission
from gateway.protocols.pomelo.events import decode
from gateway.protocols.pomelo.handshake import Handshake, Handshaker
from gateway.protocols.pomelo.listener import Pomelo
from gateway.protocols.pomelo.options import Options
from gateway.protocols.pomelo.ready import Ready
from gateway.protocols.pomelo.registry import Member, Registry
from gateway.protocols.pomelo.routes import load
from gateway.protocols.pomelo.session import Session
from gateway.sdk.interfaces import Refusal
from gateway.sdk.protocol import Post
from gateway.testing import FakeConnection
from gateway_testkit.settings import settings as settings_of

Vectors = Callable[[str], list[dict[str, Any]]]

SYS = {"type": "js-websocket", "version": "0.0.1", "rsa": {}}
ROUTES = ["area.player.move", "chat.room.say"]
CLIENT_PROTOS = {
    "area.player.move": {
        "message Point": {"required sInt32 x": 1, "required sInt32 y": 2},
        "required Point to": 1,
        "optional string note": 2,
        "repeated uInt32 tags": 3,
    }
}
SERVER_PROTOS = {
    "area.player.move": {"required uInt32 code": 1, "optional string msg": 2},
    "onMove": {"required uInt32 id": 1, "optional string name": 2},
}

ALICE = {
    "client": "js-websocket",
    "client_version": "0.0.1",
    "profile": "js",
    "uid": "alice",
    "uid_unproven": "true",
    "user.uid": "alice",
}
"""Attributes of a browser's connection that says it is hers."""

Event = tuple[str, int, str | None, bytes, str | None, str]
"""Kind, sequence, channel, payload, flaw, content type."""


def rows_of(rows: Rows) -> Iterator[Event]:
    """One tuple per event."""
    assert rows.seqs is not None
    for row, payload in enumerate(rows.each()):
        yield (
            rows.kinds.get(row, rows.kind),
            rows.seqs[row],
            rows.channels.get(row, rows.channel),
            payload,
            rows.flaws.get(row),
            rows.content_types.get(row, rows.content_type),
        )


def hello(sys: Any = None, user: Any = None) -> bytes:
    """A handshake, and its acknowledgement right behind it."""
    return handshake(sys, user) + wire.package(wire.ACK)


def zipped(package: bytes) -> bytes:
    """A message whose flag says that its body is compressed."""
    return package[:4] + bytes((package[4] | 0x10,)) + package[5:]


def asked(page: Post, **request: Any) -> tuple[int, Any]:
    """Code and JSON of the answer of one of the admin port's pages, which comes at once."""
    answer = page(json.dumps(request).encode())
    if isinstance(answer, Deferred):
        answer = answer.result
    return answer.code, json.loads(answer.body)


def handshake(sys: Any = None, user: Any = None) -> bytes:
    """A handshake."""
    said = {"sys": SYS if sys is None else sys, "user": user or {}}
    return wire.package(wire.HANDSHAKE, json.dumps(said).encode())


@dataclass
class Outcome:
    """What a stream comes to, however it was batched."""

    sent: bytes = b""
    events: list[Event] = field(default_factory=list)
    responses: bytes = b""
    batches: int = 0
    handshake: Handshake | None = None
    refusal: Refusal | None = None


def new_session(definitions: Any = None, **changes: Any) -> Session:
    """A session with the usual limits."""
    values: dict[str, Any] = {
        "message_bytes": 1 << 16,
        "handshake_bytes": 4096,
        "patience": 8,
        "heartbeat": 3,
        "token": None,
        "jwt": None,
        "user_bytes": 200,
        "profiles": {},
        "clients": {},
    } | changes
    handshaker = Handshaker(
        definitions or load(),
        admission(values["token"], values["jwt"]),
        **{k: values[k] for k in ("heartbeat", "user_bytes", "profiles", "clients")},
    )
    limits = {k: values[k] for k in ("message_bytes", "handshake_bytes", "patience")}
    return Session(handshaker, **limits)


def outcome(pieces: Iterable[bytes], session: Session | None = None) -> Outcome:
    """Feed a session; check on the way what must hold for every batch."""
    session = session or new_session()
    result = Outcome()
    try:
        for piece in pieces:
            for step in session.received(piece):
                if isinstance(step, bytes):
                    result.sent += step
                elif isinstance(step, Handshake):
                    result.handshake = step
                    result.sent += step.reply
                elif isinstance(step, Ready):
                    take(result, step, session)
    except Refusal as why:
        result.refusal = why
    return result


def take(result: Outcome, ready: Ready, session: Session) -> None:
    """Add a batch to *result*."""
    rows = decode(ready.body(1 << 16))
    events = list(rows_of(rows))
    assert len(events) == ready.count > 0
    ids = [number % wire.HIGH_FIRST for number in ready.ids]
    assert [seq for _, seq, *_ in events if seq] == ids
    # Mended text is shorter than it came.
    assert ready.payload_bytes >= sum(len(payload) for payload in rows.each())
    answers = session.answers(ready)
    assert len(answers) == len(ready.ids) == len(session.failures(ready, "no"))
    result.batches += 1
    result.events += events
    result.responses += b"".join(answers)


def settings(**changes: Any) -> Any:
    """A listener's configuration; keyword arguments change limits or options.

    Its clients are taken for who they say, and their sessions leave no events.
    """
    usual = {
        "session_events": False,
        "trust_uid": True,
        "message_bytes": 1 << 16,
        "unacknowledged_bytes": 1 << 20,
    }
    return settings_of(Options, **usual | changes)


class Reader(OneConnection):
    """A server on doubles, and what its clients say."""

    def __init__(self, **changes: Any) -> None:
        self._sessions = itertools.count(1)
        super().__init__(Pomelo, settings(**changes))

    def connect(self, *, framed: bool = False) -> tuple[FakeConnection, Any]:
        """One more connection to the same listener."""
        session = f"s-{next(self._sessions)}"
        connection = FakeConnection(
            Origin("pomelo", "game", session, "192.0.2.1:4000"),
            memory=self.journal.memory,
        )
        connection.framed = framed
        return self.serve(connection)

    def greet(self, sys: Any = None, user: Any = None) -> None:
        """Get the first connection to work, and forget what it was told."""
        self.deliver(hello(sys, user))
        assert self.connection.refused is None
        self.connection.clear()

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.clock.pump([0.05] * round(seconds / 0.05))

    def events(self) -> list[Event]:
        """All that was submitted."""
        return [
            event
            for batch in self.journal.submitted
            for event in rows_of(decode(batch.body))
        ]


def push(
    registry: Registry, to: Iterable[Member], route: str, body: bytes
) -> tuple[int, int]:
    """To how many clients it was written, and for how many it was dropped."""
    delivery = registry.begin(to, route, body)
    delivery.send()
    sent, dropped = delivery.counts.values()
    return sent, dropped


@pytest.fixture
def make_reader() -> Callable[..., Reader]:
    """Makes a server with other limits or options."""
    return Reader


@pytest.fixture
def greeted(reader) -> Reader:
    """A server whose client has shaken hands."""
    reader.greet()
    return reader


@pytest.fixture(scope="session")
def pomelo() -> SimpleNamespace:
    """Everything above, for tests: fixtures are how they share it."""
    return SimpleNamespace(
        asked=asked,
        hello=hello,
        handshake=handshake,
        outcome=outcome,
        session=new_session,
        rows=rows_of,
        sys=SYS,
        routes=ROUTES,
        client_protos=CLIENT_PROTOS,
        server_protos=SERVER_PROTOS,
        definitions=load(ROUTES, CLIENT_PROTOS, SERVER_PROTOS),
    )


@pytest.fixture(scope="session")
def vectors(read_vectors) -> Vectors:
    """`vectors(name)`: all of tests/vectors/pomelo-NAME.jsonl."""
    return lambda name: read_vectors(f"pomelo-{name}")


_routes = st.text(
    st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=12
) | st.sampled_from(ROUTES)
_codes = st.integers(1, 2)
_bodies = st.one_of(
    st.dictionaries(st.text(max_size=5), st.text(max_size=9), max_size=3).map(
        lambda found: json.dumps(found).encode()
    ),
    st.binary(max_size=30),
)
_ids = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 127, 128, 2**31, 2**32 - 1])

#: One package of a client that is at work.
PACKAGES = st.one_of(
    st.builds(wire.request, _ids, _routes | _codes, _bodies),
    st.builds(wire.notify, _routes | _codes, _bodies),
    st.just(wire.package(wire.HEARTBEAT)),
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """What a client may say."""
    return hello() + b"".join(draw(st.lists(PACKAGES, max_size=9)))


@pytest.fixture(scope="session", name="strategies")
def _strategies(sliced) -> SimpleNamespace:
    """The hypothesis strategies, for `data.draw`."""
    return SimpleNamespace(packages=PACKAGES, streams=streams(), sliced=sliced)
