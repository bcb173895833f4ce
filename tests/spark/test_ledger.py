"""What the sink remembers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.spark.ledger import Broken, Hole, Ledger, Life, Ranges, SpoolFile
from gateway.store.disk import RealDisk
from gateway.store.lake import FORMAT

_spans = st.lists(
    st.tuples(
        st.sampled_from(["a", "a@1", "b.c-0@2"]), st.integers(1, 40), st.integers(0, 9)
    )
)


def as_set(spans: list[tuple[str, int, int]]) -> set[tuple[str, int]]:
    """The slow and obvious way."""
    return {(node, lsn) for node, at, more in spans for lsn in range(at, at + more + 1)}


def as_ranges(spans: list[tuple[str, int, int]]) -> Ranges:
    """The way under test."""
    ranges = Ranges()
    for node, at, more in spans:
        ranges.add(Life(*node.split("@")), at, at + more)
    return ranges


@given(_spans, _spans)
def test_ranges_are_sets(
    one: list[tuple[str, int, int]], two: list[tuple[str, int, int]]
) -> None:
    """Size, intersection, union and inclusion agree with sets, in any order of adding."""
    a, b = as_ranges(one), as_ranges(two)
    assert len(a) == len(as_set(one))
    assert len(a.common(b)) == len(as_set(one) & as_set(two))
    assert a.common(b) == b.common(a)
    for node, at, more in two:
        life = Life(*node.split("@"))
        file = SpoolFile("", life.node, at, at + more, life.incarnation)
        assert a.covers(file) == (as_set([(node, at, more)]) <= as_set(one))
    a.update(b)
    assert a == as_ranges([*two, *one])
    assert len(a) == len(as_set(one) | as_set(two))
    assert Ranges(a.plain()) == a


def test_a_ledger_survives(tmp_path: Path) -> None:
    """What was saved is what is loaded."""
    hole = Hole("b", 5, 6, "events-b.parquet", "it is empty", 1.5)
    ledger = replace(
        Ledger().after("q", 7, Ranges({"gw": [(1, 9)]})),
        holes=(hole,),
        types={"body": "string"},
    )
    ledger.save(RealDisk(), tmp_path / "events.json")
    assert Ledger.load(RealDisk(), tmp_path / "events.json") == ledger


def test_batches_of_all_queries_add_up() -> None:
    """A new checkpoint begins at batch 0; what was committed before stays known."""
    old = Ledger().after("old", 7, Ranges({"gw": [(1, 9)]}))
    new = old.after("new", 0, Ranges({"gw": [(10, 12)]}))
    assert (new.query, new.batch, new.sequence) == ("new", 0, 2)
    assert new.latest == Ranges({"gw": [(10, 12)]})
    assert new.committed == Ranges({"gw": [(1, 12)]})
    assert new.committed.last() == {"gw": 12}


def test_a_hole_is_closed_by_its_events() -> None:
    """A file that was mended and read is a hole no more."""
    name = "events-gw-00000000000000000010-00000000000000000019.parquet"
    hole = Hole("gw", 10, 19, name, "it is empty", 1.5)
    ledger = replace(Ledger(), holes=(hole,))
    assert ledger.after("q", 0, Ranges({"gw": [(1, 12)]})).holes == (hole,)
    assert ledger.after("q", 0, Ranges({"gw": [(1, 19)]})).holes == ()


def test_two_incarnations_files_of_one_name_are_two_holes() -> None:
    """Both have events that are in no table."""
    name = "events-gw-00000000000000000010-00000000000000000019.parquet"
    one, other = (Hole("gw", 10, 19, name, "odd", 1.5, by) for by in ("aaaa", "bbbb"))
    ledger = Ledger().with_hole(one).with_hole(other).with_hole(other)
    assert ledger.holes == (one, other)


def test_a_hole_that_did_not_say_whose_it_is_is_closed_by_its_file() -> None:
    """What was cut short has no footer; mended, it says by which incarnation.  Events of
    another one over the same lsns close nothing.
    """
    name = "events-gw-00000000000000000010-00000000000000000019.parquet"
    hole = Hole("gw", 10, 19, name, "it is cut short", 1.5)
    ledger = replace(Ledger(), holes=(hole,))
    other = "events-gw-00000000000000000001-00000000000000000030.parquet"
    by_other = Ranges({"gw": {"bbbb": [(1, 30)]}})
    assert ledger.after("q", 0, by_other, [other]).holes == (hole,)
    mended = Ranges({"gw": {"aaaa": [(10, 19)]}})
    assert ledger.after("q", 0, mended, [name]).holes == ()


def test_the_first_format_is_understood(tmp_path: Path) -> None:
    """Ledgers of version 0.1 go on; their tables have a VARIANT for a body."""
    path = tmp_path / "events.json"
    old = {"format": 1, "query": "q", "batch": 3, "earlier": {}}
    old |= {"latest": {"gw": [[5, 9]]}, "committed": {"gw": [[1, 9]]}}
    path.write_text(json.dumps(old))
    ledger = Ledger.load(RealDisk(), path)
    assert (ledger.batch, ledger.sequence) == (3, 0)
    assert ledger.committed == Ranges({"gw": [(1, 9)]})
    assert ledger.types == {"body": "variant"}


def test_a_newer_versions_ledger_is_left_as_it_is(tmp_path: Path) -> None:
    """It may say what this version does not know, and would not write again."""
    path = tmp_path / "events.json"
    Ledger().after("q", 0, Ranges({"gw": [(1, 9)]})).save(RealDisk(), path)
    newer = json.loads(path.read_text()) | {"format": FORMAT + 1}
    path.write_text(json.dumps(newer))
    with pytest.raises(Broken, match=rf"format {FORMAT + 1}, .*install the version"):
        Ledger.load(RealDisk(), path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 99}', '{"format": 1}'])
def test_a_damaged_ledger_is_refused(tmp_path: Path, text: str) -> None:
    """Forgetting what is in the tables would double it, so it is not forgotten."""
    path = tmp_path / "events.json"
    path.write_text(text)
    with pytest.raises(Broken, match=r"events\.json"):
        Ledger.load(RealDisk(), path)
