"""What the daemon counts while it runs, as /metrics has it."""

import errno
from pathlib import Path
from typing import Any

from deadlines import ROOT
from gateway.admin.metrics import Metrics
from gateway.spark.commit.ledger import Ledger
from gateway.spark.run.health import Health, Waiting
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
