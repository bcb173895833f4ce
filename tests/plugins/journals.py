"""A journal with its thread, on a disk that fails or hangs when a test says so."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.python.failure import Failure

from gateway.event import Batch, Stored
from gateway.sdk.disk import File
from gateway.store.journal import Journal, Log, Segment, segment
from gateway.store.system.disk import RealDisk
from incarnations import A
from sections import journal_settings


class FailingDisk(RealDisk):
    """The real disk, with a list of the calls to fail next; errno 0 lets one pass.

    Its files are synced only while `answers` is set; `asked`: such a sync was begun.
    """

    def __init__(self) -> None:
        self.fail: list[tuple[str, int]] = []
        self.created: list[str] = []
        self.answers, self.asked = threading.Event(), threading.Event()
        self.answers.set()

    def create(self, path: Path) -> File:
        self.created.append(path.name)
        return _FailingFile(super().create(path), self)


class _FailingFile:
    def __init__(self, file: File, disk: FailingDisk) -> None:
        self._file, self._disk = file, disk
        self.truncate, self.close = file.truncate, file.close
        self.rewrite = file.rewrite
        self.broken = False

    def _maybe_fail(self, what: str) -> None:
        if self._disk.fail and self._disk.fail[0][0] == what:
            number = self._disk.fail.pop(0)[1]
            if number:
                raise OSError(number, "the test says no")

    def write(self, chunks: Sequence[bytes]) -> None:
        self._maybe_fail("write")
        self._file.write(chunks)

    def sync(self) -> None:
        assert not self.broken, "synced again after a failed sync"
        self._disk.asked.set()
        assert self._disk.answers.wait(60)
        try:
            self._maybe_fail("sync")
        except OSError:
            self.broken = True
            raise
        self._file.sync()


class Running:
    """A journal with its thread, and the test as its reactor, and as its *clock*."""

    def __init__(
        self,
        directory: Path,
        turns: Any,
        clock: Callable[[], float] | None = None,
        **settings: Any,
    ) -> None:
        self.turns, self.directory = turns, directory
        self.disk = FailingDisk()
        self.sealed: list[Segment] = []
        self.fatal: list[str] = []
        self.failures: list[str] = []
        self.commits: list[int] = []
        """The events of each group."""
        self.durable: list[Batch] = []
        both: Any = {} if clock is None else {"clock": clock, "wall_clock": clock}
        self.journal = Journal(
            Log(directory, self.disk, 1, A, **both),
            reactor=turns,
            **journal_settings(commit_interval=0.0, **settings),
            on_sealed=self.sealed.append,
            on_fatal=self.fatal.append,
            on_failure=self.failures.append,
            on_commit=lambda _, events, size: self.commits.append(events),
            on_durable=lambda stored: self.durable.extend(one.batch for one in stored),
            clock=clock or time.monotonic,
        )
        self.stored: list[Stored] = []
        self.failed: list[Failure] = []

    def submit(self, *batches: Batch) -> None:
        for batch in batches:
            done = self.journal.submit(batch)
            done.addCallbacks(self.stored.append, self.failed.append)

    def until_stored(self, count: int) -> None:
        self.turns.run(lambda: len(self.stored) >= count)

    def until_durable(self, lsn: int) -> None:
        self.turns.run(lambda: self.journal.durable_lsn == lsn)

    def stop(self) -> None:
        self.disk.answers.set()
        self.turns.wait(self.journal.stop())


def on_disk(running: Running) -> list[bytes]:
    found: list[bytes] = []
    for path in sorted(running.directory.glob("*.journal")):
        found += [s.batch.body for s in segment.Scan(path.read_bytes())]
    return found
