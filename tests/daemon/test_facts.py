"""What freshness is judged by, as a storage and its listeners have it."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.admin.freshness import Consumer, Crl, Refused, Reload
from gateway.admin.status import ReloadStatus
from gateway.config.revocation import CrlEnd
from gateway.daemon.facts import Flawed, Growth, Visits, collect
from gateway.daemon.lake import LakeWatch
from gateway.event import Batch, Origin, Stored
from gateway.net.rejection_log import Recent
from gateway.sdk.protocol import Statistics
from gateway.store.node.orphans import Orphan
from gateway.store.readers.audited import Audited
from gateway.store.readers.consumers import Behind
from gateway.store.spool import Published

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def collected(tmp_path: Path, after: str, uploads: Any = None) -> Any:
    """20 events came 8 s ago, 15 of them are published, none is committed."""
    watch = LakeWatch(
        "gw",
        tmp_path / "lake",
        tmp_path / "spool",
        lambda: 1008.0,
        has_job=after != "keep",
        elsewhere=uploads is not None,
        is_ours=lambda _: True,
    )
    watch.begin(0)
    for first, listener in ((1, "beats"), (16, "games")):
        origin = Origin("plain", listener, "s", "peer")
        batch = Batch(origin, 1_000_000_000 + first * 100_000, 5, b"", 0)
        watch.durable([Stored(batch, first)])
    settings: Any = SimpleNamespace(
        node="gw",
        spool=SimpleNamespace(after=after, roll_interval=2.0, max_bytes=1000),
        journal=SimpleNamespace(stall_after=5.0),
        spark=SimpleNamespace(trigger=30.0),
    )
    storage: Any = SimpleNamespace(
        journal=SimpleNamespace(
            reasons={"disk": "full"}, disk_wait_seconds=3.0, roll_factor=2.0,
            durable_lsn=20,
        ),
        spool=SimpleNamespace(
            uploads=uploads,
            published_lsn=15,
            publish_error="OSError: no space",
            publish_silence=None,
            consumers=SimpleNamespace(
                behind={
                    "mine": Behind(held_files=2, held_bytes=9, oldest_seconds=60),
                    "other": Behind(missed_files=1, problem="other is damaged"),
                }
            ),
            troubles=["the mark in state/ can not be written: no space"],
            backlog_bytes=7,
            arrived_bytes=lambda: 40,
            room=SimpleNamespace(reserved_bytes=30),
            levels=SimpleNamespace(
                spool=SimpleNamespace(bytes=100),
                archive=SimpleNamespace(bytes=50),
                free_bytes=500,
            ),
        ),
        bucket_looks=SimpleNamespace(problem="the bucket can not be listed"),
        checkpoint=SimpleNamespace(trouble="state/gw can not be written yet"),
        lost_ends={},
        twins=[],
        opened_at=0.0,
        orphans=[Orphan("old", remembers=["pravega"], problem="format 9")],
    )  # fmt: skip
    listeners: Any = [
        SimpleNamespace(
            name="beats",
            address="tcp:1",
            connections=2,
            certificate_ends=NOW + timedelta(days=3),
            crl_end=CrlEnd(NOW + timedelta(days=2), refuses=True),
        ),
        SimpleNamespace(
            name="games",
            address="tcp:2",
            connections=1,
            certificate_ends=None,
            crl_end=None,
        ),
    ]
    return collect(
        settings, storage, watch, listeners, 4.0, phase=None, stopping=False, now=NOW,
        reload=ReloadStatus(NOW.timestamp() - 90, successful=False, problems=["a", "b"]),
        lost_events=3, flawed=(1, 2),
        refused={"beats": Refused(3, 300, "10.0.0.7:1", "version 9")},
        sections=[Statistics("game", "", [], ["http://game does not answer"])],
        admin=SimpleNamespace(  # type: ignore[arg-type]
            name="admin",
            certificate_ends=NOW + timedelta(days=9),
            crl_end=CrlEnd(NOW, refuses=False),
        ),
    )  # fmt: skip


def test_with_a_job(tmp_path):
    """Events are on their way to a table; the archive makes room when there is none."""
    facts = collected(tmp_path, "archive")
    assert round(facts.uncommitted, 1) == 7.9
    assert round(facts.unpublished, 1) == 6.4
    assert {name: round(age, 1) for name, age in facts.listeners.items()} == {
        "beats": 7.9,
        "games": 6.4,
    }
    assert facts.newest is None
    assert facts.job is not None
    assert facts.trigger_seconds == 30
    assert (facts.waiting_bytes, facts.free_bytes, facts.growth) == (107, 520, 4.0)
    assert facts.brought_bytes == 40
    assert (facts.roll_seconds, facts.disk_wait, facts.durable_lsn) == (4.0, 3.0, 20)
    assert (facts.connections, facts.reasons) == (3, {"disk": "full"})
    assert facts.addresses == {"beats": "tcp:1", "games": "tcp:2"}
    assert facts.certificates == {"beats": 3 * 86400, "admin": 9 * 86400}
    assert facts.crls == {"beats": Crl(2 * 86400), "admin": Crl(0.0, refuses=False)}
    assert "admin" not in facts.listeners


def test_without_a_job(tmp_path):
    """With `spool.after: keep` they are on their way to a spool file."""
    facts = collected(tmp_path, "keep")
    assert (facts.job, facts.uncommitted) == (None, None)
    assert round(facts.unpublished, 1) == 6.4
    assert facts.listeners["beats"] == 0
    assert round(facts.newest, 1) == 7.9
    assert facts.free_bytes == 470


def test_with_a_bucket(tmp_path):
    """They are on their way there; copies of what is there make room here."""
    uploads = SimpleNamespace(problem="503")
    facts = collected(tmp_path, "keep", uploads)
    assert facts == collected(tmp_path, "archive", uploads)
    assert (facts.job, facts.bucket, facts.bucket_error) == (None, True, "503")
    assert round(facts.unpublished, 1) == 6.4
    assert facts.free_bytes == 520


def test_what_is_wrong_and_stops_no_event(tmp_path):
    """Of the last reload, the spool, state, nodes, protocols."""
    facts = collected(tmp_path, "archive")
    assert facts.reload == Reload(90, applied=True, problems=["a", "b"])
    assert (facts.publish_error, facts.lost_events) == ("OSError: no space", 3)
    assert (facts.flawed, facts.refused["beats"].count) == ((1, 2), 3)
    assert facts.consumers == [
        Consumer("other", 1, missed=True),
        Consumer("mine", 2, 9, 60, has_come=False),
    ]
    assert facts.troubles == [
        "what node old left in its journal can not be published: format 9",
        (
            "this node is gw, so nobody serves what pravega remembered for node old: set "
            "node to old, or remove state/old"
        ),
        "the mark in state/ can not be written: no space",
        "other is damaged",
        "the bucket can not be listed",
        "state/gw can not be written yet",
        "http://game does not answer",
    ]


@pytest.mark.parametrize(("hours", "late"), [(1.9, False), (2.1, True)])
def test_an_audit_that_does_not_come_is_told(tmp_path, hours, late):
    """One may be missed; and why the last attempt came to no end."""
    at = NOW.timestamp() - hours * 3600
    last = Audited(every=3600.0, at=at, unfinished="the bucket is away")
    last.write(tmp_path / "lake")
    told = collected(tmp_path, "archive").audit_late
    assert (told is not None) == late
    if told is not None:
        assert told.startswith("no audit has come to its end for 2 h")
        assert told.endswith("the last attempt ended because the bucket is away")


def visit(name: str, events: int, **rejected: int) -> Any:
    """A listener that took so many, and turned away so many, ever."""
    return SimpleNamespace(
        name=name, traffic=SimpleNamespace(events=events), rejected=Counter(rejected)
    )


def test_who_turns_all_away():
    """A listener that took no event for minutes, while senders came and were refused."""
    last = [
        Recent(name, peer, "version 9", None, 0, 1)
        for peer in ("10.0.0.7:1", "10.0.0.8:1")
        for name in ("beats", "games", "idle", "two", "gone")
    ]
    visits = Visits()
    visits.note(0, [visit("beats", 5), visit("games", 5), visit("two", 0)])
    assert visits.refused(last) == {}
    for second in range(5, 400, 5):
        visits.note(
            second,
            [
                visit("beats", 5 + min(20, second), protocol=second),
                visit("games", 5 + second, protocol=second),
                visit("idle", 0, idle=second),
                visit("two", 0, protocol=second),
                visit("two", second),
            ],
        )
        told = visits.refused(last)
        assert told.keys() <= {"beats"}
        assert bool(told) is (second >= 320), second
    assert told["beats"] == Refused(300, 300, "10.0.0.7:1", "version 9")
    assert visits.refused([]) == {}


def test_an_address_that_has_too_many_is_told_of():
    """Though the listener takes events, of others and of those that got in."""
    key = "limits.connections_per_peer"
    last = [
        Recent("beats", "10.0.0.9:1", "version 9", None, 0, 1),
        Recent("beats", "10.0.0.7:1", "too many connections", key, 0, 1),
        Recent("games", "10.0.0.7:1", "too many connections", key, 0, 1),
    ]
    visits = Visits()
    for second in range(0, 65, 5):
        visits.note(
            second,
            [
                visit("beats", second, connections_per_peer=second, protocol=9),
                visit("games", second, connections_per_peer=9, protocol=second),
            ],
        )
    told = visits.refused(last)
    assert told == {"beats": Refused(60, 60, "10.0.0.7:1", "too many connections", 60)}


def test_flawed_events_are_counted_for_some_minutes():
    """The newest ones."""

    def file(first: int, last: int, **flaws: int) -> Published:
        return Published(Path("x"), first, last, Counter(flaws), 0.1)

    flawed = Flawed()
    flawed.note(0, file(1, 10, json=9))
    flawed.note(100, file(11, 20, json=1))
    assert flawed.lately(200) == (10, 20)
    assert flawed.lately(301) == (1, 10)
    assert flawed.lately(500) == (0, 0)


def test_growth_is_that_of_the_last_minute():
    """Not known at once; what was before is forgotten."""
    growth = Growth()
    assert growth.rate is None
    growth.note(0, 1000)
    assert growth.rate is None
    growth.note(5, 2000)
    assert growth.rate == 200
    for second in range(10, 200, 5):
        growth.note(second, 2000)
    assert growth.rate == 0
    growth.note(200, 0)
    rate = growth.rate
    assert rate is not None
    assert rate < 0
