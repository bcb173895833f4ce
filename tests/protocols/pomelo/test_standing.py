"""Groups of users that stand in the options: who comes is in them, who leaves is not."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.protobuf import Unusable
from gateway.protocols.pomelo.standing import standing
from making import Make


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


def test_a_file_that_breaks(guilds):
    """It is told, what was read stays, and definitions are read all the same."""
    guilds.come("bob")
    listener = guilds.reader.listener
    definitions = listener.handshaker.definitions
    guilds.write({"reds": "bob"})
    why = listener.reload()
    assert why is not None
    assert why.startswith("options.groups: ")
    assert "'reds': must be a list of uids, not 'bob'" in why
    assert guilds.members() == {"reds": ["bob"]}
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
