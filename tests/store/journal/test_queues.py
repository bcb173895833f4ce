"""What comes in one turn of the reactor is one group, and what is durable is told soon."""

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from gateway.event import Batch
from gateway.store.journal.log import Synced
from gateway.store.journal.queues import Durable, Queues, Submitted
from gateway.store.system.threads import RealThreads

Make = Callable[..., Batch]

_SYNCED = Synced("segment", 100)


class Reactor(Clock):
    """Of the test's: what threads ask for is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Callable[[], None]] = []

    def callFromThread(self, call: Callable[..., Any], *args: object) -> None:
        self.asked.append(lambda: call(*args))


class Both:
    """The queues, and the test in place of the reactor and of the thread."""

    def __init__(self, make: Make, interval: float) -> None:
        self.make = make
        self.reactor = Reactor()
        self.told: list[Durable] = []
        self.queues = Queues(
            self.reactor, RealThreads(), self.reactor.seconds, interval, self.durable
        )

    def durable(self, done: Durable) -> None:
        self.told.append(done)

    def submit(
        self, count: int = 1, *, events: int = 1, answers: int = 1
    ) -> list[Batch]:
        made = [self.make(b"", count=events) for _ in range(count)]
        for batch in made:
            batch.answers = answers
            batch.submitted_at = self.reactor.seconds()
            self.queues.submit(Submitted(batch, Deferred()))
        return made

    def take(self) -> list[Batch]:
        return [waiting.batch for waiting in self.queues.take(one=False)]

    def commit(self) -> list[Batch]:
        group = self.queues.take(one=False)
        self.queues.complete(Durable(group, _SYNCED))
        return [waiting.batch for waiting in group]

    def batches_told(self) -> list[Batch]:
        return [one.batch for done in self.told for one in done.batches]


@pytest.fixture
def make_both(make) -> Callable[[float], Both]:
    return lambda interval: Both(make, interval)


@pytest.fixture
def both(make_both) -> Both:
    return make_both(0.002)


def test_what_comes_in_one_turn_is_one_group(both):
    """The thread has none of it before the turn ends, and all of it then."""
    sent = both.submit(3)
    assert both.take() == []
    both.reactor.advance(0)
    assert both.take() == sent


def test_a_turn_ends_before_it_is_over_if_somebody_says_so(both):
    """Whoever will take its time lets the thread have what there is."""
    sent = both.submit(2)
    both.queues.end_turn()
    assert both.take() == sent


def test_a_long_turn_is_not_waited_for(both):
    """Of a turn that takes longer than `commit_interval` the first part goes earlier."""
    sent = both.submit(2)
    both.reactor.rightNow += 0.002
    sent += both.submit()
    later = both.submit()
    assert both.commit() == sent
    both.reactor.advance(0)
    assert both.take() == later


def test_with_no_interval_everything_goes_at_once(make_both):
    """Then nothing waits for the turn's end."""
    both = make_both(0.0)
    sent = both.submit()
    assert both.take() == sent
    assert not both.reactor.getDelayedCalls()


def test_withdrawn_in_the_turn_it_came_in(both):
    """It is in no group, though the thread never had it."""
    first, second = both.submit(2)
    assert both.queues.withdraw(first)
    assert not both.queues.withdraw(first)
    assert both.take() == [second]
    assert not both.queues.withdraw(second), "it is taken"
    assert not both.queues.nothing_waits


def test_a_turns_batches_wait_even_if_the_thread_has_none(both):
    """What is not handed over yet is not nothing."""
    assert both.queues.nothing_waits
    both.submit()
    assert not both.queues.nothing_waits


def test_the_stop_leaves_nothing_behind(both):
    """What was submitted in the same turn is committed."""
    sent = both.submit(2)
    both.queues.stop()
    assert both.queues.wait(0.0, None)
    assert both.commit() == sent
    assert not both.queues.wait(0.0, None)


def test_very_many_batches_are_several_groups(both):
    """Those behind tiny ones do not wait for all of them."""
    sent = both.submit(1200)
    both.reactor.advance(0)
    groups = [both.commit() for _ in range(3)]
    assert [len(group) for group in groups] == [512, 512, 176]
    assert [batch for group in groups for batch in group] == sent


def test_groups_that_are_durable_come_back_with_one_call(both):
    """However many there are when the reactor looks."""
    sent = []
    for _ in range(3):
        sent += both.submit(2)
        both.reactor.advance(0)
        both.commit()
    [call] = both.reactor.asked
    call()
    assert both.batches_told() == sent
    assert [done.synced for done in both.told] == [_SYNCED] * 3
    assert not both.reactor.getDelayedCalls()
    both.submit()
    both.reactor.advance(0)
    both.commit()
    assert len(both.reactor.asked) == 2


@pytest.mark.parametrize(("answers", "most"), [(1, 512), (80, 47), (10_000, 1)])
def test_not_too_many_are_told_in_one_turn(both, answers, most):
    """Each batch costs some of it, and so do its answers; the group's end comes last."""
    sent = both.submit(1000, answers=answers)
    both.reactor.advance(0)
    both.commit()
    both.commit()
    [call] = both.reactor.asked
    call()
    told = len(both.batches_told())
    assert told == most
    while both.reactor.getDelayedCalls():
        both.reactor.calls.pop(0).func()
        assert 0 < len(both.batches_told()) - told <= most
        told = len(both.batches_told())
    assert both.batches_told() == sent
    ends = [number for number, done in enumerate(both.told) if done.synced is not None]
    assert len(ends) == 2
    assert ends[-1] == len(both.told) - 1


def test_events_that_one_answer_tells_of_wait_for_no_turn(both):
    """Told slower than they come, they and all behind them would wait ever longer."""
    sent = both.submit(100, events=20_000)
    both.reactor.advance(0)
    both.commit()
    [call] = both.reactor.asked
    call()
    assert both.batches_told() == sent


def test_who_raises_keeps_no_group_from_being_told(both):
    """The error is the reactor's to log."""

    def raising(done: Durable) -> None:
        both.told.append(done)
        raise RuntimeError("a protocol raised")

    both.queues._durable = raising  # the journal's own, which lets nothing out
    both.submit()
    both.reactor.advance(0)
    both.commit()
    both.submit()
    both.reactor.advance(0)
    both.commit()
    [call] = both.reactor.asked
    with pytest.raises(RuntimeError, match="a protocol raised"):
        call()
    with pytest.raises(RuntimeError, match="a protocol raised"):
        both.reactor.advance(0)
    assert len(both.told) == 2
