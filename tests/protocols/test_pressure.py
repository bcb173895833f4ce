"""Back-pressure: which connections are read, and which one is given up."""

from __future__ import annotations

from gateway.interfaces import Refusal
from gateway.protocols.pressure import Unfinished, Valve
from gateway.testing import FakeConnection, ManualJournal


class Holding:
    """A server that has bytes buffered, and drops them when it is given up."""

    def __init__(self, all_of_them: Unfinished) -> None:
        self._all = all_of_them
        self.why: Refusal | None = None

    def hold(self, size: int) -> None:
        self._all.hold(self, size)

    def give_up(self, why: Refusal) -> None:
        self.why = why
        self.hold(0)


def test_a_connection_is_read_up_to_its_limit() -> None:
    """… and again when half of it is on disk, so that it does not flutter."""
    connection = FakeConnection(protocol="test")
    valve = Valve(connection, ManualJournal(), 100, lambda: None)
    seen = []
    for unacknowledged in (0, 99, 100, 99, 51, 50, 99):
        valve.regulate(unacknowledged)
        assert connection.paused == valve.paused
        seen.append(valve.paused)
    assert seen == [False, False, True, True, True, False, False]


def test_a_full_journal_stops_those_who_feed_it() -> None:
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


def test_who_holds_most_lets_go() -> None:
    """When all together hold too much, so that the rest can be finished."""
    journal = ManualJournal()
    journal.reservable = 100
    everybody = Unfinished(journal, "an unfinished window")
    small, large, third = (Holding(everybody) for _ in range(3))
    small.hold(30)
    large.hold(60)
    third.hold(20)
    assert str(large.why) == (
        "60 bytes of an unfinished window, the most while all connections together "
        "hold too many (journal.memory_bytes)"
    )
    assert (small.why, third.why) == (None, None)
    third.hold(60)
    assert third.why is None
    small.hold(0)
    third.hold(0)
    assert journal.reserved == 0
