"""All segments of a gateway: what is in them, how long they are, who wrote what.

Every change is decided here, applied at once, and given out as a `Change`: the body of
a batch that makes it durable.  So the state in memory runs ahead of the disk by what
was submitted and not stored yet; whoever answers a peer waits until the change that
the answer depends on is durable.  Readers see only what is (`Segment.readable`).

The same bodies bring the state back: `replay` them in order, on top of `restore`.
A body is applied once, however often it is replayed: changes are numbered.

A *staged* segment (a transaction's, or a large event's) is kept in memory until it is
merged: only then do its events exist for anybody else.

No I/O, no clock: times are milliseconds since the epoch, and come from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

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
from gateway.protocols.pravega.segment import Segment
from gateway.protocols.pravega.tables import Table
from gateway.protocols.pravega.wire import NEVER

__all__ = ["Change", "Keeper", "Segments", "Written"]

_REPLACE_IF_EQUALS = 4

#: So many merges are remembered, for clients that did not hear of theirs and ask again.
_MERGED = 10_000


@dataclass(slots=True)
class Change:
    """What is to be stored; it has happened once it is durable."""

    number: int
    body: bytes
    count: int = 0
    """How many rows the body decodes to."""
    payload_bytes: int = 0


@dataclass(slots=True)
class Written:
    """Bytes of a segment that have become durable."""

    segment: Segment
    offset: int
    data: memoryview


class Keeper(Protocol):
    """Who writes down the state of a moment while it goes on changing."""

    def keep(self, segment: Segment) -> None:
        """It is about to change."""

    def written(self, number: int, name: str, offset: int, lsn: int) -> None:
        """Change *number* is durable: what it wrote at *offset* has this lsn."""


class Segments:
    """The state, and the only place that changes it."""

    def __init__(self) -> None:
        self.number = 0
        """Of the last change that was made."""
        self.durable = 0
        """Of the last change that is on disk."""
        self.staged_bytes = 0
        """What transactions and large events hold in memory."""
        self.table_bytes = 0
        """What tables hold in memory: `Table.bytes`."""
        self.numbers = 0
        """How many writers and attributes of segments there are, about."""
        self.segments: dict[str, Segment] = {}
        self.merged: dict[str, None] = {}
        """The newest staged segments that were merged, in that order."""
        self.forgotten = 0
        """When `forget` was called last."""
        self.keeper: Keeper | None = None
        """A snapshot that is being made."""

    # -- looking ---------------------------------------------------------------

    def find(self, name: str) -> Segment:
        """Raises `SegmentNotFound`."""
        found = self.segments.get(name)
        if found is None:
            raise SegmentNotFound(name)
        return found

    def data(self, name: str) -> Segment:
        """A segment that is no table; raises `SegmentNotFound`, `Unsupported`."""
        found = self.find(name)
        if found.table is not None:
            raise Unsupported
        return found

    def table(self, name: str) -> Table:
        """Raises `SegmentNotFound`, `Unsupported`."""
        found = self.find(name).table
        if found is None:
            raise Unsupported
        return found

    def was_merged(self, name: str) -> bool:
        """Whether a staged segment is gone because it was merged, not long ago."""
        return name in self.merged

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
        """Raises `SegmentExists`."""
        if name in self.segments:
            raise SegmentExists
        made = records.Create(name, target_rate, scale_type, rollover_bytes)
        return self._change([made], now)

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
    ) -> Change:
        """A writer's block; *number* is that of its last event.

        *last* is what the writer's connection knows as its last number: if it is not
        ours, another one has written since (`Fenced`).  *offset*, if given, is where
        the block must begin (`ConditionFailed`).  Also raises `SegmentNotFound`, `Sealed`.
        """
        segment = self.data(name)
        if segment.sealed:
            raise Sealed
        if segment.number_of(writer) != last:
            raise Fenced
        if offset is not None and offset != segment.length:
            raise ConditionFailed
        count = 0 if segment.staged is not None else count_rows(data)
        record = records.Append(
            name, segment.length, writer, number, claimed, count, memoryview(data)
        )
        return self._change([record], now)

    def seal(self, name: str, now: int) -> Change:
        """Raises `SegmentNotFound`, `Sealed`."""
        if self.data(name).sealed:
            raise Sealed
        return self._change([records.Seal(name)], now)

    def truncate(self, name: str, offset: int, now: int) -> Change:
        """Raises `SegmentNotFound`, `BadOffset`."""
        segment = self.data(name)
        if not segment.start <= offset <= segment.length:
            raise BadOffset(segment.start)
        return self._change([records.Truncate(name, offset)], now)

    def delete(self, name: str, now: int, *, only_if_empty: bool = False) -> Change:
        """Raises `SegmentNotFound`, and `TableNotEmpty` for a table."""
        table = self.find(name).table
        if only_if_empty and table is not None and table.entries:
            raise TableNotEmpty
        return self._change([records.Delete(name)], now)

    def policy(self, name: str, target_rate: int, scale_type: int, now: int) -> Change:
        """Raises `SegmentNotFound`."""
        self.data(name)
        return self._change([records.Policy(name, target_rate, scale_type)], now)

    def attribute(
        self, name: str, attribute: bytes, new: int, expected: int, now: int
    ) -> Change:
        """Raises `SegmentNotFound`, `ConditionFailed`."""
        if self.data(name).attribute(attribute) != expected:
            raise ConditionFailed
        return self._change([records.Attribute(name, attribute, new)], now)

    def merge(
        self,
        pairs: Sequence[tuple[str, str]],
        now: int,
        *,
        updates: Iterable[AttributeUpdate] = (),
        puts: Iterable[tuple[str, Sequence[Entry]]] = (),
    ) -> Change:
        """Append staged segments to others: (target, source) each, all or none.

        *updates* are of the first target's attributes; *puts* are tables' entries
        that go with the merge, one list for each table.  Raises `SegmentNotFound`, `Sealed`,
        `Unsupported` (not staged), `ConditionFailed`, and as `put` does.
        """
        merges: list[Record] = []
        ends: dict[str, int] = {}
        taken: set[str] = set()
        for target_name, source_name in pairs:
            target, source = self.data(target_name), self.find(source_name)
            if source.staged is None or target.staged is not None:
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
        merges += [self._put(table, entries) for table, entries in puts]
        return self._change(merges, now)

    def create_table(self, name: str, now: int, *, key_bytes: int = 0) -> Change:
        """Raises `SegmentExists`."""
        if name in self.segments:
            raise SegmentExists
        return self._change(
            [records.Create(name, table=True, key_bytes=key_bytes)], now
        )

    def put(
        self, name: str, entries: Sequence[Entry], now: int, *, position: int = NEVER
    ) -> Change:
        """Raises `SegmentNotFound`, `BadOffset`, `KeyNotFound`, `BadKeyVersion`."""
        return self._change([self._put(name, entries, position)], now)

    def _put(
        self, name: str, entries: Sequence[Entry], position: int = NEVER
    ) -> records.Put:
        table = self.table(name)
        table.check(entries, position)
        pairs = [(entry.key, entry.value) for entry in entries]
        return records.Put(name, table.position, pairs)

    def remove(
        self, name: str, keys: Sequence[Entry], now: int, *, position: int = NEVER
    ) -> Change:
        """Raises as `put` does."""
        table = self.table(name)
        table.check(keys, position)
        names = [key.key for key in keys]
        return self._change([records.Remove(name, table.position, names)], now)

    def forget(self, now: int) -> Change:
        """Writers who did nothing since the last call lose their numbers."""
        return self._change([records.Forget()], now)

    def _change(self, made: list[Record], now: int) -> Change:
        change = Change(self.number + 1, records.pack(self.number + 1, made))
        for record in made:
            if isinstance(record, records.Append | records.Merge) and record.count:
                change.count += record.count
                change.payload_bytes += max(0, len(record.data) - 8 * record.count)
        self.number = change.number
        for record in made:
            self._apply(record, now)
        return change

    # -- what a change does ------------------------------------------------------

    def _apply(self, record: Record, now: int) -> None:
        if self.keeper is not None:
            self._keep(self.keeper, record)
        match record:
            case records.Append():
                self._append(record, now)
            case records.Create():
                self._create(record, now)
            case records.Merge():
                self._merge(record, now)
            case records.Delete():
                self._forget_segment(record.segment)
            case records.Forget():
                self._rotate(now)
            case _:
                self._alter(self._there(record.segment), record, now)

    def _keep(self, keeper: Keeper, record: Record) -> None:
        """What the record changes, for a snapshot that is being made."""
        match record:
            case records.Forget():
                changed = list(self.segments)
            case records.Merge():
                changed = [record.target, record.source]
            case _:
                changed = [record.segment]
        for name in changed:
            segment = self.segments.get(name)
            if segment is not None:
                keeper.keep(segment)

    def _alter(self, segment: Segment, record: Record, now: int) -> None:
        segment.modified = now
        match record:
            case records.Seal():
                segment.sealed = True
            case records.Truncate():
                segment.truncate(record.offset)
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
        segment = self._there(record.segment)
        segment.length = record.offset + len(record.data)
        segment.events += record.claimed
        segment.modified = now
        before = segment.numbers
        segment.wrote(record.writer, record.number)
        self.numbers += segment.numbers - before
        if segment.staged is not None:
            segment.staged.add(bytes(record.data))
            self.staged_bytes += len(record.data)

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
        target = self._there(record.target)
        target.length = record.offset + len(record.data)
        target.events += record.claimed
        target.modified = now
        self._forget_segment(record.source)
        self.merged[record.source] = None
        if len(self.merged) > _MERGED:
            del self.merged[next(iter(self.merged))]

    def _forget_segment(self, name: str) -> None:
        gone = self.segments.pop(name, None)
        if gone is not None:
            self._count(gone, -1)
            if gone.staged is not None:
                self.staged_bytes -= len(gone.staged.data)

    def _count(self, segment: Segment, times: int) -> None:
        self.numbers += times * segment.numbers
        if segment.table is not None:
            self.table_bytes += times * segment.table.bytes

    def put_back(self, segment: Segment) -> None:
        """A segment as it was."""
        self.segments[segment.name] = segment
        self._count(segment, 1)

    def _rotate(self, now: int) -> None:
        self.forgotten = now
        for segment in self.segments.values():
            self._count(segment, -1)
            segment.idle, segment.writers = segment.writers, {}
            self._count(segment, 1)

    def _there(self, name: str) -> Segment:
        # Missing only after a journal has lost records: what we know is kept.
        found = self.segments.get(name)
        if found is None:
            found = self.segments[name] = Segment(name, self.number)
        return found

    def _table(self, segment: Segment) -> Table:
        if segment.table is None:
            segment.table = Table()
        return segment.table

    # -- what becomes durable, and what comes back ----------------------------------

    def stored(self, body: bytes, lsn: int) -> Iterator[Written | str]:
        """A change is durable: the data of it, or the name of a segment it touched."""
        found = records.unpack(body)
        self.durable = max(self.durable, found.number)
        for record in found.records:
            match record:
                case records.Append():
                    yield from self._written(found.number, record.segment, record, lsn)
                    lsn += record.count
                case records.Merge():
                    yield record.source
                    yield from self._written(found.number, record.target, record, lsn)
                    lsn += record.count
                case records.Forget():
                    pass
                case records.Seal():
                    segment = self._since(found.number, record.segment)
                    if segment is not None:
                        segment.closed = True
                    yield record.segment
                case _:
                    yield record.segment

    def _written(
        self,
        number: int,
        name: str,
        record: records.Append | records.Merge,
        lsn: int,
    ) -> Iterator[Written | str]:
        if self.keeper is not None:
            self.keeper.written(number, name, record.offset, lsn)
        segment = self._since(number, name)
        if segment is not None:
            segment.readable = record.offset + len(record.data)
            segment.mark(record.offset, lsn)
            if segment.staged is None:
                yield Written(segment, record.offset, record.data)
        yield name

    def _since(self, number: int, name: str) -> Segment | None:
        """A segment, unless it is another one than when change *number* was made."""
        segment = self.segments.get(name)
        return None if segment is None or segment.born > number else segment

    def replay(self, body: bytes, lsn: int, now: int) -> Iterator[Written | str]:
        """A body from the journal; nothing comes of one that was applied before."""
        found = records.unpack(body)
        if found.number <= self.number:
            return
        self.number = found.number
        for record in found.records:
            self._apply(record, now)
        yield from self.stored(body, lsn)

    def transients(self) -> list[str]:
        """Segments that no connection outlives."""
        return [name for name in self.segments if "#transient." in name]
