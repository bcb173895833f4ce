"""What freshness is judged by, as a storage and its listeners have it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gateway.daemon.facts import Growth, collect
from gateway.daemon.lake import LakeWatch
from gateway.event import Batch, Origin, Stored

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def collected(tmp_path: Path, after: str, uploads: Any = None) -> Any:
    """20 events came 8 s ago, 15 of them are published, none is committed."""
    watch = LakeWatch("gw", tmp_path / "lake", tmp_path / "spool", lambda: 1008.0)
    watch.begin(0)
    for first, listener in ((1, "beats"), (16, "games")):
        origin = Origin("plain", listener, "s", "peer")
        batch = Batch(origin, 1_000_000_000 + first * 100_000, 5, b"", 0)
        watch.durable([Stored(batch, first)])
    settings: Any = SimpleNamespace(
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
            backlog_bytes=7,
            levels=SimpleNamespace(
                spool=SimpleNamespace(bytes=100),
                archive=SimpleNamespace(bytes=50),
                free_bytes=500,
            ),
        ),
    )  # fmt: skip
    listeners: Any = [
        SimpleNamespace(
            name="beats",
            address="tcp:1",
            connections=2,
            certificate_ends=NOW + timedelta(days=3),
        ),
        SimpleNamespace(
            name="games", address="tcp:2", connections=1, certificate_ends=None
        ),
    ]
    return collect(
        settings, storage, watch, listeners, 4.0, phase=None, stopping=False, now=NOW
    )


def test_with_a_job(tmp_path: Path) -> None:
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
    assert (facts.waiting_bytes, facts.free_bytes, facts.growth) == (107, 550, 4.0)
    assert (facts.roll_seconds, facts.disk_wait, facts.durable_lsn) == (4.0, 3.0, 20)
    assert (facts.connections, facts.reasons) == (3, {"disk": "full"})
    assert facts.addresses == {"beats": "tcp:1", "games": "tcp:2"}
    assert facts.certificates == {"beats": 3 * 86400}


def test_without_a_job(tmp_path: Path) -> None:
    """With `spool.after: keep` they are on their way to a spool file."""
    facts = collected(tmp_path, "keep")
    assert (facts.job, facts.uncommitted) == (None, None)
    assert round(facts.unpublished, 1) == 6.4
    assert facts.listeners["beats"] == 0
    assert round(facts.newest, 1) == 7.9
    assert facts.free_bytes == 500


def test_with_a_bucket(tmp_path: Path) -> None:
    """They are on their way there; copies of what is there make room here."""
    uploads = SimpleNamespace(problem="503")
    facts = collected(tmp_path, "keep", uploads)
    assert facts == collected(tmp_path, "archive", uploads)
    assert (facts.job, facts.bucket, facts.bucket_error) == (None, True, "503")
    assert round(facts.unpublished, 1) == 6.4
    assert facts.free_bytes == 550


def test_growth_is_that_of_the_last_minute() -> None:
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
