"""Groups of clients, as they join and as the options have them: who is in one, who is pushed
to, what is left; attributes by index.
"""

import json
import os
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from doubles import FakeAgent
from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.admin import groups_page, sessions_page
from gateway.protocols.pomelo.lobby.lobby import Lobby
from gateway.protocols.pomelo.options import Backend as BackendOptions
from gateway.protocols.pomelo.protobuf import Unusable
from gateway.protocols.pomelo.push.page import page, parse
from gateway.protocols.pomelo.push.row import change
from gateway.protocols.pomelo.registry import Registry
from gateway.protocols.pomelo.standing import standing
from making import Make

from .conftest import asked


class Rooms:
    """Four clients: alice twice, bob, and one without a name."""

    def __init__(self, make_reader: Make, pomelo: Any, **options: Any) -> None:
        self.reader = make_reader(heartbeat=0, **options)
        self.registry: Registry = self.reader.listener.registry
        self.clients = []
        for user in ({"uid": "alice"}, {"uid": "alice"}, {"uid": "bob"}, {}):
            connection, _ = self.reader.connect()
            connection.deliver(pomelo.hello(user={"team": "red", **user}))
            connection.clear()
            self.clients.append(connection)
        lobby = Lobby("gw-1", self.registry, self.reader.clock)
        self._change = page(lobby, change)
        self._list = groups_page(self.registry)
        self._push = page(lobby, parse)

    def session(self, number: int) -> str:
        name: str = self.clients[number].origin.session
        return name

    def change(self, **request: Any) -> tuple[int, Any]:
        return asked(self._change, **request)

    def groups(self, **query: str) -> Any:
        return json.loads(self._list(query).body)

    def push(self, **to: Any) -> list[int]:
        """Who got a push."""
        for client in self.clients:
            client.clear()
        asked(self._push, route="r", body=1, **to)
        self.reader.clock.advance(0)
        return [n for n, client in enumerate(self.clients) if client.sent]


@pytest.fixture
def rooms(make_reader, pomelo) -> Rooms:
    """Nobody is in a group."""
    return Rooms(make_reader, pomelo)


def test_who_joins_is_pushed_to(rooms):
    """By session, or all of a user; until he leaves."""
    assert rooms.change(join="room", session=rooms.session(3)) == (200, {"changed": 1})
    assert rooms.push(group="room") == [3]
    assert rooms.change(join="room", uid="alice") == (200, {"changed": 2})
    assert rooms.change(join="room", uid="alice") == (200, {"changed": 0})
    assert rooms.push(group="room") == [0, 1, 3]
    assert rooms.change(leave="room", session=rooms.session(0)) == (200, {"changed": 1})
    assert rooms.push(to={"group": "room"}) == [1, 3]
    assert rooms.push(group="other") == []


def test_who_is_gone_is_in_no_group(rooms):
    """A group is there while somebody is in it."""
    rooms.change(join="a", uid="alice")
    rooms.change(join=7, uid="bob")
    two = {"group": "a", "members": 2}
    one = {"group": "7", "members": 1}
    assert rooms.groups() == {"groups": [two, one], "total": 2}
    assert rooms.groups(group="7") == {"groups": [one], "total": 2}
    assert rooms.registry.groups.memberships == 3
    for client in rooms.clients:
        client.lose()
    assert rooms.groups() == {"groups": [], "total": 0}
    assert rooms.registry.groups.memberships == 0
    assert rooms.registry.groups._of == {}


def test_joining_and_leaving_in_any_order(rooms):
    """The groups have those who joined and have not left, whatever came between."""
    chance, groups = random.Random(7), rooms.registry.groups
    members, inside = rooms.registry.all(), set[tuple[int, str]]()
    for _ in range(500):
        at, name = chance.randrange(4), chance.choice("abc")
        change = chance.choice((groups.join, groups.leave))
        joins = change == groups.join
        assert change(members[at], name) == (((at, name) in inside) != joins)
        (inside.add if joins else inside.discard)((at, name))
        found = {(members.index(one), n) for n in "abc" for one in groups.members(n)}
        assert found == inside
        assert groups.memberships == len(inside)
    assert dict(groups.sizes()) == Counter(name for _, name in inside)


