"""A real file system that is full, really, and then has room again."""

import contextlib
import random
import subprocess
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from twisted.internet.defer import Deferred, maybeDeferred, succeed

from gateway.config import model
from gateway.event import Batch, Origin, Rows, Stored
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
ZIPPED = Origin("zipped", "l", "s-2", "[::1]:9")


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


class Large:
    """A memory with much in it."""

    def __init__(self, size: int) -> None:
        self.data = random.Random(2).randbytes(size)
        self.replayed = 0

    def restore(self, data: bytes) -> None:
        self.data = data

    def replay(self, stored: Stored) -> None:
        self.replayed += 1

    def start(self) -> None:
        """Nothing to submit."""

    def stop(self) -> None:
        """Nothing to stop."""

    def snapshot(self) -> Deferred[bytes]:
        return succeed(self.data)


class Hasty(Large):
    """A memory that has a change at once, and whose snapshot waits until it is durable."""

    def __init__(self) -> None:
        super().__init__(0)
        self.has, self.durable = 0, 0
        self._asked: list[Deferred[bytes]] = []

    def replay(self, stored: Stored) -> None:
        self.has = self.durable = max(self.durable, int(stored.batch.body[:8]))

    def stored(self, stored: Stored) -> None:
        self.durable = int(stored.batch.body[:8])
        asked, self._asked = self._asked, []
        for done in asked if self.durable == self.has else ():
            done.callback(b"%8d" % self.durable)

    def snapshot(self) -> Deferred[bytes]:
        if self.has == self.durable:
            return succeed(b"%8d" % self.durable)
        self._asked.append(Deferred())
        return self._asked[-1]

    def rebuilt(self, data: bytes | None, batches: Iterable[Stored]) -> bytes:
        other = Hasty()
        other.durable = int(data or b"0")
        for stored in batches:
            other.replay(stored)
        return b"%8d" % other.durable


class Running:
    """The storage as the daemon has it; the test is its reactor."""

    def __init__(
        self,
        root: Path,
        disk: Disk,
        memory: Large | None = None,
        compression: str = "zstd",
    ) -> None:
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
                spool=model.Spool.model_construct(
                    roll_interval=0.05, compression=compression
                ),
            ),
            machine=Machine(disk),
            reactor=self.reactor,
            decoders={"plain": split, "zipped": unzip},
            callbacks=StorageCallbacks(fatal=self.fatal.append),
            remembering=memory is not None,
            in_thread=maybeDeferred,
        )
        self.storage = opened.recover({} if memory is None else {"large": memory})
        self.journal, self.spool = self.storage.journal, self.storage.spool
        self.storage.start()

    def submit(self) -> None:
        """A batch of 128 KiB that become 64 in a file, four events."""
        events = [self._random.randbytes(2**14).hex().encode() for _ in range(4)]
        body = b",".join(events)
        self.submitted += 1
        batch = Batch(ORIGIN, 5_000_000, 4, body, len(body))
        self.journal.submit(batch).addCallback(self._keep)

    def submit_zipped(self) -> None:
        """A batch of half a KiB that becomes 256 in a file that is not compressed."""
        payloads = b",".join([b"%d" % self.submitted * 2**15] * 4)
        self.submitted += 1
        body = zlib.compress(payloads)
        batch = Batch(ZIPPED, 5_000_000, 4, body, len(payloads))
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


def unzip(body: bytes) -> Rows:
    return split(zlib.decompress(body))


def fill(path: Path, *, leave: int = 0) -> None:
    """Write until there is no more room, then give back some."""
    with path.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(2**14))
    with path.open("rb+") as ballast:
        ballast.truncate(path.stat().st_size - leave)


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


def test_room_is_left_for_files_larger_than_the_journal(small):
    """What came compressed takes many times its bytes in a file that is not: the journal
    stops in time for that, too, and what it has taken is published.
    """
    running = Running(small, RealDisk(), compression="none")
    while not running.journal.full:
        for _ in range(20):
            running.submit_zipped()
        count = running.submitted
        running.run(lambda n=count: len(running.stored) == n or running.journal.full)
        running.run(lambda: running.reactor.idle)
    running.run(lambda: running.spool.published_lsn == 4 * len(running.stored))
    taken: dict[int, bytes] = {}
    while len(running.stored) < running.submitted or running.journal.full:
        running.reactor.turn()
        running.run(lambda: running.spool.published_lsn == 4 * len(running.stored))
        taken |= running.take()
    running.stop()
    rows = taken | running.published()
    assert sorted(rows) == list(range(1, running.submitted * 4 + 1))
    for lsn, body in running.stored.items():
        payloads = [rows[n] for n in range(lsn, lsn + 4)]
        assert b",".join(payloads) == zlib.decompress(body)
    assert not running.fatal


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


def test_a_disk_that_is_full_of_segments_has_room_for_a_checkpoint(small):
    """Published segments that only wait for a checkpoint are no dead end: what the
    state needs is left free, and the journal goes on when they are gone."""
    running = Running(small, RealDisk(), Large(6 * 2**20))
    checkpoint = running.storage.checkpoint
    taken: dict[int, bytes] = {}
    for _ in range(2):
        while not running.journal.full or checkpoint.kept_bytes <= 2 * 2**20:
            if running.journal.full:  # its state was saved meanwhile: little is kept
                taken |= running.take()
                running.run(lambda: not running.journal.full)
            for _ in range(3):
                running.submit()
            count = running.submitted
            running.run(
                lambda n=count: len(running.stored) == n or running.journal.full
            )
            running.run(lambda: running.spool.published_lsn == 4 * len(running.stored))
            running.spool._watch()
            running.run(lambda: running.reactor.idle)
        kept = checkpoint.kept_bytes
        running.reactor.advance(60)
        assert checkpoint.kept_bytes < kept
        taken |= running.take()
        running.run(lambda: not running.journal.full)
    running.run(lambda: len(running.stored) == running.submitted)
    running.stop()
    assert_all_is_there(running, taken)
    again = Large(0)
    Running(small, RealDisk(), again).stop()
    assert again.data == Large(6 * 2**20).data
    assert again.replayed == 0


def test_changes_that_wait_for_room_keep_no_segments_that_have_it(small):
    """What was stored before them is saved without them.  So more changes than the disk has
    room for are stored, one after the other, though nobody takes anything away."""
    memory = Hasty()
    running = Running(small, RealDisk(), memory)
    for memory.has in range(1, 151):
        body = b"%8d" % memory.has + bytes(2**18)
        done = running.journal.submit(Batch(ORIGIN, 5_000_000, 0, body, 0))
        done.addCallback(memory.stored)
    checkpoint = running.storage.checkpoint
    while memory.durable < memory.has:
        running.run(
            lambda: (
                memory.durable == memory.has
                or (running.spool.room.wanted_bytes and checkpoint.kept_bytes)
            )
        )
        running.reactor.advance(60)
        running.reactor.advance(10)
    assert checkpoint.trouble is None
    running.stop()
    again = Hasty()
    Running(small, RealDisk(), again).stop()
    assert again.data == b"%8d" % memory.has


def test_what_is_journaled_waits_for_room_to_be_published(small):
    """A disk with room for the journal and none for the file loses nothing."""
    running = Running(small, FullMeanwhile())
    fill(small / "ballast", leave=160 * 2**10)
    running.submit()
    running.run(lambda: len(running.stored) == 1)
    running.run(lambda: running.spool.publish_error)
    (small / "ballast").unlink()
    running.run(lambda: running.spool.published_lsn == 4)
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
