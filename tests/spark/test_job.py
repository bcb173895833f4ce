"""The whole job on one Spark session: spool in, tables out."""

import argparse
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from gateway.audit import audit
from gateway.cli import spark as commands
from gateway.sdk.command import WrongUse
from gateway.spark import job
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.later.deletion import Asked, delete
from gateway.spark.run import orders
from gateway.spark.run.orders import Answer, Order
from gateway.spark.run.running import Job
from gateway.store.directories import Directories
from gateway.store.names import file_name
from gateway.store.readers.deleted import deletions, unfinished
from gateway.store.system.lock import lock
from incarnations import A

from .running import Running

pytestmark = pytest.mark.spark

Rows = Callable[..., list[dict[str, Any]]]


@pytest.mark.lowest
def test_from_spool_to_tables(run_once, spark, spool, config, table_rows, lake_events):
    """Every event is in one table, once, for Spark and for pyarrow; the spool is empty."""
    spool.events("gw-1", 1, 50)
    spool.events("gw-2", 1, 20, protocol="pomelo")
    spool.put("gw-1", 51, [b'{"m": 1}', b"{"], flaws={1: "invalid-json"})
    said = run_once()

    lake = config.data_dir / "lake"
    assert lake_events(lake) == spool.produced
    events = spark.read.parquet(f"file://{lake}/events")
    assert events.count() == 71
    hosts = events.where(
        "protocol = 'lumberjack' AND get_json_object(body, '$.host.name') = 'host-1'"
    )
    assert hosts.count() == 17
    # A file for each partition of a table: two protocols, and quarantine.
    assert len(list(lake.glob("events/*/*/*.parquet"))) == 2
    assert len(list(lake.glob("quarantine/*/*/*.parquet"))) == 1
    (flawed,) = spark.read.parquet(f"file://{lake}/quarantine").collect()
    assert (flawed.lsn, bytes(flawed.payload)) == (52, b"{")

    row = min(table_rows(lake / "events"), key=lambda row: (row["node"], row["lsn"]))
    assert row["message"] == "line 1"
    assert row["host"] == "host-1"
    assert row["session"] == "s-1"
    assert row["peer"] == "192.0.2.1:4711"
    assert row["seq"] == 1
    assert dict(row["attributes"]) == {"tls": "TLSv1.3"}
    assert row["payload"] is None
    assert row["protocol"] == "lumberjack"

    assert spool.names() == []
    archived = sorted(path.name for path in (config.data_dir / "archive").iterdir())
    assert len(archived) == 3
    assert [one["state"] for one in said if "state" in one] == [
        "starting",
        "running",
        "stopped",
    ]
    assert sum(one["rows"] for one in said if "rows" in one) == 72


def test_a_start_goes_on_where_the_last_one_ended(run_once, spool, lake_events):
    """New files are taken, old ones are not, nothing to do is fine too."""
    for first in (1, 11):
        spool.events("gw", first, 10)
        run_once()
    run_once()
    assert lake_events() == spool.produced


def test_windows_add_up(run_once, spool, config, table_rows):
    """Rows of a window add up to all that was in it, whatever order it came in."""
    config.spark.stats_window = 10.0
    start = 1_772_000_000_000_000  # a whole ten seconds
    for number, second in enumerate((40, 4, 12, 1, 15)):
        spool.events("gw", number * 10 + 1, 10, received_at=start + second * 1_000_000)
        if number in (2, 4):
            run_once()
    rows = table_rows(config.data_dir / "lake" / "stats")
    counted: Counter[float] = Counter()
    for row in rows:
        counted[row["window_start"].timestamp() * 1e6 - start] += row["events"]
    assert counted == {0: 20, 10_000_000: 20, 40_000_000: 10}
    assert {row["listener"] for row in rows} == {"beats"}
    assert {row["protocol"] for row in rows} == {"lumberjack"}
    assert {row["window_end"] - row["window_start"] for row in rows} == {
        timedelta(seconds=10)
    }


@pytest.mark.long
def test_events_of_thousands_of_hours_and_hosts(
    run_once, spool, config, lake_events, table_rows
):
    """Folders go by the day of arrival, so late and wrong timestamps make no more files."""
    events = [
        {"@timestamp": 1_600_000_000 + 3600 * one, "host": f"h-{one}"}
        for one in (number % 3000 for number in range(5000))
    ]
    spool.put("gw", 1, [json.dumps(one).encode() for one in events])
    run_once()
    assert lake_events() == spool.produced
    lake = config.data_dir / "lake/events"
    assert len([*lake.rglob("*.parquet")]) <= 2
    rows = table_rows(lake, "event_time", "host")
    assert len({row["event_time"] for row in rows}) == 3000
    assert len({row["host"] for row in rows}) == 3000


