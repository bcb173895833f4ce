"""The state of all segments and tables, and every change that can be made to it.

A method that changes something checks the request, applies the change in memory, and
returns it as a `Change`: the body of the batch that makes it durable.  So the state is
ahead of the disk by the changes that are not durable yet.  A reply that depends on a
change must wait until it is; readers see durable data only (`Segment.readable`).

After a restart the same bodies restore the state: `replay` them in order, on top of
`snapshot.restore`.  Changes are numbered, and one that was applied is skipped.

The data of a *staged* segment, of a transaction or a large event, stays in memory until
the merge; only the merge makes rows of it.  That of an *internal* segment, of a reader
group or a state synchronizer, stays in memory until it is truncated, and is no rows.

No I/O, no clock: times are milliseconds since the epoch, and are passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from gateway.protocols.pravega import records
from gateway.protocols.pravega.codec import AttributeUpdate, Entry
from gateway.protocols.pravega.errors import (
    BadOffset,
    ConditionFailed,
    Fenced,
    Sealed,
    SegmentExists,
    SegmentNotFound,
    TableNotEmpty,
    Unsupported,
)
from gateway.protocols.pravega.events import count_rows
from gateway.protocols.pravega.records import Record
from gateway.protocols.pravega.segment import KeptData, Segment, is_internal
from gateway.protocols.pravega.tables import Table
from gateway.protocols.pravega.wire import NEVER

__all__ = ["Change", "ChangeObserver", "Segments", "Written"]

_REPLACE_IF_EQUALS = 4

_LARGE = 1 << 20
"""The body of a merge of more bytes is left in pieces."""

#: How many merges are remembered, for clients that repeat a request.
_MERGED = 10_000


class Change(Struct):
    """A change that was applied in memory and is to be made durable."""

    number: int
    body: bytes
    size: int
    """Bytes of the body."""
    pieces: Sequence[bytes | memoryview] = ()
    """The body in pieces, if it is large; `body` is empty until they are put together."""
    count: int = 0
    """How many rows the body decodes to."""
    payload_bytes: int = 0


class Written(Struct):
    """Data of a segment that has become durable."""

    segment: Segment
    offset: int
    data: memoryview


class ChangeObserver(Protocol):
    """A snapshot in the making, which must hear of changes to what it has not saved."""

    def will_change(self, segment: Segment) -> None:
        """*segment* is about to change."""

    def written(self, number: int, name: str, offset: int, lsn: int) -> None:
        """Change *number* is durable: the data it wrote at *offset* begins at *lsn*."""


class Segments:
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
        """Their sum."""
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
        """When `forget_idle_writers` was called last."""
        self.synchronizers_are_rows = False
        """Updates of state synchronizers become rows, too."""
        self.observer: ChangeObserver | None = None
        """The snapshot in the making, if there is one."""

    # -- look up ---------------------------------------------------------------

    def find(self, name: str) -> Segment:
        """A segment or table; raises `SegmentNotFound`."""
        found = self.segments.get(name)
        if found is None:
            raise SegmentNotFound(name)
        return found

    def data(self, name: str) -> Segment:
        """A segment; raises `SegmentNotFound`, and `Unsupported` for a table."""
        found = self.find(name)
        if found.table is not None:
            raise Unsupported
        return found

    def table(self, name: str) -> Table:
        """A table; raises `SegmentNotFound`, and `Unsupported` for another segment."""
        found = self.find(name).table
        if found is None:
            raise Unsupported
        return found

    def was_merged(self, name: str) -> bool:
        """Whether this staged segment was merged, as far as that is remembered."""
        return name in self.merged

    def is_counted(self, name: str) -> bool:
        """Whether all events of a staged segment are counted; so if there is none."""
        segment = self.segments.get(name)
        return segment is None or segment.staged is None or segment.staged.counted

    def count_staged(self, name: str) -> bool:
        """Count events of a staged segment, as far as a turn allows.

        True: all are counted, or there is no such segment.
        """
        segment = self.segments.get(name)
        return segment is None or segment.staged is None or segment.staged.count()

    def needed(self, name: str) -> int | None:
        """The lsn from which on rows of a segment are needed; None: none of them.

        Any thread may ask.
        """
        segment = self.segments.get(name)
        if segment is not None and (found := segment.needed_lsn) is not None:
            leaving = self._leaving.get(name)
            return found if leaving is None else min(found, leaving[1])
        leaving = self._leaving.get(name)
        return None if leaving is None else leaving[1]

    # -- changes ---------------------------------------------------------------

    def create(
        self,
        name: str,
        now: int,
        *,
        target_rate: int = 0,
        scale_type: int = 0,
        rollover_bytes: int = 0,
    ) -> Change:
        """Create a segment; raises `SegmentExists`."""
        if name in self.segments:
            raise SegmentExists
        made: list[Record]
        made = [records.Create(name, target_rate, scale_type, rollover_bytes)]
        if is_internal(name):
            made.append(records.Keep(name))
        return self._change(made, now)

    def becomes_internal(self, segment: Segment, *, revisioned: bool) -> bool:
        """Whether an append makes *segment* internal, which it is not yet.

        So it is by its name; or as that of a revisioned stream (a state synchronizer), if
        the first that is ever appended is a *revisioned* update: no other client sends
        such a command.
        """
        return (
            segment.kept is None
            and segment.staged is None
            and (is_internal(segment.name) or (revisioned and not segment.length))
        )

    def append(
        self,
        name: str,
        writer: bytes,
        number: int,
        data: bytes,
        now: int,
        *,
        claimed: int,
        last: int,
        offset: int | None = None,
        rows: int | None = None,
        revisioned: bool = False,
    ) -> Change:
        """Append data of a writer; *number* is that of its last event.

        *claimed* is the number of events as the writer counts.  *last* is the writer's
        last number as its connection knows it: if that is not the stored one, another
        connection has written since (`Fenced`).  *offset*, if given, must be the length
        of the segment (`ConditionFailed`).  *rows* is what `count_rows` says of *data*, if
        that is known already.  *revisioned*: see `becomes_internal`.  Also raises
        `SegmentNotFound`, `Sealed`.
        """
        segment = self.data(name)
        if segment.sealed:
            raise Sealed
        if segment.number_of(writer) != last:
            raise Fenced
        if offset is not None and offset != segment.length:
            raise ConditionFailed
        made: list[Record] = []
        if self.becomes_internal(segment, revisioned=revisioned):
            made.append(records.Keep(name))
        if segment.staged is not None or (
            (made or segment.kept is not None) and not self._is_rows(name)
        ):
            count = 0
        else:
            count = count_rows(data) if rows is None else rows
        made.append(
            records.Append(
                name, segment.length, writer, number, claimed, count, memoryview(data)
            )
        )
        return self._change(made, now)

    def _is_rows(self, internal: str) -> bool:
        return self.synchronizers_are_rows and not is_internal(internal)

    def seal(self, name: str, now: int) -> Change:
        """Seal a segment; raises `SegmentNotFound`, `Sealed`."""
        if self.data(name).sealed:
            raise Sealed
        return self._change([records.Seal(name)], now)

    def truncate(self, name: str, offset: int, now: int) -> Change:
        """Delete the data before *offset*; raises `SegmentNotFound`, `BadOffset`."""
        segment = self.data(name)
        if not segment.start <= offset <= segment.length:
            raise BadOffset(segment.start)
        return self._change([records.Truncate(name, offset)], now)

    def delete(self, name: str, now: int, *, only_if_empty: bool = False) -> Change:
        """Delete a segment or table.

        Raises `SegmentNotFound`; `TableNotEmpty` if *only_if_empty* and it has entries.
        """
        table = self.find(name).table
        if only_if_empty and table is not None and table.entries:
            raise TableNotEmpty
        return self._change([records.Delete(name)], now)

    def policy(self, name: str, target_rate: int, scale_type: int, now: int) -> Change:
        """Store a segment's scaling policy; raises `SegmentNotFound`."""
        self.data(name)
        return self._change([records.Policy(name, target_rate, scale_type)], now)

    def attribute(
        self, name: str, attribute: bytes, new: int, expected: int, now: int
    ) -> Change:
        """Set an attribute whose value is *expected* (`NEVER`: not set).

        Raises `SegmentNotFound`, `ConditionFailed`.
        """
        if self.data(name).attribute(attribute) != expected:
            raise ConditionFailed
        return self._change([records.Attribute(name, attribute, new)], now)

    def merge(
        self,
        pairs: Sequence[tuple[str, str]],
        now: int,
        *,
        updates: Iterable[AttributeUpdate] = (),
    ) -> Change:
        """Append staged segments to others and delete them, all or none.

        *pairs* are (target, source).  *updates* set attributes of the first target.
        Raises `SegmentNotFound`, `Sealed`, `ConditionFailed`, and `Unsupported` for a
        source that is not staged or a target that is, or that is internal.
        """
        merges: list[Record] = []
        ends: dict[str, int] = {}
        taken: set[str] = set()
        for target_name, source_name in pairs:
            target, source = self.data(target_name), self.find(source_name)
            if source.staged is None or target.staged is not None:
                raise Unsupported
            if target.kept is not None:
                raise Unsupported
            if target.sealed:
                raise Sealed
            if source_name in taken:
                raise SegmentNotFound(source_name)
            taken.add(source_name)
            offset = ends.get(target_name, target.length)
            ends[target_name] = offset + len(source.staged.data)
            merges.append(
                records.Merge(
                    target_name,
                    source_name,
                    offset,
                    source.events,
                    source.staged.rows,
                    memoryview(source.staged.data),
                )
            )
        for update in updates:
            target = self.data(pairs[0][0])
            if (
                update.kind == _REPLACE_IF_EQUALS
                and target.attribute(update.attribute) != update.old
            ):
                raise ConditionFailed
            merges.append(records.Attribute(target.name, update.attribute, update.new))
        return self._change(merges, now)

    def create_table(self, name: str, now: int, *, key_bytes: int = 0) -> Change:
        """Create a table; *key_bytes* is the size of its keys, 0 for any.

        Raises `SegmentExists`.
        """
        if name in self.segments:
            raise SegmentExists
        return self._change(
            [records.Create(name, table=True, key_bytes=key_bytes)], now
        )

    def put(
        self, name: str, entries: Sequence[Entry], now: int, *, position: int = NEVER
    ) -> Change:
        """Put all entries into a table, if the version that each has is its key's.

        *position*, if not negative, must be the table's.  Raises `SegmentNotFound`,
        `BadOffset`, `KeyNotFound`, `BadKeyVersion`.
        """
        table = self.table(name)
        table.check(entries, position)
        pairs = [(entry.key, entry.value) for entry in entries]
        return self._change([records.Put(name, table.position, pairs)], now)

    def remove(
        self, name: str, keys: Sequence[Entry], now: int, *, position: int = NEVER
    ) -> Change:
        """Remove keys from a table; conditions and errors as in `put`."""
        table = self.table(name)
        table.check(keys, position)
        names = [key.key for key in keys]
        return self._change([records.Remove(name, table.position, names)], now)

    def forget_idle_writers(self, now: int) -> Change:
        """Forget the numbers of writers that wrote nothing since the last call."""
        return self._change([records.ForgetIdleWriters()], now)

    def _change(self, made: list[Record], now: int) -> Change:
        number = self.number + 1
        pieces: Sequence[bytes | memoryview] = ()
        if _merged_bytes(made) > _LARGE:
            pieces, body = records.pieces(number, made), b""
        else:
            body = records.pack(number, made)
        size = sum(map(len, pieces)) or len(body)
        change = Change(number, body, size, pieces)
        for record in made:
            if isinstance(record, records.Append | records.Merge) and record.count:
                change.count += record.count
                change.payload_bytes += max(0, len(record.data) - 8 * record.count)
        self.number = change.number
        for record in made:
            self._apply(record, now)
        return change

    # -- apply changes ---------------------------------------------------------

    def _apply(self, record: Record, now: int) -> None:
        if self.observer is not None:
            for name in record.segments or list(self.segments):
                segment = self.segments.get(name)
                if segment is not None:
                    self.observer.will_change(segment)
        match record:
            case records.Append():
                self._append(record, now)
            case records.Create():
                self._create(record, now)
            case records.Merge():
                self._merge(record, now)
            case records.Delete():
                self._remove(record.segment)
            case records.ForgetIdleWriters():
                self._forget_idle_writers(now)
            case _:
                self._alter(self._find_or_make(record.segment), record, now)

    def _alter(self, segment: Segment, record: Record, now: int) -> None:
        segment.modified = now
        match record:
            case records.Seal():
                segment.sealed = True
            case records.Truncate():
                self._count(segment, -1)
                segment.truncate(record.offset)
                self._count(segment, 1)
            case records.Keep():
                if segment.kept is None:
                    self._count(segment, -1)
                    segment.kept = KeptData(segment.length)
                    self._count(segment, 1)
            case records.Attribute():
                before = segment.numbers
                segment.set_attribute(record.attribute, record.value)
                self.numbers += segment.numbers - before
            case records.Policy():
                segment.target_rate = record.target_rate
                segment.scale_type = record.scale_type
            case records.Put():
                table, before = self._table(segment), self._table(segment).bytes
                table.put(record.version, record.entries)
                self.table_bytes += table.bytes - before
            case records.Remove():
                table, before = self._table(segment), self._table(segment).bytes
                table.remove(record.version, record.keys)
                self.table_bytes += table.bytes - before

    def _append(self, record: records.Append, now: int) -> None:
        segment = self._find_or_make(record.segment)
        segment.length = record.offset + len(record.data)
        segment.events += record.claimed
        segment.modified = segment.written_at = now
        before = segment.numbers
        segment.wrote(record.writer, record.number)
        self.numbers += segment.numbers - before
        if segment.staged is not None:
            segment.staged.add(bytes(record.data))
            self.staged_bytes += len(record.data)
        elif segment.kept is not None:
            if record.offset != segment.kept.end:  # what lay between was lost
                self._count(segment, -1)
                segment.kept = KeptData(record.offset)
                self._count(segment, 1)
            segment.kept.add(bytes(record.data))
            self.kept_bytes += len(record.data)
        else:
            self._retain(segment, len(record.data))

    def _create(self, record: records.Create, now: int) -> None:
        segment = Segment(record.segment, self.number)
        segment.modified = now
        segment.target_rate = record.target_rate
        segment.scale_type = record.scale_type
        segment.rollover_bytes = record.rollover_bytes
        if record.table:
            segment.table = Table(record.key_bytes)
        self.segments[record.segment] = segment

    def _merge(self, record: records.Merge, now: int) -> None:
        target = self._find_or_make(record.target)
        target.length = record.offset + len(record.data)
        target.events += record.claimed
        target.modified = target.written_at = now
        self._retain(target, len(record.data))
        self._remove(record.source)
        self.merged[record.source] = None
        if len(self.merged) > _MERGED:
            del self.merged[next(iter(self.merged))]

    def _remove(self, name: str) -> None:
        gone = self.segments.get(name)
        if gone is not None:
            if (lsn := gone.needed_lsn) is not None:
                lsn = min(lsn, self._leaving.get(name, (0, lsn))[1])
                self._leaving[name] = self.number, lsn
            del self.segments[name]
            self._count(gone, -1)
            if gone.staged is not None:
                self.staged_bytes -= len(gone.staged.data)

    def _count(self, segment: Segment, times: int) -> None:
        self.numbers += times * segment.numbers
        self._retain(segment, times * segment.retained)
        if segment.kept is not None:
            self.kept_bytes += times * len(segment.kept.data)
        if segment.table is not None:
            self.table_bytes += times * segment.table.bytes

    def _retain(self, segment: Segment, more: int) -> None:
        if not more:
            return
        stream = segment.name.rpartition("/")[0] or segment.name
        self.retained_bytes += more
        left = self.retained.get(stream, 0) + more
        if left:
            self.retained[stream] = left
        else:
            self.retained.pop(stream, None)

    def restore_segment(self, segment: Segment) -> None:
        """Add a segment as a snapshot has it."""
        self.segments[segment.name] = segment
        self._count(segment, 1)

    def _forget_idle_writers(self, now: int) -> None:
        self.writers_forgotten_at = now
        for segment in self.segments.values():
            self._count(segment, -1)
            segment.idle, segment.writers = segment.writers, {}
            self._count(segment, 1)

    def _find_or_make(self, name: str) -> Segment:
        # It is missing only if the journal has lost records: keep what is known.
        found = self.segments.get(name)
        if found is None:
            found = self.segments[name] = Segment(name, self.number)
        return found

    def _table(self, segment: Segment) -> Table:
        if segment.table is None:
            segment.table = Table()
        return segment.table

    # -- durable changes, and replay -------------------------------------------

    def stored(self, body: bytes, lsn: int) -> Iterator[Written | str]:
        """A change is durable, and *lsn* is its first: note what readers may see now.

        Gives the data that it wrote, and the names of the segments that it changed.
        Exhaust the iterator.
        """
        found = records.unpack(body)
        self.durable = max(self.durable, found.number)
        for record in found.records:
            match record:
                case records.Append() | records.Merge():
                    yield from self._written(found.number, record, lsn)
                    lsn += record.count
                case records.Seal():
                    segment = self._since(found.number, record.segment)
                    if segment is not None:
                        segment.closed = True
                case records.Truncate():
                    segment = self._since(found.number, record.segment)
                    if segment is not None:
                        segment.truncated(record.offset)
                case records.Delete():
                    number, _ = self._leaving.get(record.segment, (0, 0))
                    if number and number <= found.number:
                        del self._leaving[record.segment]
            yield from record.segments

    def _written(
        self, number: int, record: records.Append | records.Merge, lsn: int
    ) -> Iterator[Written]:
        name = record.segments[-1]
        if self.observer is not None:
            self.observer.written(number, name, record.offset, lsn)
        segment = self._since(number, name)
        if segment is not None:
            segment.readable = record.offset + len(record.data)
            segment.mark(record.offset, lsn)
            if segment.staged is None and segment.kept is None:
                yield Written(segment, record.offset, record.data)

    def _since(self, number: int, name: str) -> Segment | None:
        """The segment that change *number* was about, if it still exists."""
        segment = self.segments.get(name)
        return None if segment is None or segment.born > number else segment

    def replay(self, body: bytes, lsn: int, now: int) -> Iterator[Written | str]:
        """Apply a body from the journal, unless it was; else as `stored`."""
        found = records.unpack(body)
        if found.number <= self.number:
            return
        self.number = found.number
        for record in found.records:
            self._apply(record, now)
        yield from self.stored(body, lsn)

    def transients(self) -> list[str]:
        """Names of the segments that are deleted when their connection ends."""
        return [name for name in self.segments if "#transient." in name]


def _merged_bytes(made: list[Record]) -> int:
    first = made[0]
    if not isinstance(first, records.Merge):  # all merges come before anything else
        return 0
    return sum(len(each.data) for each in made if isinstance(each, records.Merge))
