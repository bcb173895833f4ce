"""The job's checkpoint: lost, renewed, behind the tables, or of a clock that was set back."""

import itertools
import json
import shutil
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from gateway.figures.reported import Reported
from gateway.spark import job
from gateway.spark.run.running import Job

from .running import Running

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "lost", ["checkpoint/events", pytest.param("checkpoint", marks=pytest.mark.long)]
)
def test_a_lost_checkpoint_doubles_nothing(run_once, spool, config, lake_events, lost):
    """Files that are in the tables already may lie in the spool again."""
    spool.events("gw", 1, 10)
    spool.events("gw", 11, 10)
    run_once()
    shutil.rmtree(config.data_dir / lost)
    for name in sorted(path.name for path in (config.data_dir / "archive").iterdir()):
        shutil.copy(config.data_dir / "archive" / name, spool.path / name)
    spool.events("gw", 21, 10)
    run_once()
    assert lake_events() == spool.produced
    assert spool.names() == []


def test_files_are_made_without_a_program_for_each(run_once, spool, config):
    """Hadoop has `chmod` make files, and others beside them: of ours there are none."""
    spool.events("gw", 1, 10)
    run_once()
    query = config.data_dir / "checkpoint" / "events"
    made = [*query.glob("offsets/*"), *query.glob("commits/*")]
    made += config.data_dir.glob("lake/events/*/*/*")
    assert len(made) == 3
    assert not [path for path in made if path.name.startswith(".")]
    # Whoever may read tables and checkpoints of Spark's reads these.
    assert all(path.stat().st_mode & 0o004 for path in made)


def test_killed_while_it_writes_its_first_offsets(run_once, spool, config, lake_events):
    """Spark refuses what that leaves, for ever.  The job begins anew."""
    offsets = config.data_dir / "checkpoint" / "events" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.34348642.tmp").touch()
    (offsets.parent / "metadata").write_text('{"id":"34348642"}')
    spool.events("gw", 1, 10)
    run_once()
    assert lake_events() == spool.produced


@pytest.mark.long
def test_a_checkpoint_is_renewed(spark, spool, config, lake_events, monkeypatch):
    """While the job runs, by itself, and nobody notices; its log stays short.  Meanwhile it
    says which paths have no column.
    """
    monkeypatch.setattr("gateway.spark.run.query.LOG_BYTES", 100)
    monkeypatch.setattr("gateway.spark.run.query.LEAST_BATCHES", 1)
    monkeypatch.setattr("gateway.spark.job._TEND", 0.2)
    ledger = config.data_dir / "lake" / ".gateway" / "events.json"
    queries = set()
    firsts = itertools.count(1, 10)

    def renewed() -> bool:
        """Three times, while events keep coming."""
        spool.put("gw", next(firsts), [b'{"message": "m", "order": 1}'] * 10)
        time.sleep(0.3)
        if ledger.exists():
            queries.add(json.loads(ledger.read_bytes())["query"])
        return len(queries) >= 4

    with Running(config, spark) as running:
        running.until(renewed, "four queries")
        running.until(lambda: not spool.names(), "the spool is empty")
    assert lake_events() == spool.produced
    assert spool.names() == []
    told = Reported.read(config.data_dir / "lake/.gateway/health.json")
    assert told.paths == ["order"]


@pytest.mark.long
def test_a_clock_that_is_set_back_stops_nothing(
    spark, spool, config, lake_events, monkeypatch
):
    """Spark would wait until it is as late as before; the query is started anew, once."""
    clock = Mock(wraps=time)
    monkeypatch.setattr("gateway.spark.run.query.time", clock)
    monkeypatch.setattr("gateway.spark.job._TEND", 0.2)

    def run() -> list[str]:
        return [str(one.runId) for one in spark.streams.active]

    with Running(config, spark) as running:
        spool.events("gw", 1, 10)
        running.until(lambda: not spool.names(), "the first batch")
        [before] = run()
        clock.time.side_effect = lambda: time.time() - 3600
        running.until(lambda: run() not in ([before], []), "another run")
        [after] = run()
        for first in (11, 21):
            spool.events("gw", first, 10)
            running.until(lambda: not spool.names(), "more")
        assert run() == [after]
    assert lake_events() == spool.produced


@pytest.mark.lowest
def test_tables_behind_the_checkpoint_are_refused(run_once, spool, config):
    """Deleted tables would stay empty for ever, as Spark has seen all files."""
    spool.events("gw", 1, 10)
    run_once()
    shutil.rmtree(config.data_dir / "lake")
    with pytest.raises(job.Failed, match=r"is older than .*remove the checkpoint"):
        run_once()
    shutil.rmtree(config.data_dir / "checkpoint")
    run_once()


def test_a_query_that_ends_while_it_is_looked_at_has_failed():
    """Not: it is done, and nothing was read."""

    class Query:
        looked = 0

        @property
        def active(self) -> bool:
            self.looked += 1
            return self.looked == 1

        @property
        def failure(self) -> Exception | None:
            return None if self.active else OSError("the disk")

        def stop(self) -> None:
            """It has ended."""

    ends: Any = Job.__new__(Job)
    ends._query = Query()
    ends._sink = SimpleNamespace(name="events", batch_files=())
    ends.incomplete = SimpleNamespace(
        move_aside=lambda why: False, suspect=lambda why: False
    )
    with pytest.raises(job.Failed, match="the disk"):
        ends.over()
