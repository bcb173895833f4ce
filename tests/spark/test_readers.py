"""Every reader that PyPI has opens the tables and sees every column, hostile rows too.

The table "Readers" in docs/spark.md has a row for each reader here.
"""

import datetime as dt
import importlib
import json
import re
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from gateway.config.tables import TableByRule
from gateway.spark import job
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.later.compact import compact
from gateway.spark.reading import files
from incarnations import A

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs" / "spark.md"
INSTANT = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)

#: Names of columns, by what a reader has to understand for them.
COLUMNS = {
    "names": (
        *("node", "incarnation", "protocol", "listener", "session", "peer", "kind"),
        "content_type",
        *("principal", "channel", "flaw", "misfits", "event_time_source"),
    ),
    "numbers": (
        "lsn",
        "seq",
        "payload_bytes",
        "log_offset",
        "status",
        "took",
        "fine",
        "price",
        "sizes",
    ),
    "times": ("received_at", "event_time", "ended", "date", "day"),
    "texts": (
        "body",
        "message",
        "host",
        "log_file_path",
        "agent_id",
        "event_dataset",
        "tags",
    ),
    "addresses": (
        *("scope", "stream", "segment", "event_offset", "route", "uid", "publisher"),
    ),
    "bytes": ("payload",),
    "attributes": ("attributes",),
}

PAYLOADS = [
    b'{"@timestamp": "2026-03-01T12:00:00Z", "message": "plain", "status": 200}',
    b'{"@timestamp": "12026-03-01T12:00:00Z", "message": "year 12026"}',
    b'{"@timestamp": "0000-01-01T00:00:00Z", "message": "year 0"}',
    b'{"n": 1e400, "m": 123456789012345678901234567890123456789012}',
    b'{"message": "\\u0000 \\ud83d\\ude00 \\n", "host": {"name": "h\xc3\xa9"}}',
    b'{"message": "lone \\ud800 surrogate"}',
    b'{"a": "\xff"}',
    b"",
    b'{"status": "many", "took": [], "fine": 3, "end": "never", "log": {"offset": -1}}',
    b'{"status": 99999999999, "took": 1e999, "log": "text", "price": "12.30"}',
    b'{"day": "2026-03-01", "price": 1.005, "tags": ["h\xc3\xa9", null], "sizes": [1]}',
    b"[" * 3000 + b"]" * 3000,
    b'{"a": 1, "a": 2}',
    b'{"message": "' + b"x" * 100_000 + b'"}',
]


def _spark(lake: Path, table: str, spark: Any) -> list[dict[str, Any]]:
    reader = spark.read.option("mergeSchema", True)
    rows = reader.parquet(f"file://{lake}/{table}").collect()
    return [row.asDict() for row in rows]


def _pyarrow(lake: Path, table: str, spark: Any) -> list[dict[str, Any]]:
    found = ds.dataset(files(lake, table), partitioning="hive").to_table()
    found.validate(full=True)
    return list(found.to_pylist())


def _polars(lake: Path, table: str, spark: Any) -> list[dict[str, Any]]:
    polars = importlib.import_module("polars")
    found = polars.scan_parquet(
        files(lake, table),
        hive_partitioning=True,
        missing_columns="insert",
        extra_columns="ignore",
    )
    return list(found.collect().to_dicts())


def _pandas(lake: Path, table: str, spark: Any) -> list[dict[str, Any]]:
    pandas = importlib.import_module("pandas")
    found = pandas.read_parquet(files(lake, table), dtype_backend="pyarrow")
    return list(found.to_dict("records"))


def _duckdb(lake: Path, table: str, spark: Any) -> list[dict[str, Any]]:
    duckdb = importlib.import_module("duckdb")
    with duckdb.connect() as database:
        database.sql("SET TimeZone = 'UTC'")
        found = database.sql(
            f"FROM read_parquet('{lake}/{table}/**/*.parquet', hive_partitioning=true,"
            " union_by_name=true)"
        )
        # Not fetchall(), which wants one more package for zones.
        return list(found.to_arrow_table().to_pylist())


