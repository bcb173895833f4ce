"""Which segments a stream had when: by examples, and by rules that always hold."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.pravega.controller.epochs import (
    Cover,
    Part,
    between,
    equal_ranges,
    head,
    in_epoch,
    read_to,
    replaced,
    scalings,
    successors,
)

E1, E2 = 1 << 32, 2 << 32


def ids(parts: object) -> list[int]:
    return [part.id for part in parts]  # type: ignore[attr-defined]


@pytest.fixture
def parts() -> list[Part]:
    """The picture in `epochs`: 0 is split into 1 and 2, these are merged into 4."""
    first = [Part(0, 0.0, 1.0)]
    second, _ = replaced(first, {0}, [1, 2], equal_ranges(2), 1)
    third, _ = replaced(second, {E1 | 1, E1 | 2}, [4], [(0.0, 1.0)], 2)
    return third


def test_who_follows_whom(parts):
    """Successors with the predecessors that must be read before."""
    told = [
        [(each.id, ids(before)) for each, before in successors(parts, part)]
        for part in parts
    ]
    assert told == [
        [(E1 | 1, [0]), (E1 | 2, [0])],
        [(E2 | 4, [E1 | 1, E1 | 2])],
        [(E2 | 4, [E1 | 1, E1 | 2])],
        [],
    ]


def test_one_that_became_many():
    """Who follows is found by going over the segments some times, not once for each."""

    class Looked(list[Part]):
        looks = 0

        def __iter__(self):
            self.looks += 1
            return super().__iter__()

    made, _ = replaced([Part(0, 0.0, 1.0)], {0}, range(1, 101), equal_ranges(100), 1)
    parts = Looked(made)
    assert len(successors(parts, parts[0])) == 100
    assert parts.looks < 5


def test_the_head(parts):
    """One that is empty stays in the head while its successor follows another, too."""
    for gone, kept, behind in (
        (set(), [0], set()),
        ({0}, [E1 | 1, E1 | 2], {0}),
        ({0, E1 | 1}, [E1 | 1, E1 | 2], {0}),
        ({0, E1 | 1, E1 | 2}, [E2 | 4], {0, E1 | 1, E1 | 2}),
        ({E1 | 1, E1 | 2}, [0], set()),
    ):
        found = head(parts, lambda part, gone=gone: part.id in gone)  # type: ignore[misc]
        assert (ids(found[0]), found[1]) == (kept, behind)


def test_between_cuts(parts):
    """Both ends included; what was before or came later is not."""
    zero, one, two, four = parts
    assert between(parts, [zero], [four]) == parts
    assert between(parts, [one, two], [one, two]) == [one, two]
    assert between(parts, [zero], [zero]) == [zero]
    assert between(parts, [one, two], [four]) == [one, two, four]


def test_how_far_a_cut_is(parts):
    """All of what was before it, nothing of what came later."""
    found = read_to(parts, {E1 | 1: 7, E1 | 2: 8}, lambda _: 100)
    assert found == {0: 100, E1 | 1: 7, E1 | 2: 8, E2 | 4: 0}
    assert read_to(parts, {E1 | 2: 8}, lambda _: 100)[0] == 0
    assert read_to(parts, {}, lambda _: 100) == dict.fromkeys(found, 0)


@pytest.mark.parametrize(
    "ranges", [[], [(0, 0.5)], [(0.5, 1)], [(0, 0.4), (0.5, 1)], [(0, 1), (0.5, 1)]]
)
def test_no_cover(ranges):
    """Keys without a segment, or with two."""
    assert not Cover(Part(n, *each) for n, each in enumerate(ranges)).is_whole


@given(st.data())
def test_what_always_holds(data):
    """However a stream is scaled: each epoch covers the key space; so does the head,
    whatever is gone; all from the head to the newest epoch lies between them; who
    follows one is followed by none other; and replacements keep their ranges.
    """
    parts = [
        Part(number, *each)
        for number, each in enumerate(equal_ranges(data.draw(st.integers(1, 4))))
    ]
    number, last = len(parts), data.draw(st.integers(0, 6))
    for epoch in range(1, last + 1):
        active = Cover(part for part in parts if part.is_active).parts
        begin = data.draw(st.integers(0, len(active) - 1))
        end = data.draw(st.integers(begin + 1, len(active)))
        ended = active[begin:end]
        low, high, count = ended[0].low, ended[-1].high, data.draw(st.integers(1, 4))
        edges = [low + (high - low) * n / count for n in range(count)]
        numbers = range(number, number + count)
        parts, made = replaced(
            parts, {part.id for part in ended}, numbers, pairwise([*edges, high]), epoch
        )
        number += count
        assert Cover(made).ranges == [(low, high)]
    for epoch in range(last + 1):
        assert Cover(in_epoch(parts, epoch)).is_whole
    gone = data.draw(st.sets(st.sampled_from([part.id for part in parts])))
    kept, behind = head(parts, lambda part: part.id in gone)
    assert Cover(kept).is_whole
    assert behind <= gone
    active = [part for part in parts if part.is_active]
    left = [part for part in parts if part.id not in behind]
    assert between(parts, kept, active) == left
    for part in parts:
        for each, before in successors(parts, part):
            assert part in before
            assert {one.until for one in before} == {each.epoch}
    for old, new in scalings(parts):
        assert Cover(old).ranges == Cover(new).ranges
        assert len(Cover(old).ranges) == 1
