"""What the reactor may rely on: acknowledged means synced, and pressure is shown."""

import errno
import math
import time
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure

from gateway.event import BATCH_BYTES, Batch, Origin, Stored
from gateway.sdk.interfaces import NotStored
from gateway.store.journal import Journal, Log, segment
from gateway.store.system.disk import RealDisk
from incarnations import A, settled
from journals import on_disk
from sections import journal_settings


class Faulty:
    """Told of a batch, it raises: another exception for each of both."""

    def callback(self, stored: Stored) -> None:
        raise RuntimeError("a fault of a protocol's")

    def errback(self, why: Failure) -> None:
        raise LookupError("another one") from why.value


def raised(logged: list[dict[str, Any]]) -> list[type]:
    """What was logged as raised, among other lines."""
    return [each["log_failure"].type for each in logged if "log_failure" in each]


def test_batches_are_acknowledged_in_order_with_their_lsn(start, make):
    """Deferreds fire in submission order, and lsns have no holes."""
    running = start()
    running.submit(make(b"a", 3), make(b"b", 1), make(b"c", 2))
    running.until_stored(3)
    assert [(s.batch.body, s.lsn) for s in running.stored] == [
        (b"a", 1),
        (b"b", 4),
        (b"c", 5),
    ]
    assert running.journal.durable_lsn == 6
    assert on_disk(running) == [b"a", b"b", b"c"]


def test_who_raises_when_told_keeps_nobody_from_being_told(start, make, logged):
    """It is logged, and the next one has its acknowledgement."""
    running = start()
    running.journal.submit_for(Faulty(), make(b"a"))
    running.submit(make(b"b"))
    running.until_stored(1)
    assert [stored.lsn for stored in running.stored] == [2]
    assert raised(logged) == [RuntimeError]


def test_what_is_synced_is_told_when_all_of_its_events_are(start, make):
    """A group is told in parts: the mark never has bytes whose events it does not have."""
    running = start(wait=True)
    journal = running.journal
    batches = [make(b"x", 80) for _ in range(100)]
    for batch in batches:
        batch.answers = 80
    running.submit(*batches)
    journal.start()
    running.turns.turn()
    assert 0 < len(running.stored) < 100
    assert journal.durable_lsn == 80 * len(running.stored)
    assert journal.synced.bytes == 0
    running.until_stored(100)
    assert journal.durable_lsn == 8000
    assert journal.synced.bytes == journal.open_bytes


@pytest.mark.parametrize("what", ["write", "sync"])
def test_a_failed_commit_acknowledges_nobody_and_then_heals(start, make, what):
    """No room: nothing is acknowledged and reading stops; with room all goes on."""
    running = start()
    running.submit(make(b"first"))
    running.until_stored(1)
    running.disk.fail = [(what, errno.ENOSPC)]
    running.submit(make(b"second"))
    running.turns.run(lambda: running.journal.full)
    assert len(running.stored) == 1
    assert "the test says no" in (running.journal.why_full or "")
    running.until_stored(2)
    assert not running.journal.full
    running.stop()
    assert running.failures == []
    assert [s.lsn for s in running.stored] == [1, 2]
    found = settled(running.directory, RealDisk())
    assert found.next_lsn == 3
    assert found.losses == []
    bodies = {
        s.lsn: s.batch.body
        for sealed in found.segments
        for s in segment.Scan(sealed.path.read_bytes(), before=sealed.last_lsn + 1)
    }
    assert bodies == {1: b"first", 2: b"second"}


@pytest.mark.parametrize("what", ["write", "sync"])
def test_what_the_disk_fails_in_is_told(start, make, what):
    """At each try; the next one may go well."""
    running = start()
    running.submit(make(b"first"))
    running.until_stored(1)
    running.disk.fail = [(what, errno.EIO)]
    running.submit(make(b"second"))
    running.until_stored(2)
    assert running.failures == [what]
    assert running.fatal == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"count": -5}, "-5 events"),
        ({"count": 1 << 32}, "4294967296 events"),
        ({"count": 1.5}, r"1\.5 events"),
        ({"payload_bytes": -1}, "-1 bytes"),
        ({"body": "text"}, "no bytes: 'text'"),
        ({"body": None}, "no bytes: None"),
        ({"body": bytearray(5000)}, "no bytes: bytearray"),
    ],
)
def test_what_is_no_batch_is_its_senders_fault(start, make, changed, why):
    """It ends neither the thread nor the daemon, and takes no memory."""
    running = start()
    bad = make(b"bad")
    for name, value in changed.items():
        setattr(bad, name, value)
    with pytest.raises((TypeError, ValueError), match=why):
        running.journal.submit(bad)
    running.submit(make(b"good"))
    running.until_stored(1)
    assert on_disk(running) == [b"good"]
    assert running.journal.held_bytes == 0
    assert running.fatal == []


