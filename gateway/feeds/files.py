"""Events from where they lie: archive, spool or journal, whichever has them.

    archive ◄── spool ◄── journal            events move to the left, and are never
    expires     Spark     published          for a moment in neither place

Files are found by the lsns in their names.  They move and go while we read: a name that
is gone is looked for again, and what is nowhere is `Gone`.  An event that the journal
should have and its disk did not give back is given as `lost`, as the spool does.

Everything here blocks, and may be called in any thread.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.event import Decode, Rows, Stored
from gateway.feeds import encoding
from gateway.store.journal import segment
from gateway.store.spool.names import parse_file_name
from gateway.store.spool.parquet import gapless

__all__ = ["Gone", "Places", "Shelves"]

#: Journal segments, and large batches decoded, that are kept for all readers.
_KEEP = 2
_LARGE_BATCH = 1 << 20
_BATCH_BYTES = 1 << 20
_MOST_ROWS = 4096
_TRIES = 4


class Gone(LookupError):
    """The event is in no file any more."""

    def __init__(self, lsn: int, first: int | None) -> None:
        super().__init__(lsn)
        self.first = first
        """The oldest event behind it that is there; None if there is none."""


@dataclass(frozen=True, slots=True)
class Places:
    """Directories of one node."""

    journal: Path
    spool: Path
    archive: Path


class Shelves:
    """The files of one node, for all who read them."""

    def __init__(
        self, node: str, places: Places, decoders: Mapping[str, Decode]
    ) -> None:
        self.node = node
        self._journal = places.journal
        self._public = (places.spool, places.archive)  # as files move
        self._decoders = decoders
        self._lock = threading.Lock()
        self._files: list[tuple[int, int, str]] = []
        self._segments: OrderedDict[Path, list[Stored]] = OrderedDict()
        self._rows: OrderedDict[int, Rows] = OrderedDict()

    def oldest(self, lsn: int = 0) -> int | None:
        """The first lsn of the oldest file that begins there or later, if any does."""
        with self._lock:
            # In the order in which events move, so none is missed.
            firsts = [first for first, _, _ in self._list_segments()]
            self._refresh()
            firsts += [first for first, _, _ in self._files]
        return min((first for first in firsts if first >= lsn), default=None)

    def find(self, lsn: int, end: int) -> Iterator[pa.RecordBatch] | Sequence[Stored]:
        """Events from *lsn* or some before it on: of a file, or some of the journal.

        *end* is behind the last durable event, or earlier.  Raises `Gone`, OSError.
        """
        for attempt in range(_TRIES):
            with self._lock:
                if attempt:
                    self._refresh()
                name = self._file_of(lsn)
            if name is not None:
                with contextlib.suppress(FileNotFoundError):
                    return self._open(name, lsn)
                continue
            with contextlib.suppress(FileNotFoundError), self._lock:
                found = self._in_journal(lsn, end, lost=attempt > 1)
                if found:
                    return found
        raise Gone(lsn, self.oldest(lsn))

    def decoded(self, batch: Stored) -> Rows:
        """The events of a batch of the journal; a large one is kept for the next."""
        with self._lock:
            rows = self._rows.get(batch.lsn)
        if rows is None:
            rows = encoding.decode(batch, self._decoders)
            if batch.batch.payload_bytes > _LARGE_BATCH:
                with self._lock:
                    self._rows[batch.lsn] = rows
                    _trim(self._rows)
        return rows

    def forget(self) -> None:
        """Nobody reads any more."""
        with self._lock:
            self._segments.clear()
            self._rows.clear()

    # -- spool and archive ------------------------------------------------------------

    def _refresh(self) -> None:
        files = set()
        for place in self._public:
            for name in _names(place):
                parsed = parse_file_name(name)
                if parsed is not None and parsed[0] == self.node:
                    files.add((parsed[1], parsed[2], name))
        self._files = sorted(files)

    def _file_of(self, lsn: int) -> str | None:
        at = bisect_right(self._files, lsn, key=lambda file: file[0]) - 1
        if at < 0 or self._files[at][1] < lsn:
            return None
        return self._files[at][2]

    def _open(self, name: str, lsn: int) -> Iterator[pa.RecordBatch]:
        for place in self._public:
            with contextlib.suppress(FileNotFoundError):
                file = pq.ParquetFile(
                    place / name, memory_map=True, page_checksum_verification=True
                )
                return _batches(file, lsn)
        raise FileNotFoundError(name)

    # -- journal ----------------------------------------------------------------------

    def _list_segments(self) -> list[tuple[int, int, str]]:
        """First lsn, attempt and name of each, in order."""
        return sorted(
            (*parsed, name)
            for name in _names(self._journal)
            if (parsed := segment.parse_name(name)) is not None
        )

    def _in_journal(self, lsn: int, end: int, *, lost: bool) -> Sequence[Stored]:
        """Batches that follow each other, the first with *lsn*; none if it has not.

        A hole is made good only if *lost*: the spool may have what seems to be one.
        """
        names = self._list_segments()
        at = bisect_right(names, lsn, key=lambda one: one[0]) - 1
        if at < 0:
            return []
        # From there on a later segment counts; what is here was not acknowledged.
        end = min(end, names[at + 1][0] if at + 1 < len(names) else end)
        path = self._journal / names[at][2]
        batches = self._scanned(path, lsn, end)
        begin = bisect_right(batches, lsn, key=_end)
        there = [one for one in batches[begin:] if one.lsn < end]
        if there and there[0].lsn <= lsn:
            return list(_in_a_row(there))
        if not lost or lsn >= end:
            return []
        behind = there[0].lsn if there else end
        return list(gapless([], lsn, behind - 1))

    def _scanned(self, path: Path, lsn: int, end: int) -> list[Stored]:
        kept = self._segments.pop(path, None)
        # The open segment grows; what was read of it may not be enough any more.
        if kept is None or not kept or _end(kept[-1]) < min(lsn + 1, end):
            scan = segment.Scan(path.read_bytes(), before=end)
            kept = [stored for stored in scan if stored.batch.count]
        self._segments[path] = kept
        _trim(self._segments)
        return kept


def _batches(file: pq.ParquetFile, lsn: int) -> Iterator[pa.RecordBatch]:
    """Of moderate size, from the one with *lsn* on."""
    with file:
        column = file.schema_arrow.get_field_index("lsn")
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            statistics = group.column(column).statistics
            if statistics is not None and statistics.max < lsn:
                continue
            size = group.total_byte_size // max(group.num_rows, 1)
            rows = min(max(_BATCH_BYTES // max(size, 1), 1), _MOST_ROWS)
            yield from file.iter_batches(rows, row_groups=[number], use_threads=False)


def _in_a_row(batches: Iterable[Stored]) -> Iterator[Stored]:
    """The first batches, up to a hole or to about as many as a reader takes at once."""
    expected, size = None, 0
    for stored in batches:
        if expected not in (None, stored.lsn) or size > _BATCH_BYTES:
            return
        yield stored
        expected = _end(stored)
        size += stored.batch.payload_bytes


def _end(stored: Stored) -> int:
    return stored.lsn + stored.batch.count


def _trim(kept: OrderedDict[Path, list[Stored]] | OrderedDict[int, Rows]) -> None:
    while len(kept) > _KEEP:
        kept.popitem(last=False)


def _names(place: Path) -> list[str]:
    try:
        return [entry.name for entry in place.iterdir()]
    except FileNotFoundError:
        return []
