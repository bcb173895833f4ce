"""The tables of whichever sink the Spark job has, for the audit: no Spark is needed.

parquet         all files below `lake/events` and `lake/quarantine`
delta, iceberg  the files that the newest version of the table names, as deltalake and
                pyiceberg read it: what a compaction has replaced is not there
a function      nobody here can read its rows: the job's ledger is asked, and the
                report says that it is only told
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np

from gateway.audit.counts import CHUNK, Counts
from gateway.audit.lake import TABLES, Identity, Lake, identity_of, visible
from gateway.store.lake import committed, sink_of

__all__ = ["Told", "lake_of", "table_files"]

_METADATA = re.compile(r"v(\d+)\.metadata\.json")


def lake_of(lake: Path, *, node: str | None, first: int) -> Lake:
    """What counts the events in the tables; see `Lake`.  Raises OSError."""
    sink = _sink(lake)
    kind = Told if sink.get("sink") == "function" else _OfSink
    return kind(lake, node=node, first=first)


def table_files(lake: Path) -> Iterator[tuple[Path, Identity]]:
    """The files that have the rows of all tables of events.

    Raises OSError, also where a package is missing that reads the table, or where its
    files are on no disk of this machine.
    """
    sink = _sink(lake)
    if sink.get("sink") not in ("delta", "iceberg"):
        for table in TABLES:
            yield from visible(lake / table)
        return
    names = _delta(sink) if sink["sink"] == "delta" else _iceberg(sink)
    for name in names:
        path = _local(name)
        if (identity := identity_of(path)) is not None:
            yield path, identity


def _sink(lake: Path) -> Mapping[str, str]:
    try:
        return sink_of(lake) or {}
    except ValueError as why:
        raise OSError(f"{lake}: {why}") from None


def _local(name: str) -> Path:
    """Raises OSError for what is not a file of this machine."""
    parts = urlsplit(name)
    if parts.scheme not in ("", "file"):
        raise OSError(
            f"{name}: the audit reads tables on disks of this machine, not at"
            f" {parts.scheme}://"
        )
    return Path(unquote(parts.path))


def _delta(sink: Mapping[str, str]) -> list[str]:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
    except ModuleNotFoundError as why:
        raise _missing(why, "delta") from None
    place = _local(sink["table"])
    try:
        return list(DeltaTable(place).file_uris())
    except TableNotFoundError:  # before the first batch
        return []


def _iceberg(sink: Mapping[str, str]) -> list[str]:
    if "metadata" not in sink:  # before the first batch
        return []
    try:
        from pyiceberg.table import StaticTable
    except ModuleNotFoundError as why:
        raise _missing(why, "iceberg") from None
    table = StaticTable.from_metadata(_newest(sink["metadata"]))
    return [task.file.file_path for task in table.scan().plan_files()]


def _newest(told: str) -> str:
    """The newest description of a table beside the one that the job told of.

    Where a catalog keeps the name, only the catalog knows: then that of our last commit,
    which has every event of ours.
    """
    path = _local(told)
    if not _METADATA.fullmatch(path.name):
        return told
    found = [
        (int(match[1]), str(one))
        for one in path.parent.glob("v*.metadata.json")
        if (match := _METADATA.fullmatch(one.name))
    ]
    return max(found, default=(0, told))[1]


def _missing(why: ModuleNotFoundError, extra: str) -> OSError:
    return OSError(
        f"no Python package {why.name}, which reads the table: pip install"
        f" 'gateway[{extra}]'"
    )


class _OfSink(Lake):
    """Counts in the files that the sink's tables have."""

    def there(self) -> dict[Path, Identity]:
        """See `Lake`."""
        return dict(table_files(self.directory))


class Told(Lake):
    """Events that a user's function took, by the word of the job's ledger."""

    told = True

    def look(self) -> None:
        """See `Lake`."""
        self.nodes.clear()
        for node, spans in committed(self.directory).items():
            if self.node in (None, node):
                counts = self.nodes.setdefault(node, Counts())
                for first, last in spans:
                    for begin in range(max(first, self.first), last + 1, CHUNK):
                        end = min(begin + CHUNK, last + 1)
                        counts.add(np.arange(begin, end, dtype=np.int64))

    def files_with(self, node: str, first: int, last: int) -> list[str]:
        """None: no event is twice in a ledger."""
        return []
