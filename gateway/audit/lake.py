"""Counts the events in the tables: which lsns are there, and how often.

Only the columns `node` and `lsn` are read, straight from the files that a reader of
the tables would see: names that start with `.` or `_` are not there.  A file under a
public name never changes, so each is read once, however often one looks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.audit.counts import GREATEST, Counts, Ints
from gateway.audit.remote import Place, opened
from gateway.event import LOST
from gateway.store.digests import PayloadDigest

__all__ = [
    "TABLES",
    "Identity",
    "Lake",
    "Problem",
    "Unusable",
    "check_columns",
    "columns",
    "identity_of",
    "visible",
]

#: An event is in one of these; stats has no lsn.
TABLES = ("events", "quarantine")
_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that the audit could not read or does not understand."""

    file: str
    why: str


class Unusable(Exception):
    """A file whose events can not be told; the text says why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A file is the same as long as these are."""

    inode: int
    size: int
    modified: int


@dataclass(slots=True)
class _Span:
    first: int
    last: int


class Lake:
    """The tables below a directory, as far as they have been read."""

    #: Whether nothing is read, and the job's ledger is believed.
    told = False

    def __init__(self, directory: Path, *, node: str | None, first: int) -> None:
        """Events of other nodes, and those before lsn *first*, are left out."""
        self.nodes: dict[str, Counts] = {}
        self.problems: list[Problem] = []
        self.directory = directory
        self.node = node
        self.first = first
        self._read: dict[Place, Identity] = {}
        self._spans: dict[Place, dict[str, _Span]] = {}

    def look(self) -> None:
        """Count the files that were not there last time.  Raises OSError.

        If one of the others is gone, or could not be read, everything is counted
        afresh.
        """
        there = self.there()
        if self.problems or not self._read.items() <= there.items():
            self._forget()
        for path in sorted(there.keys() - self._read.keys(), key=str):
            try:
                self._count(path)
            except FileNotFoundError:
                continue
            except Unusable as why:
                self.problems.append(Problem(str(path), str(why)))
            self._read[path] = there[path]

    def there(self) -> dict[Place, Identity]:
        """The files that have the rows.  Raises OSError."""
        return {
            path: identity
            for table in TABLES
            for path, identity in visible(self.directory / table)
        }

    def files_with(self, node: str, first: int, last: int) -> list[str]:
        """Names of the files that hold an event of this range."""
        return [
            str(path)
            for path, spans in self._spans.items()
            if (span := spans.get(node))
            and span.first <= last
            and first <= span.last
            and self._holds(path, node, first, last)
        ]

    def _forget(self) -> None:
        for kept in (self.nodes, self.problems, self._read, self._spans):
            kept.clear()

    def _count(self, path: Place) -> None:
        for node, lsns in columns(path):
            if self.node not in (None, node):
                continue
            low, high = int(lsns.min()), int(lsns.max())
            span = self._spans.setdefault(path, {}).setdefault(node, _Span(low, high))
            span.first, span.last = min(span.first, low), max(span.last, high)
            wanted = lsns if low >= self.first else lsns[lsns >= self.first]
            self.nodes.setdefault(node, Counts()).add(wanted)

    @staticmethod
    def _holds(path: Place, node: str, first: int, last: int) -> bool:
        try:
            return any(
                name == node and bool(((lsns >= first) & (lsns <= last)).any())
                for name, lsns in columns(path)
            )
        except (FileNotFoundError, Unusable):
            return False


def visible(directory: Path) -> Iterator[tuple[Path, Identity]]:
    """Every file below *directory* that readers of a table take for data."""
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir():
            yield from visible(Path(entry.path))
            continue
        path = Path(entry.path)
        if (identity := identity_of(path)) is not None:
            yield path, identity


def identity_of(path: Path) -> Identity | None:
    """None if it is gone."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return Identity(stat.st_ino, stat.st_size, stat.st_mtime_ns)


def columns(
    path: Place, payloads: PayloadDigest | None = None
) -> Iterator[tuple[str, Ints]]:
    """(node, lsns) of a Parquet file, piece by piece, none of them empty.

    With *payloads* every byte is read, and the payloads go in there.  Raises `Unusable`
    if it is damaged or has other columns, FileNotFoundError, PermissionError.
    """
    try:
        with pq.ParquetFile(
            opened(path), read_dictionary=["node"], page_checksum_verification=True
        ) as file:
            schema = file.schema_arrow
            check_columns(schema)
            if payloads is None:
                names = [n for n in ("node", "lsn", "flaw") if n in schema.names]
                for batch in file.iter_batches(_ROWS, columns=names, use_threads=False):
                    yield from _by_node(_found(batch))
            else:
                for batch in _whole(file):
                    if "payload" in schema.names:
                        payloads.add(batch.column("payload"))
                    yield from _by_node(_found(batch))
    except (FileNotFoundError, PermissionError, Unusable):
        raise
    except KeyError:
        # pyarrow's answer to `read_dictionary` of a column that is not there.
        raise Unusable("it has no column node") from None
    except Exception as why:  # a damaged footer makes pyarrow raise anything
        raise Unusable(_reason(path, why)) from None


def _whole(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """All rows and columns, one row group in memory at a time."""
    for group in range(file.num_row_groups):
        for batch in file.iter_batches(_ROWS, row_groups=[group], use_threads=False):
            batch.validate(full=True)
            yield batch


def check_columns(schema: pa.Schema) -> None:
    """Raises `Unusable` unless there are `node` and `lsn`, of the types they have."""
    for name, wanted in (("node", pa.string()), ("lsn", pa.int64())):
        if name not in schema.names:
            raise Unusable(f"it has no column {name}")
        found = schema.field(name).type
        if pa.types.is_dictionary(found):
            found = found.value_type
        if found != wanted:
            raise Unusable(f"its column {name} is {found}, not {wanted}")


def _found(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without the rows that only hold the place of events which the journal lost."""
    if "flaw" not in batch.schema.names:
        return batch
    flaw = batch.column("flaw")
    if flaw.null_count == len(flaw):
        return batch
    kept = pc.not_equal(flaw.cast(pa.string()), LOST)
    return batch.filter(kept.fill_null(True))


def _by_node(batch: pa.RecordBatch) -> Iterator[tuple[str, Ints]]:
    node, lsn = batch.column("node"), batch.column("lsn")
    if node.null_count or lsn.null_count:
        raise Unusable("an event has no node or no lsn")
    if not len(lsn):
        return
    lsns = lsn.to_numpy()
    if lsns.min() < 1 or lsns.max() > GREATEST:
        raise Unusable(f"it has an lsn outside 1..{GREATEST}")
    if not pa.types.is_dictionary(node.type):
        node = node.dictionary_encode()
    names, codes = node.dictionary.to_pylist(), node.indices.to_numpy()
    if codes.min() == codes.max():
        yield names[codes[0]], lsns
        return
    for code in np.unique(codes).tolist():
        yield names[code], lsns[codes == code]


def _reason(path: Place, why: Exception) -> str:
    if isinstance(path, Path) and not path.stat().st_size:
        return "it is empty: zero bytes are no Parquet file"
    return f"it can not be read: {' '.join(str(why).split())}"
