"""Upkeep of tables: of Delta and Iceberg each hour beside the job, and of days in folders."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.config import Config
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger
from gateway.spark.commit.partition import alone
from gateway.spark.later import compact
from gateway.spark.later.upkeep import Upkeep
from gateway.spark.run.housekeeping import Housekeeping


class World:
    """Work that notes how it was asked, and a clock."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.asked: list[bool] = []
        self.done: list[str] = []
        self.failed: list[Exception] = []
        self.path = path
        self.breaks = False

    def work(self, thorough: bool) -> Iterator[str]:
        self.asked.append(thorough)
        yield "first"
        if self.breaks:
            raise OSError("no room")
        yield "second"

    def upkeep(self) -> Upkeep:
        return Upkeep(
            self.path,
            Lake(),
            self.work,
            self.done.append,
            self.failed.append,
            lambda: self.now,
        )


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path / "lake" / ".gateway" / "maintained.json")


def tend(upkeep: Upkeep) -> None:
    upkeep.tend()
    if upkeep._thread is not None:
        upkeep._thread.join()


def test_once_an_hour_and_once_a_day_all_of_it(world):
    """However often it is asked."""
    upkeep = world.upkeep()
    for _ in range(26 * 4):
        tend(upkeep)
        world.now += 900
    assert world.asked == [True, *[False] * 23, True]
    assert world.failed == []


def test_what_fails_is_tried_again_after_ten_minutes(world):
    """And is no reason for the job to end."""
    upkeep = world.upkeep()
    world.now, world.breaks = 3600.0, True
    tend(upkeep)
    world.now += 590
    tend(upkeep)
    assert (len(world.asked), len(world.failed)) == (1, 1)
    world.now, world.breaks = world.now + 20, False
    tend(upkeep)
    assert world.done == ["first", "first", "second"]


def test_jobs_that_run_for_a_minute_count_together(world):
    """With `--once` each hour has its job, and each job its hour; a note that was cut short
    is none."""
    for _ in range(5):
        world.upkeep().run()
        world.now += 1800
    assert world.asked == [True, False]
    world.path.write_text("{")
    world.upkeep().run()
    assert len(world.asked) == 3


def test_a_clock_that_is_set_back_by_a_year(world):
    """Is no reason to wait for a year, whoever starts meanwhile."""
    world.now = 365 * 86_400.0
    upkeep = world.upkeep()
    world.now += 3600
    tend(upkeep)
    world.now -= 365 * 86_400
    tend(upkeep)
    tend(world.upkeep())
    assert len(world.asked) == 2
    world.now += 3600
    tend(world.upkeep())
    assert len(world.asked) == 3


def test_the_job_ends_between_two_steps(world):
    """What was not done comes with the next start."""
    begun, go = threading.Event(), threading.Event()

    def work(thorough: bool) -> Iterator[str]:
        begun.set()
        go.wait()
        yield "first"
        yield "second"

    upkeep = Upkeep(
        world.path,
        Lake(),
        work,
        world.done.append,
        world.failed.append,
        lambda: world.now,
    )
    world.now = 3600.0
    upkeep.tend()
    begun.wait()
    upkeep._stop.set()
    go.set()
    upkeep.stop()
    assert world.done == ["first"]
    world.upkeep().run()
    assert world.asked == [True]


