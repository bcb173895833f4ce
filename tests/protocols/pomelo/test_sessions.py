"""Events of sessions, who is connected, and who has to leave."""

import json
from typing import Any

import pytest

from gateway.protocols.pomelo import events, wire
from gateway.protocols.pomelo.admin import sessions_page
from gateway.protocols.pomelo.auth import Admitted
from gateway.protocols.pomelo.lobby.lobby import Lobby
from gateway.protocols.pomelo.push.page import page
from gateway.protocols.pomelo.push.row import kick

from .conftest import asked


def told(reader: Any) -> list[tuple[str, dict[str, Any]]]:
    """Session and object of every event of a session that was submitted."""
    found = []
    for batch in reader.journal.submitted:
        rows = events.decode(batch.body)
        assert rows.count == batch.count
        if rows.kind == "session":
            session = batch.origin.session
            found += [(session, json.loads(payload)) for payload in rows.each()]
    return found


# Events


def test_opening_binding_and_closing(make_reader):
    """… are stored in the order of the connection, with its attributes."""
    reader = make_reader(session_events=True)
    reader.greet(user={"uid": "alice"})
    reader.deliver(wire.request(1, "a", b"{}"))
    reader.journal.store_all()
    reader.clock.advance(2)
    reader.connection.lose()
    reader.journal.store_all()
    session = reader.connection.origin.session
    assert told(reader) == [
        (session, {"event": "opened"}),
        (session, {"event": "bound", "uid": "alice", "proven": False}),
        (session, {"event": "closed", "reason": "lost", "seconds": 2.0}),
    ]
    kinds = [events.decode(batch.body).kind for batch in reader.journal.submitted]
    assert kinds == ["session", "request", "session"]
    origins = {id(batch.origin) for batch in reader.journal.submitted}
    assert origins == {id(reader.connection.origin)}
    assert reader.connection.counted == 4


def test_a_session_that_names_nobody(make_reader):
    """It opens and closes; one that never finishes its handshake does neither."""
    reader = make_reader(session_events=True)
    reader.greet()
    stranger, _ = reader.connect()
    stranger.deliver(wire.package(1, b'{"sys":{}}'))
    stranger.lose()
    reader.connection.lose()
    assert [event["event"] for _, event in told(reader)] == ["opened", "closed"]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda reader: reader.deliver(wire.package(wire.KICK)), "left"),
        (lambda reader: reader.connection.drain(), "shutdown"),
        (lambda reader: reader.server.kick("cheating"), "cheating"),
        (lambda reader: reader.deliver(b"\x09"), "not Pomelo: package of type 9"),
    ],
)
def test_why_a_session_closed(make_reader, end, reason):
    """… is in its event, which is there once."""
    reader = make_reader(session_events=True)
    reader.greet()
    end(reader)
    reader.connection.lose()
    [(_, closed)] = [each for each in told(reader) if each[1]["event"] == "closed"]
    assert closed["reason"] == reason


def test_closing_while_the_journal_is_full(make_reader):
    """It waits for room, and is not lost; at the end of the daemon it waits no more."""
    reader = make_reader(session_events=True)
    reader.greet()
    other, _ = reader.connect()
    reader.journal.full = True
    reader.connection.lose()
    assert len(told(reader)) == 1
    reader.journal.full = False
    assert len(told(reader)) == 2
    other.deliver(wire.package(1, b'{"sys":{}}') + wire.package(wire.ACK))
    reader.journal.full = True
    other.lose()
    reader.listener.sessions.flush()
    assert len(told(reader)) == 4


def test_an_event_that_can_not_be_stored(make_reader):
    """… is reported; the client is not bothered."""
    reader = make_reader(session_events=True)
    reader.greet()
    reader.journal.refuse()
    assert "can not be stored: disk full" in reader.connection.reported[0].rule
    assert not reader.connection.closed


def test_without_events(make_reader):
    """`options.session_events: false` stores none."""
    reader = make_reader(session_events=False)
    reader.greet()
    reader.connection.lose()
    assert reader.journal.submitted == []


# Whose uid it is


def test_a_uid_that_is_only_claimed(make_reader):
    """Without any authentication pushes to it, as uid or attribute, do not reach it."""
    reader = make_reader(trust_uid=False)
    reader.greet(user={"uid": "alice"})
    registry = reader.listener.registry
    assert registry.user("alice") == []
    assert registry.all({"uid": "alice"}) == []
    assert registry.outcomes["unproven"] == 2
    assert len(registry.all({"user.uid": "alice"})) == 1
    assert len(registry.all()) == 1
    assert reader.connection.origin.attributes["uid_unproven"] == "true"


@pytest.mark.parametrize("options", [{"trust_uid": True}, {"token": "t0k"}])
def test_a_uid_that_is_good_enough(make_reader, options):
    """An option says so, or the client knows the token; it is no proof either way."""
    reader = make_reader(**{"trust_uid": False} | options)
    reader.greet(user={"uid": "alice", "token": "t0k"})
    assert len(reader.listener.registry.user("alice")) == 1
    assert reader.connection.origin.attributes["uid_unproven"] == "true"


