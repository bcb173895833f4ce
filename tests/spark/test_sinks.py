"""Which sink a data_dir has: one for good, because its ledger is with its tables."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deadlines import ROOT
from gateway.sink import NAMES, Ability, kind_of
from gateway.spark import job
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken, Ledger
from gateway.spark.commit.one_sink import claim
from gateway.spark.commit.parquet import check_shared
from gateway.store.readers.lake import INTERNAL, sink_of


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
