"""Counts the events in the tables: which lsns of which incarnation are there, and how often.

Only the columns `node`, `incarnation` and `lsn` are read, straight from the files that a
reader of the tables would see.  Names that start with `.` or `_` are left out.  A file under
a public name never changes, so each is read once, however often one looks.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.audit.counts import GREATEST, Counts, Ints
from gateway.audit.remote import Place, opened
from gateway.sdk.arrow import batches_by_group
from gateway.store.digests import EventsDigest

_BATCH_ROWS = 1 << 17
_DAY = re.compile(r"/date=[^/]*/")


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


class Lake:
    """The tables below a directory, as far as they have been read."""

    #: Whether nothing is read, and the job's ledger is believed.
    told = False

    def __init__(self, directory: Path, *, node: str | None, first: int) -> None:
        """Events of other nodes, and those before lsn *first*, are left out."""
        self.nodes: dict[str, dict[str, Counts]] = {}
        """Counts by node and incarnation."""
        self.problems: list[Problem] = []
        self.directory = directory
        self.node = node
        self.first = first
        self._read: dict[Place, Identity] = {}
        self._spans: dict[Place, dict[tuple[str, str], tuple[int, int]]] = {}
        """The first and last lsn of each incarnation of a node in each file."""

    def look(self) -> None:
        """Count the files that were not there last time.  Raises OSError.

        If one of the others is gone, or could not be read, everything is counted
        afresh.
        """
        there = self.there()
        if self.problems or not self._read.items() <= there.items():
            self._forget()
        # The current day's are rewritten all the time, and gone soon.
        new = sorted(there.keys() - self._read.keys(), key=_by_day, reverse=True)
        for path in new:
            try:
                self._count(path)
            except FileNotFoundError:
                continue
            except Unusable as why:
                self.problems.append(Problem(str(path), str(why)))
            self._read[path] = there[path]

    def there(self) -> dict[Place, Identity]:
        """The files that have the rows.  Raises OSError."""
        raise NotImplementedError

    def files_with(
        self, node: str, incarnation: str, first: int, last: int
    ) -> list[Place]:
        """The files that hold an event of this range."""
        return [
            path
            for path, spans in self._spans.items()
            if (span := spans.get((node, incarnation)))
            and span[0] <= last
            and first <= span[1]
            and self._holds(path, node, incarnation, first, last)
        ]

    def _forget(self) -> None:
        for kept in (self.nodes, self.problems, self._read, self._spans):
            kept.clear()

    def _count(self, path: Place) -> None:
        for node, incarnation, lsns in columns(path):
            if not self._counts(node):
                continue
            low, high = int(lsns.min()), int(lsns.max())
            spans = self._spans.setdefault(path, {})
            begin, end = spans.get((node, incarnation), (low, high))
            spans[node, incarnation] = min(begin, low), max(end, high)
            wanted = lsns if low >= self.first else lsns[lsns >= self.first]
            lives = self.nodes.setdefault(node, {})
            lives.setdefault(incarnation, Counts()).add(wanted)

    def _counts(self, node: str) -> bool:
        """Whether this is about the events of *node*."""
        return self.node in (None, node)

    @staticmethod
    def _holds(path: Place, node: str, incarnation: str, first: int, last: int) -> bool:
        try:
            return any(
                (name, life) == (node, incarnation)
                and bool(((lsns >= first) & (lsns <= last)).any())
                for name, life, lsns in columns(path)
            )
        except (FileNotFoundError, Unusable):
            return False


def _by_day(place: Place) -> tuple[str, str]:
    day = _DAY.search(str(place))
    return day[0] if day else "", str(place)


def identity_of(path: Path) -> Identity | None:
    """None if it is gone."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return Identity(stat.st_ino, stat.st_size, stat.st_mtime_ns)


def columns(
    path: Place, digest: EventsDigest | None = None
) -> Iterator[tuple[str, str, Ints]]:
    """(node, incarnation, lsns) of a Parquet file, piece by piece, none of them empty.

    A file without that column, as the spool's are, has incarnation "".  With a *digest*
    every byte is read, and the events go in there.  Raises `Unusable` if it is damaged
    or has other columns, FileNotFoundError, PermissionError.
    """
    with reading(path), _opened(path) as file:
        schema = file.schema_arrow
        check_columns(schema)
        if digest is not None:
            for batch in _whole(file):
                if {"payload", "received_at"} <= {*schema.names}:
                    digest.add(batch.column("payload"), batch.column("received_at"))
                yield from _lsns(batch)
            return
        wanted = ("node", "incarnation", "lsn")
        names = [name for name in wanted if name in schema.names]
        for batch in file.iter_batches(_BATCH_ROWS, columns=names, use_threads=False):
            yield from _lsns(batch)


