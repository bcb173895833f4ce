"""Rows of `lake/stats`: how many events a batch brought, per window and address.

They are counted in the files that Spark has made of the batch and are published with
them.  So at any instant the sum of `events` is the number of rows of all tables of events;
where there are some by rule, column `table` tells them apart.  A window has a row for each batch that brought events of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_ROWS = 1 << 16
_TABLE = "table"
_KEYS = ["window_start", "window_end", "listener", "channel"]
_SUMS = ["events", "payload_bytes", "flawed"]
_INSTANT = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [
        ("window_start", _INSTANT),
        ("window_end", _INSTANT),
        ("listener", pa.string()),
        ("channel", pa.string()),
        ("events", pa.int64()),
        ("payload_bytes", pa.int64()),
        ("flawed", pa.int64()),
    ]
)
COUNTED = ("received_at", "listener", "channel", "payload_bytes", "flaw")
"""Columns that are looked at."""
_READ = [*COUNTED, "misfits"]


@dataclass(frozen=True)
class Counted:
    """The counts of a batch."""

    tables: dict[str, pa.Table]
    """Tables by folder below `stats/`: protocol=P/date=D."""
    misfits: int
    """Rows with a value that did not fit its column."""


def count(files: Iterable[tuple[str, Path]], window: timedelta) -> Counted:
    """Count staged files, given as (folder, path).

    A folder is protocol=…, or TABLE/protocol=… where the tables are told apart.
    """
    width = window // timedelta(microseconds=1)
    parts: dict[str, list[pa.Table]] = {}
    misfits = 0
    for folder, path in files:
        table, _, protocol = folder.rpartition("/")
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS, columns=_READ, use_threads=False):
                rows = pa.table(batch)
                misfits += len(rows) - rows["misfits"].null_count
                parts.setdefault(protocol, []).append(_grouped(rows, width, table))
    tables = {
        f"{protocol}/{date}": table
        for protocol, tables in parts.items()
        for date, table in _by_date(fold(tables))
    }
    return Counted(tables, misfits)


def taken_back(
    rows: pa.Table, window: timedelta, table: str = ""
) -> dict[str, pa.Table]:
    """Counts that take back those of *rows*, by folder below `protocol=…`; *table* is theirs,
    where tables are told apart.
    """
    counted = _grouped(rows, window // timedelta(microseconds=1), table)
    for name in _SUMS:
        at = counted.schema.get_field_index(name)
        counted = counted.set_column(at, name, pc.negate(counted[name]))
    return dict(_by_date(counted))


def fold(tables: Iterable[pa.Table]) -> pa.Table:
    """One row for each window, listener and channel, with the sums."""
    rows = pa.concat_tables(tables)
    by_table = _TABLE in rows.column_names
    keys = [*_KEYS, _TABLE] if by_table else _KEYS
    schema = _SCHEMA.append(pa.field(_TABLE, pa.string())) if by_table else _SCHEMA
    grouped = rows.group_by(keys, use_threads=False).aggregate(
        [(name, "sum") for name in _SUMS]
    )
    return (
        grouped.rename_columns(
            [name.removesuffix("_sum") for name in grouped.column_names]
        )
        .select(schema.names)
        .cast(schema)
    )


def _grouped(rows: pa.Table, width: int, table: str) -> pa.Table:
    at = rows["received_at"].cast(_INSTANT).cast(pa.int64())
    # pyarrow divides towards zero; instants before 1970 do not arrive.
    start = pc.multiply(pc.divide(at, width), width)
    counts = pa.table(
        {
            "window_start": start.cast(_INSTANT),
            "window_end": pc.add(start, width).cast(_INSTANT),
            "listener": rows["listener"].cast(pa.string()),
            "channel": rows["channel"].cast(pa.string()),
            "events": pa.chunked_array([pa.repeat(1, len(rows))], pa.int64()),
            "payload_bytes": rows["payload_bytes"].cast(pa.int64()),
            "flawed": rows["flaw"].is_valid().cast(pa.int64()),
        }
    )
    if table:
        counts = counts.append_column(
            _TABLE, pa.array([table] * len(rows), pa.string())
        )
    return fold([counts])


def _by_date(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    days = pc.unique(table["window_start"].cast(pa.date32())).to_pylist()
    for day in days:
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
        inside = pc.and_(
            pc.greater_equal(table["window_start"], pa.scalar(begin, _INSTANT)),
            pc.less(table["window_start"], pa.scalar(begin + timedelta(1), _INSTANT)),
        )
        yield f"date={day.isoformat()}", table.filter(inside)
