"""What the sink remembers."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.spark.commit.ledger import Broken, Hole, Ledger, Ranges
from gateway.store.names import Life, SpoolFile
from gateway.store.readers.lake import FORM
from gateway.store.system.disk import RealDisk
from incarnations import A, B

_spans = st.lists(
    st.tuples(
        st.sampled_from(["a@1", "a@2", "b.c-0@2"]),
        st.integers(1, 40),
        st.integers(0, 9),
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
def test_ranges_are_sets(one, two):
    """Size, intersection, union and inclusion agree with sets, in any order of adding."""
    a, b = as_ranges(one), as_ranges(two)
    assert len(a) == len(as_set(one))
    assert len(a.common(b)) == len(as_set(one) & as_set(two))
    assert a.common(b) == b.common(a)
    for node, at, more in two:
        life = Life(*node.split("@"))
        file = SpoolFile(*life, at, at + more)
        assert a.covers(file) == (as_set([(node, at, more)]) <= as_set(one))
    a.update(b)
    assert a == as_ranges([*two, *one])
    assert len(a) == len(as_set(one) | as_set(two))
    assert Ranges(a.plain()) == a


def test_a_ledger_survives(tmp_path):
    """What was saved is what is loaded."""
    hole = Hole("b", 5, 6, "events-b.parquet", "it is empty", 1.5)
    ledger = replace(
        Ledger().after("q", 7, Ranges({"gw": {A: [(1, 9)]}}), {}),
        holes=(hole,),
        types={"body": "string"},
    )
    ledger.save(RealDisk(), tmp_path / "events.json")
    assert Ledger.load(RealDisk(), tmp_path / "events.json") == ledger


def test_batches_of_all_queries_add_up():
    """A new checkpoint begins at batch 0; what was committed before stays known."""
    old = Ledger().after("old", 7, Ranges({"gw": {A: [(1, 9)]}}), {})
    new = old.after("new", 0, Ranges({"gw": {A: [(10, 12)]}}), {})
    assert (new.query, new.batch, new.sequence) == ("new", 0, 2)
    assert new.latest == Ranges({"gw": {A: [(10, 12)]}})
    assert new.committed == Ranges({"gw": {A: [(1, 12)]}})
    assert new.committed.last() == {"gw": 12}


def test_a_hole_is_closed_by_its_events():
    """A file that was mended and read is a hole no more."""
    name = "events-gw_aaaaaaaaaa-00000000000000000010-00000000000000000019.parquet"
    hole = Hole("gw", 10, 19, name, "it is empty", 1.5, A)
    ledger = replace(Ledger(), holes=(hole,))
    assert ledger.after("q", 0, Ranges({"gw": {A: [(1, 12)]}}), {}).holes == (hole,)
    assert ledger.after("q", 0, Ranges({"gw": {B: [(1, 19)]}}), {}).holes == (hole,)
    assert ledger.after("q", 0, Ranges({"gw": {A: [(1, 19)]}}), {}).holes == ()


def test_a_file_is_one_hole():
    """However often it was moved aside."""
    name = "events-gw_aaaaaaaaaa-00000000000000000010-00000000000000000019.parquet"
    one, again = (Hole("gw", 10, 19, name, "odd", at, A) for at in (1.5, 2.5))
    other = Hole("gw", 10, 19, name.replace(A, B), "odd", 1.5, B)
    ledger = Ledger().with_hole(one).with_hole(other).with_hole(again)
    assert ledger.holes == (other, again)


@pytest.mark.parametrize("other", [FORM - 1, FORM + 1])
def test_another_versions_ledger_is_left_as_it_is(tmp_path, other):
    """It may say what this version does not know, and would not write again."""
    path = tmp_path / "events.json"
    Ledger().after("q", 0, Ranges({"gw": {A: [(1, 9)]}}), {}).save(RealDisk(), path)
    theirs = json.loads(path.read_text()) | {"form": other}
    path.write_text(json.dumps(theirs))
    with pytest.raises(Broken, match=rf"form {other}, .*install the version"):
        Ledger.load(RealDisk(), path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 99}', '{"format": 1}'])
def test_a_damaged_ledger_is_refused(tmp_path, text):
    """Forgetting what is in the tables would double it, so it is not forgotten."""
    path = tmp_path / "events.json"
    path.write_text(text)
    with pytest.raises(Broken, match=r"events\.json"):
        Ledger.load(RealDisk(), path)