READERS: dict[str, Callable[[Path, str, Any], list[dict[str, Any]]]] = {
    "Spark": _spark,
    "pyarrow": _pyarrow,
    "Polars": _polars,
    "pandas": _pandas,
    "DuckDB": _duckdb,
}


@pytest.fixture(
    scope="module",
    params=["as written", pytest.param("compacted", marks=pytest.mark.long)],
)
def lake(request, spark, tmp_path_factory, make_spool, make_config) -> Path:
    """Hostile rows in the tables, as the job writes them, or as a compaction leaves them."""
    data = tmp_path_factory.mktemp("readers")
    spool, config = make_spool(data / "spool"), make_config(data)
    wanted = {"status": "int", "took": "double", "fine": "boolean"}
    wanted |= {"ended": "timestamp", "day": "date", "price": "decimal(10,2)"}
    wanted |= {"tags": "list<string>", "sizes": "list<long>"}
    config.spark.columns = {
        name: SimpleNamespace(
            path="end" if name == "ended" else name,
            type=kind,
            default=None,
            protocol=None,
            listener=None,
        )
        for name, kind in wanted.items()
    }
    at = int(INSTANT.timestamp() * 1e6)
    flaws = {7: "empty", 13: "oversized"}
    many = [(1, PAYLOADS, flaws)]
    if request.param == "compacted":
        many = [
            (
                1 + n,
                PAYLOADS[n : n + 7],
                {m - n: flaws[m] for m in flaws if n <= m < n + 7},
            )
            for n in range(0, len(PAYLOADS), 7)
        ]
    for first, payloads, flawed in many:
        spool.put("gw", first, payloads, incarnation=A, received_at=at, flaws=flawed)
        job.run(config, spark, available_now=True)
    address = {"protocol": "pravega", "channel": "shop/orders/0.#epoch.0"}
    spool.put("gw", 101, [b'{"x": 1}'], received_at=at, **address)
    job.run(config, spark, available_now=True)
    bills = {"where": {"field": "channel", "matches": "^shop/bills/"}}
    config.spark.tables = {"bills": TableByRule.model_validate(bills)}
    address["channel"] = "shop/bills/0.#epoch.0"
    spool.put("gw", 102, [b'{"x": 2}'], received_at=at, **address)
    job.run(config, spark, available_now=True)
    if request.param == "compacted":
        done = list(
            compact(data / "lake", Lake(), before=INSTANT.date() + dt.timedelta(1))
        )
        assert {one.day.partition("/")[0] for one in done} == {"events", "stats"}
    return data / "lake"


def plain(value: Any) -> Any:
    """A value as every reader means it."""
    match value:
        case None:
            return None
        case float() if value != value:  # noqa: PLR0124 - pandas' null
            return None
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat()
        case dt.date():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case dict():
            return sorted(value.items())
        case _ if hasattr(value, "tolist") and getattr(value, "shape", ()):
            return plain(value.tolist())
        case list():
            return sorted(
                (
                    tuple(one.values()) if isinstance(one, dict) else one
                    for one in value
                ),
                key=repr,
            )
    return None if str(value) in ("<NA>", "NaT", "nan") else _unwrapped(value)


def _unwrapped(value: Any) -> Any:
    if hasattr(value, "to_pydatetime"):
        return plain(value.to_pydatetime())
    return value.item() if hasattr(value, "item") else value


