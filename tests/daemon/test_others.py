"""The other gateways of `admin.peers`: asked while somebody looks, and harmless."""

import json
from typing import Any

import pytest
from twisted.internet import error
from twisted.internet.task import Clock
from twisted.web.client import ResponseNeverReceived

from doubles import FakeAgent
from gateway.admin.status import (
    ArchiveStatus,
    IncarnationStatus,
    JournalStatus,
    SpoolStatus,
    Status,
    as_json,
)
from gateway.config.model import Admin
from gateway.daemon.others import EVERY_SECONDS, Others
from gateway_testkit.certificates import Authority

REFUSED = error.ConnectionRefusedError("111: Connection refused")
PEERS = ["gw-2:8080", "https://gw-3:8443"]


def status(node: str, incarnation: str = "") -> Status:
    return Status(
        node=node,
        version="1",
        uptime_seconds=1.0,
        not_ready_reason=None,
        listeners=[],
        journal=JournalStatus(1, 1),
        spool=SpoolStatus(1, 1, 1),
        archive=ArchiveStatus(1, 1),
        incarnation=IncarnationStatus(incarnation),
    )


def told(node: str, incarnation: str = "") -> Any:
    return json.loads(as_json(status(node, incarnation)))


class World:
    """One gateway, whose peers answer when the test says so."""

    def __init__(self, peers: list[str], **more: Any) -> None:
        self.clock = Clock()
        settings = Admin.model_validate({"peers": peers, **more})
        self.others = Others(
            settings, lambda: status("gw-1", "5f0c"), self.clock, lambda: 1e6
        )
        self.agents = []
        for other in self.others._others:
            other.backend._agent = FakeAgent()
            self.agents.append(other.backend._agent)

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.others.page({}).body)["gateways"]
        return rows

    def turn(self) -> None:
        self.clock.advance(EVERY_SECONDS)
        self.others.look()

    @property
    def open(self) -> list[int]:
        return [len(agent._open) for agent in self.agents]


@pytest.fixture
def world() -> World:
    return World(PEERS)


def test_a_row_for_each(world):
    """This one first; the others once they have answered."""
    first = world.rows()
    assert [row["name"] for row in first] == ["gw-1", "", ""]
    assert {row["sentence"] for row in first[1:]} == {"It is being asked."}
    world.agents[0].answer(200, told("gw-2"))
    world.agents[1].answer(200, {"state": "running", "at": 1e6, "last_batch_at": 1e6})
    rows = world.rows()
    assert [row["name"] for row in rows] == ["gw-1", "gw-2", "Spark job"]
    assert [row["address"] for row in rows] == [
        "this gateway", "http://gw-2:8080", "https://gw-3:8443",
    ]  # fmt: skip


def test_nobody_is_asked_while_nobody_looks(world):
    world.others.look()
    assert world.open == [0, 0]
    world.rows()
    for agent in world.agents:
        agent.answer(200, told("x"))
    for _ in range(20):
        world.turn()
        for agent in world.agents:
            while agent._open:
                agent.answer(200, told("x"))
    world.turn()
    assert world.open == [0, 0]