def test_stats_are_those_of_the_rows(run_once, spool, config, table_rows):
    """However wrong a clock is and whatever is lost: events, bytes and flaws add up to
    those of the tables."""
    day = 86_400_000_000
    now = 1_772_000_000_000_000
    spool.events("ahead", 1, 10, received_at=now + day)
    run_once()
    spool.events("gw", 1, 10, received_at=now)
    spool.put(
        *("gw", 11, [b'{"log": {"offset": "x"}}', b"{"]),
        received_at=now - day,
        flaws={1: "invalid-json"},
    )
    shutil.rmtree(config.data_dir / "checkpoint")
    said = run_once()
    assert said
    lake = config.data_dir / "lake"
    rows = [row for name in ("events", "quarantine") for row in table_rows(lake / name)]
    counted = table_rows(lake / "stats")
    assert sum(row["events"] for row in counted) == len(rows) == 22
    assert sum(row["flawed"] for row in counted) == 1
    total = sum(row["payload_bytes"] for row in rows)
    assert sum(row["payload_bytes"] for row in counted) == total
    assert {row["date"] for row in counted} == {row["date"] for row in rows}
    assert [row["misfits"] for row in rows if row["misfits"]] == ["log_offset"]


@pytest.mark.lowest
def test_a_column_keeps_its_type(run_once, spool, config):
    """Two types under one name are a table that nobody can open."""
    status = {"path": "status", "default": None, "protocol": None, "listener": None}
    config.spark.columns = {"status": SimpleNamespace(**status, type="int")}
    spool.events("gw", 1, 10)
    run_once()
    config.spark.columns = {"status": SimpleNamespace(**status, type="string")}
    with pytest.raises(job.Failed, match="column status of the tables is int"):
        run_once()
    config.spark.columns = {}
    spool.events("gw", 11, 10)
    run_once()


def test_deleting_instead_of_archiving(run_once, spool, config, lake_events):
    """With spool.after = delete the rows are the only copy."""
    config.spool.after = "delete"
    spool.events("gw", 1, 10)
    run_once()
    assert spool.names() == []
    assert not (config.data_dir / "archive").exists()
    assert lake_events() == spool.produced


