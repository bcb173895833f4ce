"""How checkpoints stop: what is saved once more, and how long that is waited for."""

from types import SimpleNamespace

import pytest

from checkpoints import Place, hasty


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


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
    ended: list[None] = []
    checkpoint.stop().addCallback(ended.append)
    words.answer()
    assert len(place.segments()) == 1
    assert not ended
    words.answer()
    assert place.segments() == []
    assert ended == [None]
    assert not place.clock.getDelayedCalls()


def test_stopping_does_not_wait_for_ever(place):
    """A memory that does not answer costs the next start a replay; that is no failure."""
    checkpoint, words = place.running()
    said: list[str] = []
    checkpoint._log = SimpleNamespace(warn=lambda text, **_: said.append(text))  # type: ignore[assignment]
    words.by_hand = True
    checkpoint.published(place.sealed(b"1"))
    ended: list[None] = []
    checkpoint.stop().addCallback(ended.append)
    assert not ended
    place.clock.advance(10)
    assert ended == [None]
    assert len(place.segments()) == 1
    assert not place.clock.getDelayedCalls()
    assert (len(said), checkpoint.failed, checkpoint.trouble) == (1, 0, None)


def test_stopping_does_not_wait_for_ever_for_what_was_begun(place):
    """Nor for another attempt behind the one that it has given up."""
    checkpoint, words = place.running()
    words.by_hand = True
    checkpoint.published(place.sealed(b"1"))
    place.clock.advance(60)
    ended: list[None] = []
    checkpoint.stop().addCallback(ended.append)
    assert not ended
    place.clock.advance(10)
    assert ended == [None]
    assert not place.clock.getDelayedCalls()


def test_stopping_saves_once_more(place):
    """The next start finds a state file and no segment."""
    checkpoint, words = place.running()
    words.words = [b"1"]
    checkpoint.published(place.sealed(b"1"))
    ended: list[None] = []
    checkpoint.stop().addCallback(ended.append)
    assert ended == [None]
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
    ended: list[None] = []
    checkpoint.stop().addCallback(ended.append)
    assert ended == [None]
    again, words = place.checkpoint()
    again.recover([sealed], [])
    assert words.words == [b"1"]
