"""When a journal segment may go, what a start makes of state files, and how checkpoints stop."""

import errno
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, fail, succeed

from checkpoints import Place, hasty
from gateway.event import Batch
from gateway.store.checkpoint import Checkpoint, Unreadable, saved_names
from gateway.store.journal import Segment
from incarnations import settled


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


def test_a_start_has_what_was_saved_and_what_came_since(place):
    """State file first, then every batch of the journal in order; then it is saved."""
    first, words = place.running()
    words.words = [b"old"]
    first.published(place.sealed(b"gone"))
    place.clock.advance(60)
    segments = [
        place.sealed(b"a", b"b"),
        place.sealed(b"c", count=0),
        place.sealed(b"d"),
    ]
    again, words = place.checkpoint()
    again.recover(segments, segments[2:])
    assert words.words == [b"old", b"a", b"b", b"c", b"d"]
    assert not words.running
    assert again.kept_bytes == segments[0].bytes + segments[1].bytes
    assert again.reserved_bytes == place.disk.size(place.state / "words.state")
    again.start()
    assert words.running
    assert place.segments() == [segments[2].path.name]
    assert again.kept_bytes == 0
    again.published(segments[2])
    place.clock.advance(60)
    assert place.segments() == []
    last, words = place.checkpoint()
    last.recover([], [])
    assert words.words == [b"old", b"a", b"b", b"c", b"d"]


def test_what_was_told_after_the_question_is_not_covered(place):
    """A segment goes with the snapshot that was asked for after its publication."""
    checkpoint, words = place.running()
    words.by_hand = True
    one, two = place.sealed(b"1"), place.sealed(b"2")
    checkpoint.published(one)
    place.clock.advance(60)
    checkpoint.published(two)
    assert place.segments() == [one.path.name, two.path.name]
    words.answer()
    assert place.segments() == [two.path.name]
    place.clock.advance(60)
    words.answer()
    assert place.segments() == []


def test_segments_go_when_the_files_are_safe(place):
    """What is written in another thread counts once it is written."""
    checkpoint, _ = place.running()
    place.later = []
    checkpoint.published(place.sealed(b"1"))
    place.clock.advance(60)
    assert len(place.segments()) == 1
    place.later.pop(0)()
    assert len(place.segments()) == 1
    place.later.pop(0)()
    assert place.segments() == []
    assert place.later == []


def test_all_memories_are_asked_at_once(place):
    """One that is slow keeps the segments for all, and neither is saved before."""
    checkpoint, slow = place.checkpoint("slow", "fast")
    checkpoint.recover([], [])
    checkpoint.start()
    slow.by_hand = True
    checkpoint.published(place.sealed(b"1"))
    before = (place.state / "fast.state").stat().st_ino
    place.clock.advance(60)
    assert len(place.segments()) == 1
    assert (place.state / "fast.state").stat().st_ino == before
    slow.answer()
    assert place.segments() == []


def test_much_is_saved_at_once(place):
    """Beyond `most_bytes` nothing waits for the time; but one runs at a time."""
    checkpoint, words = place.running(most_bytes=300)
    words.by_hand = True
    one = place.sealed(b"x" * 100)
    checkpoint.published(one)
    assert not words.asked
    checkpoint.published(place.sealed(b"y" * 100))
    checkpoint.published(place.sealed(b"z" * 400))
    assert len(words.asked) == 1
    words.answer()
    assert len(words.asked) == 1
    words.answer()
    assert place.segments() == []
    assert not place.clock.getDelayedCalls()


def test_a_large_state_is_not_written_for_little(place):
    """What is let go of is some times what must be written for it, or waits."""
    checkpoint, words = place.running(most_bytes=1)
    words.words = [b"w" * 100]
    checkpoint.published(place.sealed(b"1" * 300))
    assert place.segments() == []
    checkpoint.published(place.sealed(b"2"))
    assert len(place.segments()) == 1
    checkpoint.published(place.sealed(b"x" * 1000))
    assert place.segments() == []


def test_the_first_start_leaves_a_file(place):
    """From then on whoever starts knows that there is something to remember."""
    assert saved_names(place.state, place.disk) == []
    place.running()
    assert saved_names(place.state, place.disk) == ["words"]
    assert saved_names(place.state / "nowhere", place.disk) == []


def test_a_first_file_that_can_not_be_written_is_tried_again(place):
    """Until it is there, whoever asks is told that nothing would remember yet."""
    checkpoint, _ = place.checkpoint()
    place.disk.failures = 1
    checkpoint.recover([], [])
    checkpoint.start()
    assert not checkpoint.known.called
    place.clock.advance(10)
    assert checkpoint.known.called
    assert saved_names(place.state, place.disk) == ["words"]
    assert not place.clock.getDelayedCalls()


