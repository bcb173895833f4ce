"""Tables by rule in Delta and Iceberg: each commits by itself, and one proof counts them all."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import Any

import pytest
from pydantic import TypeAdapter

from format_tables import MARKS, SIZE, World
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
