"""Every change that can be made to segments and tables.

A method that changes something checks the request, applies the change in memory, and
returns it as a `Change`: the body of the batch that makes it durable.  So the state is
ahead of the disk by the changes that are not durable yet.  A reply that depends on a
change must wait until it is; readers see durable data only (`Segment.readable`).

After a restart the same bodies restore the state: `State.replay` them in order, on top
of `snapshot.restore`.  Changes are numbered, and one that was applied is skipped.

The data of a *staged* segment, of a transaction or a large event, stays in memory until
the merge; only the merge makes rows of it.  That of an *internal* segment, of a reader
group or a state synchronizer, stays in memory until it is truncated, and is no rows.

No I/O, no clock: times are milliseconds since the epoch, and are passed in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

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
from gateway.protocols.pravega.segment import Segment, is_internal
from gateway.protocols.pravega.state import State
from gateway.protocols.pravega.tables import Table
from gateway.protocols.pravega.wire import NEVER

_REPLACE_IF_EQUALS = 4

_WHOLE_BYTES = 1 << 20
"""The body of a merge of more bytes is left in pieces."""


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


class Segments(State):
    """The state, with every change that can be made to it."""

    def __init__(self) -> None:
        super().__init__()
        self.synchronizers_are_rows = False
        """Updates of state synchronizers become rows, too."""

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
        """Count events of a staged segment within a turn; True: all, or there is none."""
        segment = self.segments.get(name)
        return segment is None or segment.staged is None or segment.staged.count()

    def transients(self) -> list[str]:
        """Names of the segments that are deleted when their connection ends."""
        return [name for name in self.segments if "#transient." in name]

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

        An internal segment has such a name, or is one of a revisioned stream (a state
        synchronizer).  There the first append ever is a *revisioned* update, which no other
        client sends.
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
        data: bytes | memoryview,
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

    def attribute(
        self, name: str, attribute: bytes, new: int, expected: int, now: int
    ) -> Change:
        """Set an attribute that is *expected*.  Raises `SegmentNotFound`, `ConditionFailed`."""
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
        merges = self._merges(pairs)
        for update in updates:
            target = self.data(pairs[0][0])
            if (
                update.kind == _REPLACE_IF_EQUALS
                and target.attribute(update.attribute) != update.old
            ):
                raise ConditionFailed
            merges.append(records.Attribute(target.name, update.attribute, update.new))
        return self._change(merges, now)

    def _merges(
        self, pairs: Iterable[tuple[str, str]], new: Collection[str] = ()
    ) -> list[Record]:
        """The records of a merge; the targets in *new* are empty, and made before it."""
        merges: list[Record] = []
        ends = dict.fromkeys(new, 0)
        taken: set[str] = set()
        for target_name, source_name in pairs:
            if target_name not in ends:
                target = self.data(target_name)
                ends[target_name] = target.length
                if target.staged is not None or target.kept is not None:
                    raise Unsupported
                if target.sealed:
                    raise Sealed
            source = self.find(source_name)
            if source.staged is None:
                raise Unsupported
            if source_name in taken:
                raise SegmentNotFound(source_name)
            taken.add(source_name)
            offset = ends[target_name]
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
        return merges

    def scale(
        self,
        created: Collection[str],
        sealed: Iterable[str],
        record: tuple[str, bytes, bytes],
        now: int,
        *,
        merged: Iterable[tuple[str, str]] = (),
    ) -> Change:
        """Create segments in the place of others, which are sealed: all of it or nothing.

        *created* are in order.  *merged* are (target, source), as in `merge`; what they
        bring to a new segment comes before its seal.  *record*, put into a table, says
        so: the table, key, value.  Raises `SegmentExists`, and what `merge` does.
        """
        if any(name in self.segments for name in created):
            raise SegmentExists
        made: list[Record] = [records.Create(name) for name in created]
        made += self._merges(merged, created)
        for name in sealed:
            found = self.segments.get(name)
            if name in created or not (found is None or found.sealed or found.table):
                made.append(records.Seal(name))
        table, key, value = record
        made.append(records.Put(table, self.table(table).position, [(key, value)]))
        return self._change(made, now)

    def create_table(self, name: str, now: int, *, key_bytes: int = 0) -> Change:
        """Create a table with keys of *key_bytes*, 0 for any.  Raises `SegmentExists`."""
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
        count = payload_bytes = merged = 0
        for record in made:
            count += record.rows
            payload_bytes += record.payload_bytes
            merged += record.merged_bytes
        pieces: Sequence[bytes | memoryview] = ()
        if merged > _WHOLE_BYTES:
            pieces, body = records.pieces(number, made), b""
        else:
            body = records.pack(number, made)
        size = sum(map(len, pieces)) or len(body)
        self.apply(made, now)
        return Change(number, body, size, pieces, count, payload_bytes)