def test_one_that_hangs_is_said_and_asked_once_at_a_time(world):
    """Its request ends in time; the other's row is as fresh as ever."""
    world.rows()
    world.agents[0].answer(200, told("gw-2"))
    for _ in range(3):
        world.rows()
        world.turn()
        assert max(world.open) <= 1
        world.agents[1].answer(200, told("gw-3"))
    rows = world.rows()
    assert (
        rows[1]["sentence"] == "It does not answer (no answer in 4 s); it did 15 s ago."
    )
    assert (rows[1]["name"], rows[1]["level"]) == ("gw-2", "bad")
    assert (rows[2]["name"], rows[2]["heard_seconds"]) == ("gw-3", 0.0)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda agent: agent.answer(401, b""), "it asks for another token"),
        (lambda agent: agent.answer(503, b""), "it answers 503"),
        (lambda agent: agent.answer(200, b"<html>"), "answers 200, and its body"),
        (lambda agent: agent.answer(200, {}), "neither a gateway nor a job"),
        (lambda agent: agent.answer(200, b"x" * (5 << 20)), "answers with more than"),
        (lambda agent: agent.fail(ResponseNeverReceived([])), "does not answer"),
        (lambda agent: agent.fail(REFUSED), "not answer (connection refused)."),
    ],
)
def test_rubbish_is_said(answer, why, world):
    """In a row; a request that was lost is repeated once."""
    world.rows()
    answer(world.agents[0])
    if world.agents[0]._open:
        answer(world.agents[0])
    row = world.rows()[1]
    assert why in row["sentence"]
    assert row["level"] == "bad"


def test_the_same_list_may_be_everywhere(world):
    """By its incarnation a gateway knows itself; another one of its name is shown."""
    world.rows()
    world.agents[0].answer(200, told("gw-1", "5f0c"))
    world.agents[1].answer(200, told("gw-1", "e0e0"))
    assert [row["name"] for row in world.rows()] == ["gw-1", "gw-1"]


def test_a_reload_changes_whom_it_asks(world):
    """What was said before is forgotten where the list is another."""
    world.rows()
    world.agents[0].answer(200, told("gw-2"))
    before = world.others._settings
    world.others.configure(before)
    assert [row["name"] for row in world.rows()] == ["gw-1", "gw-2", ""]
    world.others.configure(Admin.model_validate({"peers": ["gw-4:1"]}))
    assert [row["address"] for row in world.rows()[1:]] == ["http://gw-4:1"]


def trusted(world: World) -> int:
    """How many may sign a peer's certificate; each peer's are the same."""
    [found] = {
        len(one.backend._policy._trustRoot._caCerts)  # type: ignore[union-attr]
        for one in world.others._others
    }
    return found


def test_who_may_sign_is_read_at_each_reload(tmp_path):
    """A new certificate in the same file counts.  From a file that can not be used nobody
    is believed: the token must not go to whom the platform trusts."""
    file = tmp_path / "ca.pem"
    file.write_text("nonsense\n-----END CERTIFICATE-----")
    world = World(PEERS, peers_ca=str(file))
    assert trusted(world) == 0
    file.write_bytes(Authority(tmp_path, "new").ca.read_bytes())
    world.others.configure(world.others._settings)
    assert trusted(world) == 1
    file.unlink()
    world.others.configure(world.others._settings)
    assert trusted(world) == 0


def test_what_is_shown_to_who_wants_a_certificate(tmp_path):
    """Certificate and key, of two files or of one; read again at each reload.  With one
    that can not be used none is shown, and the peer says that it wants one."""
    pair = Authority(tmp_path, "ca").issue("gw-1")
    ours = {
        "peers_certificate": str(pair.certificate),
        "peers_private_key": str(pair.key),
    }
    one = tmp_path / "both.pem"
    one.write_bytes(pair.key.read_bytes() + pair.certificate.read_bytes())

    def shown(world: World) -> set[str | None]:
        return {
            policy._ours
            and policy._ours.original.to_cryptography().subject.rfc4514_string()
            for policy in (other.backend._policy for other in world.others._others)
        }

    assert shown(World(PEERS, **ours)) == {"CN=gw-1"}
    world = World(PEERS, peers_certificate=str(one))
    assert shown(world) == {"CN=gw-1"}
    one.write_text("nonsense")
    world.others.configure(world.others._settings)
    assert shown(world) == {None}
    with pytest.raises(ValueError, match="peers_private_key is its key"):
        Admin.model_validate({"peers_private_key": ours["peers_private_key"]})


def test_without_peers_it_is_alone():
    assert [row["name"] for row in World([]).rows()] == ["gw-1"]
