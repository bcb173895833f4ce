"""Columns, partitions and catalogs as a user wants them."""

import importlib
import json
import pathlib
import re
import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f

from format_tables import (
    MARKS,
    ONLY_DELTA,
    ONLY_ICEBERG,
    SIZE,
    World,
)
from gateway.audit.remote import Access, path_of
from gateway.config.columns import Column
from gateway.config.tables import TableByRule
from gateway.spark import job
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken
from gateway.spark.later.days import Rewritten
from gateway.spark.run.failure import Failed
from gateway.store.readers.lake import sink_of

pytestmark = MARKS


def test_columns_of_ones_own(world):
    """Called as SQL's own words, and without one that a compaction would sort by."""
    names = ("null", "order", "text", "current_date")
    world.config.spark.columns = {name: Column(path=name) for name in names}
    world.config.spark.columns["host"] = None
    world.spool.put("gw", 1 + 3 * SIZE, [b'{"null": "a", "order": "b", "text": "c"}'])
    world.run(1)
    world.run(2)
    world.run(1 + 3)
    list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    world.check_complete()
    (row,) = world.events().rows().where(f"lsn = {1 + 3 * SIZE}").collect()
    assert [row[name] for name in names] == ["a", "b", "c", None]
    assert "host" not in row.asDict()


@pytest.mark.lowest
def test_rows_of_before_get_the_columns_that_came_later(world):
    """A day a commit, while the job goes on; what else is in these rows stays, the ledger
    is carried on, and the audit is complete.  Columns must be named, and keep their type."""
    world.spool.put(
        "gw", 31, [b'{"status": 200, "message": "m"}', b"{"], flaws={1: "bad"}
    )
    sink = world.sink()
    sink.recover()
    world.run(4, sink=sink)
    before = {row.lsn: row.asDict() for row in world.events().rows().collect()}
    world.config.spark.columns = {"status": Column(path="status", type="int")}

    def backfill(*names: str) -> list[Rewritten]:
        return list(world.kind.backfill(world.config, world.spark, Lake(), names))

    assert len(backfill("status")) == 1
    world.spool.put("gw", 33, [b'{"status": 404}'])
    world.run(5, sink=sink)
    world.check_complete()
    after = {row.lsn: row.asDict() for row in world.events().rows().collect()}
    assert {lsn: after[lsn]["status"] for lsn in (1, 31, 32)} == {
        1: None,
        31: 200,
        32: None,
    }
    for lsn, row in before.items():
        assert row.items() <= after[lsn].items()
    [done] = world.kind.rewrite(
        *(world.config, world.spark, Lake()),
        lambda rows: rows.withColumn("peer", f.lit("")),
        "peerless",
    )
    assert done.rows == len(after)
    assert world.events().rows().where("peer <> ''").count() == 0
    world.check_complete()
    world.logs.lose()
    world.run(1, files=5)
    world.check_complete()
    with pytest.raises(Broken, match="say which columns"):
        backfill()
    world.config.spark.columns = {"status": Column(path="status", type="string")}
    with pytest.raises(Broken, match=r"status of .* is int, .* string: .* widen it"):
        backfill("status")


