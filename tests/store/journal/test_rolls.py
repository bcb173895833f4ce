"""How segments begin and end, what room they ask for, and who is told of their files."""

import errno
from pathlib import Path

import pytest
from msgspec import structs

from deadlines import eventually
from gateway.store.journal import Log
from gateway.store.system.disk import RealDisk
from gateway.store.system.room import Room
from incarnations import A, segment_name
from journals import on_disk


def test_segments_are_sealed_by_count(start, make):
    """A segment with enough events is handed to the spool, and a new one begun."""
    running = start(roll_events=4, roll_interval=3600.0)
    running.submit(make(b"a", 4))
    running.until_stored(1)
    running.submit(make(b"b", 1))
    running.until_stored(2)
    running.stop()
    assert [(s.first_lsn, s.last_lsn) for s in running.sealed] == [(1, 4), (5, 5)]


def test_the_next_segment_is_there_before_it_is_needed(start, make):
    """Who comes after a roll does not wait for a new file; none is left by a stop."""
    running = start(roll_events=4, roll_interval=3600.0)
    running.submit(make(b"a", 4))
    running.until_stored(1)
    running.stop()
    assert running.disk.created == [segment_name(1), segment_name(5)]
    assert [path.name for path in running.directory.iterdir()] == [segment_name(1)]


def test_a_next_segment_that_can_not_be_made_is_made_when_it_is_needed(start, make):
    """Nobody has asked for it yet, so nobody is told that it failed."""
    running = start(roll_events=4, roll_interval=3600.0)
    first = [("write", 0), ("sync", 0)] * 2
    running.disk.fail = [*first, ("write", 0), ("write", errno.EIO)]
    running.submit(make(b"a", 4))
    running.until_stored(1)
    running.submit(make(b"b"))
    running.until_stored(2)
    assert not running.failures
    assert on_disk(running) == [b"a", b"b"]


def test_metadata_alone_is_not_sealed_until_it_is_much(start, make):
    """It makes no file, so time does not press; size does, and the end."""
    running = start(roll_interval=0.0, segment_bytes=500)
    for n in range(3):
        running.submit(make(b"%d" % n, 0))
        running.until_stored(n + 1)
    assert running.sealed == []
    assert len(list(running.directory.iterdir())) == 1
    running.submit(make(b"x" * 500, 0))
    running.until_stored(4)
    running.submit(make(b"last", 0))
    running.until_stored(5)
    running.stop()
    assert [(s.first_lsn, s.events) for s in running.sealed] == [(1, 0), (1, 0)]
    assert [s.lsn for s in running.stored] == [1] * 5
    assert running.journal.durable_lsn == 0
    assert len(on_disk(running)) == 5


def test_metadata_that_has_the_last_room_is_sealed(start, make, monkeypatch):
    """Or no checkpoint could ever let go of it: what is open does not go."""
    running = start(roll_interval=0.0)
    running.submit(make(b"m", 0))
    running.until_stored(1)
    full = True
    monkeypatch.setattr(running.disk, "free", lambda _: 0 if full else 1 << 40)
    running.submit(make(b"n", 0))
    running.turns.run(lambda: running.sealed)
    full = False
    running.until_stored(2)
    running.stop()
    assert [s.events for s in running.sealed] == [0, 0]
    assert sorted(on_disk(running)) == [b"m", b"n"]


def test_the_time_of_a_segment_begins_with_its_first_event(directory, make):
    """Metadata that lay there for an hour does not make a file of one event."""
    now = [0.0]
    log = Log(directory, RealDisk(), 1, A, clock=lambda: now[0])
    log.commit([make(b"m", 0)])
    now[0] = 3600.0
    assert log.age == 0.0
    log.commit([make(b"n", 0), make(b"d")])
    now[0] = 3601.0
    log.commit([make(b"e")])
    assert log.age == 1.0


def test_ack_spool_does_not_keep_metadata_waiting(start, make):
    """There is no file for it to wait for, but nothing overtakes."""
    running = start(acknowledge_when_published=True)
    running.submit(make(b"m1", 0), make(b"a", 2), make(b"m2", 0), make(b"b"))
    running.until_durable(3)
    assert [s.batch.body for s in running.stored] == [b"m1"]
    running.journal.published(2)
    assert [s.batch.body for s in running.stored] == [b"m1", b"a", b"m2"]
    running.journal.published(3)
    running.submit(make(b"m3", 0))
    running.until_stored(5)


