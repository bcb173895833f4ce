"""Our own writer of Parquet beside Spark's: the same cells, and the same that files say of them."""

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.functions import lit

from gateway.config.spark import Spark
from gateway.spark.commit.prepared import Prepared, compiled_task, others, parts_of
from gateway.spark.jvm import session
from gateway.store.hub.pages import unpacked_sizes

VECTORS = "spark.sql.parquet.enableVectorizedReader"
ROWS = 4500
NAMES = ["", "a", "ä", "a\x00", "\U0001f600", "nginx-ingress-controller", "z" * 300]


def _column(kind: pa.DataType, make: Any, nulls: float = 0.3, seed: int = 1) -> Any:
    """Values of a column; those that are missing stand together, and alone."""
    chance, found, gone = random.Random(seed), [], False
    for number in range(ROWS):
        if chance.random() < 0.1:
            gone = chance.random() < nulls
        found.append(None if gone else make(number, chance))
    return pa.array(found, kind)


def _source() -> pa.Table:
    """Of each type that tables have, of few values, of many, and of none."""
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    text, long = pa.string(), pa.int64()
    instant = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "few": _column(text, lambda _, chance: chance.choice(NAMES)),
            "runs": _column(text, lambda n, _: NAMES[n // 700], nulls=0),
            "each": _column(text, lambda n, _: f"{n * 7919 % ROWS}-{n}"),
            "later": _column(text, lambda n, _: "x" if n < 3000 else f"{n}" * 9),
            "large": _column(text, lambda n, _: chr(97 + n % 26) * (n % 900)),
            "none": pa.array([None] * ROWS, text),
            "bytes": _column(pa.binary(), lambda n, _: bytes([n % 256, 255, 0])),
            "number": _column(long, lambda _, chance: chance.randint(-(2**63), 2**63 - 1)),
            "small": _column(long, lambda n, _: n % 3 - 1),
            "least": _column(long, lambda n, _: (-(2**63), 2**63 - 1)[n % 2]),
            "int": _column(pa.int32(), lambda n, _: (n % 9 - 4) * 2**28),
            "day": _column(pa.date32(), lambda n, _: date(1969, 12, 1) + timedelta(n % 99)),
            "instant": _column(instant, lambda n, _: noon - timedelta(microseconds=n**4)),
            "double": _column(pa.float64(), lambda n, _: (n - 99) / 7),
            "flag": _column(pa.bool_(), lambda n, _: n % 3 == 0),
            "price": _column(pa.decimal128(20, 4), lambda n, _: Decimal(n - 50).scaleb(-3)),
            "list": _column(pa.list_(text), lambda n, _: [None, "b"][: n % 3]),
            "map": _column(pa.map_(text, text), lambda n, _: [(f"k{n % 5}", None)]),
        }
    )  # fmt: skip


#: Pages, groups of rows and dictionaries as large as they are anyhow, and as small as can be.
SIZES = {
    "as they are": {},
    "small pages": {"parquet.page.size": 4096, "parquet.dictionary.page.size": 2000},
    "few rows in a page": {"parquet.page.row.count.limit": 100},
    "any rows in a page": {"parquet.page.row.count.limit": 2**31 - 1},
    "small groups": {"parquet.block.size": 200_000},
    "no dictionaries": {"parquet.enable.dictionary": "false"},
    "one without": {"parquet.enable.dictionary#few": "false"},
    "a list without": {"parquet.enable.dictionary#list.list.element": "false"},
    "snappy": {"spark.sql.parquet.compression.codec": "snappy"},
}


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    pq.write_table(_source(), folder / "rows.parquet", row_group_size=2000)
    return folder