def test_two_failed_syncs_in_a_row_end_the_daemon(start, make):
    """A disk that twice can not say whether data is safe is not asked again."""
    running = start()
    running.submit(make(b"a"))
    running.until_stored(1)
    header = ("sync", 0)
    running.disk.fail = [("sync", errno.EIO), header, ("sync", errno.EIO)]
    running.submit(make(b"b"))
    running.turns.run(lambda: bool(running.fatal))
    assert len(running.stored) == 1
    assert "the test says no" in running.fatal[0]


def test_room_is_announced_once_there_is_room(start, make):
    """`full` follows the bytes that wait for the disk, and `when_room` fires after."""
    running = start(wait=True, memory_bytes=10 + 2 * BATCH_BYTES)
    room: list[None] = []
    running.submit(make(b"12345"))
    assert not running.journal.full
    running.submit(make(b"67890"))
    assert running.journal.full
    running.journal.when_room().addCallback(room.append)
    assert not room
    running.journal.start()
    running.until_stored(2)
    assert room == [None]


def test_tiny_batches_fill_the_journal_by_their_number(start, make):
    """Ten thousand connections, each with as many batches as it may have while the disk
    hangs, hold no more memory than is counted: a batch is more than its body.
    """
    running = start(wait=True, memory_bytes=1 << 20)
    kept: list[list[object]] = []

    def acknowledge(_: Stored, waits: list[object]) -> None:
        raise AssertionError(waits)

    def submit(body: bytes) -> None:
        batch = make(body)
        kept.append([body[:8], batch])  # as a server does, which waits to acknowledge
        done = running.journal.submit(batch)
        done.addCallbacks(acknowledge, running.failed.append, callbackArgs=(kept[-1],))

    submit(b"first")
    tracemalloc.start()
    try:
        while not running.journal.full:
            submit(b"%20d" % len(kept))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == (1 << 20) // (20 + BATCH_BYTES) + 1
    assert taken <= running.journal.held_bytes


def test_holds_stop_and_start_the_intake(start, make):
    """Whoever holds the journal names the reason, and letting go makes room."""
    running = start()
    running.journal.hold("spool", "the spool is at its limit")
    running.journal.hold("disk", "the disk is full")
    room: list[None] = []
    running.journal.when_room().addCallback(room.append)
    running.journal.hold("spool", None)
    assert running.journal.why_full == "the disk is full"
    assert not room
    running.journal.hold("disk", None)
    assert room == [None]
    assert running.journal.why_full is None


def test_stopping_commits_what_was_submitted_and_refuses_the_rest(start, make):
    """Nothing that was taken is dropped by a clean stop."""
    running = start(wait=True)
    running.submit(*(make(b"%d" % n) for n in range(5)))
    running.journal.start()
    running.stop()
    assert len(running.stored) == 5
    running.submit(make(b"late"))
    [failure] = running.failed
    assert failure.check(NotStored)
    assert len(on_disk(running)) == 5


def test_who_raises_at_a_stop_keeps_nobody_from_being_told(start, make, logged):
    """Of what the disk did not take each one is told, and then the stop is done."""
    running = start(wait=True)
    running.disk.fail = [("write", errno.ENOSPC)] * 1000
    running.journal.submit_for(Faulty(), make(b"a"))
    running.submit(make(b"b"))
    running.journal.start()
    running.stop()
    assert [bool(failure.check(NotStored)) for failure in running.failed] == [True]
    assert raised(logged) == [LookupError]
    assert running.stored == []


def test_behind_the_stop_it_is_told_at_once_that_nothing_is_stored(start, make, logged):
    """Before the thread has ended, and whatever that raises."""
    running = start(wait=True)
    stopped = running.journal.stop()
    running.submit(make(b"late"))
    [failure] = running.failed
    assert failure.check(NotStored)
    running.journal.submit_for(Faulty(), make(b"later"))
    assert raised(logged) == [LookupError]
    assert running.journal.held_bytes == 0
    running.journal.start()
    running.turns.wait(stopped)
    assert on_disk(running) == []


def test_what_is_still_arriving_counts_and_may_take_half(start, make):
    """Unfinished batches have half of the memory; they alone never make it full."""
    half = 5 + BATCH_BYTES
    running = start(wait=True, memory_bytes=2 * half)
    assert running.journal.reserve(half)
    assert not running.journal.full
    running.submit(make(b"12345"))
    assert running.journal.full
    room: list[None] = []
    running.journal.when_room().addCallback(room.append)
    assert not running.journal.reserve(1)
    running.journal.reserve(-2)
    assert room == [None]


def test_who_waits_for_room_no_more_is_forgotten(start):
    """The journal may be full for days: it keeps nothing of connections that went."""
    journal = start(wait=True).journal
    journal.hold("disk", "full")
    told: list[object] = []
    for _ in range(1000):
        room = journal.when_room()
        room.addCallbacks(told.append, lambda why: why.trap(CancelledError))
        room.cancel()
    assert not journal._room
    journal.hold("disk", None)
    assert not told


def test_withdrawn_in_time(start, make):
    """A batch in no commit group yet is nowhere: neither stored nor answered."""
    world = start(wait=True)
    keep, gone = make(b"keep"), make(b"gone" * 100)
    world.submit(keep, gone)
    before = world.journal.held_bytes
    assert world.journal.withdraw(gone)
    assert world.journal.held_bytes == before - 400 - BATCH_BYTES
    assert not world.journal.withdraw(gone)
    world.journal.start()
    world.until_stored(1)
    world.stop()
    assert [stored.batch for stored in world.stored] == [keep]
    assert not world.failed


