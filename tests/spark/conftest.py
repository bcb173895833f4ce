"""A lake to put spool files in, configurations, and the one session of Spark."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from gateway.spark import job
from gateway.spark.jvm import session
from gateway.store.readers.lake import tables_of
from gateway_testkit.daemon import listener
from played_spark import SparkLogs
from spools import SpoolFolder, envelope


def rows_of(folder: Path, *columns: str) -> list[dict[str, Any]]:
    """A table as any reader of Parquet sees it: every file under the folder."""
    if not any(folder.rglob("*.parquet")):
        return []
    table = ds.dataset(folder, partitioning="hive", format="parquet").to_table(
        columns=list(columns) or None
    )
    return list(table.to_pylist())


def events_of(lake: Path) -> Counter[tuple[str, int]]:
    """How often each (node, lsn) is in the tables of events."""
    return Counter(
        (row["node"], row["lsn"])
        for name in tables_of(lake).of_events
        for row in rows_of(lake / name, "node", "lsn")
    )


@pytest.fixture(scope="session")
def make_spool() -> Callable[[Path], SpoolFolder]:
    """Makes an empty spool."""

    def make(path: Path) -> SpoolFolder:
        path.mkdir(parents=True)
        return SpoolFolder(path)

    return make


@pytest.fixture
def spool(tmp_path) -> SpoolFolder:
    """An empty spool under the data directory."""
    folder = SpoolFolder(tmp_path / "data" / "spool")
    folder.path.mkdir(parents=True)
    return folder


@pytest.fixture
def logs(tmp_path) -> Callable[[str], SparkLogs]:
    """Makes the checkpoint of a query, as Spark leaves it."""
    return lambda name: SparkLogs(tmp_path / "data" / "checkpoint" / name)


@pytest.fixture(scope="session")
def make_envelope() -> Callable[..., pa.Table]:
    """See `envelope`."""
    return envelope


@pytest.fixture
def table_rows() -> Callable[..., list[dict[str, Any]]]:
    """See `rows_of`."""
    return rows_of


@pytest.fixture
def lake_events(tmp_path) -> Callable[..., Counter[tuple[str, int]]]:
    """See `events_of`; of the job's own lake, unless it is told another."""
    return lambda lake=tmp_path / "data" / "lake": events_of(lake)


@pytest.fixture(scope="session")
def make_config() -> Callable[[Path], SimpleNamespace]:
    """See `config`."""
    return configuration


@pytest.fixture
def config(tmp_path) -> SimpleNamespace:
    """What the job needs of a configuration, quick enough for a test."""
    return configuration(tmp_path / "data")


@pytest.fixture
def settings_file(tmp_path) -> Callable[..., Path]:
    """Writes a configuration for commands, with these keys of `spark`; its path."""

    def write(*, data_dir: Path = tmp_path / "data", **spark: Any) -> Path:
        settings = {
            "node": "gw",
            "data_dir": str(data_dir),
            "listeners": [listener("beats", "lumberjack")],
            "spark": spark,
        }
        path = tmp_path / "gateway.yaml"
        path.write_text(json.dumps(settings))
        return path

    return write


def configuration(data: Path) -> SimpleNamespace:
    """For the job on this data directory."""
    return SimpleNamespace(
        data_dir=data,
        journal=SimpleNamespace(directory="journal"),
        spool=SimpleNamespace(
            folder=Path("spool"),
            bucket=None,
            after="archive",
            has_job=True,
            consumers=(),
        ),
        spark=SimpleNamespace(
            master="local[2]",
            trigger=0.2,
            sink="parquet",
            table=None,
            job=None,
            jars_directory=None,
            body="json",
            columns={},
            schemas=None,
            schema_registry=None,
            tables={},
            partition_by=["protocol", "date"],
            bloom_filters=[],
            most_partitions=1000,
            compact=False,
            retention=SimpleNamespace(events=None, quarantine=None, stats=None),
            deduplicate=False,
            deduplicate_by="contents",
            deduplicate_horizon=3600.0,
            stats_window=60.0,
            max_bytes_per_trigger=256 * 2**20,
            driver_memory="1g",
            ui=False,
            conf={},
            audit=SimpleNamespace(silent_after=300.0),
        ),
    )


@pytest.fixture
def run_once(spark, config) -> Callable[[], list[Mapping[str, Any]]]:
    """Read all that is in the spool; returns what the job said."""

    def run() -> list[Mapping[str, Any]]:
        said: list[Mapping[str, Any]] = []
        job.run(config, spark, available_now=True, report=said.append)
        return said

    return run


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator[Any]:
    """The one Spark session of a test process; few tasks make groups of a few rows.

    The `python3` of the PATH that it has is none.
    """
    conf = {"spark.sql.shuffle.partitions": "4"}
    settings = SimpleNamespace(
        master="local[2]", driver_memory="1536m", ui=False, conf=conf
    )
    none = tmp_path_factory.mktemp("bin") / "python3"
    none.write_text("#!/bin/sh\nexit 9\n")
    none.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{none.parent}{os.pathsep}{os.environ['PATH']}")
        running = session.start(settings, tmp_path_factory.mktemp("warehouse"))
    running.range(1).selectExpr("count(*)").collect()  # what every first query compiles
    yield running
    running.stop()
