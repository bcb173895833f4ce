"""The first sentence: whoever reads nothing else knows what stands, and what to do."""

from __future__ import annotations

import re
from typing import Any

import pytest

from deadlines import ROOT
from gateway.admin.freshness import (
    Audit,
    Consumer,
    Crl,
    Facts,
    Freshness,
    Holder,
    Hub,
    Job,
    Refused,
    Reload,
    judge,
)

GiB = 2**30
RUNNING = Job(up=True, state="running", batch_seconds=0.9)
SILENT = Job(state="running", silent_seconds=250, batch_seconds=0.9)


def judged(**facts: Any) -> Freshness:
    """Of a node that took events, with a job that runs, but for what is given."""
    usual = {"durable_lsn": 100, "job": RUNNING, "newest": 1.84, "connections": 3}
    return judge(Facts(**{**usual, **facts}))


FAULTS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "a consumer that has never come": (
        {"consumers": [Consumer("mine", 12, 5 * GiB, 90_000, has_come=False)]},
        (
            "All events go their way, but consumer mine has never come: 12 files (5.0 GiB) "
            "stay for it beyond spool.retention, the oldest has been there for 25 h; start "
            "that consumer, or take its name out of spool.consumers."
        ),
        "warning",
        "",
    ),
    "a consumer that missed something": (
        {"consumers": [Consumer("mine", 1, missed=True)]},
        (
            "All events go their way, but 1 file left the archive before consumer mine had "
            "read them; start that consumer, and raise spool.archive_bytes or give the disk "
            "room."
        ),
        "warning",
        "",
    ),
    "a directory that was put back": (
        {"unvouched": "this directory is an older copy"},
        (
            "Acknowledged events may be lost: this directory is an older copy; gateway audit"
            " says what is missing, and gateway audit accept that nothing more comes."
        ),
        "bad",
        "tables",
    ),
    "two gateways of one name": (
        {"twins": [("gw-1", "the other one is incarnation abc")]},
        (
            "Two gateways run under the name gw-1 (the other one is incarnation abc): nothing"
            " is lost, but senders that come to the other one find nothing of what protocols"
            " remember; give one of them another node."
        ),
        "bad",
        "listeners",
    ),
    "the audit found a hole": (
        {"audit": Audit(7200, complete=False, missing=1200, doubled=3)},
        (
            "The audit of 2 h ago found 1,200 acknowledged events that are nowhere: gateway "
            "audit says which, and what is known of them."
        ),
        "bad",
        "tables",
    ),
    "the audit found the end of a lost disk": (
        {"audit": Audit(7200, complete=False, unknown=1)},
        (
            "The audit of 2 h ago found a lost disk's end that nobody knows: gateway audit "
            "says which, and what is known of them."
        ),
        "bad",
        "tables",
    ),
    "the audit found doubles and a bad file": (
        {"audit": Audit(7200, complete=False, doubled=3, problems=1)},
        (
            "The audit of 2 h ago found 3 events that are there twice and 1 file that it "
            "can not read: gateway audit says which."
        ),
        "warning",
        "tables",
    ),
    "the Spark job is dead": (
        {
            "job": SILENT,
            "uncommitted": 251,
            "waiting_bytes": int(1.25 * GiB),
            "limit_bytes": 20 * GiB,
            "free_bytes": 900 * GiB,
            "growth": 1.75e6,
        },
        (
            "Spark has been silent for 4 min; 1.2 GiB wait, room for 3 h; it was killed, or "
            "hangs: see its log, and start it with gateway spark."
        ),
        "bad",
        "spark",
    ),
    "the Spark job was never started": (
        {"job": Job(), "uncommitted": 40, "waiting_bytes": 5000},
        (
            "No Spark job has reported here yet; 4.9 KiB wait; start it with gateway "
            "spark."
        ),
        "bad",
        "spark",
    ),
    "the bucket is away": (
        {
            "job": None,
            "bucket": True,
            "bucket_error": "PUT: 503 SlowDown",
            "waiting_bytes": 5000,
            "limit_bytes": 3 * GiB,
            "growth": 1e6,
        },
        (
            "The bucket takes no files: PUT: 503 SlowDown; 4.9 KiB wait, room for 53 min; "
            "gateway doctor tries network, credentials and rights."
        ),
        "bad",
        "spool",
    ),
    "the bucket was away for long": (
        {
            "job": None,
            "bucket": True,
            "bucket_error": "PUT: 503 SlowDown",
            "reasons": {"spool": "the spool holds 9 bytes: s3://b takes no files"},
        },
        (
            "Senders wait, because the spool holds 9 bytes: s3://b takes no files; nothing "
            "is lost, and it goes on by itself when the bucket does: gateway doctor tries "
            "network, credentials and rights."
        ),
        "bad",
        "spool",
    ),
    "the Spark job gave up": (
        {
            "job": Job(state="failed", silent_seconds=90, last_error="no Java"),
            "uncommitted": 95,
            "waiting_bytes": 5000,
        },
        (
            "The Spark job failed 1 min ago (no Java); 4.9 KiB wait; start it with gateway "
            "spark."
        ),
        "bad",
        "spark",
    ),
    "the Spark job is too slow": (
        {"uncommitted": 400, "waiting_bytes": 3 * GiB},
        (
            "Spark runs and is behind: the oldest event that is in no table is 6 min old; "
            "3.0 GiB wait."
        ),
        "warning",
        "spark",
    ),
    "the spool is full": (
        {
            "reasons": {
                "spool": "the spool holds 99 bytes, limit 99 (spool.max_bytes)"
            },
            "job": SILENT,
            "uncommitted": 400,
            "limit_bytes": 20 * GiB,
        },
        (
            "Senders wait, because the spool is full (20 GiB, spool.max_bytes): Spark has "
            "been silent for 4 min; start it, and it catches up by itself."
        ),
        "bad",
        "spool",
    ),
    "the disk is full": (
        {
            "reasons": {
                "disk": "the disk of /data/spool is full: 9 bytes free, 12 needed for "
                "what is already acknowledged",
                "commit": "the journal can not be written: [Errno 28] No space",
            },
            "disk_wait": 30,
        },
        (
            "Senders wait, because the disk of /data/spool is full: 9 bytes free, 12 needed "
            "for what is already acknowledged; make room elsewhere on that disk, and delete "
            "nothing in journal/, spool/ or state/."
        ),
        "bad",
        "journal",
    ),
    "the disk hangs": (
        {"reasons": {"stall": "a batch has waited 12 s"}, "disk_wait": 12.3},
        (
            "Senders wait, because the disk does not answer: a batch has waited 12 s to be "
            "synced; dmesg says more about the disk."
        ),
        "bad",
        "journal",
    ),
    "the disk refuses": (
        {
            "reasons": {
                "commit": "the journal can not be written: [Errno 30] read-only"
            },
            "disk_wait": 9,
        },
        (
            "Senders wait, because the journal can not be written: [Errno 30] read-only; "
            "look at that disk's room and permissions, and at dmesg."
        ),
        "bad",
        "journal",
    ),
    "no spool file can be written": (
        {
            "unpublished": 97,
            "uncommitted": 97,
            "publish_error": "OSError: [Errno 30] Read-only file system",
        },
        (
            "Spool files are late: the oldest event that is in none is 1 min old, and safe "
            "in the journal; writing them fails with OSError: [Errno 30] Read-only file "
            "system: look at that disk's room and permissions."
        ),
        "bad",
        "spool",
    ),
    "the machine is too slow to write spool files": (
        {"unpublished": 30, "uncommitted": 30},
        (
            "Spool files are late: the oldest event that is in none is 30 s old, and safe "
            "in the journal; the machine is too slow for what comes."
        ),
        "warning",
        "spool",
    ),
    "a publisher process is stopped": (
        {
            "unpublished": 30,
            "uncommitted": 30,
            "publish_silence": "publisher process 4711 got nowhere for 28 s",
        },
        (
            "Spool files are late: the oldest event that is in none is 30 s old, and safe "
            "in the journal; publisher process 4711 got nowhere for 28 s."
        ),
        "warning",
        "spool",
    ),
    "no spool file can be written, and senders wait for it": (
        {
            "reasons": {"stall": "a spool file is late by 9 s (journal.stall_after)"},
            "publish_error": "OSError: [Errno 30] Read-only file system",
        },
        (
            "Senders wait, because a spool file is late by 9 s (journal.stall_after); it "
            "fails with OSError: [Errno 30] Read-only file system."
        ),
        "bad",
        "spool",
    ),
    "the Spark job fails at each start": (
        {
            "job": Job(
                up=True,
                state="starting",
                failures=7,
                last_failure="Failed: spark.columns.price:\n  no type decimal(99)",
            ),
            "uncommitted": 900,
            "waiting_bytes": 5000,
            "limit_bytes": 3 * GiB,
            "growth": 1e6,
        },
        (
            "The Spark job fails again and again, 7 times since its last batch: Failed: "
            "spark.columns.price: no type decimal(99); 4.9 KiB wait, room for 53 min; mend "
            "that, and it catches up by itself."
        ),
        "bad",
        "spark",
    ),
    "it fails until the spool is full": (
        {
            "reasons": {"spool": "the spool holds 99 bytes"},
            "job": Job(failures=99, last_failure="the lake's disk is full"),
            "limit_bytes": 20 * GiB,
        },
        (
            "Senders wait, because the spool is full (20 GiB, spool.max_bytes): the Spark "
            "job fails again and again, 99 times since its last batch: the lake's disk is "
            "full; mend that, and it catches up by itself."
        ),
        "bad",
        "spool",
    ),
    "the disk lost events": (
        {"lost_events": 1200},
        (
            "The disk lost up to 1,200 acknowledged events: the log says which, and gateway "
            "audit what the tables lack; what comes now is taken."
        ),
        "warning",
        "journal",
    ),
    "a reload was refused": (
        {
            "reload": Reload(
                200,
                applied=False,
                problems=["listener beats: tcp:5044: Address already in use", "more"],
            )
        },
        (
            "The last reload, 3 min ago, was refused, and the configuration of before is in "
            "force: listener beats: tcp:5044: Address already in use (and 1 more); mend "
            "that, and run gateway reload."
        ),
        "warning",
        "listeners",
    ),
    "a reload found a certificate that is none": (
        {"reload": Reload(20, applied=True, problems=["beats: cert.pem: no key"])},
        (
            "The last reload, 20 s ago, was applied but for files that can not be used: "
            "beats: cert.pem: no key; mend that, and run gateway reload."
        ),
        "warning",
        "listeners",
    ),
    "a listener turns all away": (
        {
            "newest": 900,
            "refused": {
                "beats": Refused(60, 300, "10.0.0.7:4000", "TLS: unknown ca (tls.ca)")
            },
        },
        (
            "Listener beats took no event and turned away 60 connections in 5 min; the last "
            "was 10.0.0.7:4000: TLS: unknown ca (tls.ca)."
        ),
        "warning",
        "listeners",
    ),
    "a listener turns an address away": (
        {
            "newest": 900,
            "refused": {
                "beats": Refused(
                    60, 300, "10.0.0.7:4000", "too many connections, limit 1000", 9
                )
            },
        },
        (
            "Listener beats turned away 60 connections in 5 min; the last was "
            "10.0.0.7:4000: too many connections, limit 1000."
        ),
        "warning",
        "listeners",
    ),
    "most events are in quarantine": (
        {"flawed": (900, 1000)},
        (
            "Most events are flawed, 900 of the last 1,000: column flaw of their rows says "
            "why, listener and peer who sends them."
        ),
        "warning",
        "senders",
    ),
    "something else is wrong": (
        {"troubles": ["", "http://game:80/ does not answer: connection refused."]},
        "All events go their way, but http://game:80/ does not answer: connection refused.",
        "warning",
        "",
    ),
    "memory is full": (
        {
            "reasons": {
                "memory": "9 bytes wait in memory, limit 9 (journal.memory_bytes)"
            }
        },
        (
            "Senders wait, because they are faster than the disk: 9 bytes wait in memory, "
            "limit 9 (journal.memory_bytes); it goes on by itself."
        ),
        "bad",
        "journal",
    ),
    "a certificate ends": (
        {"certificates": {"beats": 3.2 * 86400, "other": 80 * 86400}},
        (
            "The certificate of listener beats ends in 3 d: put a new one in its place, it "
            "is read by itself."
        ),
        "warning",
        "listeners",
    ),
    "the certificate that the hub is shown ends": (
        {"certificates": {"forward.certificate": 3.2 * 86400}},
        (
            "The certificate of this gateway at its hub ends in 3 d: put a new one in its "
            "place, it is read by itself."
        ),
        "warning",
        "listeners",
    ),
    "a certificate has ended": (
        {"certificates": {"beats": -7200.0}, "job": SILENT, "uncommitted": 300},
        (
            "The certificate of listener beats ended 2 h ago, and peers refuse it: put a "
            "new one in its place, it is read by itself."
        ),
        "bad",
        "listeners",
    ),
    "a CRL ends": (
        {"crls": {"beats": Crl(6 * 86400.0), "other": Crl(8 * 86400.0)}},
        (
            "The CRL of listener beats ends in 6 d: put its authority's new one in its "
            "place, it is read by itself."
        ),
        "warning",
        "listeners",
    ),
    "a CRL has ended, and others than it has are accepted": (
        {"crls": {"beats": Crl(-7200.0, refuses=False)}},
        (
            "The CRL of listener beats ended 2 h ago: put its authority's new one in its "
            "place, it is read by itself."
        ),
        "warning",
        "listeners",
    ),
    "a CRL has ended": (
        {"crls": {"beats": Crl(-7200.0)}, "job": SILENT, "uncommitted": 300},
        (
            "The CRL of listener beats ended 2 h ago, and clients with certificates are "
            "refused: put its authority's new one in its place, it is read by itself."
        ),
        "bad",
        "listeners",
    ),
    "a spool file is damaged": (
        {"job": Job(up=True, state="running", holes=2)},
        (
            "Spark could not read 2 spool files: the reason lies beside each in poison/; "
            "all the rest is in the table."
        ),
        "warning",
        "tables",
    ),
    "nothing has ever come": (
        {
            "durable_lsn": 0,
            "connections": 0,
            "job": Job(),
            "addresses": {"beats": "tcp:5044"},
        },
        "Nothing has ever come, and nobody is connected; listening: beats on tcp:5044.",
        "good",
        "",
    ),
    "the job of a hub without senders is gone": (
        {"durable_lsn": 0, "waiting_bytes": 3 << 20, "job": SILENT},
        (
            "Spark has been silent for 4 min; 3.0 MiB wait; it was killed, or hangs: see "
            "its log, and start it with gateway spark."
        ),
        "bad",
        "spark",
    ),
    "the job is gone, and only files of other gateways wait": (
        {"waiting_bytes": 3 << 20, "job": SILENT},
        (
            "Spark has been silent for 4 min; 3.0 MiB wait; it was killed, or hangs: see "
            "its log, and start it with gateway spark."
        ),
        "bad",
        "spark",
    ),
    "the job is behind with files of other gateways": (
        {
            "waiting_bytes": 3 << 30,
            "job": Job(up=True, state="running", waiting_seconds=400),
        },
        (
            "Spark runs and is behind: the oldest file that is in no table is 6 min old; "
            "3.0 GiB wait."
        ),
        "warning",
        "spark",
    ),
    "the job of a new gateway fails": (
        {"durable_lsn": 0, "job": Job(state="failed", failures=2, last_failure="no")},
        (
            "The Spark job fails again and again, 2 times since its last batch: no; "
            "nothing waits for it; mend that, and it catches up by itself."
        ),
        "warning",
        "spark",
    ),
    "senders come and send nothing": (
        {"durable_lsn": 0, "connections": 1},
        "Nothing has ever come: 1 sender is connected and sent no event yet.",
        "good",
        "",
    ),
    "it stops": (
        {"stopping": True, "job": SILENT},
        (
            "The gateway is stopping: it takes nothing more, and writes what it has "
            "acknowledged to the spool."
        ),
        "bad",
        "listeners",
    ),
    "it starts on a full disk": (
        {
            "durable_lsn": 0,
            "phase": "what protocols remember is being written for the first time",
            "reasons": {"disk": "the disk of /data/spool is full: 0 B free"},
        },
        (
            "Senders wait, because the disk of /data/spool is full: 0 B free; make room "
            "elsewhere on that disk, and delete nothing in journal/, spool/ or state/."
        ),
        "bad",
        "journal",
    ),
    "it starts": (
        {"phase": "what the last run left is being published (ack: spool)"},
        (
            "The gateway is not ready, senders wait: what the last run left is being "
            "published (ack: spool)."
        ),
        "bad",
        "listeners",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_in_one_sentence(fault: str) -> None:
    """With what waits, how long it may, and what to do; and where on the way it is."""
    facts, sentence, level, stands = FAULTS[fault]
    found = judged(**facts)
    assert found.sentence == sentence
    assert (found.level, found.stands or "") == (level, stands)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_manual_has_a_row_for_every_sentence(fault: str) -> None:
    """docs/symptoms.md says what to do."""
    page = (ROOT / "docs" / "symptoms.md").read_text()
    section = page.partition("## The first sentence")[2].partition("\n## ")[0]
    begins = [
        shown.partition("…")[0].strip()
        for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        for shown in re.findall(r"`([^`]+)`", row)
    ]
    sentence = FAULTS[fault][1]
    assert any(begin and sentence.startswith(begin) for begin in begins)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"uncommitted": 2.2}, "All well: the newest event in the table is 1.8 s old."),
        (
            {"newest": 250},
            "All well: every event is in the table; the newest came 4 min ago.",
        ),
        (
            {"newest": None},
            "All well: every event is in the table; none has come since the start.",
        ),
        (
            {"newest": None, "uncommitted": 3.0},
            "All well: the oldest event on its way to the table is 3.0 s old.",
        ),
        (
            {"job": None, "unpublished": 0.5},
            "All well: the newest event in the spool is 1.8 s old.",
        ),
        (
            {"durable_lsn": 0, "brought_bytes": 3 << 20, "waiting_bytes": 1 << 20},
            "All well: other gateways have brought 3.0 MiB since the start; 1.0 MiB wait.",
        ),
        (
            {"durable_lsn": 0, "brought_bytes": 3 << 20, "waiting_bytes": 0},
            "All well: other gateways have brought 3.0 MiB since the start.",
        ),
    ],
)
def test_all_is_well(facts: dict[str, Any], sentence: str) -> None:
    """Then the first number is how old the newest event in the table is."""
    found = judged(**facts)
    assert found.sentence == sentence
    assert (found.level, found.stands) == ("good", None)


