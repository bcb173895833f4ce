"""Spool files, a lake to put them in, and Spark's logs without Spark."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from gateway.event import SCHEMA
from gateway.spark import job, session


def envelope(
    node: str,
    first: int,
    payloads: Sequence[bytes],
    *,
    received_at: int | None = None,
    flaws: dict[int, str] | None = None,
    **columns: str | None,
) -> pa.Table:
    """Events as the spool writes them: lsns from *first*, one for each payload."""
    count = len(payloads)
    at = received_at if received_at is not None else int(time.time() * 1e6)
    same: dict[str, str | None] = {
        "node": node,
        "protocol": "lumberjack",
        "listener": "beats",
        "session": "s-1",
        "peer": "192.0.2.1:4711",
        "principal": None,
        "channel": None,
        "kind": "data",
        "content_type": "application/json",
        **columns,
    }
    flawed = flaws or {}
    each: dict[str, list[Any]] = {
        "lsn": list(range(first, first + count)),
        "received_at": [at] * count,
        "seq": list(range(1, count + 1)),
        "payload": list(payloads),
        "attributes": [[("tls", "TLSv1.3")]] * count,
        "flaw": [flawed.get(row) for row in range(count)],
    }
    return pa.table(
        [
            pa.array(each.get(f.name, [same.get(f.name)] * count), f.type)
            if not pa.types.is_dictionary(f.type)
            else pa.array(
                each.get(f.name, [same.get(f.name)] * count), f.type.value_type
            ).dictionary_encode()
            for f in SCHEMA
        ],
        schema=SCHEMA,
    )


@dataclass
class SpoolFolder:
    """A spool directory and whoever publishes into it."""

    path: Path
    produced: Counter[tuple[str, int]] = field(default_factory=Counter)

    def publish(self, table: pa.Table) -> Path:
        """As the gateway does: hidden name, then rename."""
        self.path.mkdir(parents=True, exist_ok=True)
        node, lsns = table["node"][0].as_py(), table["lsn"].to_pylist()
        name = f"events-{node}-{lsns[0]:020d}-{lsns[-1]:020d}.parquet"
        hidden = self.path / f".{name}"
        pq.write_table(table, hidden, compression="zstd", write_page_checksum=True)
        hidden.rename(self.path / name)
        self.produced.update((node, lsn) for lsn in lsns)
        return self.path / name

    def events(self, node: str, first: int, count: int, **options: Any) -> Path:
        """Publish *count* plain Beats events."""
        payloads = [
            json.dumps(
                {
                    "@timestamp": "2026-03-01T12:00:00.250Z",
                    "message": f"line {lsn}",
                    "host": {"name": f"host-{lsn % 3}"},
                }
            ).encode()
            for lsn in range(first, first + count)
        ]
        return self.put(node, first, payloads, **options)

    def put(
        self, node: str, first: int, payloads: Sequence[bytes], **options: Any
    ) -> Path:
        """Publish events with these payloads; *options* are those of `envelope`."""
        return self.publish(envelope(node, first, payloads, **options))

    def names(self) -> list[str]:
        """What is there, hidden names too."""
        return sorted(path.name for path in self.path.iterdir())


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
        spool=SimpleNamespace(directory=Path("spool"), after="archive"),
        spark=SimpleNamespace(
            master="local[2]",
            trigger=0.2,
            sink="parquet",
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
