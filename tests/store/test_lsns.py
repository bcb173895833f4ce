"""Sets of lsns behave as the sets of numbers that they stand for."""

import json
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.store.lsns import Lsns

_Ranges = list[tuple[int, int]]

ranges = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), max_size=8)


def spelled(some: _Ranges) -> list[int]:
    return [n for first, last in some for n in range(first, last + 1)]


def numbers(lsns: Lsns) -> set[int]:
    """Those in a set, which has to be in order, and as few ranges as there can be."""
    found = list(lsns)
    assert all(first <= last for first, last in found)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))
    return set(spelled(found))


@given(ranges, ranges)
@example([(1, 2), (5, 6)], [(3, 4)])
@example([(1, 9)], [(1, 2), (4, 9)])
def test_set_algebra(left, right):
    """Union, intersection and difference are those of the numbers, and change neither set."""
    a, b = Lsns(left), Lsns(right)
    one, two = set(spelled(left)), set(spelled(right))
    assert numbers(a) == one
    assert numbers(a | b) == one | two
    assert numbers(a & b) == one & two
    assert numbers(a - b) == one - two
    assert (numbers(a), numbers(b)) == (one, two)
    assert (a == b) == (one == two)
    assert (a.size, a.last, bool(a)) == (len(one), max(one, default=0), bool(one))


@given(ranges, ranges)
def test_what_is_added_in_place(before, more):
    """One range after the other, or a set at once, in any order."""
    one, two = Lsns(before), Lsns(before)
    for first, last in more:
        if first <= last:
            one.add(first, last)
    two.update(Lsns(more))
    assert one == two
    assert numbers(one) == {*spelled(before), *spelled(more)}


@given(ranges, st.integers(1, 40), st.integers(0, 9))
def test_what_it_says_of_a_range(some, first, more):
    """Whether it has all of it, and whether it has any."""
    lsns, mine = Lsns(some), set(spelled([(first, first + more)]))
    assert lsns.covers(first, first + more) == (mine <= numbers(lsns))
    assert lsns.touches(first, first + more) == bool(mine & numbers(lsns))


@given(st.lists(ranges, max_size=4))
def test_many_sets(many):
    """The union of sets is that of all their ranges."""
    joined = Lsns.joined(map(Lsns, many))
    assert joined == Lsns(each for some in many for each in some)
    assert numbers(joined) == {n for some in many for n in spelled(some)}


@given(ranges)
def test_what_two_ranges_share(some):
    """A number that lies in two of the ranges is in `twice`, and no other."""
    flat = spelled(some)
    assert numbers(Lsns.twice(some)) == {n for n in flat if flat.count(n) > 1}


@given(ranges)
def test_json_gives_it_back(some):
    """Its ranges as pairs are its form in files."""
    lsns = Lsns(some)
    assert Lsns(json.loads(json.dumps(list(lsns)))) == lsns
