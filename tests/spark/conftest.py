"""A lake to put spool files in, and Spark's logs without Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from gateway.spark import job, session
from spools import SpoolFolder, envelope


@dataclass
class SparkLogs:
    """Writes the logs of a checkpoint as Spark does."""

    path: Path
    query: str = "0badcafe-0000-4000-8000-000000000001"

    def begin(self) -> None:
        """A new query with a new id."""
        self._write("metadata", json.dumps({"id": self.query}), version="")

    def source(self, entry: int, names: Sequence[str], *, compact: Any = None) -> None:
        """Entry of the source log; *compact* repeats {entry: names} before it."""
        earlier = dict(compact or {})
        lines = [
            json.dumps(
                {"path": f"file:///d/spool/{name}", "timestamp": 1, "batchId": n}
            )
            for n, those in sorted({**earlier, entry: names}.items())
            for name in those
        ]
        suffix = ".compact" if compact is not None else ""
        self._write(f"sources/0/{entry}{suffix}", "\n".join(lines))

    def offset(self, batch: int, entry: int) -> None:
        """Batch *batch* goes up to *entry*."""
        offset = json.dumps({"logOffset": entry}) if entry >= 0 else "-"
        conf = json.dumps({"batchWatermarkMs": 0, "conf": {}})
        self._write(f"offsets/{batch}", f"{conf}\n{offset}")

    def commit(self, batch: int) -> None:
        """Batch *batch* is done."""
        self._write(f"commits/{batch}", json.dumps({"nextBatchWatermarkMs": 0}))

    def _write(self, name: str, text: str, version: str = "v1\n") -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(version + text)
        path.with_name(f".{path.name}.crc").write_bytes(b"crc")


def rows_of(folder: Path, *columns: str) -> list[dict[str, Any]]:
    """A table as any reader of Parquet sees it: every file under the folder."""
    if not any(folder.rglob("*.parquet")):
        return []
    table = ds.dataset(folder, partitioning="hive", format="parquet").to_table(
        columns=list(columns) or None
    )
    return list(table.to_pylist())


def events_of(lake: Path) -> Counter[tuple[str, int]]:
    """How often each (node, lsn) is in events and quarantine."""
    return Counter(
        (row["node"], row["lsn"])
        for name in ("events", "quarantine")
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
def spool(tmp_path: Path) -> SpoolFolder:
    """An empty spool under the data directory."""
    folder = SpoolFolder(tmp_path / "data" / "spool")
    folder.path.mkdir(parents=True)
    return folder


@pytest.fixture
def logs(tmp_path: Path) -> Callable[[str], SparkLogs]:
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
def lake_events() -> Callable[[Path], Counter[tuple[str, int]]]:
    """See `events_of`."""
    return events_of


@pytest.fixture(scope="session")
def make_config() -> Callable[[Path], SimpleNamespace]:
    """See `config`."""
    return configuration


@pytest.fixture
def config(tmp_path: Path) -> SimpleNamespace:
    """What the job needs of a configuration, quick enough for a test."""
    return configuration(tmp_path / "data")


def configuration(data: Path) -> SimpleNamespace:
    """For the job on this data directory."""
    return SimpleNamespace(
        data_dir=data,
        spool=SimpleNamespace(folder=Path("spool"), bucket=None, after="archive"),
        spark=SimpleNamespace(
            master="local[2]",
            trigger=0.2,
            sink="parquet",
            table=None,
            jars_directory=None,
            body="json",
            columns={},
            compact=False,
            deduplicate=False,
            deduplicate_horizon=3600.0,
            stats_window=60.0,
            max_bytes_per_trigger=256 * 2**20,
            driver_memory="1g",
            ui=False,
            conf={},
        ),
    )


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


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session of a test process."""
    settings = SimpleNamespace(master="local[2]", driver_memory="1g", ui=False, conf={})
    running = session.start(settings)
    yield running
    running.stop()
