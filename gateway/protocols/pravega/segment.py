"""The state of one segment: its range of bytes, writers, attributes, table entries.

Where its data lies in the journal and in files is remembered sparsely, in *marks*: an
offset where an event begins, and the lsn of that event.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct, field

from gateway.protocols.pravega.events import EventCounter
from gateway.protocols.pravega.tables import Table
from gateway.protocols.pravega.wire import NEVER

#: The id of the attribute with the number of events in a segment.
EVENT_COUNT = bytes.fromhex("00000000000000000000000000000002")

#: Distance of marks, in bytes or in time.  When a file is lost, the segment can be read
#: from the next mark on.
MARK_BYTES = 1 << 18
MARK_MS = 3_600_000

#: A segment has so many marks, and one more for each so many bytes; of too many every
#: second one of the older half is dropped.
_MOST_MARKS = 200
_MARKED_BYTES = 1 << 20


def is_transient(name: str) -> bool:
    """Whether this is the name of a transient segment: one large event, in parts."""
    return "#transient." in name


def is_staged(name: str) -> bool:
    """Whether this is the name of a transaction's segment, or of a transient one.

    What is appended there is *staged*: kept in memory until the segment is merged.
    """
    return "#transaction." in name or is_transient(name)


_INTERNAL = re.compile(r"[^/]*/_(?:RG|MARK)[^/]*/[^/]*")


def is_internal(name: str) -> bool:
    """Whether this is a segment of a reader group's state, or of watermarks.

    A state synchronizer has no name of its own: see `Segments.append`.
    """
    return _INTERNAL.fullmatch(name) is not None and not is_staged(name)


class KeptData:
    """The data of an *internal* segment from `begin` on: it stays in the state.

    Its users truncate it by themselves, so it is small; and they can not go on without
    it, so it does not expire.  What was appended before `begin` is in files.
    """

    __slots__ = ("begin", "data")

    def __init__(self, begin: int, data: bytes = b"") -> None:
        self.begin = begin
        """The offset of its first byte in the segment."""
        self.data = bytearray(data)

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.begin + len(self.data)

    def add(self, data: bytes) -> None:
        self.data += data

    def truncate(self, offset: int) -> None:
        """Forget what lies before *offset*."""
        if offset > self.begin:
            del self.data[: offset - self.begin]
            self.begin = offset

    def read(self, offset: int, size: int) -> bytes:
        """Read *size* bytes or less from *offset* on, which must not be before `begin`."""
        at = offset - self.begin
        return bytes(self.data[at : at + size])


class StagedData(Struct, eq=False, gc=False):
    """The data of a staged segment, in one piece."""

    data: bytearray = field(default_factory=bytearray)
    """Bytes that only grow: no view of it may be kept, which would forbid that."""
    _counter: EventCounter = field(default_factory=EventCounter)

    @property
    def rows(self) -> int:
        """How many rows the merge will make of it."""
        while not self.count():
            pass
        return self._counter.rows(self.data)

    def add(self, data: bytes) -> None:
        self.data += data
        self.count()

    @property
    def counted(self) -> bool:
        return self._counter.done(self.data)

    def count(self) -> bool:
        """Look for events, as far as a turn allows; true: all are counted."""
        return self._counter.step(self.data)

    def read(self, offset: int, size: int) -> bytes:
        with memoryview(self.data) as view:
            return bytes(view[offset : offset + size])


Marks: TypeAlias = "array[int] | tuple[int, ...]"
"""Marks of a segment; the empty tuple for none: there may be 100 000 segments."""


class Segment(Struct, eq=False, gc=False):
    """State of one segment.  Only `Segments` changes it.

    The garbage collector looks neither at it nor at what is staged in it: nothing in
    them refers back, and looking at 100 000 of them would take long.

    25 attributes: a snapshot has most of them.
    """

    name: str
    born: int
    """Number of the change that created it."""
    start: int = 0
    head: int = 0
    """The durable start: no reader can ask for what lies before it any more."""
    length: int = 0
    """Where the next append goes, ahead of what is durable."""
    readable: int = 0
    """The end of what is durable, which is what readers see."""
    sealed: bool = False
    closed: bool = False
    """The seal is durable."""
    modified: int = 0
    events: int = 0
    """The number of events, as its writers counted them."""
    target_rate: int = 0
    scale_type: int = 0
    rollover_bytes: int = 0
    attributes: dict[bytes, int] | None = None
    writers: dict[bytes, int] = field(default_factory=dict)
    """Last event number of those who wrote since `ForgetIdleWriters`, by writer id."""
    idle: dict[bytes, int] = field(default_factory=dict)
    """The same of those who wrote before it, and perhaps since."""
    table: Table | None = None
    staged: StagedData | None = None
    kept: KeptData | None = None
    """The data, if the segment is internal."""
    mark_offsets: Marks = ()
    """Offset of each mark, ascending."""
    mark_lsns: Marks = ()
    """The lsn of each mark."""
    mark_times: Marks = ()
    """When what lies before each was written at the latest, in milliseconds since the epoch."""
    marked_at: int = 0
    """When the last mark was made, in milliseconds since the epoch."""
    written_at: int = 0
    """The time of the last append, in milliseconds since the epoch."""
    stored_at: int = 0
    """The latest time at which the newest durable append was made, in milliseconds since the
    epoch."""

    def __post_init__(self) -> None:
        if is_staged(self.name):
            self.staged = StagedData()

    @property
    def numbers(self) -> int:
        """How many writers and attributes are remembered."""
        more = 0 if self.attributes is None else len(self.attributes)
        return len(self.writers) + len(self.idle) + more

    @property
    def retained(self) -> int:
        """Bytes of its events that readers may ask for."""
        if self.table is not None or self.staged is not None:
            return 0
        if self.kept is not None:
            return max(0, self.kept.begin - self.start)
        return self.length - self.start

    @property
    def needed_lsn(self) -> int | None:
        """The lsn from which on its rows are needed; any thread may ask."""
        lsns = self.mark_lsns
        return lsns[0] if lsns and self.head < self.readable else None

    def offset_before(self, time: int) -> int:
        """An offset before which everything was written before *time*; as far as known.

        In milliseconds since the epoch.  It is where an event begins, or ends.
        """
        if self.written_at < time:
            return self.readable
        found = bisect_left(self.mark_times, time) - 1
        return max(self.start, self.mark_offsets[found]) if found >= 0 else self.start

    def offset_since(self, time: int) -> int:
        """An offset from which on nothing was written before *time*; the first known."""
        found = bisect_left(self.mark_times, time)
        if found < len(self.mark_offsets):
            return max(self.start, self.mark_offsets[found])
        return self.readable

    def number_of(self, writer: bytes) -> int:
        """A writer's last event number; `NEVER` for an unknown writer."""
        found = self.writers.get(writer)
        if found is None:
            found = self.idle.get(writer)
        if found is None and self.attributes is not None:
            found = self.attributes.get(writer)
        return NEVER if found is None else found

    def wrote(self, writer: bytes, number: int) -> None:
        """Set a writer's last event number."""
        self.writers[writer] = number
        if self.attributes is not None:
            self.attributes.pop(writer, None)

    def attribute(self, attribute: bytes) -> int:
        """The value of an attribute, or `NEVER`; writers' numbers are attributes too."""
        return self.events if attribute == EVENT_COUNT else self.number_of(attribute)

    def set_attribute(self, attribute: bytes, value: int) -> None:
        """Set an attribute; `NEVER` removes it."""
        if attribute in self.writers or attribute in self.idle:
            if value != NEVER:
                self.writers[attribute] = value
                return
            self.writers.pop(attribute, None)
            self.idle.pop(attribute, None)
        if self.attributes is None:
            self.attributes = {}
        if value == NEVER:
            self.attributes.pop(attribute, None)
        else:
            self.attributes[attribute] = value

    def truncate(self, offset: int) -> None:
        """Let the segment begin at *offset*, unless it begins later."""
        self.start = max(self.start, offset)
        if self.kept is not None:
            self.kept.truncate(offset)

    def truncated(self, offset: int) -> None:
        """The truncation at *offset* is durable: forget marks that are no use any more."""
        self.head = max(self.head, offset)
        self._drop_marks(bisect_right(self.mark_offsets, offset) - 1)

    @property
    def _marks(self) -> Iterator[array[int]]:
        for each in (self.mark_offsets, self.mark_lsns, self.mark_times):
            assert isinstance(each, array), "there are marks"
            yield each

    def _drop_marks(self, count: int) -> None:
        if count > 0:
            for each in self._marks:
                del each[:count]

    def mark(self, offset: int, lsn: int) -> None:
        """The event at *offset* has this lsn: mark it if the last mark is far enough."""
        if self.staged is not None or self.kept is not None:
            return
        if self.mark_offsets == ():
            self.mark_offsets, self.mark_lsns = array("q"), array("q")
            self.mark_times = array("q")
        last = self.mark_offsets[-1] if self.mark_offsets else -MARK_BYTES
        late = self.modified >= self.marked_at + MARK_MS and offset > last
        first = self.head >= offset > last  # no file with what is before it is needed
        if late or first or offset >= last + MARK_BYTES:
            nothing_before = first or offset == 0
            time = self.modified if nothing_before else self.stored_at
            for each, value in zip(self._marks, (offset, lsn, time), strict=True):
                each.append(value)
            self.marked_at = self.modified
            if first:
                self._drop_marks(len(self.mark_offsets) - 1)
            most = _MOST_MARKS + self.retained // _MARKED_BYTES
            if len(self.mark_offsets) > most:
                self._thin_marks()
        self.stored_at = self.written_at

    def _thin_marks(self) -> None:
        """Drop every second mark of the older half; never the first."""
        for each in self._marks:
            half = len(each) // 2
            each[:half] = each[:half:2]

    def drop_marks_before(self, lsn: int) -> None:
        """Drop the marks of events before *lsn*, whose files are deleted."""
        self._drop_marks(bisect_left(self.mark_lsns, lsn) - 1)

    def lsn_near(self, offset: int) -> int | None:
        """The lsn of the last mark at or before *offset*; None if there is none."""
        found = bisect_right(self.mark_offsets, offset) - 1
        return self.mark_lsns[found] if found >= 0 else None

    def first_offset_from(self, lsn: int) -> int:
        """The offset of the first mark at *lsn* or later; else the durable end."""
        found = bisect_left(self.mark_lsns, lsn)
        there = found < len(self.mark_offsets)
        return self.mark_offsets[found] if there else self.readable

    def event_boundary(self, offset: int) -> int:
        """The offset of the first mark at *offset* or later; else the durable end."""
        found = bisect_left(self.mark_offsets, offset)
        if found < len(self.mark_offsets):
            return max(self.mark_offsets[found], self.start)
        return self.readable


class Written(Struct):
    """Data of a segment that has become durable."""

    segment: Segment
    offset: int
    data: memoryview
