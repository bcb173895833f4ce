"""Who waits is told why: in the log, on /readyz, in the metrics."""

from functools import partial

import pytest
from twisted.internet.task import Clock

from gateway.event import BATCH_BYTES
from gateway.store.journal import Journal
from gateway.store.journal.held_back import HoldingLog
from journals import Running
from making import Make

BEGIN = "Senders are held back since 2023-11-14T22:13:20Z"
END = "Senders go on: nothing holds them back any more, after"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def start(start, clock) -> Make[Running]:
    """A journal whose clock, and whose disk, is the test's."""
    return partial(start, clock=clock.seconds)


def pass_time(journal: Journal, clock: Clock, seconds: int) -> None:
    """As the daemon does: a look every second."""
    for _ in range(seconds):
        clock.advance(1)
        journal.check()


def test_a_disk_that_hangs_is_told_after_five_seconds(start, clock, make, lines):
    """However little waits for it: one line when it begins, one when it is over."""
    world = start()
    world.disk.answers.clear()
    world.submit(make(b"x"))
    assert world.disk.asked.wait(60)
    pass_time(world.journal, clock, 4)
    assert world.journal.oldest_wait_seconds == 4
    assert world.journal.why_full is None
    assert not lines
    pass_time(world.journal, clock, 3)
    assert world.journal.why_full == (
        "a batch has waited 7.0 s for the disk, limit 5 s (journal.stall_after)"
    )
    assert not world.journal.full, "others may submit; memory has its own limit"
    assert len(lines) == 1
    assert lines[0].startswith("error: Senders are held back since ")
    assert "waited 5.0 s for the disk, limit 5 s (journal.stall_after)" in lines[0]
    world.disk.answers.set()
    world.until_durable(1)
    assert world.journal.oldest_wait_seconds == 0
    assert world.journal.why_full is None
    pass_time(world.journal, clock, 5)
    assert lines[1:] == [
        f"info: {END} 2 s (stall)",
    ]


def test_a_withdrawn_batch_does_not_wait(start, clock, make):
    """Nobody waits for it any more; the next one counts."""
    world = start()
    world.disk.answers.clear()
    world.submit(make(b"in the commit group"))
    assert world.disk.asked.wait(60)
    gone, waits = make(b"gone"), make(b"waits")
    world.submit(gone)
    clock.advance(2)
    world.submit(waits)
    world.journal.withdraw(gone)
    clock.advance(1)
    assert world.journal.oldest_wait_seconds == 3
    world.disk.answers.set()
    world.until_durable(2)


def test_what_waits_for_its_file_takes_memory(start, make):
    """`ack: spool`: it is neither free before it is published nor for ever taken."""
    memory_bytes = 100 + 2 * BATCH_BYTES
    world = start(
        acknowledge_when_published=True, memory_bytes=memory_bytes, roll_interval=60.0
    )
    world.submit(make(b"x" * 90))
    world.until_durable(1)
    assert world.journal.held_bytes == 90 + BATCH_BYTES
    world.submit(make(b"y" * 10))
    world.until_durable(2)
    assert world.journal.full
    room: list[None] = []
    world.journal.when_room().addCallback(room.append)
    world.journal.published(1)
    assert room == [None]
    assert world.journal.held_bytes == 10 + BATCH_BYTES
    world.journal.published(2)
    assert world.journal.held_bytes == 0


def test_what_a_connection_has_not_got_acknowledged(start, make):
    """Its origin says so: stored, published or withdrawn, it is taken off."""
    world = start(acknowledge_when_published=True, roll_interval=60.0)
    first = make(b"x" * 90)
    origin = first.origin
    world.submit(first)
    world.until_durable(1)
    assert origin.unacknowledged == 90
    world.journal.published(1)
    assert origin.unacknowledged == 0
    world.disk.answers.clear()
    second, third = make(b"y" * 5), make(b"z" * 7)
    second.origin = third.origin = origin
    world.submit(second)
    world.submit(third)
    assert origin.unacknowledged == 12
    gone = 7 if world.journal.withdraw(third) else 0
    assert origin.unacknowledged == 12 - gone
    world.disk.answers.set()


def test_who_has_room_may_give_memory_back(start):
    """However many do, when all have room at once: each has it, one after the other."""
    journal = start().journal
    journal.hold("spool", "it is full")
    order: list[int] = []

    def give_back(_: None, number: int) -> None:
        journal.reserve(-1)
        order.append(number)

    for number in range(2000):
        journal.reserve(1)
        journal.when_room().addCallback(give_back, number)
    journal.hold("spool", None)
    assert order == list(range(2000))


def test_memory_does_not_wait_for_the_clock(start, make):
    """`ack: spool`: a quarter of it is published, whatever `spool.roll_interval` says,
    of a few large batches as of many tiny ones.
    """
    memory_bytes = 16 * BATCH_BYTES
    world = start(
        acknowledge_when_published=True, memory_bytes=memory_bytes, roll_interval=3600.0
    )
    world.submit(make(b"x" * 4 * BATCH_BYTES))
    world.until_durable(1)
    for number in range(2, 8):
        world.submit(make(b"y"))
        world.until_durable(number)
    assert [sealed.last_lsn for sealed in world.sealed] == [1, 5]


def test_a_file_that_is_late_is_told(start, clock, make):
    """`ack: spool`: beyond the time that files take by themselves."""
    world = start(acknowledge_when_published=True, roll_interval=10.0)
    world.submit(make(b"x"))
    world.until_durable(1)
    pass_time(world.journal, clock, 14)
    assert world.journal.oldest_wait_seconds == 14
    assert world.journal.why_full is None
    pass_time(world.journal, clock, 1)
    assert "a spool file is late by 5.0 s" in str(world.journal.why_full)
    world.journal.published(1)
    assert world.journal.why_full is None


def test_memory_that_is_full_for_a_moment_is_no_news(start, clock, make, lines):
    """For as long as the disk may be silent it is; it is told with its limit."""
    world = start(memory_bytes=10)
    world.disk.answers.clear()
    world.submit(make(b"x" * 20))
    assert world.disk.asked.wait(60)
    pass_time(world.journal, clock, 1)
    assert world.journal.full
    assert not lines
    pass_time(world.journal, clock, 1)
    assert "limit 10 B (journal.memory_bytes)" in str(world.journal.why_full)
    assert len(lines) == 1


def test_a_hold_is_told_once_however_it_flutters(clock, lines):
    """A disk at its last byte fails and works every second: that is two lines."""
    log = HoldingLog(clock.seconds, lambda: 1_700_000_000.0)
    for _ in range(60):
        log.update({"commit": "the journal can not be written: no room"})
        clock.advance(1)
        log.update({})
        clock.advance(1)
    log.update({"commit": "again", "spool": "the spool is full"})
    clock.advance(5)
    log.update({"spool": "the spool is full"})
    log.update({})
    assert lines == [
        f"error: {BEGIN}: the journal can not be written: no room",
        f"warn: {BEGIN}: the spool is full",
    ]
    clock.advance(3)
    log.update({})
    log.update({})
    assert lines[2:] == [
        f"info: {END} 125 s (commit, spool)",
    ]