@pytest.mark.spark
@pytest.mark.parametrize("size", SIZES)
def test_cells_and_statistics_are_those_of_spark(size, source, tmp_path, spark):
    given = {name: str(value) for name, value in SIZES[size].items()}
    rows = spark.read.parquet(f"file://{source}").withColumn("always", lit(7))
    before = {name: spark.conf.get(name, None) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    try:
        ours, theirs = tmp_path / "ours", tmp_path / "theirs"
        rows.coalesce(1).write.parquet(f"file://{theirs}")
        ours.mkdir()
        prepared = Prepared(spark, rows, compiled_task(spark))
        assert prepared.others == []
        prepared.write(parts_of(rows), ours, 1)
    finally:
        for name, was in before.items():
            spark.conf.unset(name) if was is None else spark.conf.set(name, was)
    (path,), (other,) = ours.glob("part-*"), theirs.glob("part-*")
    assert path.suffixes == other.suffixes[-2:]
    written = pq.read_table(path)
    assert written.drop("always").equals(pq.read_table(source / "rows.parquet"))
    assert written["always"].to_pylist() == [7] * ROWS
    assert pq.read_table(path, page_checksum_verification=True).num_rows == ROWS
    assert pq.read_schema(path).metadata == pq.read_schema(other).metadata
    assert _said(path) == _said(other)
    asked = [name for name, value in given.items() if value == "false"]
    without = {name.partition("#")[2] for name in asked}
    assert not _dictionaries(path) & (_dictionaries(path) if "" in without else without)
    most = SIZES[size].get("parquet.page.row.count.limit", ROWS)
    assert _pages(path, "number") >= ROWS / int(most)
    groups = pq.read_metadata(path).num_row_groups
    assert (groups > 1) == (size == "small groups")
    mine = spark.read.parquet(f"file://{ours}")
    # Who looks for a value finds it by what dictionaries and pages say of theirs.
    wanted = mine.where("few = 'ä' AND day > DATE'1970-02-01'").count()
    assert wanted == rows.where("few = 'ä' AND day > DATE'1970-02-01'").count() > 0
    # Spark reads them in columns, and a row at a time.
    for columns in ("true", "false"):
        spark.conf.set(VECTORS, columns)
        assert mine.toArrow().to_pydict() == rows.toArrow().to_pydict()
    spark.conf.unset(VECTORS)


@pytest.mark.spark
def test_no_rows_are_no_file(source, tmp_path, spark):
    rows = spark.read.parquet(f"file://{source}").where("few = 'nowhere'")
    Prepared(spark, rows, compiled_task(spark)).write(parts_of(rows), tmp_path, 1)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "name", ["parquet.crypto.factory.class", "parquet.bloom.filter.enabled#few"]
)
@pytest.mark.spark
def test_wishes_that_only_hadoop_was_told_are_heard(name, source, spark):
    """As those of `core-site.xml`, or of the session while it runs: encryption is one."""
    rows = spark.read.parquet(f"file://{source}")
    spark.conf.set(name, "some")
    try:
        assert Prepared(spark, rows, compiled_task(spark)).others == [name]
    finally:
        spark.conf.unset(name)


def test_other_wishes_are_those_of_sparks_own_writer():
    """Filters for values, encryption, instants in another unit: it is asked for by name."""
    usual = session.settings(Spark())
    assert others(usual) == []
    fine = {
        "spark.sql.parquet.compression.codec": "snappy",
        "parquet.block.size": "1000",
        "parquet.enable.dictionary#few": "false",
        "parquet.compression.codec.zstd.level": "9",
        "spark.driver.memory": "2g",
    }
    assert others({**usual, **fine}) == []
    for name, value in {
        "parquet.bloom.filter.enabled#few": "true",
        "parquet.bloom.filter.enabled": "true",
        "parquet.crypto.factory.class": "some.Factory",
        "parquet.writer.version": "PARQUET_2_0",
        "parquet.statistics.enabled": "false",
        "parquet.page.size.check.estimate": "false",
        "spark.sql.variant.writeShredding.enabled": "true",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    }.items():
        assert others({**usual, name: value}) == [name]


def _dictionaries(path: Path) -> set[str]:
    """The columns that have some."""
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {one.path_in_schema for one in columns if one.has_dictionary_page}


def _pages(path: Path, column: str) -> int:
    """How many pages the column has, in all groups of rows."""
    metadata = pq.read_metadata(path)
    place = metadata.schema.names.index(column)
    with path.open("rb") as file:
        return sum(
            len([*unpacked_sizes(file, path.stat().st_size, group.column(place))])
            for group in map(metadata.row_group, range(metadata.num_row_groups))
        )


def _said(path: Path) -> dict[str, Any]:
    """The least and greatest value of each column, and how many it lacks."""
    found: dict[str, Any] = {}
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            one = metadata.row_group(group).column(number)
            least, greatest, nulls, count = found.get(
                one.path_in_schema, (None, None, 0, 0)
            )
            said = one.statistics
            if said.has_min_max:
                least = said.min if least is None else min(least, said.min)
                greatest = said.max if greatest is None else max(greatest, said.max)
            found[one.path_in_schema] = (
                least, greatest, nulls + said.null_count, count + one.num_values
            )  # fmt: skip
    return found
