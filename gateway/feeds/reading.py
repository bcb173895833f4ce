"""Reads stored events for one subscriber of `events`, from an lsn on, in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from gateway.event import SCHEMA, Rows, Stored
from gateway.feeds import encoding
from gateway.feeds.files import EventFiles, Hole
from gateway.feeds.query import Query
from gateway.feeds.ring import Chunk
from gateway.sdk.files import Gone

_CHUNK_BYTES = 1 << 19
_EVENT_BYTES = 512  # what an element has beside its payload, roughly


class Reader:
    """Reads for one subscriber.  Blocks; one call at a time, in any thread."""

    def __init__(self, files: EventFiles, query: Query) -> None:
        self._files = files
        self._query = query
        self._tables: Iterator[pa.RecordBatch] | None = None
        self._at = 0

    def read(self, lsn: int, end: int) -> Chunk:
        """Elements of some events from *lsn* on, and before *end*.

        There may be no element in the chunk, but it has one event at least, or a hole.  *lsn* 0 is
        the oldest event, or *end* if there is none.  Raises `Gone`, OSError.
        """
        if lsn:
            return self._read(lsn, end)
        while True:
            oldest = self._files.oldest()
            if oldest is None or oldest >= end:
                return Chunk(end, end, [], [])
            try:
                return self._read(oldest, end)
            except Gone:
                continue  # it expired meanwhile

    def close(self) -> None:
        self._tables = None

    def _read(self, lsn: int, end: int) -> Chunk:
        if self._tables is not None and self._at == lsn:
            chunk = self._from_file(self._tables, lsn, end)
            if chunk is not None:
                return chunk
        self._tables = None
        found = self._files.find(lsn, end)
        if isinstance(found, Hole):
            return Chunk(lsn, found.behind, [], [])
        if isinstance(found, Sequence):
            return self._from_journal(found, lsn, end)
        self._tables = found
        chunk = self._from_file(found, lsn, end)
        if chunk is None:
            raise OSError(f"lsn {lsn} is not in the file whose name says so")
        return chunk

    def _from_file(
        self, tables: Iterator[pa.RecordBatch], lsn: int, end: int
    ) -> Chunk | None:
        for table in tables:
            lsns = table.column("lsn").to_numpy()
            begin, stop = (int(at) for at in lsns.searchsorted((lsn, end)))
            if begin == len(lsns):
                continue
            events = table.slice(begin, stop - begin)
            if events.schema != SCHEMA:
                events = events.cast(SCHEMA.with_metadata(events.schema.metadata))
            self._at = int(lsns[stop - 1]) + 1
            elements, lasts = encoding.of_events(events, self._query)
            return Chunk(lsn, self._at, elements, lasts)
        return None

    def _from_journal(self, batches: Sequence[Stored], lsn: int, end: int) -> Chunk:
        try:
            return self._encode(batches, lsn, end, careful=False)
        except Exception:  # rows that can not be elements: find out whose they are
            return self._encode(batches, lsn, end, careful=True)

    def _encode(
        self, batches: Sequence[Stored], lsn: int, end: int, *, careful: bool
    ) -> Chunk:
        wanted: list[tuple[Stored, Rows]] = []
        left, at = _CHUNK_BYTES, lsn
        for stored in batches:
            if left <= 0 or at >= end:
                break
            rows = self._files.decoded(stored, careful=careful)
            begin = at - stored.lsn
            count, left = _fitting(rows, begin, end - stored.lsn, left)
            stop = at + count
            wanted.append(encoding.part(stored, rows, at, stop))
            at = stop
        files = self._files
        elements, lasts = encoding.of_batches(
            files.node, wanted, self._query, files.given_by
        )
        return Chunk(lsn, at, elements, lasts)


def _fitting(rows: Rows, begin: int, end: int, left_bytes: int) -> tuple[int, int]:
    """How many rows fit into *left_bytes*, one at least, and what is left of these."""
    end = min(end, rows.count)
    row = begin
    while row < end and left_bytes > 0:
        left_bytes -= rows.size(row) + _EVENT_BYTES
        row += 1
    return row - begin, left_bytes
