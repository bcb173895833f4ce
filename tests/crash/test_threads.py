"""Journal, spool and checkpoint with all their threads, and crashes at any moment.

That a segment goes only when every memory has been saved with what is in it rests on
the order in which three threads call the reactor (`gateway.store.checkpoint`).
"""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from gateway.sdk.interfaces import NotStored
from gateway.store import checkpoint
from gateway.store.storage import OpenedStorage, Settings, StorageCallbacks
from gateway.store.system.machine import Machine
from gateway_testkit.disk import RecordingDisk
from gateway_testkit.reactor import QueuedReactor
from sections import journal_settings


class Serial:
    """One call at a time, for what is not made for threads."""

    def __init__(self, what: Any, lock: threading.RLock | None = None) -> None:
        self.what, self.lock = what, lock or threading.RLock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.what, name)
        if not callable(found):
            return found

        def call(*args: Any) -> Any:
            with self.lock:
                made = found(*args)
            return Serial(made, self.lock) if name in ("create", "open") else made

        return call


class Running:
    """The storage as the daemon has it; the test is its reactor."""

    def __init__(self, crash: Any, **settings: Any) -> None:
        self.recorded: RecordingDisk = crash.new_disk(remembers=True)
        disk = Serial(self.recorded)
        self.reactor = QueuedReactor()
        self.run = self.reactor.run
        self.fatal: list[str] = []
        self.acknowledged = 0
        ledger = crash.Ledger()
        self.senders = crash.Senders(disk, ledger)
        sections = journal_settings(commit_interval=0.0, roll_interval=1e6, **settings)
        opened = OpenedStorage(
            settings=Settings(
                node="gw",
                directories=crash.directories,
                journal=sections["settings"],
                spool=sections["rolls"],
                acknowledge_when_published=sections["acknowledge_when_published"],
                checkpoint_bytes=1,
            ),
            machine=Machine(disk, crash.clock),
            reactor=self.reactor,
            decoders={"plain": crash.split},
            callbacks=StorageCallbacks(fatal=self.fatal.append),
            remembering=True,
            in_thread=self.reactor.in_thread,
        )
        self.storage = opened.recover({"ledger": ledger})
        self.storage.start()

    def submit(self, count: int) -> None:
        done = self.storage.journal.submit(self.senders.batch(count))
        done.addCallback(self.stored).addErrback(lambda why: why.trap(NotStored))

    def stored(self, stored: Any) -> None:
        self.acknowledged += 1
        self.senders.acknowledge(stored)

    def stop(self) -> None:
        self.reactor.wait(Deferred.fromCoroutine(self.storage.stop()))


@pytest.mark.parametrize("acknowledge_when_published", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_no_thread_is_too_early(
    crash, quick_files, monkeypatch, seed, acknowledge_when_published
):
    """Whatever the threads do meanwhile, a crash at any step forgets nothing."""
    monkeypatch.setattr(checkpoint, "_SHARE", 0)
    chance = random.Random(seed)
    running = Running(
        crash,
        roll_events=3,
        segment_bytes=700,
        acknowledge_when_published=acknowledge_when_published,
    )
    submitted = 0
    for _ in range(8):
        for count in chance.choices((0, 0, 1, 2, 3), k=chance.randrange(1, 5)):
            running.submit(count)
            submitted += 1
        if not acknowledge_when_published:
            running.run(lambda n=submitted: running.acknowledged >= n - 2)  # type: ignore[misc]
    running.stop()
    assert running.acknowledged == submitted
    assert not running.fatal
    assert running.recorded.names(crash.journal) == ["catalog"]
    crash.check_all(
        crash.crashed(running.recorded, most=4, every=crash.step, begin=seed)
    )
    crash.check_all([("the end", running.recorded)])
