"""Back-pressure: which connections are read, whose turn it is, and which one is given up."""

import gc
import weakref

import pytest

from gateway.sdk.fair import FairQueue
from gateway.sdk.pressure import Valve
from gateway.testing import FakeConnection, ManualJournal


def test_a_connection_is_read_up_to_its_limit():
    """… and again when half of it is on disk, so that it does not flutter."""
    connection = FakeConnection(protocol="test")
    valve = Valve(connection, ManualJournal(), 100, lambda: None)
    seen = []
    for unacknowledged in (0, 99, 100, 99, 51, 50, 99):
        valve.regulate(unacknowledged)
        assert connection.paused == valve.paused
        seen.append(valve.paused)
    assert seen == [False, False, True, True, True, False, False]


def test_a_full_journal_stops_those_who_feed_it():
    """They are told once when there is room; others are read all the time."""
    journal = ManualJournal()
    told: list[str] = []
    feeding = Valve(
        FakeConnection(protocol="a"), journal, 100, lambda: told.append("feeding")
    )
    other = Valve(
        FakeConnection(protocol="b"), journal, 100, lambda: told.append("other")
    )
    journal.full = True
    for _ in range(3):
        feeding.regulate(0)
        other.regulate(0, feeding=False)
    assert (feeding.paused, other.paused) == (True, False)
    journal.full = False
    assert told == ["feeding"]
    feeding.regulate(0)
    assert not feeding.paused


@pytest.mark.parametrize("crowd", [False, True])
def test_who_is_gone_waits_for_no_room(*, crowd):
    """A journal, or an address's share of it, may be full for days; no connection that is
    over is kept for it.
    """
    journal = ManualJournal()
    told: list[str] = []
    connection = FakeConnection(protocol="a")
    valve = Valve(connection, journal, 100, lambda: told.append("room"))
    if crowd:
        journal.over.add("192.0.2.1")
    else:
        journal.full = True
    valve.regulate(1)
    kept = weakref.ref(valve)
    valve.close()
    valve.regulate(1)
    del valve
    gc.collect()
    assert kept() is None
    journal.full = False
    journal.share("192.0.2.1")
    assert not told


def test_a_crowd_is_read_no_further():
    """Whose address has its share of the queue waits until it has less there, and goes on
    however much of its own waits for something else, short of its limit.
    """
    journal, limit = ManualJournal(), 8 << 20
    told: list[str] = []
    valve = Valve(
        FakeConnection(protocol="a"), journal, limit, lambda: told.append("room")
    )
    valve.regulate(5 << 20)
    assert not valve.paused
    journal.over.add("192.0.2.1")
    for _ in range(3):
        valve.regulate(5 << 20)
        assert valve.paused
    journal.share("192.0.2.1")
    assert told == ["room"]
    valve.regulate(5 << 20)
    assert not valve.paused


def test_a_limit_that_is_reached_meanwhile_holds():
    """Until half of it is free, though the address has less."""
    journal = ManualJournal()
    valve = Valve(FakeConnection(protocol="a"), journal, 100, lambda: None)
    journal.over.add("192.0.2.1")
    valve.regulate(100)
    journal.over.clear()
    for unacknowledged in (99, 51):
        valve.regulate(unacknowledged)
        assert valve.paused
    valve.regulate(50)
    assert not valve.paused


@pytest.fixture
def queue() -> FairQueue[str]:
    """One client has three items, another one, which came later."""
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "a3"):
        queue.put("a", item)
    queue.put("b", "b1")
    return queue


def rest(queue: FairQueue[str]) -> list[str]:
    taken = []
    while queue:
        taken.append(queue.take())
    return taken


def test_one_item_of_each_client_in_its_turn(queue):
    """And those of each in the order in which it put them, each once."""
    queue.put("a", "a2")
    assert rest(queue) == ["a1", "b1", "a2", "a3"]
    with pytest.raises(KeyError):
        queue.take()


def test_what_is_put_first_is_the_next_of_its_client(queue):
    """Whether it is new or waits already; other clients have their turn as before."""
    queue.put("a", "a3", first=True)
    queue.put("b", "b0", first=True)
    assert rest(queue) == ["a3", "b0", "a1", "b1", "a2"]


def test_what_is_removed_is_not_taken(queue):
    """One item, or all of a client; who has nothing left is not in the queue."""
    queue.remove("a", "a1")
    queue.remove("b", "b1")
    queue.remove("b", "b1")
    assert "b" not in queue
    assert list(queue.take_all("a")) == ["a2", "a3"]
    assert not queue