def test_withdrawn_too_late(start, make):
    """What the disk may have is stored, whoever waits for it."""
    world = start(wait=True)
    batch = make(b"stored")
    world.submit(batch)
    world.journal.start()
    world.until_stored(1)
    assert not world.journal.withdraw(batch)
    world.stop()


def test_withdrawn_after_a_failed_commit(start, make):
    """A full disk has nothing of the group: each of its batches may still go."""
    world = start(wait=True)
    world.disk.fail = [("write", errno.ENOSPC)]
    batch = make(b"never")
    world.submit(batch)
    world.journal.start()
    world.turns.run(lambda: world.journal.full)
    assert world.journal.withdraw(batch)
    later = make(b"later")
    world.submit(later)
    world.until_stored(1)
    world.stop()
    assert [stored.batch for stored in world.stored] == [later]


def test_withdrawn_when_the_thread_has_ended(start, make):
    """Its Deferred never fires, though the journal ends with batches left."""
    world = start(wait=True)
    world.disk.fail = [("write", errno.ENOSPC)] * 1000
    kept, gone = make(b"kept"), make(b"gone")
    world.submit(kept, gone)
    world.journal.start()
    stopped = world.journal.stop()
    world.journal._thread.join()
    assert world.journal.withdraw(gone)
    world.turns.wait(stopped)
    assert len(world.failed) == 1


@pytest.mark.parametrize("when", ["held", "before it is told"])
def test_a_failed_commit_holds_nobody_once_its_batches_are_gone(start, make, when):
    """With nothing left to try again, the next batch must be let in to try."""
    world = start(wait=True)
    world.disk.fail = [("write", errno.ENOSPC)] * 1000
    batches = [make(b"first"), make(b"second")]
    world.submit(*batches)
    world.journal.start()
    while len(world.disk.fail) == 1000:
        time.sleep(0.001)
    if when == "held":
        world.turns.run(lambda: world.journal.full)
    room: list[None] = []
    world.journal.when_room().addCallback(room.append)
    for batch in batches:
        while not world.journal.withdraw(batch):
            time.sleep(0.001)
    world.disk.fail = []
    while not world.turns.idle:
        world.turns.turn()
    assert not world.journal.full
    assert room == [None]
    world.submit(make(b"later"))
    world.until_stored(1)
    world.stop()


def test_received_at_is_the_wall_clocks(directory, turns, make, origin):
    """Set back, it stands still for the connections that are open."""
    wall = [1000.0]
    journal = Journal(
        Log(directory, RealDisk(), 1, A),
        reactor=turns,
        **journal_settings(),
        on_sealed=lambda _: None,
        on_fatal=pytest.fail,
        wall_clock=lambda: wall[0],
    )
    other = Origin("plain", "beats", "s-2", "127.0.0.1:9")
    times = []
    for now, of in (
        (1000.0, origin), (2000.0, origin), (1500.0, origin), (1500.0, other),
        (2000.5, origin),
    ):  # fmt: skip
        wall[0] = now
        batch = make(of=of)
        journal.submit(batch)
        times.append(batch.received_at / 1e6)
    assert times == [1000.0, 2000.0, 2000.0, 1500.0, 2000.5]


@pytest.mark.parametrize(
    ("pace", "seconds"),
    [(math.inf, 0.0), (1e6, 0.05), (1e5, 0.1), (0.0, 0.1)],
)
def test_groups_keep_to_the_pace(start, pace, seconds):
    """After so many bytes there is a pause, which is never long; failures have their own."""
    journal = start().journal
    journal.pace = pace
    assert journal._pause(failures=0, size=50_000) == seconds
    assert journal._pause(failures=1, size=50_000) == 1.0


def test_a_group_has_a_bounded_number_of_batches(start, make, monkeypatch):
    """However small they are: the reactor completes a group in one turn."""
    groups: list[int] = []
    commit = Log.commit

    def counted(log: Log, batches: Sequence[Batch]) -> int:
        groups.append(len(batches))
        return commit(log, batches)

    monkeypatch.setattr(Log, "commit", counted)
    world = start(wait=True)
    for _ in range(10_000):
        world.submit(make(b"x"))
    world.journal.start()
    world.until_stored(10_000)
    world.stop()
    assert groups == [512] * 19 + [272]


def test_a_stop_waits_until_all_is_acknowledged(start, make):
    """More may be durable than one turn tells, and a turn takes threads' calls first."""
    world = start(wait=True)
    for _ in range(3000):
        world.submit(make(b"x"))
    world.journal.start()
    stopped = world.journal.stop()
    world.journal._thread.join()
    while not world.turns.idle:
        call, args, kwargs = world.turns._calls.get()
        call(*args, **kwargs)
    assert stopped.called
    assert len(world.stored) == world.journal.durable_lsn == 3000