def test_a_failure_lets_nothing_go_and_is_tried_again(place, logged):
    """A full disk: the journal keeps what it has, one line is logged, later it works."""
    checkpoint, _ = place.running(most_bytes=1)
    place.disk.failures = 2
    logged.clear()
    checkpoint.published(place.sealed(b"1"))
    checkpoint.published(place.sealed(b"2"))
    assert len(place.segments()) == 2
    place.clock.advance(10)
    assert len(place.segments()) == 2
    assert "can not be written: OSError" in str(checkpoint.trouble)
    place.clock.advance(10)
    assert place.segments() == []
    assert checkpoint.trouble is None
    assert checkpoint.kept_bytes == 0
    assert (checkpoint.saved, checkpoint.failed) == (2, 2)
    assert checkpoint.saved_at == place.clock.seconds()
    formats = [event["log_format"] for event in logged]
    assert len(formats) == 2
    assert "can not be written yet" in formats[0]
    assert "is written again" in formats[1]


def test_a_snapshot_that_fails_is_asked_for_again(place):
    """A memory may fail to give one; its segments wait for the next."""
    checkpoint, words = place.running()
    words.snapshot = lambda: fail(ValueError("not now"))  # type: ignore[method-assign]
    checkpoint.published(place.sealed(b"1"))
    place.clock.advance(60)
    assert len(place.segments()) == 1
    words.snapshot = lambda: succeed(b"now")  # type: ignore[method-assign]
    place.clock.advance(10)
    assert place.segments() == []


def test_who_gives_up_by_itself_is_asked_again_later(place):
    """However much waits for it: only a stop gives up for good."""
    checkpoint, words = place.running()
    asked = []

    def gives_up() -> Any:
        asked.append(1)
        return fail(CancelledError())

    words.snapshot = gives_up  # type: ignore[method-assign]
    checkpoint.published(place.sealed(b"1" * 3000))
    checkpoint.published(place.sealed(b"2" * 3000))
    place.clock.advance(60)
    tries = len(asked)
    assert tries <= 2
    assert "CancelledError" in str(checkpoint.trouble)
    place.clock.advance(10)
    assert len(asked) == tries + 1


def saved_words(place: Place) -> list[bytes]:
    checkpoint, words = place.checkpoint()
    checkpoint.recover([], [])
    return words.words


def test_what_waits_for_room_keeps_no_segment(place):
    """A snapshot that waits for a change on a full disk is made of the state file and of
    the segments that fill that; it has nothing of the change."""
    checkpoint, memory, room = hasty(place)
    for words in (b"1", b"2"):
        checkpoint.published(place.sealed(words))
        memory.words += [words, b"not-durable"]
        room.wanted_bytes = 100
        place.clock.advance(60)
        place.clock.advance(9)
        assert len(place.segments()) == 1
        place.clock.advance(1)
        assert place.segments() == []
    assert checkpoint.trouble is None
    assert saved_words(place) == [b"1", b"2"]
    while memory.asked:
        memory.answer()
    assert saved_words(place) == [b"1", b"2"], "what comes late is not taken"


def test_where_there_is_room_a_snapshot_is_waited_for(place):
    """However long: what is large takes its time."""
    checkpoint, memory, room = hasty(place)
    checkpoint.published(place.sealed(b"1"))
    memory.words += [b"1", b"2"]
    place.clock.advance(60)
    place.clock.pump([10] * 100)
    assert len(place.segments()) == 1
    memory.answer()
    assert place.segments() == []
    assert saved_words(place) == [b"1", b"2"]
    room.wanted_bytes = 100
    place.clock.pump([10] * 100)
    assert checkpoint.failed == 0


def test_what_went_before_a_failure_is_in_the_file(place):
    """Segments that were to go, of which some went, are not looked for again."""
    checkpoint, memory, room = hasty(place)
    for words in (b"1", b"2"):
        checkpoint.published(place.sealed(words))
    room.wanted_bytes = 100
    memory.words += [b"1", b"2", b"not-durable"]
    remove, checkpoint._remove_segment = checkpoint._remove_segment, _once(place.remove)
    place.clock.pump([60, 10])
    assert "no more" in str(checkpoint.trouble)
    assert len(place.segments()) == 1
    checkpoint._remove_segment = lambda sealed: sealed.path.exists() and remove(sealed)
    place.clock.pump([10, 10])
    assert checkpoint.trouble is None
    assert place.segments() == []
    assert saved_words(place) == [b"1", b"2"]