@pytest.fixture(scope="module")
def of_spark(lake, spark) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table, as Spark reads them."""
    return {
        table: _spark(lake, table, spark) for table in ("events", "bills", "quarantine")
    }


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.lowest
def test_every_reader_sees_every_column(reader, lake, spark, of_spark):
    """The same values for everyone, in every row."""
    for table, rows in of_spark.items():
        seen = {row["lsn"]: row for row in READERS[reader](lake, table, spark)}
        wanted = {row["lsn"]: row for row in rows}
        assert seen.keys() == wanted.keys()
        for lsn, row in wanted.items():
            for name in chain.from_iterable(COLUMNS.values()):
                assert plain(seen[lsn][name]) == plain(row[name]), (lsn, name)


def test_no_column_is_left_out(of_spark):
    """What the tables have is what readers are asked for."""
    (row, *_) = of_spark["events"]
    asked = {name for names in COLUMNS.values() for name in names}
    assert row.keys() == asked


def test_what_was_sent_is_there(of_spark):
    """As text or as bytes, byte for byte."""
    rows = {row["lsn"]: row for table in of_spark.values() for row in table}
    for lsn, sent in enumerate(PAYLOADS, 1):
        row = rows[lsn]
        got = bytes(row["payload"]) if row["body"] is None else row["body"].encode()
        assert got == sent
    assert json.loads(rows[1]["body"])["status"] == rows[1]["status"] == 200
    assert rows[9]["misfits"] == "status,took,fine,ended"


@pytest.mark.parametrize("reader", READERS)
def test_a_daily_query_of_a_table_by_rule(reader, lake, spark):
    """It is a table as `events` is, and in no other."""
    bills, events = (READERS[reader](lake, one, spark) for one in ("bills", "events"))
    days = [(row["lsn"], plain(row["date"]), row["stream"]) for row in bills]
    assert days == [(102, "2026-03-01", "bills")]
    assert {plain(row["stream"]) for row in events} == {None, "orders"}


@pytest.mark.parametrize("reader", READERS)
def test_counts_add_up_for_everyone(reader, lake, spark):
    """`stats`, too, in every reader."""
    rows = READERS[reader](lake, "stats", spark)
    assert sum(row["events"] for row in rows) == len(PAYLOADS) + 2
    assert sum(row["flawed"] for row in rows) == 2
    assert {plain(row["window_start"]) for row in rows} == {"2026-03-01T12:00:00"}


@pytest.mark.parametrize("reader", READERS)
def test_files_of_before_a_column_are_read_beside_those_with_it(
    reader, lake, spark, tmp_path
):
    """It was configured later: in rows of before it is null, and in no reader do others lose
    theirs, whichever day comes first.
    """
    both = tmp_path / "lake"
    shutil.copytree(lake, both)
    whole = [path for path in files(both, "events") if "lumberjack" in path]
    for number, day in enumerate(("date=2026-02-28", "date=2026-03-09")):
        old = Path(whole[0]).parents[1] / day / f"part-000000000{number}-old-0.parquet"
        old.parent.mkdir()
        table = pq.ParquetFile(whole[0]).read().drop_columns(["status"])
        pq.write_table(table.slice(0, 1), old)
    rows = READERS[reader](both, "events", spark)

    def known(found: list[dict[str, Any]]) -> int:
        return sum(plain(row["status"]) is not None for row in found)

    assert known(rows) == known(READERS[reader](lake, "events", spark)) > 0
    assert sum(plain(row["date"]) == "2026-02-28" for row in rows) == 1
    assert sum(plain(row["date"]) == "2026-03-09" for row in rows) == 1


def test_the_manual_names_these_readers():
    """Each row of its table is a reader that is tested here, with its columns."""
    section = DOCS.read_text().partition("### Readers")[2].partition("\n##")[0]
    rows = re.findall(r"^\| (\w+)[^|]*\|(.*)\|$", section, re.MULTILINE)
    assert rows[0][0] == "reader"
    assert [name.strip() for name in rows[0][1].split("|")] == list(COLUMNS)
    assert [name for name, _ in rows[1:]] == list(READERS)
    for _, cells in rows[1:]:
        assert {cell.strip() for cell in cells.split("|")} == {"yes"}
