"""How many tasks a batch has, and when a query begins anew."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger
from gateway.spark.commit.sink import Plan
from gateway.spark.run import query
from gateway.spark.run.checkpoint import Checkpoint
from gateway.store.names import file_name, parse_file_name
from incarnations import A


class Conf(dict[str, str]):
    """What Spark was started with."""

    contains = dict.__contains__


def spark(cores: int, **more: Any) -> Any:
    """A session whose executors have so many cores now."""
    conf = Conf({f"spark.{key.replace('_', '.')}": one for key, one in more.items()})
    context = SimpleNamespace(defaultParallelism=cores, getConf=lambda: conf)
    return SimpleNamespace(sparkContext=context)


@pytest.fixture
def plan(tmp_path) -> Plan:
    """Of one file that would give work to nine."""
    name = file_name("gw", A, 1, 9)
    with (tmp_path / name).open("wb") as file:
        file.truncate(8 * query._TASK_BYTES)
    found = parse_file_name(name)
    assert found is not None
    return Plan([found])


def test_a_batch_has_tasks_by_its_size_and_by_the_cores_of_that_moment(tmp_path, plan):
    """Executors come and go while the job runs: each batch looks anew."""
    running = spark(2)
    assert query._tasks(running, tmp_path, plan) == 2
    running.sparkContext.defaultParallelism = 8
    assert query._tasks(running, tmp_path, plan) == 8
    running.sparkContext.defaultParallelism = 32
    assert query._tasks(running, tmp_path, plan) == 9


@pytest.mark.parametrize(
    ("given", "tasks"),
    [
        ({}, 9),
        ({"dynamicAllocation_maxExecutors": "3"}, 3),
        ({"dynamicAllocation_maxExecutors": "3", "executor_cores": "2"}, 6),
        ({"default_parallelism": "2"}, 2),
        ({"dynamicAllocation_enabled": "false"}, 2),
    ],
)
def test_executors_that_are_started_by_tasks_that_wait_get_some(
    tmp_path, plan, given, tasks
):
    """With dynamic allocation there may be none, and Spark says two cores: two tasks would
    never be more.  What somebody has set counts."""
    running = spark(2, **{"dynamicAllocation_enabled": "true", **given})
    assert query._tasks(running, tmp_path, plan) == tasks


@pytest.mark.parametrize(("spool", "begins_anew"), [("/d/spool", False), ("/e", True)])
def test_a_query_of_another_directory_begins_anew(
    logs, monkeypatch, spool, begins_anew
):
    """A data_dir that was copied or moved: Spark would look for files where they were."""
    log = logs("events")
    log.begin()
    log.source(0, ["a.parquet"])
    log.offset(0, 0)
    checkpoint = Checkpoint(log.path, Lake())
    sink: Any = SimpleNamespace(ledger=Ledger(), recover=lambda: None)
    asked: Any = None
    made = query.Query(
        asked, sink, checkpoint, Path(spool), stream=asked, limit=asked, trigger=1.0
    )
    monkeypatch.setattr(query.Query, "_begin", lambda self: None)
    made.start(available_now=True)
    assert (checkpoint.query is None) == begins_anew