def test_batches_for_a_function_of_ones_own(
    run_once, spool, config, tmp_path, monkeypatch, table_rows
):
    """It gets the rows of a batch, flawed ones too, and the number to keep them under."""
    (tmp_path / "warehouse_of_ours.py").write_text(
        "def put(batch, context):\n"
        "    kept = batch.select('node', 'lsn', 'host', 'flaw', 'protocol', 'date')\n"
        f"    kept.write.parquet(f'file://{tmp_path}/ours/{{context.batch}}')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config.spark.sink = "warehouse_of_ours:put"
    spool.events("gw", 1, 10)
    spool.put("gw", 11, [b"{"], flaws={0: "invalid-json"})
    run_once()
    spool.events("gw", 12, 5)
    run_once()
    rows = table_rows(tmp_path / "ours")
    assert Counter((row["node"], row["lsn"]) for row in rows) == spool.produced
    assert [row["flaw"] for row in rows if row["lsn"] == 11] == ["invalid-json"]
    assert {path.name for path in (tmp_path / "ours").iterdir()} == {"1", "2"}
    assert spool.names() == []


def test_the_last_word_is_of_the_spool_as_it_is_left(
    run_once, spool, config, monkeypatch
):
    """Also where the last batch is reported before Spark itself is done with it."""
    note = Job._note

    def reported(self: Job, committed: Any) -> None:
        note(self, committed)
        self.say()

    monkeypatch.setattr(Job, "_note", reported)
    spool.events("gw", 1, 10)
    run_once()
    assert spool.names() == []
    told = json.loads((config.data_dir / "lake/.gateway/health.json").read_bytes())
    assert (told["rows"], told["spool_files"], told["oldest_file"]) == (10, 0, None)


def test_the_job_leaves_word(run_once, spool, config):
    """For the daemon: how far the tables are, when, and what went wrong."""
    spool.events("gw", 1, 10)
    before = time.time()
    run_once()
    told = json.loads((config.data_dir / "lake/.gateway/health.json").read_bytes())
    assert told["state"] == "stopped"
    assert [*told["committed_by"]["gw"].values()] == [10]
    assert (told["rows"], told["batches"], told["spool_files"]) == (10, 1, 0)
    assert before <= told["last_batch_at"] <= told["at"]
    shutil.rmtree(config.data_dir / "lake" / "events")
    (config.data_dir / "lake/.gateway/events.json").write_text("{")
    with pytest.raises(job.Failed):
        run_once()
    told = json.loads((config.data_dir / "lake/.gateway/health.json").read_bytes())
    assert told["state"] == "failed"
    assert "events.json" in told["last_error"]


def test_two_jobs_on_one_directory(run_once, config):
    """The second refuses and says who has it; the lock lies with the tables."""
    held = lock(config.data_dir / "lake" / ".gateway" / "lock", "gateway spark")
    try:
        with pytest.raises(job.Failed, match="in use by gateway spark, pid"):
            run_once()
    finally:
        held.release()
    run_once()


def test_a_directory_that_can_not_be(run_once, config):
    """It says which, and why: a read-only disk, or a file in its place."""
    config.data_dir.mkdir(parents=True, exist_ok=True)
    (config.data_dir / "lake").write_text("a file")
    with pytest.raises(job.Failed, match=r"lake/\.gateway: Not a directory"):
        run_once()


def test_without_a_job_there_is_none(config, run_once):
    """Where the gateway takes files away itself, the job does not begin."""
    config.spool.after, config.spool.has_job = "keep", False
    with pytest.raises(job.Failed, match=r"spool\.after: keep"):
        run_once()


def test_it_runs_until_it_is_stopped(spark, spool, config, lake_events):
    """Files that come while it runs are taken; stopping leaves nothing half done."""
    with Running(config, spark) as running:
        for first in range(1, 60, 10):
            spool.events("gw", first, 10)
            time.sleep(0.3)
        running.until(lambda: not spool.names(), "the spool is empty")
    assert lake_events() == spool.produced
    assert spool.names() == []


@pytest.mark.long
def test_a_deletion_is_ordered_from_a_job_that_runs(
    spark, spool, config, lake_events, monkeypatch
):
    """It deletes between two batches, says what came of it, takes what comes then, and is
    gone on with where something waited; its health counts the events."""
    args = argparse.Namespace(action="delete", dry_run=False)
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(commands, "_say", lambda _, text, data: said.append(data))

    def order(where: str) -> int:
        asked = Asked(where, "case 1", who="officer@desk")
        of_job: Any = config
        return commands._ordered(args, of_job, Order(asked), "in use")

    config.spool.s3 = None
    config.spark.columns = {}
    texts = [b'{"user": "%s"}' % name for name in (b"zoe", b"bob", b"zoe", b"eve")]
    spool.put("gw", 1, texts, received_at=1_772_366_400_000_000)
    with Running(config, spark) as running:
        running.until(lambda: len(lake_events()) == 4, "the first batch")
        assert order("body LIKE '%zoe%'") == 0
        assert (said[-1]["events"], said[-1]["done"]) == (2, True)
        with pytest.raises(WrongUse, match="nothing_like_it"):
            order("nothing_like_it = 1")
        spool.put("gw", 5, texts)
        running.until(lambda: len(lake_events()) == 6, "what came after it")
        health = config.data_dir / "lake/.gateway/health.json"

        def counted() -> bool:
            told = json.loads(health.read_bytes())
            return (told.get("deleted_events"), told["doing"]) == (2, None)

        running.until(counted, "a count of what was deleted")
    [record] = deletions(config.data_dir / "lake")
    assert (record.who, record.reason) == ("officer@desk", "case 1")
    spool.put("gw", 9, texts)
    list(delete(config, spark, Lake(), Asked("body LIKE '%bob%'", "case 2")))
    assert len(unfinished(config.data_dir / "lake")) == 1
    monkeypatch.setattr("gateway.spark.run.running._FINISH", 0.5)
    with Running(config, spark) as running:
        running.until(lambda: not unfinished(config.data_dir / "lake"), "an end")
        archived = config.data_dir / "archive" / file_name("gw", A, 1, 4)
        assert not says(archived, b"zoe")
        spool.put(
            "gw", 1, texts, received_at=1_772_366_400_000_000
        )  # as an edge does, whose hub has forgotten what it has
        running.until(lambda: not spool.names(), "it is dropped")
        running.until(lambda: not says(archived, b"zoe"), "it is redacted, too")
    report = audit(Directories.under(config.data_dir))
    assert (report.complete, report.count("deleted")) == (True, 5)


def test_deletions_that_take_long_leave_time_for_batches(tmp_path, monkeypatch):
    """Of an event in the last file of a node that is gone something is left for ever, and each
    attempt lists the archive: it may take an hour, and batches must get nine of ten."""
    now = [0.0]
    attempts: list[float] = []

    def attempt(do: object, order: Order) -> Answer:
        attempts.append(now[0])
        now[0] += 3600.0
        return Answer([])

    monkeypatch.setattr(
        "gateway.spark.run.running.time", SimpleNamespace(monotonic=lambda: now[0])
    )
    monkeypatch.setattr(orders, "attempt", attempt)
    ends: Any = Job.__new__(Job)
    ends._lake, ends._disk = tmp_path, Lake()
    ends._deleted = SimpleNamespace(counts=lambda: {"deletions_unfinished": 1})
    ends.house = SimpleNamespace(busy=False)
    ends._finish_at, ends._available_now = 600.0, False
    ends._query = SimpleNamespace(stop=lambda: None, start=lambda available_now: None)
    ends._health = SimpleNamespace(at=lambda doing: nullcontext())
    ends._sink = SimpleNamespace(between_batches=nullcontext)
    ends.clean = ends._new_cleaner = lambda: None
    for _ in range(100_000):
        ends._deletions()
        now[0] += 1.0
    assert len(attempts) == 3
    assert attempts[0] == 600.0


def says(path: Path, text: bytes) -> bool:
    """Whether an event of that file has it."""
    return any(text in one for one in pq.read_table(path)["payload"].to_pylist())