def _once(remove: Callable[[Segment], None]) -> Callable[[Segment], None]:
    left = iter([remove])

    def maybe(sealed: Segment) -> None:
        one = next(left, None)
        if one is None:
            raise OSError(errno.EIO, "no more")
        one(sealed)

    return maybe


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        (lambda: 1 // 0, "ZeroDivisionError"),
        (lambda: fail(ValueError("not now")), "ValueError: not now"),
        (lambda: succeed("text"), "TypeError: it gives 'text', and no bytes"),
        (lambda: sys.exit(3), "SystemExit: 3"),
    ],
)
def test_whose_snapshot_failed_is_told(place, logged, snapshot, why):
    """Among those of several protocols."""
    checkpoint, _ = place.checkpoint("fine", "odd")
    checkpoint.recover([], [])
    checkpoint._memories["odd"].snapshot = snapshot  # type: ignore[method-assign]
    logged.clear()
    checkpoint.start()
    place.clock.advance(60)
    [told] = [event["why"] for event in logged if "why" in event]
    assert f"protocol 'odd' fails in memory.snapshot: {why}" in told


def test_a_memory_that_can_not_start_ends_the_start(place):
    """With the protocol's name."""
    checkpoint, _ = place.checkpoint("fine", "odd")
    checkpoint.recover([], [])
    checkpoint._memories["odd"].start = lambda: sys.exit(3)  # type: ignore[method-assign]
    with pytest.raises(
        Unreadable, match=r"'odd' fails in memory\.start: SystemExit: 3"
    ):
        checkpoint.start()


def test_no_damage_goes_unseen(place):
    """Any bit that flips, and any end that is missing, stops the start and is named."""
    checkpoint, words = place.checkpoint()
    words.words = [b"some", b"words"]
    checkpoint.start()
    path = place.state / "words.state"
    whole = path.read_bytes()
    broken = [whole[:size] for size in range(len(whole))]
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        broken.append(bytes(flipped))
    for content in broken:
        path.write_bytes(content)
        with pytest.raises(Unreadable, match=r"words\.state.*move it away"):
            place.checkpoint()[0].recover([], [])
    path.write_bytes(whole)
    again, words = place.checkpoint()
    again.recover([], [])
    assert words.words == [b"some", b"words"]


def test_a_later_format_is_not_damage(place):
    """It asks for the version that wrote it."""
    import google_crc32c

    place.running()
    path = place.state / "words.state"
    content = bytearray(path.read_bytes())
    content[8] = 2
    summed = bytes(content[:20] + content[24:])
    content[20:24] = google_crc32c.value(summed).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=r"words.state has format 2.*reads 1"):
        place.checkpoint()[0].recover([], [])


def test_the_state_of_somebody_unknown_is_not_ignored(place):
    """Going on without would let segments go that it needs."""
    place.running()
    with pytest.raises(Unreadable, match=r"words\.state: no protocol 'words'.*install"):
        place.checkpoint("others")[0].recover([], [])
    nobody = Checkpoint(
        place.state, {}, place.disk, place.clock, place.in_thread, place.remove
    )
    with pytest.raises(Unreadable, match=r"gateway\.protocols"):
        nobody.recover([], [])


def test_a_file_under_another_name_is_not_taken(place):
    """A state file says whose it is."""
    place.running()
    (place.state / "words.state").rename(place.state / "others.state")
    with pytest.raises(Unreadable, match="it is that of 'words'"):
        place.checkpoint("others")[0].recover([], [])


def test_what_a_memory_can_not_take_stops_the_start(place):
    """From a state file or from the journal; either is named."""
    checkpoint, words = place.checkpoint()
    words.words = [b"strange"]
    checkpoint.start()
    with pytest.raises(Unreadable, match=r"words\.state.*strange indeed"):
        place.checkpoint()[0].recover([], [])
    (place.state / "words.state").unlink()
    sealed = place.sealed(b"fine", b"poison")
    with pytest.raises(Unreadable, match=r"\.journal: words .* lsn 2: .*no thanks"):
        place.checkpoint()[0].recover([sealed], [])


def test_a_segment_that_goes_bad_under_the_start_ends_it(place):
    """The recovery could read it: only the next start knows what is left of it."""
    sealed = place.sealed(b"fine")
    sealed.path.write_bytes(bytes(512))
    with pytest.raises(OSError, match=r"start again.*\.journal"):
        place.checkpoint()[0].recover([sealed], [])


def test_what_a_crash_left_half_written_is_removed(place):
    """A hidden file was never valid."""
    place.running()
    (place.state / ".words.state").write_bytes(b"half")
    place.checkpoint()[0].recover([], [])
    assert [path.name for path in place.state.iterdir()] == ["words.state"]


