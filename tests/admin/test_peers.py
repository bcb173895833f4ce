"""Who is connected, and who was turned away."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.admin.freshness import Facts, Job, judge
from gateway.admin.gateways import row_of, silent
from gateway.admin.peers import Peers
from gateway.admin.status import as_json
from gateway.net.connection_log import Seen
from gateway.net.rejection_log import RecentRejections


def seen(number: int, listener: str = "beats", **more: Any) -> Seen:
    usual: dict[str, Any] = {
        "listener": listener,
        "session": f"s-{number}",
        "peer": f"10.0.0.{number}:5000",
        "principal": None,
        "seconds": 10.0 * number,
        "bytes": 1000 * number,
        "events": 100 - number,
        "unacknowledged": number,
        "paused": False,
        "last_error": None,
    }
    return Seen(**{**usual, **more})


class World:
    """Ten connections of two listeners, and what was rejected."""

    def __init__(self) -> None:
        self.now = 100.0
        self.looks = 0
        self.rejections = RecentRejections()
        self.all = [seen(n, "games" if n > 6 else "beats") for n in range(10)]
        self.peers = Peers(self._look, lambda: self.rejections, lambda: self.now)

    def _look(self) -> list[Seen]:
        self.looks += 1
        return self.all

    def ask(self, **query: str) -> Any:
        answer = self.peers.connections(query)
        return json.loads(answer.body) | {"code": answer.code}

    def sessions(self, **query: str) -> list[str]:
        return [one["session"] for one in self.ask(**query)["connections"]]


@pytest.fixture
def world() -> World:
    return World()


def test_sorted_by_any_column(world):
    """The largest first, or the smallest; so many of them."""
    assert world.sessions(limit="3") == ["s-9", "s-8", "s-7"]
    assert world.sessions(sort="events", limit="2") == ["s-0", "s-1"]
    assert world.sessions(sort="events", order="up", limit="1") == ["s-9"]
    world.all[4] = seen(4, principal="CN=a")
    world.now += 2
    assert world.sessions(sort="principal", limit="1") == ["s-4"]


def test_filtered(world):
    """By listener, and by a text in peer, session, principal or error."""
    assert world.sessions(listener="games") == ["s-9", "s-8", "s-7"]
    assert world.sessions(find="0.0.3:") == ["s-3"]
    found = world.ask(find="S-1")
    assert (found["total"], found["found"]) == (10, 1)
    assert found["connections"][0]["bytes"] == 1000


def test_what_is_not_understood(world):
    """Is told, not guessed."""
    for query in ({"sort": "x"}, {"order": "x"}, {"limit": "0"}, {"limt": "3"}):
        assert world.ask(**query)["code"] == 400


def test_many_ask(world):
    """The connections are looked at once in two seconds."""
    for _ in range(5):
        world.ask()
    assert world.looks == 1
    world.now += 2
    world.ask()
    assert world.looks == 2


def test_what_each_listener_has_not_acknowledged(world):
    """And what went wrong there last."""
    kind = ("10.0.0.7", "games", "message too long")
    world.rejections.note(kind, "10.0.0.7:1", "message of 9 bytes", "limits.x", 90)
    listeners = world.ask()["listeners"]
    assert listeners["beats"] == {"unacknowledged": 21, "last_error": None}
    assert listeners["games"]["unacknowledged"] == 24
    assert listeners["games"]["last_error"] == "10.0.0.7:1: message of 9 bytes"


def test_rejections(world):
    """The newest first; what comes again is counted, and moves up."""
    for number in range(150):
        kind = (f"10.0.{number}.1", "beats", "too long")
        world.rejections.note(kind, f"{kind[0]}:5", f"{number}", None, 10.0)
    again = ("10.0.60.1", "beats", "too long")
    world.rejections.note(again, "10.0.60.1:6", "60 again", "limits.y", 95.0)
    rows = json.loads(world.peers.rejections({}).body)
    assert len(rows) == 100
    assert rows[0] == {
        "listener": "beats",
        "peer": "10.0.60.1:6",
        "why": "60 again",
        "key": "limits.y",
        "seconds": 5.0,
        "count": 2,
    }
    assert rows[1]["why"] == "149"
    assert world.rejections.serial == 151


def test_listeners_that_have_gone(world):
    """A rejection of the admin port, which has no connections here, does no harm."""
    world.rejections.note(("h", "admin", "wrong"), "h:1", "wrong token", None, 1.0)
    assert SimpleNamespace(**world.ask()["listeners"]["admin"]).unacknowledged == 0


NOW = 1_000_000.0


def test_a_gateway(daemon):
    """By its own first sentence."""
    daemon.change(
        freshness=judge(
            Facts(
                durable_lsn=9,
                uncommitted=90.0,
                waiting_bytes=5,
                limit_bytes=15,
                growth=1.0,
                job=Job(state="running", silent_seconds=70),
            )
        )
    )
    told = json.loads(as_json(daemon.probe()))
    row = row_of("http://gw-1:8080", told, NOW)
    assert (row.kind, row.name, row.level) == ("gateway", "gw-1", "bad")
    assert row.sentence.startswith("Spark has been silent for 1 min")
    assert (row.age_seconds, row.connections, row.waiting_bytes) == (90.0, 3, 5)
    assert (row.room_seconds, row.heard_seconds) == (10.0, 0.0)
    daemon.change(freshness=None, not_ready_reason="starting")
    row = row_of("http://gw-1:8080", json.loads(as_json(daemon.probe())), NOW)
    assert (row.level, row.sentence) == ("bad", "The gateway is not ready: starting.")


@pytest.mark.parametrize(
    ("told", "level", "sentence"),
    [
        (
            {"state": "running", "at": NOW - 2, "last_batch_at": NOW - 3},
            "good",
            "Spark runs, and committed its last batch 3.0 s ago.",
        ),
        (
            {"state": "running", "at": NOW - 2},
            "good",
            "Spark runs, and committed nothing yet.",
        ),
        (
            {"state": "starting", "at": NOW, "doing": "starting Java"},
            "good",
            "Spark is starting (starting Java).",
        ),
        (
            {"state": "running", "at": NOW - 60},
            "bad",
            "Spark has been silent for 1 min.",
        ),
        (
            {"state": "failed", "at": NOW - 60, "last_error": "no room"},
            "bad",
            "The Spark job is failed: no room.",
        ),
    ],
)
def test_a_job(told, level, sentence):
    """And how old the oldest file is that it has not taken."""
    oldest = {"name": "events-…", "at": NOW - 100}
    row = row_of("http://job:8081", {**told, "oldest_file": oldest}, NOW)
    assert (row.kind, row.level, row.sentence) == ("job", level, sentence)
    assert row.age_seconds == 100
    assert row_of("http://job:8081", told, NOW).age_seconds == 0


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"node": "gw-1"},
        {"node": "gw-1", "listeners": [7]},
        {"node": "gw-1", "listeners": [], "freshness": 7},
        {"state": "running"},
        {"state": "running", "at": "yesterday"},
        {"state": "running", "at": 1, "oldest_file": 7},
        {"state": "running", "at": 10**400},
        {"state": "running", "at": 1, "oldest_file": {"at": float("-inf")}},
        {"node": "gw-1", "listeners": [], "freshness": {"age_seconds": float("inf")}},
        {"node": "gw-1", "listeners": [], "freshness": {"waiting_bytes": float("inf")}},
    ],
)
def test_who_says_nothing_of_use(told):
    """It is an error of its own, whatever is wrong with it."""
    with pytest.raises(ValueError, match=r"it says nothing of use|neither a gateway"):
        row_of("http://odd:1", told, NOW)


def test_a_silent_one_keeps_its_name(daemon):
    """What it was the last time is said of it, and that it is so no more."""
    row = silent("http://gw-1:8080", "no answer in 4 s")
    assert (row.name, row.level, row.heard_seconds) == ("", "bad", None)
    assert row.sentence == "It does not answer (no answer in 4 s)."
    before = row_of("http://gw-1:8080", json.loads(as_json(daemon.probe())), NOW)
    row = silent("http://gw-1:8080", "refused", before)
    assert (row.name, row.kind, row.level) == ("gw-1", "gateway", "bad")
    assert row.sentence == "It does not answer (refused); it did 0.0 s ago."
