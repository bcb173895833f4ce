"""The tables of whichever sink the Spark job has, for the audit: no Spark is needed.

parquet         all files below `lake/events` and `lake/quarantine`
delta, iceberg  the files that the newest version of the table names, as deltalake and
                pyiceberg read it: what a compaction has replaced is not there. Where
                somebody has deleted rows and left the files as they are, that is said:
                which rows are gone is not known here
a function      nobody here can read its rows: the job's ledger is asked, and the
                report says that it is only told
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

from gateway.audit.counts import CHUNK, Counts
from gateway.audit.lake import (
    TABLES,
    Identity,
    Lake,
    Problem,
    identity_of,
    visible,
)
from gateway.audit.remote import SCHEMES, Access, Place, Remote
from gateway.store.lake import committed, sink_of

__all__ = ["Told", "lake_of", "table_files"]

#: How deletions get into the files, where missing rows are seen.
_REWRITE = (
    "CALL system.rewrite_data_files(…, options => map('delete-file-threshold', '1'))"
    " puts that into the files"
)

_METADATA = re.compile(r"v(\d+)\.metadata\.json")


def lake_of(
    lake: Path, *, node: str | None, first: int, access: Access | None = None
) -> Lake:
    """What counts the events in the tables; see `Lake`.  Raises OSError."""
    sink = _sink(lake)
    if sink.get("sink") == "function":
        return Told(lake, node=node, first=first)
    return _OfSink(lake, access or Access(), node=node, first=first)


def table_files(
    lake: Path, access: Access | None = None
) -> Iterator[tuple[Place, Identity]]:
    """The files that have the rows of all tables of events.

    *access* is how to reach those in object storage.  Raises OSError, also where a
    package is missing that reads the table, or where its files can not be reached.
    """
    for place, identity, _ in _listed(lake, access or Access()):
        yield place, identity


def _listed(lake: Path, access: Access) -> Iterator[tuple[Place, Identity, str | None]]:
    """Likewise, and of each how rows of it are deleted that still are in it."""
    sink = _sink(lake)
    if sink.get("sink") not in ("delta", "iceberg"):
        for table in TABLES:
            for path, there in visible(lake / table):
                yield path, there, None
        return
    names = _delta(sink, access) if sink["sink"] == "delta" else _iceberg(sink, access)
    store = None
    for name, deleted in names.items():
        if urlsplit(name).scheme in SCHEMES:
            store = store or access.store
            # Its name is never given again.
            yield Remote(name, store), Identity(0, 0, 0), deleted
        elif (identity := identity_of(path := _local(name))) is not None:
            yield path, identity, deleted


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
            f"{name}: the audit reads tables on disks of this machine and at s3://, not"
            f" at {parts.scheme}://"
        )
    return Path(unquote(parts.path))


def _delta(sink: Mapping[str, str], access: Access) -> dict[str, str | None]:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ModuleNotFoundError as why:
        raise _missing(why, "delta") from None
    place, remote = sink["table"], urlsplit(sink["table"]).scheme in SCHEMES
    options = access.for_deltalake if remote else None
    try:
        table = DeltaTable(place if remote else _local(place), storage_options=options)
        found: dict[str, str | None] = dict.fromkeys(table.file_uris())
        if "deletionVectors" in (table.protocol().reader_features or ()):
            names = {_path(name): name for name in found}
            for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
                for name in batch.column("filepath").to_pylist():
                    found[names.get(_path(name), name)] = (
                        "a deletion vector. REORG TABLE … APPLY (PURGE) puts that into"
                        " the files"
                    )
    except TableNotFoundError:  # before the first batch
        return {}
    except (DeltaError, OSError) as why:
        raise (_unreachable(place, why) if remote else why) from None
    return found


def _path(name: str) -> str:
    """The same for a path and for the URL that is made of it."""
    return unquote(name.partition("://")[2] or name)


def _iceberg(sink: Mapping[str, str], access: Access) -> dict[str, str | None]:
    if "metadata" not in sink:  # before the first batch
        return {}
    try:
        from pyiceberg.table import StaticTable
    except ModuleNotFoundError as why:
        raise _missing(why, "iceberg") from None
    told = sink["metadata"]
    remote = urlsplit(told).scheme in SCHEMES
    where, how = (told, access.for_pyiceberg) if remote else (_newest(told), {})
    try:
        table = StaticTable.from_metadata(where, how)
        tasks = list(table.scan().plan_files())
    except OSError as why:
        raise (_unreachable(where, why) if remote else why) from None
    except (ValueError, NotImplementedError) as why:  # deletes that name no rows
        raise OSError(
            f"{sink['table']} can not be judged: rows are deleted in a way that the audit"
            f" does not read ({why}). {_REWRITE}"
        ) from None
    return {
        task.file.file_path: _deletes(task.delete_files) if task.delete_files else None
        for task in tasks
    }


def _deletes(files: Iterable[Any]) -> str:
    return f"{', '.join(sorted(one.file_path for one in files))}. {_REWRITE}"


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


def _unreachable(place: str, why: Exception) -> OSError:
    """In a line, without the colours that a library gives to its words."""
    text = " ".join(re.sub(r"\x1b\[\d*m|↳", "", str(why)).split())
    return OSError(f"the table at {place} can not be read: {text}")


def _missing(why: ModuleNotFoundError, extra: str) -> OSError:
    return OSError(
        f"no Python package {why.name}, which reads the table: pip install"
        f" 'gateway[{extra}]'"
    )


class _OfSink(Lake):
    """Counts in the files that the sink's tables have."""

    def __init__(
        self, directory: Path, access: Access, *, node: str | None, first: int
    ) -> None:
        super().__init__(directory, node=node, first=first)
        self._access = access
        self._deleted: list[Problem] = []

    def look(self) -> None:
        """See `Lake`."""
        super().look()
        self.problems += self._deleted

    def there(self) -> dict[Place, Identity]:
        """See `Lake`."""
        found = list(_listed(self.directory, self._access))
        self._deleted = [
            Problem(
                str(place),
                "it can not be judged: rows of it are deleted by others, which are"
                f" counted here, by {how}",
            )
            for place, _, how in found
            if how is not None
        ]
        return {place: identity for place, identity, _ in found}


class Told(Lake):
    """Events that a user's function took, by the word of the job's ledger."""

    told = True

    def look(self) -> None:
        """See `Lake`."""
        self.nodes.clear()
        try:
            known = committed(self.directory)
        except ValueError as why:
            raise OSError(str(why)) from None
        for node, lives in known.items():
            for incarnation, spans in (
                lives.items() if self.node in (None, node) else ()
            ):
                counts = self.nodes.setdefault(node, {}).setdefault(
                    incarnation, Counts()
                )
                for first, last in spans:
                    for begin in range(max(first, self.first), last + 1, CHUNK):
                        end = min(begin + CHUNK, last + 1)
                        counts.add(np.arange(begin, end, dtype=np.int64))

    def files_with(
        self, node: str, incarnation: str, first: int, last: int
    ) -> list[Place]:
        """None: no event is twice in a ledger."""
        return []
