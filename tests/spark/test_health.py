"""What the job reports."""

import itertools
import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from deadlines import eventually
from gateway.spark.commit.ledger import Ledger, Ranges
from gateway.spark.commit.sink import Committed
from gateway.spark.run.health import Health, Waiting
from gateway.store.names import SpoolFile
from gateway.store.readers.lake import health_path
from incarnations import A


def said(lake: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(health_path(lake).read_text())
    return found


def waiting() -> Waiting:
    return Waiting(1, (SpoolFile("gw", A, 1, 9), 1.0))


def test_a_job_that_can_not_go_on(tmp_path):
    """How often it ended since its last batch, and why, is told by the next one from its
    start on; and so is how far the tables were.
    """
    first = Health(tmp_path)
    first.tables(Ledger(committed=Ranges({"gw": {A: [(1, 9)]}})), waiting())
    first.ended("no column a.b")
    told = said(tmp_path)
    assert (told["state"], told["last_error"]) == ("failed", "no column a.b")
    for failures in (1, 2):
        health = Health(tmp_path)
        health.say()
        told = said(tmp_path)
        assert (told["state"], told["failures"]) == ("starting", failures)
        assert told["last_failure"] == "no column a.b"
        assert told["committed_by"] == {"gw": {A: 9}}
        health.ended("no column a.b")
    Health(tmp_path).say(state="running")  # and is killed
    killed = Health(tmp_path)
    killed.say()
    assert said(tmp_path)["failures"] == 4
    assert "dmesg" in said(tmp_path)["last_failure"]
    killed.committed(Committed(1, rows=1, files=1), 0.25)
    killed.say()
    assert (said(tmp_path)["failures"], said(tmp_path)["last_failure"]) == (0, None)
    killed.ended(None)
    assert said(tmp_path)["state"] == "stopped"
    Health(tmp_path).say()
    assert said(tmp_path)["failures"] == 0


def test_a_job_that_starts_is_not_silent(tmp_path, monkeypatch):
    """It leaves word from the first second on, and of what it does, whatever it waits for;
    once it runs, its words come from its own loop, which may hang."""
    monkeypatch.setattr("gateway.spark.run.health.BEAT", 0.01)
    ticks = itertools.count()
    health = Health(tmp_path, clock=lambda: float(next(ticks)))
    health.begin()
    first = said(tmp_path)["at"]
    health.note(doing="starting Java")
    eventually(lambda: said(tmp_path)["at"] > first + 2, "more words")
    assert said(tmp_path)["doing"] == "starting Java"
    beating = [one for one in threading.enumerate() if one.name == "gateway-health"]
    health.say(state="running")
    assert (said(tmp_path)["state"], said(tmp_path)["doing"]) == ("running", None)
    eventually(
        lambda: not any(one.is_alive() for one in beating), "the end of the beat"
    )


def test_a_job_that_had_nothing_to_do_has_not_failed(tmp_path):
    """However often its machine was switched off."""
    for _ in range(3):
        health = Health(tmp_path)
        health.tables(Ledger(), Waiting())
    assert said(tmp_path)["failures"] == 0


@pytest.mark.parametrize("before", ["", "[]", '{"state": "failed", "failures": "x"}'])
def test_word_of_an_earlier_version(tmp_path, before):
    """Or of nobody: it is no reason to fail."""
    path = health_path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(before)
    Health(tmp_path).say()
    assert said(tmp_path)["failures"] == 0


def test_the_clock_is_set_back(tmp_path):
    """The job goes on reporting."""
    now, ticks = [100_000.0], [0.0]
    health = Health(tmp_path, lambda: now[0], lambda: ticks[0])
    health.beat(Ledger(), Waiting)
    now[0] -= 86400
    ticks[0] += 5
    health.beat(Ledger(), Waiting)
    assert said(tmp_path)["at"] == now[0]


def test_batches_and_whether_one_is_under_way(tmp_path):
    """The last twenty; `busy` at once, all else every five seconds."""
    now = [1000.0]
    health = Health(tmp_path, lambda: now[0], lambda: now[0])

    def told() -> dict[str, Any]:
        return said(tmp_path)

    health.say(state="running")
    for batch in range(30):
        health.committed(Committed(batch, rows=batch, files=1), 0.25)
    health.beat(Ledger(), Waiting, busy=True)
    assert told()["busy"] is True
    recent = told()["recent"]
    assert isinstance(recent, list)
    assert [one["rows"] for one in recent] == list(range(10, 30))
    assert recent[-1] == {"at": 1000.0, "seconds": 0.25, "rows": 29, "files": 1}
    for second in range(1, 5):
        now[0] += 1
        health.beat(Ledger(), Waiting, busy=second % 2 == 0)
        assert told()["busy"] is (second % 2 == 0)
        assert told()["at"] == 1000 + second
    ledger = Ledger(committed=Ranges({"gw": {A: [(1, 9)]}}))
    now[0] += 1
    health.beat(ledger, Waiting, busy=False)
    assert told()["committed_by"] == {"gw": {A: 9}}


def test_the_oldest_of_very_many_files():
    """After a week without a job: for each node one file is looked at, the first."""
    files = [
        SpoolFile(node, A, first, first + 9)
        for node in ("a", "b", "c")
        for first in range(1, 100_001, 10)
    ]
    random.Random(1).shuffle(files)
    asked: list[SpoolFile] = []

    def modified(file: SpoolFile) -> float:
        asked.append(file)
        if file.node == "a":
            raise FileNotFoundError
        return {"b": 7.0, "c": 5.0}[file.node]

    found = Waiting.of(files, modified)
    assert found == (30_000, (SpoolFile("c", A, 1, 10), 5.0))
    assert {(file.node, file.first) for file in asked} == {("a", 1), ("b", 1), ("c", 1)}
    assert Waiting.of([], modified) == Waiting(0, None)
