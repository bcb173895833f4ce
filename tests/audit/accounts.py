"""What a test says of a node's incarnations, in tables, journal and ledger, and what is told."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogs import write
from gateway.audit import Report, audit
from gateway.audit.sites import Site
from gateway.cli import main
from gateway.store.directories import Directories
from gateway.store.node.incarnation import Incarnation
from gateway.store.objects.bucket import Bucket
from gateway.store.readers.lake import INTERNAL
from gateway_testkit.daemon import listener

__all__ = [
    "accept", "claimed", "configured", "end", "journal", "ledger", "look", "planned",
    "say", "table", "told",
]  # fmt: skip

Lsns = Iterable[int]


def table(
    data: Path,
    name: str,
    *rows: tuple[str | None, Lsns],
    column: bool = True,
    at: int = 0,
) -> Path:
    """A file of the tables: of each incarnation these lsns, which came at second *at*."""
    lsns = [lsn for _, some in rows for lsn in some]
    lives = [life for life, some in rows for _ in some]
    columns: dict[str, Any] = {
        "node": pa.array(["gw"] * len(lsns), pa.string()),
        "lsn": pa.array(lsns, pa.int64()),
        "received_at": pa.array(
            [datetime.fromtimestamp(at, UTC)] * len(lsns), pa.timestamp("us", "UTC")
        ),
    }
    if column:
        columns["incarnation"] = pa.array(lives, pa.string())
    path = data / "lake" / "events" / "protocol=plain" / "date=2026-01-01" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def journal(data: Path, this: Incarnation) -> None:
    """That of a gateway which has started, and stored nothing yet."""
    write(data / "journal" / "gw", this)


def ledger(data: Path, **content: Any) -> None:
    path = data / "lake" / INTERNAL / "events.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"format": 3, "committed": {}, **content}))


def configured(file: Path, data: Path, **spool: Any) -> Path:
    """A file with the least that names these directories."""
    settings = {"node": "gw", "data_dir": str(data), "spool": spool}
    settings["listeners"] = [listener("beats", "lumberjack")]
    file.write_text(json.dumps(settings))
    return file


def claimed(data: Path, **sink: str) -> None:
    """As the job leaves word of its table."""
    path = data / "lake" / INTERNAL / "sink.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sink))


def planned(tasks: Callable[[], list[Any]]) -> Any:
    """A table as pyiceberg shows it."""
    scan = SimpleNamespace(scan=lambda: SimpleNamespace(plan_files=tasks))
    return SimpleNamespace(from_metadata=lambda *_: scan)


def end(acknowledged: int, *, exact: bool = False, since: int = 0) -> dict[str, Any]:
    found = {"acknowledged": acknowledged, "heard": 100.0, "found": 102.5}
    return {**found, "ack": "journal", "exact": exact, "since": since}


def look(
    data: Path, bucket: Bucket | None = None, *, keeps: bool = False, **how: Any
) -> Report:
    place = Site(Directories.under(data), bucket=bucket, keeps=keeps)
    return audit(place, pause=lambda _: None, **how)


def say(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str]:
    """The command's status, and all that it says."""
    status = main([str(one) for one in argv])
    out, err = capsys.readouterr()
    return status, out + err


def told(
    capsys: pytest.CaptureFixture[str], data: Path, *argv: object
) -> tuple[int, str]:
    return say(capsys, "audit", "--data-dir", data, *argv)


def accept(
    capsys: pytest.CaptureFixture[str], data: Path, *argv: object
) -> tuple[int, str]:
    return told(capsys, data, "accept", "gw", *argv, "--reason", "the disk died")
