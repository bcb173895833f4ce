"""Demand adds up, saturates, and is never exceeded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.rsio.demand import (
    UNBOUNDED,
    Credit,
    Demand,
    not_positive,
    saturating_add,
)


@given(st.lists(st.integers(1, UNBOUNDED), max_size=20))
def test_demand_saturates(requests):
    """Any number of requests: their sum, or no bound; never a wrap (3.8, 3.17)."""
    demand = Demand()
    for more in requests:
        demand.add(more)
    assert demand.left == min(sum(requests), UNBOUNDED)


def test_no_bound_stays():
    """What has no bound is not used up."""
    demand = Demand(UNBOUNDED)
    demand.take(10**9)
    assert demand.left == UNBOUNDED


def test_more_than_demanded():
    """Our own publishers can not break rule 1.1."""
    demand = Demand(2)
    demand.take(2)
    with pytest.raises(ValueError, match="1\\.1"):
        demand.take(1)


def test_negative():
    """0, and what a signed Long looks like below it."""
    assert [not_positive(n) for n in (0, 1, 2**63 - 1, 2**63, 2**64 - 1)] == [
        True, False, False, True, True,
    ]  # fmt: skip


def test_saturating():
    """At the bound, and beyond it."""
    assert saturating_add(UNBOUNDED, 1) == saturating_add(2**62, 2**62) == UNBOUNDED
    assert saturating_add(1, 2) == 3


@given(st.integers(1, 50), st.lists(st.integers(0, 50), max_size=60))
def test_credit(window, steps):
    """durable <= arrived <= granted, and nothing is withheld once all is durable."""
    credit = Credit(window)
    for step in steps:
        room = window + credit.acknowledged - credit.arrived
        credit.arrived += min(step, room)
        credit.durable += min(step // 2, credit.arrived - credit.durable)
        if credit.due:
            before = credit.acknowledged
            assert credit.grant() == credit.acknowledged - before > 0
        assert credit.durable <= credit.arrived <= window + credit.acknowledged
        assert credit.acknowledged <= credit.durable
    credit.durable = credit.arrived
    if credit.durable > credit.acknowledged:
        assert credit.due
        credit.grant()
    assert credit.acknowledged == credit.arrived
