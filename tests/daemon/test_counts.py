"""What the daemon counts while it runs, and when events came, as /metrics has it."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from deadlines import ROOT
from gateway.admin.metrics import Metrics
from gateway.daemon import statistics
from gateway.daemon.marks import Marks
from gateway.spark.commit.ledger import Ledger
from gateway.spark.run.health import Health, Waiting
from gateway.store.digests import NOTHING, Link
from gateway.store.journal.log import Log
from gateway.store.names import Life
from memory_daemon import listener


def test_a_disk_that_fails(start, monkeypatch):
    """Each failed write of the journal is counted; its batch is acknowledged later."""
    commit = Log.commit
    faults = [OSError(errno.EIO, "Input/output error")]

    def fails_once(log: Log, batches: Any) -> int:
        if faults:
            raise faults.pop()
        return commit(log, batches)

    monkeypatch.setattr(Log, "commit", fails_once)
    daemon = start(listener("beats", "lumberjack", 5044))
    peer = daemon.reactor.peer(5044)
    peer.send(b"2W\0\0\0\1" + b"2J\0\0\0\1\0\0\0\2{}")
    journal = daemon.running.opened.storage.journal
    journal.start()
    daemon.reactor.run(until=peer.transport.value)
    assert peer.transport.value() == b"2A\0\0\0\1"
    counted = daemon.running.opened.metrics.registry.get_sample_value(
        "gateway_journal_failures_total", {"operation": "write"}
    )
    assert counted == 1
    peer.leave()
    daemon.reactor.wait(journal.stop())


def test_what_the_job_has_committed(start):
    """As its ledger names events: node, incarnation, lsn.  What is in the tables waits for
    them no more.
    """
    daemon = start(listener("beats", "lumberjack", 5044))
    opened = daemon.running.opened
    peer = daemon.reactor.peer(5044)
    peer.send(b"2W\0\0\0\1" + b"2J\0\0\0\1\0\0\0\2{}")
    journal = opened.storage.journal
    journal.start()
    daemon.reactor.run(until=peer.transport.value)
    own = Life(opened.settings.node, opened.storage.lineage.now.id)

    def committed(life: Life) -> int:
        ledger = Ledger()
        ledger.committed.add(life, 1, 1)
        health = Health(opened.settings.data_dir / "lake")
        health.tables(ledger, Waiting(0, None))
        list(opened.lake.statistics())
        return opened.lake.committed_lsn

    assert committed(own._replace(incarnation="another")) == 0
    assert committed(own) == 1
    peer.leave()
    daemon.reactor.wait(journal.stop())


def test_whatever_can_be_counted_is():
    """No metric, and no alert on it, waits for a call that nobody makes."""
    rooms = ("admin", "daemon")
    source = "".join(
        path.read_text()
        for each in rooms
        for path in (ROOT / "gateway" / each).rglob("*.py")
    )
    for name in vars(Metrics):
        if not name.startswith("_"):
            assert f"etrics.{name}" in source or f"self.{name}(" in source, name


def test_what_senders_wait_for(start):
    """Of several things one after the other the one that it is now, until it takes events."""
    daemon = start(listener("beats", "lumberjack", 5044), ready=False, ack="spool")
    running, storage = daemon.running, daemon.running.opened.storage
    handing = storage._handing
    handing._left.add(Path("left"))

    def reason() -> str:
        return str(running.status().not_ready_reason)

    assert "for the first time" in reason()
    storage.checkpoint.known.callback(None)
    assert "is being published" in reason()
    handing._left.clear()
    running.serve()
    assert running.status().not_ready_reason is None


def test_what_is_published_is_durable():
    """Also before the reactor has heard from the journal's thread that it is."""
    level = SimpleNamespace(files=1, bytes=10)
    storage: Any = SimpleNamespace(
        journal=SimpleNamespace(durable_lsn=3, why_full=None, oldest_wait_seconds=0.0),
        spool=SimpleNamespace(
            uploads=None,
            published_lsn=5,
            levels=SimpleNamespace(spool=level, archive=level),
        ),
        journal_bytes=0,
        link=Link(5, NOTHING),
    )
    stores = statistics.of_storage(storage, 1000)
    assert (stores.journal.durable_lsn, stores.spool.published_lsn) == (5, 5)


def test_the_oldest_behind_an_lsn():
    """Marks of one second are one; those that arrived are forgotten."""
    marks = Marks()
    marks.add(10, 100.0, 100.2)
    marks.add(20, 100.9, 101.5)
    marks.add(30, 101.0, 103.0)
    assert len(marks) == 2
    assert marks.oldest_behind(0) == marks.oldest_behind(19) == 100
    assert marks.oldest_behind(20) == marks.oldest_behind(29) == 101
    assert marks.oldest_behind(30) is None
    assert marks.newest_until(5) is None
    assert marks.newest_until(20) == 101.5
    marks.forget(20)
    assert marks.newest_until(20) == marks.newest == 101.5
    marks.forget(30)
    assert (marks.newest, marks.oldest_behind(0)) == (103, None)


def test_they_are_bounded():
    """Ages stay right, or become greater; nothing younger is told."""
    marks = Marks(most=8)
    for second in range(1000):
        marks.add(second + 1, 2.0 * second, 2.0 * second)
    assert len(marks) <= 8
    for second in range(1000):
        told = marks.oldest_behind(second)
        assert told is not None
        assert told <= 2.0 * second
    assert marks.oldest_behind(999) is not None


def test_a_clock_that_is_set_back():
    """What comes then is as old as it says, not as what came before."""
    marks = Marks()
    marks.add(1, 5000.0, 5000.0)
    marks.add(2, 1400.0, 1400.5)
    assert marks.oldest_behind(1) == 1400.0
    assert marks.newest_until(2) == 1400.5
