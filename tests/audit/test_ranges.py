"""Ranges behave as the sets of numbers that they stand for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.ranges import Ranges

pairs = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), max_size=8)


def numbers(ranges: Ranges) -> set[int]:
    return {n for first, last in ranges for n in range(first, last + 1)}


def spelled(given_pairs: list[tuple[int, int]]) -> list[int]:
    return [n for first, last in given_pairs for n in range(first, last + 1)]


@given(pairs, pairs)
def test_set_algebra(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    """Union, intersection and difference are those of the numbers in them."""
    a, b = Ranges.of(left), Ranges.of(right)
    one, two = set(spelled(left)), set(spelled(right))
    assert numbers(a) == one
    assert numbers(a | b) == one | two
    assert numbers(a & b) == one & two
    assert numbers(a - b) == one - two
    assert a.events == len(one)
    assert [a.touches(*pair) for pair in b] == [
        bool(one.intersection(spelled([pair]))) for pair in b
    ]
    assert a.last == max(one, default=0)


@given(pairs, pairs)
def test_results_are_in_shortest_form(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    """Ranges come out sorted and never touch, so equal sets are equal ranges."""
    a, b = Ranges.of(left), Ranges.of(right)
    for result in (a, a | b, a & b, a - b):
        flat = list(result)
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(flat))
        assert result == Ranges.of([(n, n) for n in numbers(result)])


@given(st.lists(pairs, max_size=4))
def test_joined_is_the_union(many: list[list[tuple[int, int]]]) -> None:
    """Many sets join into the set of all their numbers."""
    joined = Ranges.joined(Ranges.of(some) for some in many)
    assert joined == Ranges.of([pair for some in many for pair in some])


@given(pairs)
def test_twice_is_what_two_ranges_share(some: list[tuple[int, int]]) -> None:
    """A number that lies in two of the ranges is in `twice`, and no other."""
    flat = spelled(some)
    assert numbers(Ranges.twice(some)) == {n for n in flat if flat.count(n) > 1}


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 2**62))
def test_where_numbers_the_flags(flags: list[bool], start: int) -> None:
    """Flags become the lsns of those that are set."""
    found = Ranges.where(np.array(flags, bool), start)
    assert numbers(found) == {start + n for n, flag in enumerate(flags) if flag}
