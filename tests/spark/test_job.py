"""The whole job on one Spark session: spool in, tables out."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from gateway.spark import job
from gateway.store.lock import lock

pytestmark = pytest.mark.spark

Rows = Callable[..., list[dict[str, Any]]]
LakeEvents = Callable[[Path], Counter[tuple[str, int]]]


@pytest.fixture
def run_once(
    spark: Any, config: SimpleNamespace
) -> Callable[[], list[Mapping[str, Any]]]:
    """Read all that is in the spool; returns what the job said."""

    def run() -> list[Mapping[str, Any]]:
        said: list[Mapping[str, Any]] = []
        job.run(config, spark, available_now=True, report=said.append)
        return said

    return run


def test_from_spool_to_tables(
    run_once: Callable[[], list[Mapping[str, Any]]],
    spark: Any,
    spool: Any,
    config: SimpleNamespace,
    make_envelope: Callable[..., pa.Table],
    table_rows: Rows,
    lake_events: LakeEvents,
) -> None:
    """Every event is in one table, once, for Spark and for pyarrow; the spool is empty."""
    spool.events("gw-1", 1, 50)
    spool.events("gw-2", 1, 20, protocol="pomelo")
    spool.publish(
        make_envelope("gw-1", 51, [b'{"m": 1}', b"{"], flaws={1: "invalid-json"})
    )
    said = run_once()

    lake = config.data_dir / "lake"
    assert lake_events(lake) == spool.produced
    events = spark.read.parquet(f"file://{lake}/events")
    assert events.count() == 71
    hosts = events.where(
        "protocol = 'lumberjack' AND body:host.name::string = 'host-1'"
    )
    assert hosts.count() == 17
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


def test_a_start_goes_on_where_the_last_one_ended(
    run_once: Callable[[], object],
    spool: Any,
    config: SimpleNamespace,
    lake_events: LakeEvents,
) -> None:
    """New files are taken, old ones are not, nothing to do is fine too."""
    for first in (1, 11, 21):
        spool.events("gw", first, 10)
        run_once()
    run_once()
    assert lake_events(config.data_dir / "lake") == spool.produced


@pytest.mark.parametrize(
    "lost", ["checkpoint/events", "checkpoint/stats", "checkpoint"]
)
def test_a_lost_checkpoint_doubles_nothing(
    run_once: Callable[[], object],
    spool: Any,
    config: SimpleNamespace,
    lake_events: LakeEvents,
    lost: str,
) -> None:
    """Files that are in the tables already may lie in the spool again."""
    spool.events("gw", 1, 10)
    spool.events("gw", 11, 10)
    run_once()
    shutil.rmtree(config.data_dir / lost)
    for name in sorted(path.name for path in (config.data_dir / "archive").iterdir()):
        shutil.copy(config.data_dir / "archive" / name, spool.path / name)
    spool.events("gw", 21, 10)
    run_once()
    assert lake_events(config.data_dir / "lake") == spool.produced
    assert spool.names() == []


def test_windows_are_counted_once(
    run_once: Callable[[], object],
    spool: Any,
    config: SimpleNamespace,
    table_rows: Rows,
) -> None:
    """A window appears when it is over, with all that was in it, over restarts."""
    config.spark.stats_window = 10.0
    start = 1_772_000_000_000_000  # a whole ten seconds
    for number, second in enumerate((1, 4, 12, 15, 40)):
        spool.events("gw", number * 10 + 1, 10, received_at=start + second * 1_000_000)
        run_once()
    rows = table_rows(config.data_dir / "lake" / "stats")
    counted = {row["window_start"].timestamp() * 1e6 - start: row for row in rows}
    assert {at: row["events"] for at, row in counted.items()} == {0: 20, 10_000_000: 20}
    assert len(rows) == 2
    assert rows[0]["listener"] == "beats"
    assert rows[0]["protocol"] == "lumberjack"


def test_deleting_instead_of_archiving(
    run_once: Callable[[], object],
    spool: Any,
    config: SimpleNamespace,
    lake_events: LakeEvents,
) -> None:
    """With spool.after = delete the rows are the only copy."""
    config.spool.after = "delete"
    spool.events("gw", 1, 10)
    run_once()
    assert spool.names() == []
    assert not (config.data_dir / "archive").exists()
    assert lake_events(config.data_dir / "lake") == spool.produced


def test_a_file_that_can_not_be_read_stops_the_job(
    run_once: Callable[[], object],
    spool: Any,
    config: SimpleNamespace,
    lake_events: LakeEvents,
) -> None:
    """It is not skipped: the job says which file, the tables stay whole, and once the
    file is right everything goes on."""
    spool.events("gw", 1, 10)
    run_once()
    good = spool.events("gw", 11, 10)
    content = good.read_bytes()
    good.write_bytes(content[: len(content) // 2])
    with pytest.raises(job.Failed, match=good.name):
        run_once()
    assert sum(lake_events(config.data_dir / "lake").values()) == 10
    good.write_bytes(content)
    run_once()
    assert lake_events(config.data_dir / "lake") == spool.produced


def test_a_flipped_bit_stops_the_job(
    run_once: Callable[[], object], spool: Any, make_envelope: Callable[..., pa.Table]
) -> None:
    """Page checksums are verified: better no row than a wrong one."""
    path = spool.publish(
        make_envelope("gw", 1, [b'{"a": "%d"}' % n for n in range(2000)])
    )
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(job.Failed):
        run_once()


def test_two_jobs_on_one_directory(
    run_once: Callable[[], object], config: SimpleNamespace
) -> None:
    """The second refuses and says who has it."""
    held = lock(config.data_dir / "checkpoint" / "lock", "gateway spark")
    try:
        with pytest.raises(job.Failed, match="in use by gateway spark, pid"):
            run_once()
    finally:
        os.close(held)
    run_once()


def test_it_runs_until_it_is_stopped(
    spark: Any,
    spool: Any,
    config: SimpleNamespace,
    lake_events: LakeEvents,
) -> None:
    """Files that come while it runs are taken; stopping leaves nothing half done."""
    stop = threading.Event()
    said: list[Mapping[str, Any]] = []
    failed: list[BaseException] = []

    def running() -> None:
        try:
            job.run(config, spark, stop, report=said.append)
        except BaseException as why:
            failed.append(why)

    thread = threading.Thread(target=running)
    thread.start()
    try:
        for first in range(1, 60, 10):
            spool.events("gw", first, 10)
            time.sleep(0.3)
        end = time.monotonic() + 60
        while spool.names() and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        stop.set()
        thread.join(60)
    assert failed == []
    assert said[-1] == {"state": "stopped"}
    assert lake_events(config.data_dir / "lake") == spool.produced
    assert spool.names() == []


def test_a_path_that_spark_can_not_read_is_refused(
    spark: Any, config: SimpleNamespace, tmp_path: Path
) -> None:
    """Before anything is started."""
    config.data_dir = tmp_path / "a[b]"
    with pytest.raises(job.Failed, match="can not read a path"):
        job.run(config, spark, available_now=True)
