"""A query beside the job: how both end, and files for an outbox; without Spark."""

import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from gateway.spark import beside, job
from gateway.spark.jvm import session


class Query:
    """A query that goes on until it is stopped, or fails at once with *why*."""

    def __init__(self, why: str | None = None) -> None:
        self.why = why
        self.stopped = threading.Event()

    def awaitTermination(self) -> None:
        if self.why is not None:
            raise RuntimeError(f"{self.why}\n=== Streaming Query ===\nIdentifier: x")
        self.stopped.wait()

    def stop(self) -> None:
        self.stopped.set()


class Session:
    """In place of Spark's."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def running(monkeypatch) -> Session:
    """The session that `run` gets; signals stay as they are."""
    made = Session()
    monkeypatch.setattr(session, "start", lambda settings, *more, **others: made)
    monkeypatch.setattr(job, "_stop_on_signals", lambda stop, started: None)
    monkeypatch.setattr(job.progress, "start_logging", lambda settings: None)
    monkeypatch.setattr(job, "_JavaLock", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(job, "Job", lambda *_, **__: None)
    return made


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(
        f"node: a\ndata_dir: {tmp_path}/data\n"
        "listeners: [{name: a, protocol: pomelo, listen: tcp:0}]\n"
    )
    return path


def loop_that(end: Callable[[threading.Event], object]) -> Callable[..., None]:
    """In place of the job's loop: ends as *end* does."""

    def loop(made: object, stop: threading.Event, *_: object, **__: object) -> None:
        end(stop)

    return create_autospec(job._loop, side_effect=loop)


def test_a_query_that_fails_ends_the_job(running, config, monkeypatch, caplog):
    """… and its reason is the last line."""
    monkeypatch.setattr(job, "_loop", loop_that(lambda stop: stop.wait()))
    assert beside.run(config, lambda spark, data: Query("no such column")) == 1
    last = "the query beside the job has failed: no such column"
    assert caplog.messages[-1] == last
    assert running.stopped


def test_a_job_that_fails_ends_the_query(running, config, monkeypatch, caplog):
    """Its session is stopped, and all queries with it."""

    def fail(stop: threading.Event) -> None:
        raise job.Failed("the spool is damaged")

    monkeypatch.setattr(job, "_loop", loop_that(fail))
    assert beside.run(config, lambda spark, data: Query()) == 1
    assert caplog.messages[-1] == "the spool is damaged"
    assert running.stopped


def test_a_stop(running, config, monkeypatch, tmp_path):
    """The query is told the data directory, and stopped after the job."""
    told: list[Path] = []
    query = Query()

    def start(spark: object, data: Path) -> Query:
        told.append(data)
        return query

    monkeypatch.setattr(job, "_loop", loop_that(lambda stop: stop.set()))
    assert beside.run(config, start) == 0
    assert told[0].is_absolute()
    assert query.stopped.is_set()
    assert running.stopped


def test_no_configuration(tmp_path, capsys):
    """Wrong use is told before anything begins."""
    (tmp_path / "bad.yaml").write_text("listeners: 7\n")
    assert beside.run(tmp_path / "bad.yaml", lambda spark, data: Query()) == 2
    assert "listeners" in capsys.readouterr().err


def test_a_file_appears_whole(tmp_path):
    """Under its name, a row a line, and nothing is left beside it."""
    rows = [{"route": "onScore", "uid": "ä", "body": {"n": n}} for n in range(2)]
    beside.put(tmp_path / "outbox", "scores-000001.json", rows)
    [path] = (tmp_path / "outbox").iterdir()
    assert path.name == "scores-000001.json"
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows
