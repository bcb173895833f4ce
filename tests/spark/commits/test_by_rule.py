"""Tables by rule in Delta and Iceberg: each commits by itself, and one proof counts them all."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from format_tables import MARKS, ONLY_DELTA, SIZE, World
from gateway.config.tables import TableByRule
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.later.deletion import Asked, delete
from played_spark import PowerCut

pytestmark = MARKS

TABLES = TypeAdapter(dict[str, TableByRule])
FIRST = {
    "where": {"path": "host.name", "equals": "host-1"},
    "columns": {"line": {"path": "message"}},
}
SECOND = {"where": {"path": "message", "matches": "^line [0-9]*[02468]$"}}
BEFORE = TABLES.validate_python({"first": FIRST, "second": SECOND})
AFTER = TABLES.validate_python({"third": {"where": FIRST["where"]}, "second": SECOND})


def taken(lsn: int, tables: Any) -> str:
    """The table of an event of `SpoolFolder.events`."""
    one, other = tables
    if lsn % 3 == 1:
        return str(one)
    return "events" if lsn % 2 else str(other)


def there(world: World) -> dict[str, set[int]]:
    """The lsns in each table."""
    found: dict[str, set[int]] = {}
    for row in world.events().rows().select("table", "lsn").collect():
        found.setdefault(row[0], set()).add(row.lsn)
    return found


def counted(world: World) -> dict[str, int]:
    _, stats = world.kind.tables(world.config, world.spark)
    rows = stats.rows().groupBy("table").sum("events").collect()
    return {row[0]: row[1] for row in rows if row[1]}


@pytest.mark.parametrize(
    ("point", "checkpoint"),
    [
        pytest.param("in first", "lost", marks=pytest.mark.lowest),
        ("in second", "kept"),
    ],
)
def test_killed_between_two_tables(world, point, checkpoint):
    """The next start, whose rules are others, finishes the batch by those of its commits; counts
    are told apart, and the audit is complete.
    """
    world.config.spark.tables = BEFORE
    world.run(1)
    world.cut = point
    with pytest.raises(PowerCut):
        world.run(2)
    world.cut, world.config.spark.tables = None, AFTER
    if checkpoint == "lost":
        world.logs.lose()
        world.run(1, files=3)
    else:
        world.run(3)
    world.check_complete()
    expected: dict[str, set[int]] = {}
    for lsn in range(1, 3 * SIZE + 1):
        tables = BEFORE if lsn <= 2 * SIZE else AFTER
        expected.setdefault(taken(lsn, tables), set()).add(lsn)
    assert there(world) == expected
    assert counted(world) == {name: len(some) for name, some in expected.items()}
    by = world.events().by_rule
    assert {row.line for row in by["first"].rows().collect()} >= {"line 1", "line 4"}
    columns = {"first": True, "second": False, "third": False}
    assert {n: "line" in one.rows().columns for n, one in by.items()} == columns
    assert "line" not in world.events().main.rows().columns
    world.config.spark.tables = {}
    world.spool.events("gw", 31, SIZE)
    world.run(*((2, 3) if checkpoint == "lost" else (4, 1)))
    assert there(world)["events"] >= set(range(31, 41))


def test_what_comes_later(world):
    """A person is deleted from all tables, days go by the retention of each, one is filled, and
    all are maintained; the job goes on, and the audit knows.
    """
    world.config.spool.s3 = None
    world.config.spark.tables = BEFORE
    old = 1_772_366_400_000_000 - 9 * 86_400_000_000
    world.spool.events("gw", 31, SIZE, received_at=old, flaws={3: "invalid-json"})
    world.run(4)
    for name in world.spool.names():
        (world.spool.path / name).unlink()
    config, spark, disk = world.config, world.spark, Lake()
    names = set(there(world))
    assert names == {"events", "quarantine", "first", "second"}
    said = Asked("message IN ('line 1', 'line 2', 'line 3')", "case 1")
    [(_, data)] = delete(config, spark, disk, said)
    assert data["counts"] == {"events": 1, "first": 1, "second": 1}
    assert sum(counted(world).values()) == 4 * SIZE - 3
    second = {**SECOND, "columns": {"word": {"path": "message"}}}
    config.spark.tables = TABLES.validate_python({"first": FIRST, "second": second})
    done = list(world.kind.backfill(config, spark, disk, ["word"], ["second"]))
    assert {one.day.partition(": ")[0] for one in done} == {
        world.events().by_rule["second"].name
    }
    words = {row.word for row in world.events().by_rule["second"].rows().collect()}
    assert "line 4" not in words
    assert "line 6" in words
    assert len(list(world.kind.maintain(config, spark, disk, 5))) >= 3
    sink = world.sink()
    sink.recover()
    before = {"first": date(2026, 2, 28), "events": date(2026, 2, 28)}
    gone = sum(one.rows for one in sink.expire(before, lambda: False))
    assert gone == sum(taken(n, BEFORE) != "second" for n in range(31, 41) if n != 34)
    assert there(world)["second"] >= {32, 36}
    assert min(there(world)["first"]) == 4
    world.spool.events("gw", 41, SIZE)
    world.logs.lose()
    world.run(1)
    rows = Counter(row.lsn for row in world.events().rows().collect())
    assert set(rows.values()) == {1}
    assert set(range(41, 51)) < set(rows)


def test_each_table_has_partitions_of_its_own(world):
    """As the file has them when it begins; Iceberg's own parts of instants and hashes, too."""
    iceberg = world.config.spark.sink == "iceberg"
    own = (
        ["date", "hours(event_time)", "bucket(4, line)"]
        if iceberg
        else ["date", "line"]
    )
    first = {**FIRST, "partition_by": own}
    world.config.spark.tables = TABLES.validate_python(
        {"first": first, "second": SECOND}
    )
    world.run(1)
    later = {"first": {**FIRST, "partition_by": ["date"]}, "second": SECOND}
    world.config.spark.tables = TABLES.validate_python(later)
    world.run(3)
    world.check_complete()
    assert there(world)["first"] == {
        n for n in range(1, 31) if taken(n, BEFORE) == "first"
    }
    found = {name: partitions(world, table) for name, table in world.events().each()}
    usual = ["protocol", "date"]
    first_has = ["date", "event_time_hour", "line_bucket"] if iceberg else own
    assert found == {"events": usual, "first": first_has, "second": usual}


def partitions(world: World, table: Any) -> list[str]:
    if world.config.spark.sink == "iceberg":
        return [str(one.name()) for one in table._table().spec().fields()]
    detail = world.spark.sql(f"DESCRIBE DETAIL delta.`{table.name}`").collect()[0]
    return list(detail["partitionColumns"])


def test_a_table_has_lost_and_got_columns_meanwhile(world):
    """Whoever has taken one from the file, or put one into a table by hand, has null there."""
    world.config.spark.tables = BEFORE
    world.run(1)
    events = world.events()
    name = events.by_rule["second"].name
    name = name if world.config.spark.sink == "iceberg" else f"delta.`{name}`"
    world.spark.sql(f"ALTER TABLE {name} ADD COLUMNS (byhand STRING)")
    world.config.spark.tables = TABLES.validate_python(
        {"first": {"where": FIRST["where"]}, "second": SECOND}
    )
    world.run(3)
    world.check_complete()
    by = world.events().by_rule
    lines = {row.lsn: row.line for row in by["first"].rows().collect()}
    assert lines == {n: f"line {n}" if n <= SIZE else None for n in lines}
    assert {row.byhand for row in by["second"].rows().collect()} == {None}


def test_what_was_written_and_not_committed(world):
    """Files of a batch that was killed in between are no rows of any table; VACUUM, or the
    removal of orphans, takes them.
    """
    world.config.spark.tables = BEFORE
    world.run(1)
    world.cut = "in first"
    with pytest.raises(PowerCut):
        world.run(2)
    world.cut = None
    world.run(3)
    world.check_complete()
    assert not list(world.config.data_dir.rglob("_staged"))


@ONLY_DELTA
def test_a_table_whose_files_only_delta_knows_to_write(world):
    """One with column mapping, and one with a constraint, take their rows by Delta's own write."""
    world.config.spark.tables = BEFORE
    world.run(1)
    by = world.events().by_rule
    for name, sql in {
        "first": "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "second": "ADD CONSTRAINT some CHECK (lsn > 0)",
    }.items():
        world.spark.sql(f"ALTER TABLE delta.`{by[name].name}` {sql}")
    renamed = f"ALTER TABLE delta.`{by['first'].name}` RENAME COLUMN line TO text"
    world.spark.sql(renamed)
    for one in by.values():
        one.fit(one.rows())
        assert one.alike() is None
    world.run(3)
    world.check_complete()
    lines = {row.lsn: row.line or row.text for row in by["first"].rows().collect()}
    assert lines == {n: f"line {n}" for n in lines}


@ONLY_DELTA
def test_tables_in_a_folder_of_any_name(world, tmp_path):
    """Blanks and `%20` stay what they are, there and in values of partitions."""
    world.config.spark.table = str(tmp_path / "my data/%20/events")
    first = {**FIRST, "partition_by": ["line"]}
    world.config.spark.tables = TABLES.validate_python({"first": first})
    world.run(1)
    assert there(world)["first"] == {1, 4, 7, 10}


@ONLY_DELTA
def test_tables_in_a_bucket(world, server):
    """Files get their names there, too, and none is left where they were staged."""
    world.config.spark.table = "s3a://bucket/shop/events"
    world.config.spark.tables = BEFORE
    world.run(3)
    expected: dict[str, set[int]] = {}
    for lsn in range(1, 3 * SIZE + 1):
        expected.setdefault(taken(lsn, BEFORE), set()).add(lsn)
    assert there(world) == expected
    names = [name for name in server.objects if name.startswith("bucket/shop/")]
    assert not [name for name in names if "/_staged/" in name]
    assert [name for name in names if name.startswith("bucket/shop/first/protocol=")]


@ONLY_DELTA
def test_files_say_what_readers_skip_by(world):
    """Each has the least and the greatest of the columns that are looked for, and its own
    partition, as one that Delta has written for itself.
    """
    world.config.spark.tables = BEFORE
    world.run(1)
    name = world.events().by_rule["first"].name
    log = sorted(Path(name.removeprefix("file://"), "_delta_log").glob("*.json"))
    (add,) = [
        one["add"] for one in map(json.loads, log[-1].read_text().splitlines())
        if "add" in one
    ]  # fmt: skip
    assert set(add["partitionValues"]) == {"protocol", "date"}
    assert add["path"].startswith("protocol=lumberjack/date=")
    stats = json.loads(add["stats"])
    assert (stats["minValues"]["lsn"], stats["maxValues"]["lsn"]) == (1, 10)
    assert set(stats["maxValues"]) == {"event_time", "received_at", "lsn"}
    rows = world.events().by_rule["first"].rows()
    assert [row.lsn for row in rows.where("lsn > 5").orderBy("lsn").collect()] == [
        7,
        10,
    ]
