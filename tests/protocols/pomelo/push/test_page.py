"""`POST /api/push`: one message to some of the connected clients."""

import json
from typing import Any

import pytest

from gateway.protocols.pomelo.lobby.lobby import Lobby
from gateway.protocols.pomelo.push.page import page, parse
from gateway.protocols.pomelo.registry import Registry
from making import Make


class Games:
    """Connected clients: alice twice, bob once."""

    def __init__(self, make_reader: Make, pomelo: Any) -> None:
        reader = make_reader(heartbeat=0)
        self.registry: Registry = reader.listener.registry
        self.clock = reader.clock
        self.clients = []
        for uid in ("alice", "alice", "bob"):
            connection, _ = reader.connect()
            connection.deliver(pomelo.hello(user={"uid": uid}))
            connection.clear()
            self.clients.append(connection)
        self._asked = pomelo.asked
        self.post = page(Lobby("gw-1", self.registry, self.clock), parse)

    def ask(self, **request: Any) -> Any:
        return self._asked(self.post, **request)


@pytest.fixture
def games(make_reader, pomelo) -> Games:
    """Three clients."""
    return Games(make_reader, pomelo)


def test_a_priority(games):
    """… and a time to live may be given, as in a row; what they are is checked."""
    asked = {"route": "r", "body": 1, "uid": "bob", "ttl": 5}
    assert games.ask(**asked, priority="high") == (200, {"sent": 1, "dropped": 0})
    code, answer = games.ask(**asked, priority="urgent")
    assert code == 400
    assert "must be one of" in answer["error"]


@pytest.mark.parametrize(
    ("to", "who"),
    [
        ({"session": "s-3"}, [1]),
        ({"session": "gone"}, []),
        ({"uid": "alice"}, [0, 1]),
        ({"all": True}, [0, 1, 2]),
        ({"attributes": {"uid": "bob"}}, [2]),
    ],
)
def test_to_whom(games, to, who):
    """One session, all of a uid, everyone, or those whose attributes fit."""
    for addressee in ({"to": to}, to):
        for client in games.clients:
            client.clear()
        answer = games.ask(route="onScore", body={"n": 1}, **addressee)
        assert answer == (200, {"sent": len(who), "dropped": 0})
        got = [n for n, each in enumerate(games.clients) if b"onScore" in each.sent]
        assert got == who


def test_the_body_is_as_posted(games):
    """Digits that a float would lose stay."""
    games.post(b'{"route":"r","body":{"n":12345678901234567890.10},"all":true}')
    assert b'{"n":12345678901234567890.10}' in games.clients[0].sent


def test_who_does_not_read_is_counted(games):
    """Its push is dropped."""
    games.clients[2].unsent_bytes = 1 << 20
    answer = games.ask(route="r", body=1, all=True)
    assert answer == (200, {"sent": 2, "dropped": 1})


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"route": "r", "body": 1}, "no addressee"),
        ({"route": "r", "body": 1, "uid": None}, "no addressee"),
        ({"route": "r", "body": 1, "all": False}, "no addressee"),
        ({"route": "r", "body": 1, "to": {"all": {}}}, "Expected `bool"),
        ({"route": "r", "body": 1, "to": {"attributes": {"a": None}}}, "'a' is null"),
        ({"route": "r", "body": 1, "attributes": {}}, "everyone is all: true"),
        ({"route": "r", "body": 1, "group": ""}, "group: must have 1 to 255"),
        ({"route": "r", "body": 1, "uid": "a", "to": {"uid": "a"}}, "more than one"),
        ({"route": "r", "body": 1, "uid": "a", "all": True}, "more than one"),
        ({"route": "r", "body": 1, "to": {}}, "must have one of"),
        (
            {"route": "r", "body": 1, "to": {"uid": "a", "attributes": {"b": "c"}}},
            "must have one of",
        ),
        ({"route": "r", "all": True}, "body"),
        ({"route": "", "body": 1, "all": True}, "not a route"),
        ({"route": "r", "body": 1, "all": True, "tpyo": 1}, "tpyo"),
    ],
)
def test_what_is_no_push(games, request_, why):
    """400 with a sentence, and nobody is sent anything."""
    code, answer = games.ask(**request_)
    assert code == 400
    assert why in answer["error"]
    assert not any(each.sent for each in games.clients)


def test_garbage_is_no_push():
    for raw in (b"", b"\xff", b"[" * 100_000, b'{"route":"r","body":nope}'):
        with pytest.raises(ValueError, match="not a push"):
            parse(raw)


def test_a_push_to_many_leaves_turns_to_others(games):
    """It is answered when it has reached everybody, some hundreds in a turn."""
    members = games.registry.all() * 200
    games.registry.all = lambda where=None: members  # type: ignore[method-assign]
    outcomes, seen = games.registry.outcomes, []
    answer = games.post(json.dumps({"route": "r", "body": {}, "all": True}).encode())
    games.clock.callLater(0, lambda: seen.append(outcomes["sent"]))
    assert not answer.called
    games.clock.advance(0)
    assert json.loads(answer.result.body) == {"sent": 600, "dropped": 0}
    assert outcomes["sent"] == 600
    assert 0 < seen[0] < 600


def test_a_push_that_takes_long_leaves_turns_to_others(games):
    """However few it has reached: some milliseconds are a turn."""
    members = games.registry.all() * 40

    def slow(_: bytes) -> None:
        games.clock.rightNow += 0.001

    for client in games.clients:
        client.write = slow
    games.registry.all = lambda where=None: members  # type: ignore[method-assign]
    outcomes, seen = games.registry.outcomes, []
    answer = games.post(json.dumps({"route": "r", "body": {}, "all": True}).encode())
    games.clock.callLater(0, lambda: seen.append(outcomes["sent"]))
    games.clock.advance(0)
    assert json.loads(answer.result.body) == {"sent": 120, "dropped": 0}
    assert 0 < seen[0] < 120
