"""Queries of the demo and of examples/game: what players did comes back to them as a push."""

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway_demo.scores import ROUTE, start_scores
from leaderboard import owners, start
from rules import ROOMS, Room, play

pytestmark = pytest.mark.spark


class Game:
    """A lake that events are put into, and what comes out at the other end."""

    def __init__(self, spark: Any, data: Path) -> None:
        self._spark = spark
        self._data = data
        (data / "outbox").mkdir()
        self.query = start_scores(spark, data)

    def play(self, *events: tuple[str, str, str]) -> list[dict[str, Any]]:
        """Second of arrival, protocol and payload of events; the pushes they make."""
        rows = ", ".join(
            f"(timestamp'2026-03-01 12:00:{second}', '{body}', "
            f"'{protocol}', date'2026-03-01')"
            for second, protocol, body in events
        )
        self._spark.sql(
            f"SELECT * FROM VALUES {rows} AS t(received_at, body, protocol, date)"
        ).write.mode("append").partitionBy("protocol", "date").parquet(
            str(self._data / "lake" / "events")
        )
        before = set(self._files())
        self.query.processAllAvailable()
        return [
            json.loads(line)
            for path in self._files()
            if path not in before
            for line in path.read_text().splitlines()
        ]

    def _files(self) -> list[Path]:
        return sorted((self._data / "outbox").glob("[!.]*"))


@pytest.fixture
def game(spark, tmp_path) -> Iterator[Game]:
    """Nobody has played yet."""
    found = Game(spark, tmp_path)
    yield found
    found.query.stop()


def scores(pushes: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    """By player and window."""
    for push in pushes:
        assert push["route"] == ROUTE
        assert push["uid"] == push["body"]["player"]
    return {
        (push["uid"], push["body"]["from"]): push["body"]["score"] for push in pushes
    }


def test_points_of_each_player_in_windows(game):
    """Sums in five seconds for everyone; a later event renews its own window only."""
    first = game.play(
        ("01", "pomelo", '{"player": "p1", "points": 3}'),
        ("02", "pomelo", '{"player": "p1", "points": 4}'),
        ("04.9", "pomelo", '{"player": "p2", "points": 10}'),
        ("05", "pomelo", '{"player": "p1", "points": 1}'),
    )
    assert scores(first) == {
        ("p1", "12:00:00"): 7,
        ("p2", "12:00:00"): 10,
        ("p1", "12:00:05"): 1,
    }
    second = game.play(("03", "pomelo", '{"player": "p1", "points": 2}'))
    assert scores(second) == {("p1", "12:00:00"): 9}


def test_only_of_games_and_of_players(game):
    """Other protocols' events play no part, and those without a player or points push to
    no one: `uid` null is everyone."""
    pushes = game.play(
        ("01", "lumberjack", '{"player": "p1", "points": 3}'),
        ("01", "pomelo", '{"player": "p1", "points": 5}'),
    )
    assert scores(pushes) == {("p1", "12:00:00"): 5}
    pushes = game.play(
        ("01", "pomelo", '{"text": "hi"}'),
        ("02", "pomelo", '{"points": 3}'),
        ("03", "pomelo", '{"player": "p1"}'),
    )
    assert pushes == []


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
