"""Reads the demo's tables from their Parquet files, and the job's ledger, without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.store.readers.lake import committed

__all__ = ["event_rows", "events_by_node", "files", "rows_by_listener", "sample"]


def event_rows(lake: Path) -> int:
    """How many events are in `events` and `quarantine`; reads only file footers."""
    import pyarrow.parquet as pq

    paths = (*files(lake / "events"), *files(lake / "quarantine"))
    return sum(pq.read_metadata(path).num_rows for path in paths)


def events_by_node(lake: Path) -> Mapping[str, int]:
    """How many events of each node are in the tables, as the job says; none before it has."""
    with contextlib.suppress(OSError, ValueError):
        return {
            node: sum(lsns.size for lsns in incarnations.values())
            for node, incarnations in committed(lake).items()
        }
    return {}


def rows_by_listener(lake: Path) -> Sequence[tuple[str, str, int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: list[tuple[str, str, int]] = []
    for table in ("events", "quarantine", "stats"):
        parts = [pq.read_table(f, columns=["listener"]) for f in files(lake / table)]
        if not parts:
            continue
        everything = pa.concat_tables(parts)
        counts = everything.group_by("listener").aggregate([([], "count_all")])
        found += sorted(
            (table, row["listener"], row["count_all"]) for row in counts.to_pylist()
        )
    return found


def sample(lake: Path, count: int = 3) -> Sequence[dict[str, Any]]:
    """The first *count* rows of `events`, as dictionaries."""
    import pyarrow.parquet as pq

    columns = ["node", "lsn", "listener", "event_time", "host", "message"]
    for path in files(lake / "events"):
        return list(pq.read_table(path, columns=columns).slice(0, count).to_pylist())
    return []


def files(table: Path) -> Sequence[Path]:
    """The Parquet files of a table, in order."""
    return sorted(table.glob("**/*.parquet")) if table.exists() else []