def test_ack_spool_waits_for_the_file(start, make):
    """With `ack: spool` a durable batch is acknowledged only once it is published."""
    running = start(acknowledge_when_published=True)
    running.submit(make(b"a", 2), make(b"b", 2))
    running.until_durable(4)
    assert not running.stored
    assert [*running.journal.copies] == [1, 3]
    running.journal.published(2)
    assert [s.lsn for s in running.stored] == [1]
    assert running.journal.copies[3].body == b"b"
    running.journal.published(4)
    assert [s.lsn for s in running.stored] == [1, 3]
    assert not running.journal.copies


def test_what_is_published_after_the_stop_was_stored(start, make):
    """With `ack: spool` a batch that the spool publishes last is not called lost."""
    running = start(acknowledge_when_published=True)
    running.submit(make(b"a", 2))
    running.stop()
    assert running.stored == running.failed == []
    running.journal.published(2)
    assert [s.lsn for s in running.stored] == [1]
    assert not running.failed


def test_a_group_that_finds_no_room_says_how_much_it_wants(directory, make):
    """Twice its size, as it becomes a file too, beside what is reserved already."""
    free = [150]

    class Short(RealDisk):
        def free(self, path: Path) -> int:
            return free[0]

    room = Room(100)
    log = Log(directory, Short(), 1, A, room=room)
    with pytest.raises(OSError, match="No space left"):
        log.commit([make(b"x" * 30)])
    assert room.wanted_bytes == 60
    free[0] = 160
    log.commit([make(b"x" * 30)])
    assert room.wanted_bytes == 0


def test_the_room_for_a_file_is_that_of_the_open_segment(directory, make):
    """With the group that comes: its bytes, its payloads' bytes, its events."""
    asked: list[tuple[int, int, int]] = []

    def file_bytes(stored: int, payload_bytes: int, events: int) -> int:
        asked.append((stored, payload_bytes, events))
        return 0

    log = Log(directory, RealDisk(), 1, A, file_bytes=file_bytes)
    batch = structs.replace(make(b"x" * 30), count=7, payload_bytes=500)
    log.commit([batch])
    stored = log.bytes
    log.commit([batch, batch])
    assert asked == [(30, 500, 7), (stored + 60, 1500, 21)]


def test_a_file_is_acknowledged_a_bit_in_each_turn(start, make):
    """With `ack: spool` one file may end the wait of tens of thousands of batches, and
    nobody else waits for all of that.
    """
    world = start(wait=True, acknowledge_when_published=True)
    for _ in range(2000):
        world.submit(make(b"x"))
    world.journal.start()
    world.until_durable(2000)
    world.journal.published(2000)
    told = [len(world.stored)]
    while world.turns.getDelayedCalls():
        world.turns.calls.pop(0).func()
        told.append(len(world.stored))
    assert told == [512, 1024, 1536, 2000]
    assert [stored.lsn for stored in world.stored] == [*range(1, 2001)]
    assert not world.journal.held_bytes


@pytest.mark.parametrize("published", [True, False])
def test_who_asks_for_a_segment_is_called_when_all_in_it_is_told(
    start, make, published
):
    """Its file may be there before: what is behind it is not waited for, and metadata is."""
    world = start(wait=True, acknowledge_when_published=published)
    for _ in range(1500):
        world.submit(make(b"x"))
    world.submit(make(b"metadata", 0))
    world.journal.start()
    world.journal.end_turn()
    queues = world.journal._queues
    eventually(lambda: queues.durable == 1501, "the segment's batches on disk")
    called: list[int] = []
    world.journal.when_told(1500, lambda: called.append(len(world.stored)))
    for _ in range(1500):
        world.submit(make(b"y"))
    world.journal.end_turn()
    eventually(lambda: queues.durable == 3001, "what comes behind it on disk")
    assert not called
    if published:
        world.until_durable(3000)
        assert not called
        world.journal.published(1500)
    world.turns.run(lambda: called)
    assert called[0] >= 1501
    world.journal.published(3000)
    world.until_stored(3001)
    world.journal.when_told(3000, lambda: called.append(len(world.stored)))
    assert called[1:] == [3001]
