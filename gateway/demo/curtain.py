"""What is in the tables, read without Spark, and what to try next."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["next_steps", "rows", "sample", "tables"]


def rows(table: Path) -> int:
    """Rows that are committed in a table; from the files' footers, so at any time."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in _files(table))


def tables(lake: Path) -> Sequence[tuple[str, str, int]]:
    """(table, listener or '', rows) of everything in the lake."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: list[tuple[str, str, int]] = []
    for table in ("events", "quarantine", "stats"):
        parts = [pq.read_table(f, columns=["listener"]) for f in _files(lake / table)]
        if not parts:
            continue
        everything = pa.concat_tables(parts)
        counts = everything.group_by("listener").aggregate([([], "count_all")])
        found += sorted(
            (table, row["listener"], row["count_all"]) for row in counts.to_pylist()
        )
    return found


def sample(lake: Path, count: int = 3) -> Sequence[dict[str, Any]]:
    """A few rows of `lake/events`."""
    import pyarrow.parquet as pq

    columns = ["node", "lsn", "listener", "event_time", "host", "message"]
    for path in _files(lake / "events"):
        return list(pq.read_table(path, columns=columns).slice(0, count).to_pylist())
    return []


def next_steps(directory: Path, program: str) -> Sequence[tuple[str, str]]:
    """(what, command) for a user who wants to look further."""
    config = directory / "gateway.yaml"
    lake = directory / "data/lake/events"
    bin_ = Path(sys.executable).parent
    query = (
        "import pyarrow.dataset as d; "
        f"t = d.dataset('{lake}', partitioning='hive').to_table(columns=['listener']); "
        "print(t.group_by('listener').aggregate([([], 'count_all')]).to_pylist())"
    )
    sql = (
        "from pyspark.sql import SparkSession as S; "
        f"S.builder.getOrCreate().read.parquet('{lake}')"
        ".selectExpr('event_time', 'host', 'body:log.file.path').show()"
    )
    found = [
        ("look into the spool's files", f"{program} spool ls --config {config}"),
        ("prove it again", f"{program} audit --config {config}"),
        ("ask the table, without Spark", f'{bin_}/python -c "{query}"'),
        ("ask Spark", f'{bin_}/python -c "{sql}"'),
        ("run it yourself", f"{bin_}/twistd -n gateway --config {config}"),
        ("point Filebeat at it", "README.md, «Five minutes with Filebeat»"),
    ]
    # Spark from PyPI has no Java; only our job knows where to find another.
    return found if shutil.which("java") else [x for x in found if x[0] != "ask Spark"]


def _files(table: Path) -> Sequence[Path]:
    return sorted(table.glob("**/*.parquet")) if table.exists() else []
