"""Why a connection is not read: a set of reasons, each of which is enough."""

import pytest

from gateway.net.memory import MemoryBudget
from gateway.net.read_ahead import ReadAhead
from gateway.net.reading import Input, Unread

REASONS = {
    name: reason
    for name, reason in vars(Unread).items()
    if isinstance(reason, int) and reason.bit_count() == 1
}


def with_room() -> ReadAhead:
    """There is room to read ahead."""
    budget = MemoryBudget(lambda _: True)
    ahead = ReadAhead(budget.account(None, "192.0.2.1"), 1 << 20)  # type: ignore[arg-type]
    assert ahead.take_room()
    return ahead


def test_it_is_read_without_a_reason_against_it():
    """At first there is none, and no two are the same."""
    assert Input().is_read()
    assert len(set(REASONS.values())) == len(REASONS) == 10


@pytest.mark.parametrize("name", REASONS)
def test_each_reason_is_enough(name):
    """And when it is gone, the connection is read again."""
    input_ = Input()
    input_.unread |= REASONS[name]
    assert not input_.is_read()
    input_.unread &= ~REASONS[name]
    assert input_.is_read()


@pytest.mark.parametrize("name", sorted(REASONS.keys() - {"PAUSED", "AHEAD"}))
def test_what_is_paused_is_read_ahead_unless_there_is_another_reason(name):
    """Then the room that it had goes back, for others."""
    input_, ahead = Input(), with_room()
    input_.unread |= Unread.PAUSED
    input_.keep(ahead)
    assert input_.is_read()
    input_.unread |= REASONS[name]
    assert not input_.is_read()
    assert not ahead.has_room
    input_.unread &= ~REASONS[name]
    assert not input_.is_read()


def test_what_was_read_ahead_is_delivered_before_more_is_read():
    """The server goes on: first what waits, then the end behind it, if there was one."""
    input_ = Input()
    input_.keep(with_room())
    input_.unread |= Unread.END
    assert not input_.is_read()
    assert input_.delivered()
    assert input_.is_read()
    input_.keep(with_room())
    assert not input_.delivered()