def test_what_stops_senders_comes_first() -> None:
    """All faults at once: they are told in the order in which they are to be mended."""
    all_of_it: dict[str, Any] = {}
    for facts, _, _, _ in FAULTS.values():
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


HUB = "https://hub:7410"
AWAY = Hub(HUB, connected=False, seconds=3 * 3600, why="connection refused")
WAIT = {"uncommitted": 10_800.0, "waiting_bytes": 5 * GiB // 4}


@pytest.mark.parametrize(
    ("facts", "sentence", "level"),
    [
        (
            {"hub": AWAY, **WAIT, "limit_bytes": 20 * GiB, "growth": 600_000.0},
            (
                "The hub, https://hub:7410, has been away for 3 h (connection refused); "
                "1.2 GiB wait, room for 9 h; look at the line, and at the hub."
            ),
            "bad",
        ),
        (
            {"hub": Hub(HUB, connected=False, seconds=30, why="reset"), **WAIT},
            "All well: the newest event at the hub is 1.8 s old.",
            "good",
        ),
        (
            {
                "hub": Hub(HUB, connected=False, why="no such name", denied=True),
                **WAIT,
            },
            (
                "The hub, https://hub:7410, refuses this gateway: no such name; 1.2 GiB "
                "wait; mend what the hub says: the token, the version, or that two "
                "gateways have one name."
            ),
            "bad",
        ),
        (
            {"hub": Hub(HUB, why="the spool holds 20 GiB"), **WAIT},
            (
                "The hub, https://hub:7410, takes nothing now: the spool holds 20 GiB; "
                "1.2 GiB wait."
            ),
            "warning",
        ),
        (
            {"hub": AWAY, "reasons": {"spool": "the spool holds 20 GiB: it is away"}},
            (
                "Senders wait, because the spool holds 20 GiB: it is away; nothing is "
                "lost, and it goes on by itself when the hub does: look at the line, and "
                "at the hub."
            ),
            "bad",
        ),
        (
            {"hub": Hub(HUB, place=2)},
            (
                "All events go their way, but to https://hub:7410, as what is before it in "
                "forward.to is away or refuses them; look at the first hub of forward.to, and "
                "at the line there."
            ),
            "warning",
        ),
        (
            {"hub": Hub(HUB)},
            "All well: every event is at the hub; the newest came 1.8 s ago.",
            "good",
        ),
    ],
)
def test_the_hub(facts: dict[str, Any], sentence: str, level: str) -> None:
    """Where files are forwarded, it stands in the place of tables and job."""
    found = judged(job=None, **facts)
    assert found.sentence == sentence
    assert (found.level, found.goal) == (level, "hub")
    assert found.held_by == ("hub" if "uncommitted" in facts else "sender")


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
def test_what_holds_the_oldest_event(facts: dict[str, Any], holder: Holder) -> None:
    """Whoever has to act next for it."""
    assert judged(**facts).held_by == holder


def test_a_job_that_is_slow_is_not_well() -> None:
    """However long its batches take; but a `spark.trigger` of minutes is waited for."""
    slow = Job(up=True, state="running", batch_seconds=200)
    assert judged(job=slow, uncommitted=300).level == "warning"
    assert judged(job=slow, uncommitted=300, trigger_seconds=300).level == "good"


def test_the_age_counts_from_the_oldest() -> None:
    """Whether it is stored already or waits to be."""
    assert judged().age_seconds == 0
    assert judged(uncommitted=4.0, disk_wait=1.0).age_seconds == 4
    assert judged(uncommitted=4.0, disk_wait=9.0).age_seconds == 9


def test_room_is_that_of_whatever_ends_first() -> None:
    """Spool or disk; what does not grow lasts for ever."""
    limits = {"waiting_bytes": 100, "limit_bytes": 1100, "growth": 10.0}
    assert judged(**limits, free_bytes=5000).room_seconds == 100
    assert judged(**limits, free_bytes=500).room_seconds == 50
    assert judged(**{**limits, "growth": -1.0}).room_seconds is None
    assert judged(**{**limits, "growth": None}).room_seconds is None
    assert judged(**{**limits, "limit_bytes": 50}).room_seconds == 0