def test_without_memories_nothing_happens(place):
    """Who has none pays nothing, and keeps nothing."""
    checkpoint = Checkpoint(
        place.state, {}, place.disk, place.clock, place.in_thread, place.remove
    )
    sealed = place.sealed(b"1")
    checkpoint.recover([sealed], [])
    checkpoint.start()
    checkpoint.published(sealed)
    checkpoint.stop_memories()
    assert checkpoint.stop().called
    assert checkpoint.kept_bytes == checkpoint.reserved_bytes == 0
    assert list(place.state.iterdir()) == []
    assert not place.clock.getDelayedCalls()


def test_what_a_journal_recovers_is_what_is_replayed(place):
    """Metadata behind the last event, too, and segments that begin with one lsn."""
    place.sealed(b"m1", count=0)
    place.sealed(b"m2", count=0)
    place.log.commit([Batch(place.origin, 1, 2, b"d1", 2)])
    place.log.commit([Batch(place.origin, 1, 0, b"m3", 2)])
    checkpoint, words = place.checkpoint()
    found = settled(place.journal, place.disk)
    checkpoint.recover(found.segments, found.segments)
    assert words.words == [b"m1", b"m2", b"d1", b"m3"]
    assert [segment.events for segment in found.segments] == [0, 0, 2]
    assert found.next_lsn == 3


def test_a_stop_does_not_rebuild(place):
    """It gives up in its time; the next start reads the journal instead."""
    checkpoint, _, room = hasty(place)
    checkpoint.published(place.sealed(b"1"))
    room.wanted_bytes = 100
    stopped = checkpoint.stop()
    place.clock.advance(10)
    assert stopped.called
    assert len(place.segments()) == 1


def test_a_memory_that_can_not_stop_stops_nobody_else(place, logged):
    """It is told; the stop goes on."""
    checkpoint, words = place.checkpoint("odd", "fine")
    checkpoint.recover([], [])
    checkpoint.start()
    logged.clear()
    words.stop = lambda: 1 // 0  # type: ignore[assignment, method-assign, return-value]
    checkpoint.stop_memories()
    [fine] = [one for name, one in checkpoint._memories.items() if name == "fine"]
    assert not fine.running  # type: ignore[attr-defined]
    assert [event["name"] for event in logged] == ["odd"]


def test_stopping_leaves_nothing_to_replay(place):
    """What is under way is finished, and what came meanwhile is saved as well."""
    checkpoint, words = place.running()
    words.by_hand = True
    checkpoint.published(place.sealed(b"1"))
    place.clock.advance(60)
    checkpoint.published(place.sealed(b"2"))
    checkpoint.stop_memories()
    assert not words.running
    stopped = checkpoint.stop()
    words.answer()
    assert len(place.segments()) == 1
    assert not stopped.called
    words.answer()
    assert place.segments() == []
    assert stopped.called
    assert not place.clock.getDelayedCalls()


def test_stopping_does_not_wait_for_ever(place):
    """A memory that does not answer costs the next start a replay; that is no failure."""
    checkpoint, words = place.running()
    said: list[str] = []
    checkpoint._log = SimpleNamespace(warn=lambda text, **_: said.append(text))  # type: ignore[assignment]
    words.by_hand = True
    checkpoint.published(place.sealed(b"1"))
    stopped = checkpoint.stop()
    assert not stopped.called
    place.clock.advance(10)
    assert stopped.called
    assert len(place.segments()) == 1
    assert not place.clock.getDelayedCalls()
    assert (len(said), checkpoint.failed, checkpoint.trouble) == (1, 0, None)


def test_stopping_does_not_wait_for_ever_for_what_was_begun(place):
    """Nor for another attempt behind the one that it has given up."""
    checkpoint, words = place.running()
    words.by_hand = True
    checkpoint.published(place.sealed(b"1"))
    place.clock.advance(60)
    stopped = checkpoint.stop()
    assert not stopped.called
    place.clock.advance(10)
    assert stopped.called
    assert not place.clock.getDelayedCalls()


def test_stopping_saves_once_more(place):
    """The next start finds a state file and no segment."""
    checkpoint, words = place.running()
    words.words = [b"1"]
    checkpoint.published(place.sealed(b"1"))
    assert checkpoint.stop().called
    assert place.segments() == []
    assert not place.clock.getDelayedCalls()
    again, words = place.checkpoint()
    again.recover([], [])
    assert words.words == [b"1"]


def test_stopping_does_not_wait_for_a_sick_disk(place):
    """What can not be saved is replayed by the next start."""
    checkpoint, _ = place.running()
    sealed = place.sealed(b"1")
    checkpoint.published(sealed)
    place.disk.failures = 10**9
    assert checkpoint.stop().called
    again, words = place.checkpoint()
    again.recover([sealed], [])
    assert words.words == [b"1"]
