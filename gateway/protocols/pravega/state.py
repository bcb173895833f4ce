"""All segments and tables in memory, and how records change them.

A record is *applied* when it is made, and again when it is read from the journal at a
start; it is *stored* when it is durable.  What each does then is said where its fields
are, in `records`.  This has what they share: names, sums, and whom to tell.

No I/O, no clock: times are milliseconds since the epoch, and are passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from gateway.protocols.pravega import records
from gateway.protocols.pravega.records import Record
from gateway.protocols.pravega.segment import Segment, Written
from gateway.protocols.pravega.tables import Table

#: How many merges are remembered, for clients that repeat a request.
_MERGED = 10_000


class ChangeObserver(Protocol):
    """A snapshot in the making, which must hear of changes to what it has not saved."""

    def will_change(self, segment: Segment) -> None:
        """*segment* is about to change."""

    def written(self, number: int, name: str, offset: int, lsn: int) -> None:
        """Change *number* is durable: the data it wrote at *offset* begins at *lsn*."""


class State:
    """All segments and tables, by name."""

    def __init__(self) -> None:
        self.number = 0
        """Number of the last change."""
        self.durable = 0
        """Number of the last change that is durable."""
        self.staged_bytes = 0
        """Size of all staged data."""
        self.retained: dict[str, int] = {}
        """Bytes of events that readers may ask for, by stream."""
        self.retained_bytes = 0
        """The sum of the segments' retained bytes."""
        self._leaving: dict[str, tuple[int, int]] = {}
        """Deleted segments whose deletion is not durable: its number, `needed_lsn`."""
        self.kept_bytes = 0
        """Size of all data of internal segments."""
        self.table_bytes = 0
        """Sum of `Table.bytes` of all tables."""
        self.numbers = 0
        """Sum of `Segment.numbers`: writers and attributes that are remembered."""
        self.segments: dict[str, Segment] = {}
        self.merged: dict[str, None] = {}
        """Names of the staged segments that were merged last, oldest first."""
        self.writers_forgotten_at = 0
        """When idle writers were forgotten last."""
        self.observer: ChangeObserver | None = None
        """The snapshot in the making, if there is one."""

    def needed(self, name: str) -> int | None:
        """The lsn from which on a segment's rows are needed; None: none.  Any thread may ask."""
        segment = self.segments.get(name)
        if segment is not None and (found := segment.needed_lsn) is not None:
            leaving = self._leaving.get(name)
            return found if leaving is None else min(found, leaving[1])
        leaving = self._leaving.get(name)
        return None if leaving is None else leaving[1]

    def restore_segment(self, segment: Segment) -> None:
        self.segments[segment.name] = segment
        self.count(segment, 1)

    # -- records ---------------------------------------------------------------

    def apply(self, made: Iterable[Record], now: int) -> None:
        self.number += 1
        for record in made:
            if self.observer is not None:
                for name in record.segments or list(self.segments):
                    segment = self.segments.get(name)
                    if segment is not None:
                        self.observer.will_change(segment)
            record.apply(self, now)

    def stored(self, body: bytes, lsn: int) -> Iterator[Written | str]:
        """A change is durable, and *lsn* is its first: note what readers may see now.

        Gives the data that it wrote, and the names of the segments that it changed.
        Exhaust the iterator.
        """
        found = records.unpack(body)
        self.durable = max(self.durable, found.number)
        for record in found.records:
            yield from record.stored(self, found.number, lsn)
            lsn += record.rows
            yield from record.segments

    def replay(self, body: bytes, lsn: int, now: int) -> Iterator[Written | str]:
        """Apply a body from the journal, unless it was; else as `stored`."""
        found = records.unpack(body)
        if found.number <= self.number:
            return
        self.number = found.number - 1  # some may be lost
        self.apply(found.records, now)
        yield from self.stored(body, lsn)

    # -- for records -----------------------------------------------------------

    def changed(self, name: str, now: int) -> Segment:
        # It is missing only if the journal has lost records: keep what is known.
        found = self.segments.get(name)
        if found is None:
            found = self.segments[name] = Segment(name, self.number)
        found.modified = now
        return found

    @contextmanager
    def counted(self, segment: Segment) -> Iterator[None]:
        """Keep the sums right while the segment changes."""
        self.count(segment, -1)
        yield
        self.count(segment, 1)

    @contextmanager
    def table_of(self, name: str, now: int) -> Iterator[Table]:
        segment = self.changed(name, now)
        if segment.table is None:
            segment.table = Table()
        before = segment.table.bytes
        yield segment.table
        self.table_bytes += segment.table.bytes - before

    def count(self, segment: Segment, times: int) -> None:
        """Add what a segment has to the sums, so many *times*."""
        self.numbers += times * segment.numbers
        self.retain(segment, times * segment.retained)
        if segment.kept is not None:
            self.kept_bytes += times * len(segment.kept.data)
        if segment.table is not None:
            self.table_bytes += times * segment.table.bytes

    def retain(self, segment: Segment, more: int) -> None:
        """Readers may ask for *more* bytes of its events."""
        if not more:
            return
        stream = segment.name.rpartition("/")[0] or segment.name
        self.retained_bytes += more
        left = self.retained.get(stream, 0) + more
        if left:
            self.retained[stream] = left
        else:
            self.retained.pop(stream, None)

    def drop(self, name: str) -> None:
        """Delete a segment, if it is there."""
        gone = self.segments.get(name)
        if gone is not None:
            if (lsn := gone.needed_lsn) is not None:
                lsn = min(lsn, self._leaving.get(name, (0, lsn))[1])
                self._leaving[name] = self.number, lsn
            del self.segments[name]
            self.count(gone, -1)
            if gone.staged is not None:
                self.staged_bytes -= len(gone.staged.data)

    def has_left(self, name: str, number: int) -> None:
        """Change *number* is durable, which deleted a segment."""
        if self._leaving.get(name, (number + 1, 0))[0] <= number:
            del self._leaving[name]

    def remember_merge(self, source: str) -> None:
        """A staged segment was merged."""
        self.merged[source] = None
        if len(self.merged) > _MERGED:
            del self.merged[next(iter(self.merged))]

    def since(self, number: int, name: str) -> Segment | None:
        """The segment that change *number* was about, if it still exists."""
        segment = self.segments.get(name)
        return None if segment is None or segment.born > number else segment

    def written(
        self, number: int, name: str, offset: int, data: memoryview, lsn: int
    ) -> Iterator[Written]:
        """Data of change *number* is durable, and the first of its rows has this lsn."""
        if self.observer is not None:
            self.observer.written(number, name, offset, lsn)
        segment = self.since(number, name)
        if segment is not None:
            segment.readable = offset + len(data)
            segment.mark(offset, lsn)
            if segment.staged is None and segment.kept is None:
                yield Written(segment, offset, data)
