"""A row for each gateway and the job, of what they say of themselves."""

import json

import pytest

from gateway.admin.freshness import Facts, Job, judge
from gateway.admin.gateways import row_of, silent
from gateway.admin.status import as_json

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
