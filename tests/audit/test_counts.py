"""Counts agree with counting by hand, at the borders of chunks above all."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.counts import CHUNK, GREATEST, Counts
from gateway.store.lsns import Lsns

SMALL = 16
near = st.builds(
    lambda base, off: base + off,
    st.sampled_from([10, SMALL, 5 * SMALL]),
    st.integers(-6, 6),
)
groups = st.lists(st.lists(near, max_size=12), max_size=5)


def missing(counts, first, last):
    return Lsns([(first, last)]) - counts.seen(first, last)


@given(groups)
def test_counts_are_right(seen):
    """Whatever order lsns come in, each is counted as often as it came."""
    counts, by_hand = Counts(SMALL), Counter(n for group in seen for n in group)
    for group in seen:
        counts.add(np.array(group, np.int64))
    last = max(by_hand, default=0)
    assert counts.last == last
    everywhere = np.array(range(1, 6 * SMALL), np.int64)
    assert counts.of(everywhere).tolist() == [by_hand[int(n)] for n in everywhere]
    assert missing(counts, 1, 5 * SMALL + 9) == (
        Lsns([(1, 5 * SMALL + 9)]) - Lsns([(n, n) for n in by_hand])
    )
    assert counts.doubled(1, 6 * SMALL) == Lsns(
        [(n, n) for n, times in by_hand.items() if times > 1]
    )


@given(groups, groups)
def test_those_of_several_tables_are_added_up(one, other):
    """As if one had counted all; whole chunks too."""
    parts, together = (Counts(SMALL), Counts(SMALL)), Counts(SMALL)
    for counts, seen in zip(
        parts, (one, [*other, list(range(1, 3 * SMALL))]), strict=True
    ):
        for group in seen:
            counts.add(np.array(group, np.int64))
            together.add(np.array(group, np.int64))
    summed = Counts.summed(parts)
    everywhere = np.array(range(1, 6 * SMALL), np.int64)
    assert summed.of(everywhere).tolist() == together.of(everywhere).tolist()
    assert summed.last == together.last
    assert missing(summed, 1, 99) == missing(together, 1, 99)
    assert summed.doubled(1, 99) == together.doubled(1, 99)


def test_what_is_as_it_should_be_takes_no_memory():
    """In whatever order it is read; what is missing or doubled does, until it is not."""
    counts = Counts(SMALL)
    for first in (*range(1, 40 * SMALL, 10), *range(3, 40 * SMALL, 10)):
        many = 2 if first % 10 == 1 else 8
        counts.add(np.arange(first, first + many, dtype=np.int64))
    assert counts.memory <= SMALL
    counts.add(np.array([5 * SMALL + 3], np.int64))
    assert list(counts.doubled(1, 39 * SMALL)) == [(5 * SMALL + 3,) * 2]
    assert counts.memory <= 2 * SMALL
    assert not len(missing(counts, 1, 40 * SMALL))


def test_runs_cross_chunks():
    """A run over the border of two chunks is counted on both sides."""
    counts = Counts()
    counts.add(np.arange(CHUNK - 3, CHUNK + 3))
    counts.add(np.arange(CHUNK - 1, CHUNK + 1))
    assert list(missing(counts, CHUNK - 5, CHUNK + 4)) == [
        (CHUNK - 5, CHUNK - 4),
        (CHUNK + 3, CHUNK + 4),
    ]
    assert list(counts.doubled(1, 2 * CHUNK)) == [(CHUNK - 1, CHUNK)]


@pytest.mark.parametrize("lsns", [[7], [7, 9], [9, 7]])
def test_counting_stops_at_many(lsns):
    """An lsn that is there 300 times is doubled, not counted round to a small number."""
    counts = Counts()
    for _ in range(300):
        counts.add(np.array(lsns))
    assert 7 in [first for first, _ in counts.doubled(1, 10)]
    counts.add(np.array([7] * 1000))
    assert counts.of(np.array([7])).tolist() == [255]


def test_an_absurd_lsn_is_cheap():
    """One lsn at the end of the world leaves one hole before it, found at once."""
    counts = Counts()
    counts.add(np.array([1, GREATEST]))
    assert list(missing(counts, 1, GREATEST)) == [(2, GREATEST - 1)]