def test_two_clients_with_one_uid(make_reader):
    """Who only claims it is not reached, who proved it is; both can be kicked by it."""
    reader = make_reader(trust_uid=False)
    reader.greet(user={"uid": "alice"})
    owner, server = reader.connect()
    server._listener.handshaker._admit = lambda _: Admitted("alice", "alice")
    owner.deliver(wire.package(1, b'{"sys":{}}') + wire.package(wire.ACK))
    registry = reader.listener.registry
    assert registry.user("alice") == [server]
    assert "uid_unproven" not in owner.origin.attributes
    assert Admin(reader).kick(uid="alice") == (200, {"kicked": 2})
    assert owner.closed
    assert reader.connection.closed


# Tokens that expire


def test_a_token_expires(make_reader):
    """Its connection is asked to leave, its requests answered."""
    reader = make_reader(heartbeat=1)
    reader.listener.wall_clock = lambda: now
    reader.listener.handshaker._admit = lambda _: Admitted("a", "a", expires_at=1000)
    now = 999.0
    reader.greet()
    reader.deliver(wire.request(1, "a", b"{}"))
    reader.wait(1)
    assert wire.kick("token expired") not in reader.sent
    now = 1000.0
    reader.wait(1)
    assert not reader.connection.closed
    reader.journal.store_all()
    assert reader.sent.endswith(wire.kick("token expired"))
    assert reader.connection.closed


# The admin port


class Admin:
    """Its two pages."""

    def __init__(self, reader: Any) -> None:
        registry = reader.listener.registry
        self._sessions = sessions_page(registry)
        self._kick = page(Lobby("gw-1", registry, reader.clock), kick)

    def sessions(self, **query: str) -> tuple[int, Any]:
        answer = self._sessions(query)
        return answer.code, json.loads(answer.body)

    def kick(self, **request: Any) -> tuple[int, Any]:
        return asked(self._kick, **request)


@pytest.fixture
def crowd(make_reader, pomelo) -> Any:
    """Five clients: alice, bob, alice, bob, alice."""
    reader = make_reader()
    for number in range(5):
        connection, _ = reader.connect()
        user = {"uid": ("alice", "bob")[number % 2]}
        connection.deliver(pomelo.hello(user=user))
        reader.clock.advance(1)
    return reader


def test_who_is_connected(crowd):
    """In the order in which they came, with what is fixed, and what helps."""
    code, found = Admin(crowd).sessions()
    assert code == 200
    assert (found["total"], found["next"]) == (5, None)
    first = found["sessions"][0]
    assert {name: first[name] for name in ("uid", "listener", "peer", "since")} == {
        "uid": "alice",
        "listener": "game",
        "peer": "192.0.2.1:4000",
        "since": 1_700_000_000,
    }
    assert (first["proven"], first["reachable"]) == (False, True)
    sinces = [one["since"] for one in found["sessions"]]
    assert sinces == sorted(sinces)


def test_pages_and_filters(crowd):
    """A page goes on behind the last, though sessions come and go between."""
    admin = Admin(crowd)
    seen, after = [], "0"
    for size in (2, 1):
        _, found = admin.sessions(uid="alice", limit="2", after=after)
        assert len(found["sessions"]) == size
        seen += [one["session"] for one in found["sessions"]]
        after = str(found["next"])
        crowd.listener.registry.session(seen[-1])[0].kick("go")
    assert after == "None"
    assert len(set(seen)) == 3
    _, found = admin.sessions(session=seen[0])
    assert [one["session"] for one in found["sessions"]] == [seen[0]]
    assert admin.sessions(listener="other")[1]["sessions"] == []
    assert len(admin.sessions(limit="100000")[1]["sessions"]) == 3


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"user": "alice"}, "'user': must be one of uid, session"),
        ({"limit": "-1"}, "limit: must be a number"),
        ({"after": "x"}, "after: must be a number"),
    ],
)
def test_a_query_that_means_nothing(crowd, query, why):
    """400, with a sentence."""
    code, found = Admin(crowd).sessions(**query)
    assert code == 400
    assert why in found["error"]


def test_kicks(crowd):
    """By session or by uid, with a reason that the client hears."""
    admin = Admin(crowd)
    [one] = admin.sessions(limit="1")[1]["sessions"]
    session = one["session"]
    assert admin.kick(session=session, reason="maintenance") == (200, {"kicked": 1})
    assert admin.kick(session=session) == (200, {"kicked": 0})
    assert admin.kick(uid="alice") == (200, {"kicked": 2})
    left = admin.sessions()[1]["sessions"]
    assert [one["uid"] for one in left] == ["bob", "bob"]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({}, "must have one of session, uid"),
        ({"uid": "a", "session": "b"}, "must have one of session, uid"),
        ({"uid": None, "reason": "x"}, "must have one of session, uid"),
        ({"uid": "a", "reason": ""}, "reason: must have 1 to 200"),
        ({"uid": "a", "reason": "x" * 201}, "reason: must have 1 to 200"),
        ({"uid": "a", "all": True}, "no kick"),
        ({"uid": []}, "no kick"),
    ],
)
def test_a_kick_without_an_addressee(crowd, request_, why):
    """… or that is none kicks nobody."""
    code, found = Admin(crowd).kick(**request_)
    assert code == 400
    assert why in found["error"]
    assert Admin(crowd).sessions()[1]["total"] == 5
