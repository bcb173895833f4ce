"""The demo's own query: what players did comes back to them as a push."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_demo.scores import ROUTE, start_scores

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
