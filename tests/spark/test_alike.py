"""Batches that belong into one folder, and all that only look so."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from gateway.spark.commit.sink import Plan
from gateway.spark.files import alike
from gateway.spark.rows import tables
from gateway.spark.rows.columns import Columns
from gateway.spark.run import query
from gateway.spark.source import SCHEMA_DDL
from gateway.store.names import SpoolFile, file_name, parse_file_name
from incarnations import A

NIGHT = datetime(2026, 3, 1, 23, 59, 59, 999_000, tzinfo=UTC)
DAY = Path("table=events", "protocol=lumberjack", "date=2026-03-01")

Put = Callable[..., SpoolFile]


@pytest.fixture
def put(tmp_path, make_envelope) -> Put:
    """Writes a spool file, its statistics those that the gateway writes."""

    def one(
        first: int,
        *tables: pa.Table,
        statistics: Any = ("lsn", "received_at", "protocol", "flaw"),
        node: str = "gw",
        **options: Any,
    ) -> SpoolFile:
        options.setdefault("received_at", _micros(NIGHT))
        made = list(tables) or [make_envelope(node, first, [b"{}"] * 3, **options)]
        rows = sum(map(len, made))
        file = parse_file_name(file_name(node, A, first, first + rows - 1))
        assert file is not None
        chosen = statistics if isinstance(statistics, bool) else list(statistics)
        with pq.ParquetWriter(
            tmp_path / file.name, made[0].schema, write_statistics=chosen
        ) as writer:
            for table in made:
                writer.write_table(table)
        return file

    return one


def _micros(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000 + at.microsecond


def test_one_protocol_one_day_no_flaw(put, tmp_path):
    """One file or more, one group of rows or more."""
    files = [put(1), put(4, statistics=True), put(7)]
    assert alike.folder_of(tmp_path, files) == DAY
    assert alike.folder_of(tmp_path, files[:1]) == DAY


@pytest.mark.parametrize(
    "other",
    [
        {"protocol": "pomelo"},
        {"flaws": {1: "oversized"}},
        {"flaws": dict.fromkeys(range(3), "oversized")},
        {"received_at": _micros(NIGHT + timedelta(milliseconds=1))},
    ],
    ids=str,
)
def test_rows_of_another_folder(other, put, tmp_path, make_envelope):
    """In another file, or another group of rows of one file."""
    assert alike.folder_of(tmp_path, [put(1), put(4, **other)]) is None
    options = {"received_at": _micros(NIGHT)}
    groups = [
        make_envelope("gw", 10, [b"{}"] * 3, **options),
        make_envelope("gw", 13, [b"{}"] * 3, **{**options, **other}),
    ]
    assert alike.folder_of(tmp_path, [put(10, *groups)]) is None


def test_what_footers_do_not_say(put, tmp_path):
    """No statistics, no file, a broken one, too many, a name that Spark would spell
    in another way: nothing is known."""
    good = put(1)
    for lacking in ("received_at", "protocol", "flaw"):
        some = {"lsn", "received_at", "protocol", "flaw"} - {lacking}
        assert alike.folder_of(tmp_path, [good, put(4, statistics=some)]) is None
    assert alike.folder_of(tmp_path, [put(4, statistics=False)]) is None
    assert alike.folder_of(tmp_path, [put(4, protocol="a=b")]) is None
    assert alike.folder_of(tmp_path, []) is None
    assert alike.folder_of(tmp_path, [good] * alike.MOST_FILES) == DAY
    assert alike.folder_of(tmp_path, [good] * (alike.MOST_FILES + 1)) is None
    broken = put(7)
    path = tmp_path / broken.name
    path.write_bytes(path.read_bytes()[:-8])
    assert alike.folder_of(tmp_path, [good, broken]) is None
    path.unlink()
    assert alike.folder_of(tmp_path, [good, broken]) is None


@pytest.mark.spark
@pytest.mark.parametrize(
    "second",
    [{}, {"protocol": "pomelo"}, {"flaws": {0: "oversized"}}],
    ids=["alike", "two protocols", "a flaw"],
)
def test_tables_are_the_same_either_way(second, put, tmp_path, spark):
    """The same folders, columns, types and rows as Spark makes row by row."""
    files = [put(1), put(4, **second)]
    assert (alike.folder_of(tmp_path, files) is not None) == (not second)
    paths = [f"file://{tmp_path / file.name}" for file in files]
    rows = tables.events(spark.read.schema(SCHEMA_DDL).parquet(*paths))
    named = tables.named(rows, files)
    query.Writer(spark, tmp_path, lambda _: named)(rows, tmp_path / "ours", Plan(files))
    named.write.partitionBy(*tables.PARTITIONS).parquet(f"file://{tmp_path}/spark")
    ours, theirs = _lake(tmp_path / "ours"), _lake(tmp_path / "spark")
    assert ours == theirs
    assert sum(map(len, ours.values())) == 6


@pytest.mark.spark
def test_batches_have_one_plan(put, tmp_path, spark):
    """Whatever files they have.  Another node has another plan, which knows those before, too;
    and what an attempt that failed has left is not taken."""
    read = query.reader(spark, tmp_path, "json", Columns())
    writer = query.Writer(spark, tmp_path, read)
    files = [put(1), put(4), put(1, node="other")]
    plans = []
    for number, some in enumerate([files[:1], files[1:2], files[2:], files[:2]]):
        folder = tmp_path / f"batch-{number}"
        (folder / DAY).mkdir(parents=True)
        (folder / DAY / "part-99.zstd.parquet").write_bytes(b"half of a fi")
        paths = [f"file://{tmp_path / file.name}" for file in some]
        rows = spark.read.schema(SCHEMA_DDL).parquet(*paths).select("lsn")
        writer(rows, folder, Plan(some))
        plans.append(writer._prepared)
        (written,) = _lake(folder).values()
        assert [(row["node"], row["lsn"]) for _, row, _ in written] == [
            (file.node, lsn)
            for file in some
            for lsn in range(file.first, file.last + 1)
        ]
        assert {row["incarnation"] for _, row, _ in written} == {A}
    assert plans[0] is plans[1]
    assert plans[1] is not plans[2]
    assert plans[2] is plans[3]


@pytest.mark.spark
def test_files_have_no_more_rows_than_spark_was_told(put, tmp_path, spark):
    """Then Spark writes them: a kept plan has one file for each task."""
    files = [put(1)]
    most = "spark.sql.files.maxRecordsPerFile"
    spark.conf.set(most, 1)
    try:
        read = query.reader(spark, tmp_path, "json", Columns())
        query.Writer(spark, tmp_path, read)(None, tmp_path / "made", Plan(files))
    finally:
        spark.conf.unset(most)
    made = [*(tmp_path / "made" / DAY).glob("*.parquet")]
    assert [pq.read_metadata(path).num_rows for path in made] == [1, 1, 1]


def _lake(path: Path) -> dict[str, list[Any]]:
    """Of each folder the rows, each with the names and types of its columns."""
    found: dict[str, list[Any]] = {}
    for file in sorted(path.rglob("*.parquet")):
        table = ds.dataset(file).to_table()
        kinds = [(field.name, str(field.type)) for field in table.schema]
        rows = found.setdefault(str(file.parent.relative_to(path)), [])
        rows += [(row["lsn"], row, kinds) for row in table.to_pylist()]
    return {
        folder: sorted(rows, key=lambda row: int(row[0]))
        for folder, rows in found.items()
        if rows
    }