@pytest.mark.lowest
def test_a_column_that_somebody_widened(world):
    """By the format's own promotion: the job goes on beside it and after it, with the type of
    before in spark.columns, and with the new one.  The other way round is told."""
    types = {"n": ("int", "long"), "price": ("decimal(8,2)", "decimal(12,2)")}

    def columns(which: int) -> dict[str, Column]:
        kinds = {name: kind[which] for name, kind in types.items()}
        return {name: Column(path=name, type=kind) for name, kind in kinds.items()}

    world.config.spark.columns = columns(0)
    sent = b'{"n": 1, "price": "1.5"}', b'{"n": 5000000000, "price": 12345678901}'
    world.spool.put("gw", 1 + 3 * SIZE, sent)
    job.run(world.config, world.spark, available_now=True)
    table = world.events().name
    if world.config.spark.sink == "delta":
        table = f"delta.`{table}`"
        on = "('delta.enableTypeWidening' = 'true')"
        world.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES {on}")
    for name, kind in {"n": "bigint", "price": "decimal(12,2)"}.items():
        world.spark.sql(f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {kind}")
    for which, first in enumerate((3 + 3 * SIZE, 5 + 3 * SIZE)):
        world.config.spark.columns = columns(which)
        world.spool.put("gw", first, sent)
        job.run(world.config, world.spark, available_now=True)
    world.check_complete()
    rows = world.events().rows().where(f"lsn > {3 * SIZE}").orderBy("lsn").collect()
    found = [(row.n, row.price and str(row.price), row.misfits) for row in rows]
    one, odd = (1, "1.50", None), (None, None, "n,price")
    assert found == [one, odd, one, odd, one, (5000000000, None, "price")]
    list(world.kind.backfill(world.config, world.spark, Lake(), ["n"]))
    assert world.events().rows().where("n = 5000000000").count() == 3
    world.config.spark.columns = {"n": Column(path="n", type="double")}
    with pytest.raises(Failed, match=r"column n .* is bigint, .* double: .* widen it"):
        job.run(world.config, world.spark, available_now=True)


def test_partitions_and_filters_of_ones_own(world):
    """As the configuration has them when the table begins; filters also later."""
    asked = world.config.spark
    asked.partition_by = ["date", "host"]
    if asked.sink == "iceberg":
        asked.partition_by = ["date", "hours(event_time)", "bucket(4, host)"]
    world.run(1)
    asked.partition_by = ["protocol", "date"]
    asked.bloom_filters = ["agent_id"]
    world.run(3)
    world.check_complete()
    if asked.sink == "iceberg":
        table = world.events()._table()
        found = [str(one.name()) for one in table.spec().fields()]
        assert found == ["date", "event_time_hour", "host_bucket"]
        key = "write.parquet.bloom-filter-enabled.column.agent_id"
        assert table.properties().get(key) == "true"
    else:
        name = world.events().name
        detail = world.spark.sql(f"DESCRIBE DETAIL delta.`{name}`").collect()[0]
        assert detail["partitionColumns"] == ["date", "host"]


def scattered(world: World, lsn: int, count: int, differ: int = 9) -> int:
    """Puts so many events, of *differ* hours and hosts, in a table divided by these."""
    asked = world.config.spark
    asked.partition_by = ["date", "host"]
    if asked.sink == "iceberg":
        asked.partition_by = ["date", "hours(event_time)"]
    events = [
        {"@timestamp": 1_600_000_000 + 3600 * one, "host": f"h-{one}"}
        for one in (number % differ for number in range(count))
    ]
    world.spool.put("gw", lsn, [json.dumps(one).encode() for one in events])
    return lsn + count


def test_a_batch_of_many_partitions_is_told_of(world, caplog):
    """Which key divides the table by what, from where to where; others are not."""
    scattered(world, 1 + 3 * SIZE, 9)
    world.config.spark.most_partitions = 8
    world.run(4)
    world.check_complete()
    (told,) = [one for one in caplog.messages if "most_partitions" in one]
    assert re.search(r"batch 3 .* more than 8 partitions", told)
    assert re.search(r"(host|event_time_hour) has 9 values", told)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_thousands_of_partitions_fit_the_usual_heap(world):
    """A file is open for one of them at a time, in a batch of few bytes: 5000 events of 3000
    hours, or values of a column.
    """
    scattered(world, 1 + 3 * SIZE, 5000, 3000)
    world.run(4)
    world.check_complete()


@ONLY_DELTA
def test_delta_files_are_found_by_what_readers_look_for(world):
    """Least and greatest of these columns, and of no others, which cost to find."""
    world.run(1)
    table = Path(world.events().name.removeprefix("file://"))
    log = (table / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    [stats] = [json.loads(line)["add"]["stats"] for line in log if "add" in line[:6]]
    found = json.loads(stats)
    assert set(found["nullCount"]) == {"event_time", "received_at", "lsn"}
    assert (found["minValues"]["lsn"], found["maxValues"]["lsn"]) == (1, SIZE)


PAGE = Path(__file__).parents[3] / "docs/spark.md"


@pytest.mark.parametrize("rule", [None, "orders"])
def test_the_page_says_how_to_read_them_without_spark(world, rule):
    """Each line of it for this format finds all rows of a table, of one by rule, too."""
    if rule is not None:
        where = {"path": "host.name", "equals": "host-1"}
        world.config.spark.tables = {rule: TableByRule.model_validate({"where": where})}
    world.run(3)
    tables = world.events()
    table = tables if rule is None else tables.by_rule[rule]
    count = table.rows().count()
    assert count == 3 * SIZE if rule is None else 0 < count < 3 * SIZE
    section = PAGE.read_text().partition("### Read them without Spark")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    iceberg, delta = code.strip().split("\n\n")
    sink, names = world.config.spark.sink, {"json": json, "pathlib": pathlib}
    place, *lines = {"iceberg": iceberg, "delta": delta}[sink].splitlines()
    for module in ("pyiceberg.table", "pyiceberg.catalog.sql", "deltalake", "polars"):
        first = module.partition(".")[0]
        importlib.import_module(module)
        names[first] = importlib.import_module(first)
    if sink == "delta":
        place = f'table = "{table.name.removeprefix("file://")}"'
    exec(place.replace('"data/', f'"{world.config.data_dir}/'), names)
    assert len(lines) == {"iceberg": 4, "delta": 3}[sink]
    if sink == "iceberg":  # one warehouse for all tests
        _, space, name = table.name.split(".")
        warehouse = world.spark.conf.get("spark.sql.catalog.lake.warehouse")
        lines[-1] = (
            lines[-1]
            .replace("data/lake/iceberg", warehouse.removeprefix("file://"))
            .replace("gateway.events", f"{space}.{name}")
        )
        if rule is not None:  # the file names the table of all others
            load = lines[-1].partition(".scan()")[0]
            names["where"] = eval(load, names).metadata_location
    for line in lines:
        assert len(eval(line, names)) == count, line


@ONLY_ICEBERG
def test_the_usual_catalog_knows_views_and_what_others_did(world):
    """A view stays in it; the audit reads the files that the table has by now."""
    world.run(3)
    table = world.config.spark.table
    view = f"{table.rpartition('.')[0]}.fine"
    world.spark.sql(f"CREATE VIEW {view} AS SELECT lsn FROM {table} WHERE flaw IS NULL")
    assert world.spark.table(view).count() == 3 * SIZE
    world.spark.sql(f"DELETE FROM {table} WHERE lsn = 1")
    lake = world.config.data_dir / "lake"
    found = world.kind.files(lake, sink_of(lake), Access())
    rows = [pq.read_metadata(path_of(str(name))).num_rows for name, _ in found]
    assert sum(rows) == 3 * SIZE - 1


@ONLY_ICEBERG
def test_a_catalog_of_ones_own(world):
    """By plain Spark configuration: here folders, as our own were in earlier commits."""
    world.config.spark.table = "folders.company.events"
    job.run(world.config, world.spark, available_now=True)
    world.check_complete()
    list(world.kind.maintain(world.config, world.spark, Lake(), 7))
    world.check_complete()


@ONLY_ICEBERG
def test_a_catalog_that_is_away(world):
    """A start and a batch fail with its reason, and change nothing; once it answers
    again, all goes on."""
    world.config.spark.table = "sqlite.away.events"
    world.run(1)
    sink = world.sink()
    sink.recover()
    uri = world.spark.conf.get("spark.sql.catalog.sqlite.uri")
    other = sqlite3.connect(uri.removeprefix("jdbc:sqlite:"), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")  # nobody else is answered
    try:
        with pytest.raises(Exception, match=r"locked|SQLITE_BUSY|Failed to"):
            world.run(2, sink=sink)
        with pytest.raises(Exception, match=r"locked|SQLITE_BUSY|Failed to"):
            world.sink().recover()
    finally:
        other.execute("ROLLBACK")
        other.close()
    world.run(3)
    world.check_complete()