def test_sessions_of_a_group(rooms):
    """`GET /api/sessions?group=…`."""
    rooms.change(join="room", uid="alice")
    answer = sessions_page(rooms.registry)({"group": "room", "limit": "1"})
    found = json.loads(answer.body)
    assert [one["session"] for one in found["sessions"]] == [rooms.session(0)]
    assert found["next"] is not None


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"join": "a"},
        {"uid": "alice"},
        {"join": "a", "leave": "b", "uid": "alice"},
        {"join": "", "uid": "alice"},
        {"join": "x" * 256, "uid": "alice"},
        {"join": "a", "uid": "alice", "session": "s"},
        {"join": "a", "all": True},
    ],
)
def test_what_changes_no_group(rooms, request_):
    """400, with a sentence; nobody is anywhere."""
    code, found = rooms.change(**request_)
    assert code == 400
    assert "changes no group" in found["error"]
    assert len(rooms.registry.groups) == 0


def test_one_client_in_many_groups(rooms):
    changed = [rooms.change(join=n, uid="bob")[1]["changed"] for n in range(300)]
    assert sum(changed) == 256
    assert len(rooms.registry.groups) == 256


def test_who_only_claims_a_uid(make_reader, pomelo):
    """… is not put into that user's groups."""
    rooms = Rooms(make_reader, pomelo, trust_uid=False)
    assert rooms.change(join="room", uid="alice") == (200, {"changed": 0})
    assert rooms.change(join="room", session=rooms.session(0)) == (200, {"changed": 1})


def test_a_backends_answer_changes_groups(make_reader, pomelo):
    """Before the answers go out; one that asks for what is no change is of no use."""
    backend = BackendOptions.model_validate(
        {"routes": ["room.join"], "url": "http://game.test/"}
    )
    rooms = Rooms(make_reader, pomelo, backends=[backend])
    agent = rooms.reader.listener.services["room.join"]._backend._agent = FakeAgent()
    client = rooms.clients[3]

    def ask(groups: Any) -> bytes:
        client.clear()
        client.deliver(wire.request(1, "room.join", b"{}"))
        rooms.reader.journal.store_all()
        rooms.reader.clock.advance(0)
        agent.answer(200, {"answers": [{"code": 200}], "groups": groups})
        found: bytes = client.sent
        return found

    assert b'{"code": 200}' in ask([{"join": "room", "session": rooms.session(3)}])
    assert rooms.push(group="room") == [3]
    assert b'"code":504' in ask([{"join": "a", "uid": "bob"}, {"join": "x"}])
    assert rooms.push(group="a") == []


# Attributes by index


class Looked(dict[str, str]):
    """Attributes that count how often they are looked at."""

    looks = 0

    def get(self, *given: Any) -> Any:
        Looked.looks += 1
        return super().get(*given)

    def items(self) -> Any:
        Looked.looks += 1
        return super().items()


def test_ten_thousand_clients():
    """Whoever has an attribute is found without looking at the others."""
    registry = Registry()
    members = []
    for n in range(10_000):
        attributes = Looked({"team": f"t{n % 1000}", "level": str(n % 3)})
        origin = SimpleNamespace(session=f"s{n}", attributes=attributes)
        member: Any = SimpleNamespace(origin=origin, uid=None)
        member = Hashed(member)
        members.append(member)
        registry.join(member)
    assert len(registry.all({"team": "t7"})) == 10
    before = Looked.looks
    for n in range(100):
        found = registry.all({"team": f"t{n}", "level": "0"})
        assert all(one.origin.attributes["level"] == "0" for one in found)
    assert Looked.looks - before <= 100 * 10
    registry.leave(members[7])
    assert len(registry.all({"team": "t7"})) == 9
    registry.join(members[7])
    assert len(registry.all({"team": "t7"})) == 10


class Hashed:
    """A member that is one of its own."""

    def __init__(self, of: Any) -> None:
        self.origin, self.uid = of.origin, of.uid


def test_many_names():
    """Sixteen are indexed; by others everybody is looked at, with the same result."""
    registry = Registry()
    for n in range(5):
        attributes = {f"a{name}": str(n) for name in range(30)}
        origin = SimpleNamespace(session=f"s{n}", attributes=attributes)
        registry.join(Hashed(SimpleNamespace(origin=origin, uid=None)))  # type: ignore[arg-type]
    for name in range(30):
        assert len(registry.all({f"a{name}": "3"})) == 1
        assert registry.all({f"a{name}": "9"}) == []
    assert len(registry._index._names) == 16


