"""Compares events in archive and tables with the digests written beside them.

`gateway.store.digests` says what those are.

Files in a bucket, its archive too, are read one at a time, as copies that are removed again.
Rows leave their file when they go to the tables, but the lsns of a file and the digest of
its events are known.  They are in the file, while spool or archive has it, else in the
catalog's line.  So a file's rows are gathered from the tables, put in order of lsn, and
hashed again.  Where the tables have a part of a file, each row is compared with the file's,
if spool or archive has it.  In the tables a payload is the text of `body`, or `payload`
where that is null.  A `body` of type VARIANT is not what was sent; such rows can not be
compared.

The catalog forgets: it has the newest 1000 to 2000 files.  Rows of older ones, which
retention has removed, are compared with nothing; they are counted.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.audit.bucket import BucketFiles
from gateway.audit.counts import GREATEST, Ints
from gateway.audit.files import runs_in
from gateway.audit.lake import Problem, Unusable, check_columns, reading
from gateway.audit.remote import Access, Place, opened
from gateway.audit.sinks import table_files
from gateway.audit.sites import Site, site_of
from gateway.sdk.arrow import bounds_of
from gateway.store import digests
from gateway.store.directories import Directories
from gateway.store.finder import SpoolFile, spool_files
from gateway.store.lsns import Lsns, spelled
from gateway.store.names import Life, parse_file_name
from gateway.store.names import SpoolFile as SpoolName
from gateway.store.node.catalog import catalogs_in
from gateway.store.spool.mending import Entry

_CACHE_BYTES = 256 * 2**20


@dataclass(slots=True)
class Payloads:
    """The results of the comparison."""

    archived: int = 0
    """Files of the archive that were read."""
    in_tables: int = 0
    """Files whose rows, in the tables, have the digest of the file."""
    events: int = 0
    """Rows that were compared."""
    unknown: int = 0
    """Files whose rows can not be compared: `body` is VARIANT, or there is no digest."""
    partial: int = 0
    """Files of which the tables do not have each row once."""
    passed_over: int = 0
    """Files that neither spool nor archive has any more: their rows are compared with nothing."""
    vanished: int = 0
    """Files of the tables that were gone when they were read."""
    uncompared: int = 0
    """Rows of the tables that were compared with nothing, for whatever reason."""
    problems: list[Problem] = field(default_factory=list)


def compare_payloads(place: Site | Directories, *, node: str | None = None) -> Payloads:
    """Compare the payloads of all nodes, or of one.  Raises OSError."""
    found, site = Payloads(), site_of(place)
    directories = site.directories
    catalogs = catalogs_in(directories.journal).values()
    entries = {one.name: one for lines in catalogs for one in lines.all(Entry)}
    known: dict[SpoolName, str] = {
        parsed: entry.events
        for entry in entries.values()
        if entry.events and (parsed := parse_file_name(entry.name))
    }
    remote = BucketFiles(site.bucket)
    archives = spool_files(directories.archive), remote.list(archive=True)
    for file in _all(node, *archives):
        # Retention may be quicker.
        with contextlib.suppress(FileNotFoundError), remote.local(file) as there:
            entry = entries.get(file.path.name)
            _compare_file(file, there.path, entry, known, found)
    files = {_name(file): file for file in _all(node, *archives)}
    for file in _all(node, spool_files(directories.spool), remote.list()):
        with contextlib.suppress(FileNotFoundError), remote.local(file) as there:
            known.setdefault(_name(file), _said(there.path))
            files[_name(file)] = file
    tables = _Tables(directories.lake, site.access)
    found.uncompared = tables.count(node)
    compared: dict[Life, Lsns] = defaultdict(Lsns)
    for name, digest in sorted(known.items()):
        if node in (None, name.node):
            whole, rows = (
                partial(_payloads_in, remote, files.get(name)),
                tables.rows(name),
            )
            if _compare_rows(rows, name, digest, whole, found):
                # Copies of a directory publish the same events in files with other bounds.
                new = Lsns([(name.first, name.last)]) - compared[name.life]
                found.uncompared -= sum(rows.between(*span) for span in new)
                compared[name.life].update(new)
    found.vanished = len(tables.vanished)
    found.problems += tables.problems
    return found


def _all(node: str | None, *places: dict[str, list[SpoolFile]]) -> Iterator[SpoolFile]:
    for files in places:
        for name, some in files.items():
            if node in (None, name):
                yield from some


def _compare_file(
    file: SpoolFile,
    path: Path,
    entry: Entry | None,
    known: dict[SpoolName, str],
    found: Payloads,
) -> None:
    """*path* is where it can be read."""
    said = _said(path)
    try:
        runs_in(replace(file, path=path), entry)
        known.setdefault(_name(file), said)
    except Unusable as why:
        found.problems.append(Problem(str(file.path), str(why)))
    found.archived += 1


def _name(file: SpoolFile) -> SpoolName:
    return SpoolName(file.node, file.incarnation, file.first, file.last)


def _said(path: Path) -> str:
    """The digest of events in a file; a damaged one is told elsewhere.

    Raises FileNotFoundError.
    """
    return digests.events_said(digests.metadata_of(path))


def _payloads_in(
    remote: BucketFiles, file: SpoolFile | None
) -> dict[int, bytes] | None:
    """The payloads of a spool file by lsn; None if it is gone, or can not be read."""
    if file is None:
        return None
    with (
        contextlib.suppress(FileNotFoundError, Unusable),
        remote.local(file) as there,
        reading(there.path),
    ):
        rows = pq.read_table(there.path, columns=["lsn", "payload"])
        lsns, payloads = (rows[name].to_pylist() for name in ("lsn", "payload"))
        return dict(zip(lsns, payloads, strict=True))
    return None


def _compare_some(rows: _Rows, file: SpoolName, whole: _Whole, found: Payloads) -> bool:
    """Compare a file of which the tables do not have each row once, if that can be."""
    found.partial += 1
    wanted, payloads = whole(), rows.table["payload"]
    if wanted is None or payloads.null_count:
        found.passed_over += 1
        return False
    lsns = rows.lsns.tolist()
    there = zip(lsns, payloads.to_pylist(), strict=True)
    others = Lsns((lsn, lsn) for lsn, payload in there if wanted.get(lsn) != payload)
    if others:
        which = ", ".join(spelled(*span) for span in others)
        why = f"the payloads of {file.node} {which} are not those of their spool file"
        found.problems.append(Problem(", ".join(rows.paths), why))
    found.events += len(lsns) - others.size
    return True


def _compare_rows(
    rows: _Rows, file: SpoolName, wanted: str, whole: _Whole, found: Payloads
) -> bool:
    """Whether they were compared."""
    lsns = rows.lsns
    if not len(lsns):
        return False  # not there yet, or any longer: the audit's other half says so
    if not np.array_equal(lsns, np.arange(file.first, file.last + 1)):
        return _compare_some(rows, file, whole, found)
    payloads, times = rows.table["payload"], rows.table["time"]
    if payloads.null_count or times.null_count or not wanted:
        found.unknown += 1
        return False
    digest = digests.EventsDigest(file.first)
    digest.add(payloads, times)
    if digest.hexdigest() == wanted:
        found.in_tables += 1
        found.events += len(payloads)
    else:
        why = (
            f"the events of {file.node} {spelled(file.first, file.last)} are not those of"
            f" their spool file: BLAKE3 {digest.hexdigest()}, not {wanted}"
        )
        found.problems.append(Problem(", ".join(rows.paths), why))
    return True


@dataclass(slots=True)
class _Piece:
    """A row group of the tables."""

    path: Place
    group: int
    first: int
    last: int
    rows: int


_FORM = pa.schema(
    {
        "node": pa.string(),
        "life": pa.string(),
        "lsn": pa.int64(),
        "time": pa.timestamp("us", "UTC"),
        "payload": pa.large_binary(),
    }
)
"""Rows of the tables as they are compared; no payload: it can not be told."""
_NOTHING = _FORM.empty_table()
_Whole = Callable[[], dict[int, bytes] | None]


class _Rows(NamedTuple):
    """The rows with the lsns of one spool file, in that order, and where they are."""

    table: pa.Table
    paths: list[str]

    def between(self, first: int, last: int) -> int:
        """How many have these lsns."""
        begin, end = np.searchsorted(self.lsns, (first, last + 1))
        return int(end - begin)

    @property
    def lsns(self) -> Ints:
        lsns: Ints = self.table["lsn"].to_numpy()
        return lsns


class _Tables:
    """The row groups of all tables, by lsn; some of them in memory."""

    def __init__(self, lake: Path, access: Access | None) -> None:
        self.problems: list[Problem] = []
        """Problems of files whose lsns may be read, and their payloads can not."""
        self.vanished: set[Place] = set()
        """Files that were gone when they were read."""
        self._pieces: list[_Piece] = []
        for path in sorted((path for path, _ in table_files(lake, access)), key=str):
            self._pieces += _pieces(path)
        self._first = np.array([piece.first for piece in self._pieces], np.int64)
        self._last = np.array([piece.last for piece in self._pieces], np.int64)
        self._memory: OrderedDict[int, pa.Table] = OrderedDict()
        self._bytes = 0

    def count(self, node: str | None) -> int:
        """The rows of all nodes, or of one."""
        return sum(
            piece.rows if node is None else _rows_of(node, piece)
            for piece in self._pieces
        )

    def rows(self, file: SpoolName) -> _Rows:
        """The rows with the lsns of a file, of its incarnation."""
        touched = np.flatnonzero(
            (self._first <= file.last) & (file.first <= self._last)
        )
        mine = (
            (pc.field("lsn") >= file.first)
            & (pc.field("lsn") <= file.last)
            & (pc.field("node") == file.node)
            & (pc.field("life") == file.incarnation)
        )
        found, paths = [_NOTHING], []
        for number in touched.tolist():
            if len(rows := self._load(number).filter(mine)):
                found.append(rows)
                paths.append(str(self._pieces[number].path))
        return _Rows(pa.concat_tables(found).sort_by("lsn"), paths)

    def _load(self, number: int) -> pa.Table:
        if number in self._memory:
            self._memory.move_to_end(number)
            return self._memory[number]
        piece = self._pieces[number]
        try:
            with reading(piece.path):
                loaded = _load(piece)
        except FileNotFoundError:
            loaded = _NOTHING  # compacted meanwhile
            self.vanished.add(piece.path)
        except Unusable as why:
            loaded = _NOTHING
            self.problems.append(Problem(str(piece.path), str(why)))
        self._memory[number] = loaded
        self._bytes += loaded.nbytes
        while self._bytes > _CACHE_BYTES and len(self._memory) > 1:
            _, gone = self._memory.popitem(last=False)
            self._bytes -= gone.nbytes
        return loaded


def _pieces(path: Place) -> Iterable[_Piece]:
    """The pieces of a file; none of one that can not be read, which is told elsewhere."""
    try:
        with reading(path):
            metadata = pq.read_metadata(opened(path))
        check_columns(metadata.schema.to_arrow_schema())
    except (Unusable, FileNotFoundError):
        return []
    column = next(
        at
        for at in range(metadata.num_columns)
        if metadata.schema.column(at).path == "lsn"
    )
    found = []
    for group in range(metadata.num_row_groups):
        first, last = bounds_of(metadata, group, column) or (1, GREATEST)
        rows = metadata.row_group(group).num_rows
        found.append(_Piece(path, group, first, last, rows))
    return found


def _rows_of(node: str, piece: _Piece) -> int:
    """How many; as many as it has if that can not be told."""
    try:
        with reading(piece.path), pq.ParquetFile(opened(piece.path)) as file:
            rows = file.read_row_group(piece.group, columns=["node"])
            mine = pc.sum(pc.equal(rows["node"].cast(pa.string()), node)).as_py()
    except (Unusable, FileNotFoundError):
        return piece.rows
    return int(mine or 0)


def _load(piece: _Piece) -> pa.Table:
    with pq.ParquetFile(opened(piece.path), page_checksum_verification=True) as file:
        there = set(file.schema_arrow.names)
        names = ("node", "incarnation", "lsn", "received_at", "body", "payload")
        wanted = [name for name in names if name in there]
        rows = file.read_row_group(piece.group, columns=wanted, use_threads=False)
    # A row without node or lsn is nobody's: the audit's other half says so.
    rows = rows.filter(pc.and_(rows["node"].is_valid(), rows["lsn"].is_valid()))
    columns = [
        rows[name] if name in there else pa.nulls(len(rows)) for name in names[:4]
    ]
    return pa.table([*columns, _payloads(rows)], names=_FORM.names).cast(_FORM)


def _payloads(rows: pa.Table) -> pa.Array:
    """The payloads as they were sent: the text of `body`, else `payload`; null if that is VARIANT.

    Raises ValueError if a row has neither.
    """
    found = pa.nulls(len(rows), pa.large_binary())
    variant = False
    for name in ("body", "payload"):
        if name in rows.column_names and pa.types.is_struct(rows[name].type):
            variant = True
        elif name in rows.column_names:
            column = rows[name].combine_chunks()
            if pa.types.is_large_string(column.type) or pa.types.is_string(column.type):
                column = column.cast(pa.binary())
            found = pc.coalesce(found, column.cast(pa.large_binary()))
    if found.null_count and not variant:
        raise ValueError("a row has neither body nor payload")
    return found
