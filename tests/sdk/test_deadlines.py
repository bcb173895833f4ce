"""Many time-outs of the same length on one timer."""

import pytest
from twisted.internet.task import Clock

from gateway.sdk.deadlines import Deadlines


@pytest.fixture
def clock() -> Clock:
    """At 1000 seconds."""
    clock = Clock()
    clock.advance(1000)
    return clock


def test_each_is_due_once_in_its_turn(clock):
    """One timer serves all, and none runs when nobody is watched."""
    due: list[str] = []
    deadlines: Deadlines[str] = Deadlines(clock, 3.0, due.append)
    deadlines.watch("a")
    clock.advance(1)
    deadlines.watch("b")
    assert len(clock.getDelayedCalls()) == 1
    clock.advance(2)
    assert due == ["a"]
    clock.advance(1)
    assert due == ["a", "b"]
    assert not clock.getDelayedCalls()


def test_who_is_watched_again_begins_anew(clock):
    """… and who is forgotten is never due."""
    due: list[str] = []
    deadlines: Deadlines[str] = Deadlines(clock, 3.0, due.append)
    for one in "abc":
        deadlines.watch(one)
    clock.advance(2)
    deadlines.watch("a")
    deadlines.forget("b")
    clock.advance(1)
    assert due == ["c"]
    clock.advance(2)
    assert due == ["c", "a"]


def test_who_is_due_may_change_who_is_watched(clock):
    """It forgets another that is due, and is watched again itself."""
    due: list[str] = []

    def happen(one: str) -> None:
        due.append(one)
        deadlines.forget("b")
        if len(due) < 3:
            deadlines.watch(one)

    deadlines: Deadlines[str] = Deadlines(clock, 3.0, happen)
    deadlines.watch("a")
    deadlines.watch("b")
    clock.pump([3.0] * 4)
    assert due == ["a"] * 3
    assert not clock.getDelayedCalls()


def test_one_that_fails_keeps_no_other_waiting(clock, logged):
    """Nor those that are watched later: what it raised is in the log."""
    due: list[str] = []

    def happen(one: str) -> None:
        due.append(one)
        if one == "a":
            raise KeyError(one)

    deadlines: Deadlines[str] = Deadlines(clock, 3.0, happen)
    for one in "ab":
        deadlines.watch(one)
    clock.advance(3)
    deadlines.watch("c")
    clock.advance(3)
    assert due == ["a", "b", "c"]
    assert [event["log_failure"].type for event in logged] == [KeyError]