class Guilds:
    """A listener whose groups are in a file, and its clients."""

    def __init__(self, make_reader: Make, pomelo: Any, path: Path, **options: Any):
        self._pomelo, self._path, self._written = pomelo, path, 0
        self.write({"reds": ["alice", "bob", 7], "blues": ["alice"]})
        self.reader = make_reader(heartbeat=0, groups=path, **options)
        self.groups = self.reader.listener.registry.groups

    def write(self, value: Any) -> None:
        """The file has this from now on."""
        self._path.write_text(json.dumps(value))
        self._written += 1
        os.utime(self._path, ns=(self._written, self._written))

    def come(self, uid: str | int) -> Any:
        """Somebody connects, who says that he is this one; his session."""
        connection, server = self.reader.connect()
        connection.deliver(self._pomelo.hello(user={"uid": uid}))
        return server

    def members(self) -> dict[str, list[str | None]]:
        return {name: [one.uid for one in self.groups.members(name)]
                for name, _ in self.groups.sizes()}  # fmt: skip


@pytest.fixture
def guilds(make_reader, pomelo, tmp_path) -> Guilds:
    """Nobody is there yet."""
    return Guilds(make_reader, pomelo, tmp_path / "guilds.json")


def test_who_comes_is_in_his_groups(guilds):
    """All of his sessions, and again when he comes back."""
    first = guilds.come("alice")
    for uid in ("alice", "bob", 7, "eve"):
        guilds.come(uid)
    both = {"reds": ["alice", "alice", "bob", "7"], "blues": ["alice", "alice"]}
    assert guilds.members() == both
    first.kick("bye")
    first.closed()
    assert guilds.members()["blues"] == ["alice"]
    guilds.come("alice")
    assert sorted(map(str, guilds.members()["reds"])) == sorted(map(str, both["reds"]))


def test_who_only_claims_to_be_somebody(make_reader, pomelo, tmp_path):
    """… is in none of his groups."""
    guilds = Guilds(make_reader, pomelo, tmp_path / "guilds.json", trust_uid=False)
    guilds.come("alice")
    assert guilds.members() == {}


def test_a_file_that_changes(guilds):
    """Who is connected is moved; what somebody joined by himself stays; who is about to
    go is put nowhere.
    """
    alice, bob = guilds.come("alice"), guilds.come("bob")
    gone = guilds.come("bob")
    gone._connection.deliver(wire.request(1, "a", b"{}"))
    gone.kick("bye")  # once that is answered
    assert gone in guilds.reader.listener._servers
    guilds.groups.join(alice, "room")
    guilds.write({"reds": ["bob", "alice"], "greens": ["bob"]})
    guilds.reader.wait(4.9)
    assert "greens" not in guilds.members()
    guilds.reader.wait(1.2)
    assert guilds.groups.members("greens") == [bob]
    assert guilds.members() == {
        "reds": ["alice", "bob"],
        "room": ["alice"],
        "greens": ["bob"],
    }


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ({"reds": "bob"}, "'reds': must be a list of uids, not 'bob'"),
        ({"reds": ["bob\ud83d"]}, "half of a surrogate pair behind"),
    ],
)
def test_a_file_that_breaks(guilds, logged, groups, why):
    """It is told once, and what was read stays.  Definitions are read again when they are
    told to, and not with the groups: each time they are others, for each client that comes.
    """
    guilds.come("bob")
    listener = guilds.reader.listener
    definitions = listener.handshaker.definitions
    guilds.write(groups)
    guilds.reader.wait(30)
    told = [event["why"] for event in logged if event["log_format"].startswith("not")]
    assert len(told) == 1
    assert told[0].startswith("options.groups: ")
    assert why in told[0]
    assert guilds.members() == {"reds": ["bob"]}
    assert listener.handshaker.definitions is definitions
    assert listener.reload() == told[0]
    assert listener.handshaker.definitions is not definitions


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ([], "must be groups"),
        ({"": ["a"]}, "not 1 to 255 bytes"),
        ({"x" * 256: ["a"]}, "not 1 to 255 bytes"),
        ({"a": None}, "must be a list of uids, not None"),
        ({"a": [""]}, "'' is no uid"),
        ({"a": [None]}, "None is no uid"),
        ({"a": ["x" * 256]}, "is no uid of 1 to 255 bytes"),
        ({f"g{n}": ["alice"] for n in range(257)}, "'alice' is in 257, limit 256"),
    ],
)
def test_what_is_no_group(option, why):
    """The error names the option, and what is wrong."""
    with pytest.raises(Unusable, match=r"options\.groups: ") as caught:
        standing(option)
    assert why in str(caught.value)
