"""What the sink remembers, and which sink a data_dir has for good."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadlines import ROOT
from gateway.sink import NAMES, Ability, kind_of
from gateway.spark import job
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken, Hole, Ledger, Ranges
from gateway.spark.commit.one_sink import claim
from gateway.spark.commit.parquet import check_shared
from gateway.store.names import Life, SpoolFile
from gateway.store.readers.lake import FORM, INTERNAL, sink_of
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


def test_a_lake_keeps_its_sink(tmp_path):
    """Another one would begin with an empty ledger: refused, with what to do."""
    lake, disk = tmp_path / "lake", Lake()
    assert sink_of(lake) is None
    claim(lake, disk, {"sink": "delta", "table": "/t"})
    claim(lake, disk, {"sink": "delta", "table": "/t"})
    for other in ({"sink": "parquet"}, {"sink": "delta", "table": "/other"}):
        with pytest.raises(Broken, match=r"is that of spark\.sink: delta \(/t\)"):
            claim(lake, disk, other)


def test_a_function_that_is_not_there_is_told_before_java_starts(tmp_path):
    """Which takes many seconds, on a cluster minutes."""
    for name in ("no_such_module:function", "json:no_such_function"):
        with pytest.raises(Broken, match=f"spark.sink: {name}: "):
            kind_of(name).settings(SimpleNamespace(sink=name), tmp_path, "4.1.0")


def test_tables_of_parquet_need_no_word(tmp_path):
    """An earlier version left none: there is a ledger, and nothing says whose it is."""
    lake, disk = tmp_path / "lake", Lake()
    disk.make_directory(lake / INTERNAL)
    Ledger().save(disk, lake / INTERNAL / "events.json")
    claim(lake, disk, {"sink": "parquet"})
    with pytest.raises(
        Broken, match=r"is that of spark\.sink: parquet, not of function"
    ):
        claim(lake, disk, {"sink": "function"})


def test_the_page_says_what_each_kind_is_able_to():
    """Row by row, as the kinds themselves say it."""
    page = (ROOT / "docs/spark.md").read_text()
    lines = (
        page.partition("## What each kind of tables has\n")[2].strip().split("\n\n")[0]
    )
    head, _, *rows = (
        [*map(str.strip, one.split("|")[1:-1])] for one in lines.split("\n")
    )
    kinds = [kind_of(name.strip("`")) for name in head[1:]]
    said = {row[0]: [answer.startswith("yes") for answer in row[1:]] for row in rows}
    assert [kind.name for kind in kinds] == [*NAMES, "function"]
    words: dict[str, Ability] = {
        "gateway spark backfill": "backfill",
        "gateway spark compact": "compact",
        "spark.partition_by": "partitions",
        "spark.bloom_filters": "bloom",
        "gateway spark maintain": "maintain",
        "spark.retention": "expire",
        "spark.deduplicate": "deduplicate",
        "spark.body": "variant",
        "job's disk": "elsewhere",
        "gateway table`, Parquet": "folders",
        "spark.tables": "tables",
        "the audit": "rows",
        "spark.job": "shared",
    }
    for word, ability in words.items():
        (found,) = [row for what, row in said.items() if word in what]
        assert found == [ability in kind.abilities for kind in kinds], word


class Cluster:
    """A Spark whose executors write where this process does not look."""

    def __init__(self, master: str, lands_in: Path | None) -> None:
        self.sparkContext = SimpleNamespace(master=master)
        self._lands_in = lands_in

    def range(self, _count: int) -> Any:
        return self

    def coalesce(self, _count: int) -> Any:
        return self

    @property
    def write(self) -> Any:
        return self

    def mode(self, _name: str) -> Any:
        return self

    def parquet(self, url: str) -> None:
        folder = self._lands_in or Path(url.removeprefix("file://"))
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_bytes(b"PAR1")


def test_parquet_needs_a_file_system_that_all_share(tmp_path):
    """Rows on an executor's own disk would be lost: refused."""
    elsewhere = Cluster("spark://m:7077", tmp_path / "elsewhere")
    with pytest.raises(Broken, match=r"POSIX file system .* iceberg or delta"):
        check_shared(tmp_path / "lake", elsewhere)
    check_shared(tmp_path / "lake", Cluster("spark://m:7077", None))
    assert not (tmp_path / "lake" / INTERNAL / "probe").exists()
    check_shared(tmp_path / "lake", Cluster("local[2]", tmp_path / "elsewhere"))


def test_a_broken_function_stops_the_job_before_spark(config):
    """Nobody waits for Java to hear of a wrong name."""
    config.spark.sink = "no_such_module:function"
    with pytest.raises(job.Failed, match=r"spark\.sink: no_such_module:function: Mod"):
        job.run(config)
