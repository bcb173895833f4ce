"""Journal, spool and checkpoint with all their threads, and crashes at any moment.

That a segment goes only when every memory has been saved with what is in it rests on
the order in which three threads call the reactor (`gateway.store.checkpoint`).
"""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from gateway.interfaces import NotStored
from gateway.store import checkpoint
from gateway.store.checkpoint import Checkpoint
from gateway.store.journal import Journal, Settings
from gateway.store.spool import Settings as SpoolSettings
from gateway.store.spool import Spool
from gateway.testing.disk import RecordingDisk


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
    """The three of them; the test is their reactor."""

    def __init__(self, crash: Any, **settings: Any) -> None:
        self.recorded: RecordingDisk = crash.new_disk(remembers=True)
        disk = Serial(self.recorded)
        self.gateway = crash.Gateway(disk)
        self.calls: queue.Queue[tuple[Callable[..., Any], tuple[Any, ...]]] = (
            queue.Queue()
        )
        self.fatal: list[str] = []
        self.acknowledged = 0
        self.checkpoint = Checkpoint(
            crash.state,
            {"ledger": self.gateway.ledger},
            disk,
            Clock(),
            self.in_thread,
            most_bytes=1,
        )
        self.checkpoint.recover([], [])
        self.spool = Spool(
            crash.spool,
            crash.archive,
            self.gateway.publisher,
            SpoolSettings(),
            disk,
            self,
            published_lsn=0,
            on_done=self.checkpoint.published,
        )
        self.journal = Journal(
            self.gateway.log,
            Settings(commit_interval=0.0, roll_interval=1e6, **settings),
            self,
            on_sealed=self.spool.publish,
            on_fatal=self.fatal.append,
        )
        self.journal.start()
        self.spool.start(self.journal, [])
        self.checkpoint.start()

    def callFromThread(self, f: Callable[..., Any], *args: Any) -> None:
        self.calls.put((f, args))

    def in_thread(self, call: Callable[..., Any], *args: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()

        def run() -> None:
            self.callFromThread(done.callback, call(*args))

        threading.Thread(target=run, daemon=True).start()
        return done

    def submit(self, count: int) -> None:
        done = self.journal.submit(self.gateway.batch(count))
        done.addCallback(self.stored).addErrback(lambda why: why.trap(NotStored))

    def stored(self, stored: Any) -> None:
        self.acknowledged += 1
        self.gateway.acknowledge(stored)

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            f, args = self.calls.get(timeout=20)
            f(*args)

    def stop(self) -> None:
        for part in (self.journal, self.spool, self.checkpoint):
            ended: list[None] = []
            part.stop().addCallback(ended.append)
            self.run(lambda ended=ended: bool(ended))  # type: ignore[misc]


@pytest.mark.parametrize("acknowledge_when_published", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_no_thread_is_too_early(
    crash: Any,
    quick_files: None,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    acknowledge_when_published: bool,
) -> None:
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
    crash.survey(crash.wrecks(running.recorded, most=4, every=3, begin=seed))
    crash.survey([("the end", running.recorded)])