@pytest.mark.parametrize(
    ("spark", "seconds"),
    [
        ({}, 2.0),
        ({"sink": "delta"}, 60.0),
        ({"sink": "iceberg"}, 60.0),
        ({"sink": "iceberg", "trigger": "5s"}, 5.0),
        ({"sink": "ours:put"}, 2.0),
    ],
)
def test_each_kind_of_tables_has_its_rhythm(spark, seconds, tmp_path):
    """A commit of a format costs seconds and stays in its history; a file does not."""
    listener = {"name": "b", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
    config = {"data_dir": tmp_path, "listeners": [listener], "spark": spark}
    assert Config.model_validate(config).spark.trigger == seconds


_RULE = {
    "where": {"path": "a", "equals": "x"},
    "columns": {"hour": {"path": "b"}},
}


@pytest.mark.parametrize(
    ("spark", "why"),
    [
        (
            {"partition_by": ["date"]},
            "partition_by: needs spark.sink: delta or iceberg",
        ),
        (
            {"tables": {"a": {**_RULE, "partition_by": ["date"]}}},
            "needs spark.sink: delta or iceberg, not parquet: one write divides",
        ),
        (
            {
                "sink": "delta",
                "tables": {"a": {**_RULE, "partition_by": ["protocol"]}},
            },
            "partition_by: must have date",
        ),
        (
            {
                "sink": "iceberg",
                "tables": {"a": {**_RULE, "partition_by": ["date", "ours"]}},
            },
            "no column 'ours'; did you mean",
        ),
        ({"bloom_filters": ["uid"]}, "bloom_filters: needs spark.sink: iceberg"),
        (
            {"sink": "delta", "partition_by": ["protocol"]},
            "partition_by: must have date",
        ),
        ({"sink": "delta", "partition_by": ["date", "hours(x)"]}, "names of columns"),
        ({"sink": "delta", "partition_by": ["date", "node"]}, "the audit reads in"),
        ({"sink": "iceberg", "partition_by": ["date", "hours(x"]}, "or the like"),
        ({"sink": "delta", "bloom_filters": ["uid"]}, "needs spark.sink: iceberg"),
        ({"job": "a"}, "job: needs spark.sink: delta or iceberg; one job alone"),
        ({"sink": "delta", "job": "a-b"}, "job: must be small letters, digits and _"),
        ({"sink": "iceberg", "job": "B"}, "job: must be small letters, digits and _"),
    ],
)
def test_what_a_kind_of_tables_does_not_have(spark, why, tmp_path):
    """Is refused with the configuration."""
    listener = {"name": "b", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
    config = {"data_dir": tmp_path, "listeners": [listener], "spark": spark}
    with pytest.raises(ValidationError, match=re.escape(why.partition(": ")[2] or why)):
        Config.model_validate(config)


DAY = 86400.0


class Clock:
    """A removal clock."""

    ahead_seconds = 0.0
    now = 100 * DAY

    def __call__(self) -> float:
        return self.now


def test_expiry_waits_while_days_are_compacted(tmp_path, monkeypatch):
    """It would fail, which is told, and be tried again ten minutes later."""
    lake, clock = tmp_path / "lake", Clock()
    began, go_on = threading.Event(), threading.Event()
    expired: list[object] = []

    def compacting(*_: object, **__: object) -> Iterator[object]:
        with alone(lake):
            began.set()
            go_on.wait(10)
            yield "a day"

    def expiring(before: object, _: object) -> Iterator[object]:
        with alone(lake):
            expired.append(before)
            yield "a day"

    monkeypatch.setattr(compact, "compact", compacting)
    retention = SimpleNamespace(events=DAY, quarantine=None, stats=None)
    config = SimpleNamespace(
        data_dir=tmp_path,
        spark=SimpleNamespace(retention=retention, compact=True, tables={}),
    )
    kind: Any = SimpleNamespace(abilities={"compact"})
    sink: Any = SimpleNamespace(expire=expiring, ledger=Ledger())
    spark: Any = SimpleNamespace(newSession=None)
    house = Housekeeping(
        config,
        spark,
        kind,
        sink,
        Lake(),
        clock,
        open_day=False,  # type: ignore[arg-type]
    )
    house._compactor._filler = None  # type: ignore[union-attr]
    while not began.wait(0.01):
        house.tend()
    assert len(expired) == 1
    clock.now += DAY
    house.tend()
    house.expiry.join()
    assert (len(expired), house.expiry.problem) == (1, None)
    go_on.set()
    house._compactor.join()  # type: ignore[union-attr]
    house.tend()
    house.expiry.join()
    assert (len(expired), house.expiry.problem) == (2, None)
