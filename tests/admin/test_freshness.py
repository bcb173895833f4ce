"""The first sentence: whoever reads nothing else knows what stands, and what to do."""

import re
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from deadlines import ROOT
from gateway.admin.freshness import Facts, Freshness, Job, judge

RUNNING = Job(up=True, state="running", batch_seconds=0.9)
SILENT = Job(state="running", silent_seconds=250, batch_seconds=0.9)
TOLD = yaml.safe_load((ROOT / "tests/vectors/first-sentence.yaml").read_text())
FAULTS: dict[str, dict[str, Any]] = TOLD["faults"]
"""What is wrong, by what it is: facts, the sentence, its level, and where events stand."""


def judged(**facts: Any) -> Freshness:
    """Of a node that took events, with a job that runs, but for what is given."""
    usual = {"durable_lsn": 100, "job": RUNNING, "newest": 1.84, "connections": 3}
    return judge(TypeAdapter(Facts).validate_python({**usual, **facts}))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_in_one_sentence(fault):
    """With what waits, how long it may, and what to do; and where on the way it is."""
    told = FAULTS[fault]
    found = judged(**told["facts"])
    assert found.sentence == told["sentence"]
    assert (found.level, found.stands or "") == (told["level"], told["stands"])


@pytest.mark.parametrize("fault", FAULTS)
def test_the_manual_has_a_row_for_every_sentence(fault):
    """docs/symptoms.md says what to do."""
    page = (ROOT / "docs" / "symptoms.md").read_text()
    section = page.partition("## The first sentence")[2].partition("\n## ")[0]
    begins = [
        shown.partition("…")[0].strip()
        for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for shown in re.findall(r"`([^`]+)`", row)
    ]
    sentence = FAULTS[fault]["sentence"]
    assert any(begin and sentence.startswith(begin) for begin in begins)


@pytest.mark.parametrize("told", TOLD["well"], ids=lambda told: told["sentence"])
def test_all_is_well(told):
    """Then the first number is how old the newest event in the table is."""
    found = judged(**told["facts"])
    assert found.sentence == told["sentence"]
    assert (found.level, found.stands) == ("good", None)


def test_what_stops_senders_comes_first():
    """All faults at once: they are told in the order in which they are to be mended."""
    all_of_it: dict[str, Any] = {}
    for facts in (told["facts"] for told in FAULTS.values()):
        reasons = {**all_of_it.get("reasons", {}), **facts.get("reasons", {})}
        all_of_it |= {**facts, "reasons": reasons}
    all_of_it |= {"stopping": False, "phase": None, "durable_lsn": 9, "job": SILENT}
    assert "make room elsewhere" in judged(**all_of_it).sentence
    del all_of_it["reasons"]["disk"]
    assert "can not be written" in judged(**all_of_it).sentence
    all_of_it |= {"reasons": {}, "disk_wait": 0.0}
    assert "certificate of" in judged(**all_of_it).sentence
    all_of_it |= {"certificates": {}}
    assert "The CRL of" in judged(**all_of_it).sentence
    all_of_it |= {"crls": {}, "unpublished": 90}
    assert "The bucket takes no files" in judged(**all_of_it).sentence
    all_of_it |= {"bucket_error": None}
    assert "Spool files are late" in judged(**all_of_it).sentence
    all_of_it |= {"unpublished": None}
    assert "silent" in judged(**all_of_it).sentence


@pytest.mark.parametrize("told", TOLD["hub"], ids=lambda told: told["sentence"])
def test_the_hub(told):
    """Where files are forwarded, it stands in the place of tables and job."""
    found = judged(job=None, **told["facts"])
    assert found.sentence == told["sentence"]
    assert (found.level, found.goal) == (told["level"], "hub")
    assert found.held_by == ("hub" if "uncommitted" in told["facts"] else "sender")


@pytest.mark.parametrize(
    ("facts", "holder"),
    [
        ({}, "sender"),
        ({"disk_wait": 0.1}, "journal"),
        ({"unpublished": 0.5, "uncommitted": 0.5}, "journal"),
        ({"unpublished": 2.5, "uncommitted": 2.5}, "spool"),
        ({"unpublished": 0.5, "uncommitted": 2.5}, "spark"),
        ({"uncommitted": 2.5}, "spark"),
        ({"uncommitted": 2.5, "job": Job(up=True, busy=True)}, "commit"),
        ({"uncommitted": 2.5, "job": Job(up=False, busy=True)}, "spark"),
        ({"unpublished": 0.5, "job": None}, "journal"),
        ({"job": None}, "sender"),
    ],
)
def test_what_holds_the_oldest_event(facts, holder):
    """Whoever has to act next for it."""
    assert judged(**facts).held_by == holder


def test_a_job_that_is_slow_is_not_well():
    """However long its batches take; but a `spark.trigger` of minutes is waited for."""
    slow = Job(up=True, state="running", batch_seconds=200)
    assert judged(job=slow, uncommitted=300).level == "warning"
    assert judged(job=slow, uncommitted=300, trigger_seconds=300).level == "good"


def test_the_age_counts_from_the_oldest():
    """Whether it is stored already or waits to be."""
    assert judged().age_seconds == 0
    assert judged(uncommitted=4.0, disk_wait=1.0).age_seconds == 4
    assert judged(uncommitted=4.0, disk_wait=9.0).age_seconds == 9


def test_room_is_that_of_whatever_ends_first():
    """Spool or disk; what does not grow lasts for ever."""
    limits = {"waiting_bytes": 100, "limit_bytes": 1100, "growth": 10.0}
    assert judged(**limits, free_bytes=5000).room_seconds == 100
    assert judged(**limits, free_bytes=500).room_seconds == 50
    assert judged(**{**limits, "growth": -1.0}).room_seconds is None
    assert judged(**{**limits, "growth": None}).room_seconds is None
    assert judged(**{**limits, "limit_bytes": 50}).room_seconds == 0
