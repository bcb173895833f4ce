"""A real file system that is full, really, and then has room again."""

import contextlib
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from twisted.internet.defer import Deferred, maybeDeferred

from gateway.config import model
from gateway.event import Batch, Origin, Rows
from gateway.sdk.disk import Disk
from gateway.store.directories import Directories
from gateway.store.journal import Log
from gateway.store.journal import journal as journal_module
from gateway.store.spool import spool as spool_module
from gateway.store.storage import OpenedStorage, Settings, StorageCallbacks
from gateway.store.system.disk import RealDisk
from gateway.store.system.machine import Machine
from gateway_testkit.reactor import QueuedReactor
from incarnations import A

ORIGIN = Origin("plain", "l", "s-1", "[::1]:9")


@pytest.fixture
def small(tmp_path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(tmp_path)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no right to mount a small file system: {done.stderr.strip()}")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch) -> None:
    """What is tried again every second is tried again soon."""
    monkeypatch.setattr(journal_module, "_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(spool_module, "_TICK_SECONDS", 0.02)


class FullMeanwhile(RealDisk):
    """Somebody else takes the room between the question and the write."""

    def free(self, path: Path) -> int:
        return 1 << 40


class Running:
    """The storage as the daemon has it; the test is its reactor."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.directories = Directories.under(root)
        self.reactor = QueuedReactor()
        self.run = self.reactor.run
        self.stored: dict[int, bytes] = {}
        self.submitted = 0
        self.fatal: list[str] = []
        self._random = random.Random(1)
        opened = OpenedStorage(
            settings=Settings(
                node="gw",
                directories=self.directories,
                spool=model.Spool.model_construct(roll_interval=0.05),
            ),
            machine=Machine(disk),
            reactor=self.reactor,
            decoders={"plain": split},
            callbacks=StorageCallbacks(fatal=self.fatal.append),
            remembering=False,
            in_thread=maybeDeferred,
        )
        self.storage = opened.recover({})
        self.journal, self.spool = self.storage.journal, self.storage.spool
        self.storage.start()

    def submit(self) -> None:
        """A batch of 128 KiB that become 64 in a file, four events."""
        events = [self._random.randbytes(2**14).hex().encode() for _ in range(4)]
        body = b",".join(events)
        self.submitted += 1
        batch = Batch(ORIGIN, 5_000_000, 4, body, len(body))
        self.journal.submit(batch).addCallback(self._keep)

    def _keep(self, stored: Any) -> None:
        self.stored[stored.lsn] = stored.batch.body

    def stop(self) -> None:
        self.reactor.wait(Deferred.fromCoroutine(self.storage.stop()))

    def published(self) -> dict[int, bytes]:
        """lsn to payload, of what is public; fails on doubles."""
        return self._read(list(self.directories.spool.glob("events-*.parquet")))

    def take(self) -> dict[int, bytes]:
        """The same, removed."""
        files = list(self.directories.spool.glob("events-*.parquet"))
        rows = self._read(files)
        for path in files:
            path.unlink()
        return rows

    def _read(self, files: list[Path]) -> dict[int, bytes]:
        rows: dict[int, bytes] = {}
        for path in files:
            table = pq.read_table(path, columns=["lsn", "payload"])
            mine = dict(zip(*(c.to_pylist() for c in table.columns), strict=True))
            assert not rows.keys() & mine.keys()
            rows |= mine
        return rows


def split(body: bytes) -> Rows:
    return Rows(body.split(b","), content_type="text/plain")


def fill(path: Path) -> None:
    """Write until there is no more room."""
    with path.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(2**14))


def assert_all_is_there(running: Running, before: dict[int, bytes]) -> None:
    rows = before | running.published()
    assert len(running.stored) == running.submitted
    assert sorted(rows) == list(range(1, running.submitted * 4 + 1))
    for lsn, body in running.stored.items():
        assert b",".join(rows[n] for n in range(lsn, lsn + 4)) == body
    assert not running.fatal
    left = {path.name for path in running.directories.journal_of("gw").iterdir()}
    assert left == {"catalog"}


@pytest.mark.parametrize("at_once", [1, pytest.param(50, marks=pytest.mark.long), 300])
def test_the_journal_leaves_room_for_its_files(small, at_once):
    """Where Spark takes nothing, the journal stops before the disk is full, says so,
    publishes what it has, and goes on when files are taken: however much waits."""
    running = Running(small, RealDisk())
    while not running.journal.full:
        for _ in range(at_once):
            running.submit()
        count = running.submitted
        running.run(lambda n=count: len(running.stored) == n or running.journal.full)
        running.run(lambda: running.reactor.idle)
    why = str(running.journal.why_full)
    assert "No space left" in why or "the disk of" in why
    running.run(lambda: running.spool.published_lsn == 4 * len(running.stored))
    assert running.published()
    taken: dict[int, bytes] = {}
    while len(running.stored) < running.submitted or running.journal.full:
        running.reactor.turn()
        running.run(lambda: running.spool.published_lsn == 4 * len(running.stored))
        taken |= running.take()
    # Those that came last take room as well, which the next ones need.
    running.run(lambda: running.spool.published_lsn == 4 * len(running.stored))
    taken |= running.take()
    for _ in range(10):
        running.submit()
    running.stop()
    assert_all_is_there(running, taken)


@pytest.mark.parametrize("disk", [RealDisk(), FullMeanwhile()])
def test_nothing_is_acknowledged_on_a_full_disk_and_all_is_afterwards(small, disk):
    """Somebody else fills the disk: what is submitted waits, and is stored when there
    is room."""
    running = Running(small, disk)
    for _ in range(10):
        running.submit()
    running.run(lambda: len(running.stored) == 10)
    running.run(lambda: running.spool.published_lsn == 40)
    fill(small / "ballast")
    for _ in range(20):
        running.submit()
    holds = running.journal._holds
    running.run(lambda: "No space left" in holds.get("commit", ""))
    if not isinstance(disk, FullMeanwhile):
        running.run(lambda: "the disk of" in holds.get("disk", ""))
    assert running.journal.why_full in holds.values()
    assert len(running.stored) < 30
    (small / "ballast").unlink()
    running.run(lambda: len(running.stored) == 30)
    running.run(lambda: not running.journal.full)
    running.stop()
    assert_all_is_there(running, {})


def test_a_full_disk_does_not_prevent_a_start(small):
    """The daemon comes up on a full disk, so that it can say so and heal."""
    first = Running(small, RealDisk())
    for _ in range(4):
        first.submit()
    first.run(lambda: len(first.stored) == 4)
    first.stop()
    log = Log(first.directories.journal_of("gw"), RealDisk(), 17, A)
    log.commit([Batch(ORIGIN, 1, 4, b"a,b,c,d", 7)])
    fill(small / "ballast")
    second = Running(small, RealDisk())
    second.run(lambda: "the disk of" in str(second.journal.why_full))
    (small / "ballast").unlink()
    second.run(lambda: second.spool.published_lsn == 20)
    second.run(lambda: not second.journal.full)
    second.submit()
    second.run(lambda: second.stored)
    assert list(second.stored) == [21]
    second.stop()
    assert sorted(second.published()) == list(range(1, 25))
