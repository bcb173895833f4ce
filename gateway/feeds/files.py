"""Events in files: read from archive, spool or journal, whichever has them.

What is nowhere is `Gone`, unless it is a hole: what the journal should have and its disk did
not give back (`gateway.store.node.holes`).  Before the publisher has said that it is one, the
disk may still give it back: that is an OSError, and a reader that tries again loses nothing.

Everything here blocks, and may be called in any thread.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define

from gateway.event import Decode, Rows, Stored
from gateway.feeds.columns import of_incarnation
from gateway.sdk.arrow import batches_of, bounds_of
from gateway.sdk.files import Gone
from gateway.store import digests
from gateway.store.directories import Directories
from gateway.store.finder import Finder, SegmentFile
from gateway.store.lsns import Lsns
from gateway.store.node.incarnation import KEY
from gateway.store.spool.decoding import Decoder
from gateway.store.spool.published import behind

#: Journal segments, and large batches decoded, that are kept for all readers.
_KEEP = 2
_LARGE_BATCH = 1 << 20
_BATCH_BYTES = 1 << 20
_MOST_ROWS = 4096
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Hole:
    """A hole, or what is left of one."""

    behind: int
    """The lsn to go on with."""


@define(eq=False, slots=False)
class EventFiles:
    """The events of one node in files, for all who read them.

    *given_by* says which incarnation gave an lsn that is in the journal, *holes* which are in
    no file.
    """

    node: str
    _directories: Directories
    _decoders: Mapping[str, Decode]
    given_by: Callable[[int], str] = lambda _: ""
    holes: Callable[[], Lsns] = Lsns

    def __attrs_post_init__(self) -> None:
        self._finder = Finder(self._directories, self.node)
        self._lock = threading.Lock()
        self._segments: OrderedDict[Path, list[Stored]] = OrderedDict()
        self._rows: OrderedDict[int, Rows] = OrderedDict()

    def oldest(self, lsn: int = 0) -> int | None:
        """The first lsn of the oldest file that begins there or later, if any does."""
        with self._lock:
            return self._finder.oldest(lsn)

    def find(
        self, lsn: int, end: int
    ) -> Iterator[pa.RecordBatch] | Sequence[Stored] | Hole:
        """Events from *lsn* or some before it on: of a file, or some of the journal; or the
        hole that *lsn* is in.

        *end* is behind the last durable event, or earlier.  Raises `Gone`, OSError.
        """
        for attempt in range(_TRIES):
            with self._lock:
                if attempt:
                    self._finder.refresh()
                file = self._finder.file(lsn)
            if file is not None:
                with contextlib.suppress(FileNotFoundError):
                    return _batches(self._finder.open(file), lsn)
                continue
            with contextlib.suppress(FileNotFoundError), self._lock:
                found = self._in_journal(lsn, end, afresh=attempt > 1)
                if found:
                    return found
            if (after := behind(self.holes(), lsn)) > lsn:
                return Hole(min(after, end))
        with self._lock:
            waits = self._finder.segment(lsn) is not None
            # Files are published in order: behind one of later events nothing comes.
            if waits and lsn < end and not self._finder.reaches(lsn):
                raise OSError(f"the journal's disk does not give back lsn {lsn}")
        raise Gone(lsn, self.oldest(lsn))

    def decoded(self, batch: Stored, *, careful: bool = False) -> Rows:
        """The events of a batch of the journal; a large one is kept for the next.

        *careful*: see `gateway.store.spool.decoding.Decoder`.
        """
        with self._lock:
            rows = None if careful else self._rows.get(batch.lsn)
        if rows is None:
            rows = Decoder(self._decoders, careful=careful).rows(batch)
            if batch.batch.payload_bytes > _LARGE_BATCH:
                with self._lock:
                    self._rows[batch.lsn] = rows
                    _trim(self._rows)
        return rows

    def forget(self) -> None:
        """Drop what is kept for readers: there are none."""
        with self._lock:
            self._segments.clear()
            self._rows.clear()

    def _in_journal(self, lsn: int, end: int, *, afresh: bool) -> list[Stored]:
        """Batches that follow each other, the first with *lsn*; none if it has not."""
        file = self._finder.segment(lsn)
        if file is None:
            return []
        if file.before is not None:
            end = min(end, file.before)
        batches = self._scanned(file, lsn, end, afresh=afresh)
        begin = bisect_right(batches, lsn, key=_end)
        there = [one for one in batches[begin:] if one.lsn < end]
        return list(_in_a_row(there)) if there and there[0].lsn <= lsn else []

    def _scanned(
        self, file: SegmentFile, lsn: int, end: int, *, afresh: bool
    ) -> list[Stored]:
        kept = self._segments.pop(file.path, None)
        # The open segment grows; what was read of it may not be enough any more.
        if afresh or not kept or _end(kept[-1]) < min(lsn + 1, end):
            scan = file.scan(end, growing=not afresh)
            kept = [stored for stored in scan if stored.batch.count]
        self._segments[file.path] = kept
        _trim(self._segments)
        return kept


def _batches(file: pq.ParquetFile, lsn: int) -> Iterator[pa.RecordBatch]:
    """Batches of moderate size, from the one with *lsn* on; they say whose lsns they have."""
    with file:
        own = digests.said(file.metadata.metadata, KEY) or ""
        column = file.schema_arrow.get_field_index("lsn")
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            bounds = bounds_of(file.metadata, number, column)
            if bounds is not None and bounds[1] < lsn:
                continue
            size = group.total_byte_size // max(group.num_rows, 1)
            rows = min(max(_BATCH_BYTES // max(size, 1), 1), _MOST_ROWS)
            for some in batches_of(file, number, rows):
                yield of_incarnation(some, own)


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