@contextlib.contextmanager
def reading(place: Place) -> Iterator[None]:
    """Turn errors of reading inside into `Unusable`: a damaged file makes pyarrow raise anything.

    FileNotFoundError and PermissionError are raised as they are.
    """
    try:
        yield
    except (FileNotFoundError, PermissionError, Unusable):
        raise
    except Exception as why:
        raise Unusable(_reason(place, why)) from None


@contextlib.contextmanager
def _opened(path: Place) -> Iterator[pq.ParquetFile]:
    """Open a file with names as dictionaries: it has few names, and may have millions of rows."""
    source = opened(path)
    with contextlib.ExitStack() as stack:
        if isinstance(source, pa.NativeFile):
            stack.enter_context(source)
        metadata = pq.read_metadata(source)
        there = set(metadata.schema.names)
        yield stack.enter_context(
            pq.ParquetFile(
                source,
                metadata=metadata,
                read_dictionary=[n for n in ("node", "incarnation") if n in there],
                page_checksum_verification=True,
            )
        )


def _whole(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """All rows and columns, one row group in memory at a time."""
    for batch in batches_by_group(file, _BATCH_ROWS):
        batch.validate(full=True)
        yield batch


def check_columns(schema: pa.Schema) -> None:
    """Raises `Unusable` unless there are `node` and `lsn`, of the types they have; and
    `incarnation` of its own, if it is there.
    """
    for name, wanted in (
        ("node", pa.string()),
        ("lsn", pa.int64()),
        ("incarnation", pa.string()),
    ):
        if name not in schema.names:
            if name == "incarnation":
                continue
            raise Unusable(f"it has no column {name}")
        found = schema.field(name).type
        if pa.types.is_dictionary(found):
            found = found.value_type
        if found != wanted:
            raise Unusable(f"its column {name} is {found}, not {wanted}")


def _lsns(batch: pa.RecordBatch) -> Iterator[tuple[str, str, Ints]]:
    lsns = batch.column("lsn").to_numpy(zero_copy_only=False)
    return ((node, life, lsns[rows]) for node, life, rows in by_life(batch))


def by_life(batch: pa.RecordBatch) -> Iterator[tuple[str, str, Ints | slice]]:
    """(node, incarnation, which rows), "" where it names no incarnation.

    Raises `Unusable` for rows that name no event.
    """
    node, lsn = batch.column("node"), batch.column("lsn")
    if node.null_count or lsn.null_count:
        raise Unusable("an event has no node or no lsn")
    if not len(lsn):
        return
    lsns = lsn.to_numpy()
    if lsns.min() < 1 or lsns.max() > GREATEST:
        raise Unusable(f"it has an lsn outside 1..{GREATEST}")
    names, codes = _encoded(node)
    lives, numbers = [""], codes
    if "incarnation" in batch.schema.names:
        lives, numbers = _encoded(batch.column("incarnation"))
    if len(names) == len(lives) == 1:
        yield names[0], lives[0], slice(None)
        return
    both = codes.astype(np.int64) * len(lives)
    if len(lives) > 1:
        both += numbers
    some = [both[0]] if both.min() == both.max() else np.unique(both)
    for code in map(int, some):
        name, life = names[code // len(lives)], lives[code % len(lives)]
        yield (
            name,
            life,
            slice(None) if len(some) == 1 else np.flatnonzero(both == code),
        )


def _encoded(column: pa.Array) -> tuple[list[str], Ints]:
    """The texts of a column, and which of them each row has; null is ""."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    texts, codes = column.dictionary.to_pylist(), column.indices
    if codes.null_count:
        codes = codes.fill_null(len(texts))
        texts = [*texts, ""]
    return texts, codes.to_numpy(zero_copy_only=False)


def _reason(path: Place, why: Exception) -> str:
    if isinstance(path, Path) and not path.stat().st_size:
        return "it is empty: zero bytes are no Parquet file"
    return f"it can not be read: {' '.join(str(why).split())}"
