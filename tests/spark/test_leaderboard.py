"""The leaderboard of examples/game: Spark's count of the table is that of the service."""

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from leaderboard import owners, start
from rules import ROOMS, Room, play

pytestmark = pytest.mark.spark

SCHEMA = "lsn BIGINT, kind STRING, route STRING, uid STRING, body STRING, protocol STRING, date DATE"

ODD = (
    "{}",
    "[]",
    '"text"',
    "[1]",
    '{"room":"lobby","x":3.0,"y":1}',
    '{"room":"lobby","x":1e0,"y":1}',
    '{"room":"lobby","x":"3","y":1}',
    '{"room":"lobby","x":true,"y":1}',
    '{"room":"lobby","x":null,"y":1}',
    '{"room":"lobby","x":-1,"y":1}',
    '{"room":"lobby","x":16,"y":1}',
    '{"room":"lobby","x":1,"y":10}',
    '{"room":"lobby","x":4294967297,"y":1}',
    '{"room":"attic","x":8,"y":8}',
    '{"room":5,"x":8,"y":8}',
    '{"room":null,"x":8,"y":8}',
    '{"room":["lobby"],"x":8,"y":8}',
    '{"room":"lobby","x":[8],"y":8}',
    '{"room":"lobby","x":15,"y":9,"more":{"x":2}}',
)


def requests() -> list[tuple[Any, ...]]:
    """Splashes in their order, and what is none."""
    chance = random.Random(17)
    names = ("ada", "grace", None, "", "👋" * 20)
    bodies = [
        {
            "room": chance.choice(ROOMS),
            "x": chance.randrange(16),
            "y": chance.randrange(10),
        }
        for _ in range(60)
    ]
    texts = [*map(json.dumps, bodies), *ODD]
    chance.shuffle(texts)
    rows: list[tuple[Any, ...]] = [
        (lsn, "request", "room.splash", chance.choice(names), text, "pomelo", None)
        for lsn, text in enumerate(texts, 1)
    ]
    room = '{"room":"cellar","x":5,"y":5}'
    rows.append((900, "request", "room.enter", "eve", room, "pomelo", None))
    rows.append((901, "notify", "room.splash", "eve", room, "pomelo", None))
    rows.append((902, "request", "room.splash", "eve", room, "lumberjack", None))
    return rows


def boards(rows: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """As the service has them, who answers Pomelo's requests."""
    rooms = {name: Room() for name in ROOMS}
    for _, kind, route, uid, body, protocol, _ in rows:
        if (kind, protocol) == ("request", "pomelo"):
            with suppress(KeyError, TypeError, ValueError):
                play(rooms, route, uid, json.loads(body))
    return {(name, *each) for name in ROOMS for each in rooms[name].seen()["board"]}


def test_spark_and_the_service_agree(spark):
    """Who holds which field; in any order, however often a row is read."""
    rows = requests()
    expected = boards(rows)
    again = [*rows, *rows[20:40]]
    random.Random(4).shuffle(again)
    found = owners(spark.createDataFrame(again, SCHEMA)).collect()
    assert {tuple(row) for row in found} == expected
    assert len(found) == len(expected) > 100


@pytest.fixture
def query(spark, tmp_path) -> Iterator[Any]:
    """The query, on a table that has nothing yet."""
    found = start(spark, tmp_path)
    yield found
    found.stop()


@pytest.mark.long
def test_the_best_are_pushed_to_everybody(spark, tmp_path, query):
    """In their order, a file for each change."""

    def splash(lsn: int, uid: str, x: int) -> tuple[Any, ...]:
        body = json.dumps({"room": "lobby", "x": x, "y": 5})
        return (lsn, "request", "room.splash", uid, body, "pomelo", None)

    def pushed(*rows: tuple[Any, ...]) -> Any:
        table = spark.createDataFrame(list(rows), SCHEMA).fillna({"protocol": "pomelo"})
        table = table.selectExpr("* except (date)", "date'2026-03-01' date")
        folder = tmp_path / "lake" / "events"
        table.coalesce(1).write.mode("append").partitionBy("protocol", "date").parquet(
            str(folder)
        )
        query.processAllAvailable()
        return json.loads(max((tmp_path / "outbox").iterdir()).read_text())

    first = pushed(splash(1, "ada", 2), splash(2, "grace", 10), splash(3, "ada", 6))
    assert (first["route"], first["all"]) == ("onLeaders", True)
    assert first["body"] == [
        {"player": "ada", "fields": 10},
        {"player": "grace", "fields": 5},
    ]
    # One that was painted over, and comes late.
    second = pushed(splash(5, "grace", 2), splash(4, "eve", 2))
    assert second["body"] == [
        {"player": "grace", "fields": 10},
        {"player": "ada", "fields": 5},
    ]
