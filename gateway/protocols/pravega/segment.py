"""One segment: a name, a range of bytes, and who wrote them."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from gateway.protocols.pravega.events import EventCounter
from gateway.protocols.pravega.tables import Table
from gateway.protocols.pravega.wire import NEVER

__all__ = [
    "EVENT_COUNT",
    "MARK_BYTES",
    "Segment",
    "StagedData",
    "is_staged",
    "is_transient",
]

#: The attribute that tells how many events a segment has.
EVENT_COUNT = bytes.fromhex("00000000000000000000000000000002")

#: How far apart the offsets are of which we remember the lsn, in bytes or in time:
#: where retention ends, what lies before the next one can be read no more.
MARK_BYTES = 1 << 18
MARK_MS = 3_600_000


def is_transient(name: str) -> bool:
    """Whether a large event is gathered there."""
    return "#transient." in name


def is_staged(name: str) -> bool:
    """Whether what is appended waits there for a merge."""
    return "#transaction." in name or is_transient(name)


class StagedData:
    """What has been appended to a staged segment, in memory and in one piece."""

    __slots__ = ("_counter", "data")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray()
        """Only ever grows.  Nobody may keep a view of it: it could not grow then."""
        self._counter = EventCounter()
        self.add(data)

    @property
    def rows(self) -> int:
        """How many rows the merge will make of it."""
        return self._counter.rows

    def add(self, data: bytes) -> None:
        """Append *data*."""
        self._counter.feed(data)
        self.data += data

    def read(self, offset: int, size: int) -> bytes:
        """At most *size* bytes from *offset* on."""
        with memoryview(self.data) as view:
            return bytes(view[offset : offset + size])


class Segment:
    """State of one segment; `Segments` alone changes it."""

    __slots__ = (
        "attributes",
        "born",
        "closed",
        "events",
        "idle",
        "length",
        "marked",
        "marks",
        "modified",
        "name",
        "places",
        "readable",
        "rollover_bytes",
        "scale_type",
        "sealed",
        "staged",
        "start",
        "table",
        "target_rate",
        "writers",
    )

    def __init__(self, name: str, born: int) -> None:
        self.name = name
        self.born = born
        """Number of the change that created it."""
        self.start = 0
        self.length = 0
        """Where the next append goes: in memory, ahead of the disk."""
        self.readable = 0
        """As far as it is durable."""
        self.sealed = False
        self.closed = False
        """Durably sealed."""
        self.modified = 0
        self.events = 0
        """As many as its writers said."""
        self.target_rate = self.scale_type = self.rollover_bytes = 0
        self.attributes: dict[bytes, int] | None = None
        self.writers: dict[bytes, int] = {}
        """Last event number by writer, of those who wrote since the last `Forget`."""
        self.idle: dict[bytes, int] = {}
        """Of those who wrote before it, and perhaps since."""
        self.table: Table | None = None
        self.staged: StagedData | None = StagedData() if is_staged(name) else None
        self.marks: array[int] | None = None
        """Offsets where an event begins, ascending; at most one in `MARK_BYTES`, but
        for one each `MARK_MS`."""
        self.places: array[int] | None = None
        """The lsn of each."""
        self.marked = 0
        """When the last of them was made."""

    @property
    def numbers(self) -> int:
        """How many are remembered, of writers and attributes."""
        more = 0 if self.attributes is None else len(self.attributes)
        return len(self.writers) + len(self.idle) + more

    def number_of(self, writer: bytes) -> int:
        """A writer's last event number; `NEVER` if it is not known."""
        found = self.writers.get(writer)
        if found is None:
            found = self.idle.get(writer)
        if found is None and self.attributes is not None:
            found = self.attributes.get(writer)
        return NEVER if found is None else found

    def wrote(self, writer: bytes, number: int) -> None:
        """A writer's last event number from now on."""
        self.writers[writer] = number
        if self.attributes is not None:
            self.attributes.pop(writer, None)

    def attribute(self, attribute: bytes) -> int:
        """Its value; a writer's number is an attribute too.  `NEVER` if there is none."""
        return self.events if attribute == EVENT_COUNT else self.number_of(attribute)

    def set_attribute(self, attribute: bytes, value: int) -> None:
        """`NEVER` removes it."""
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
        """Nothing is left before *offset*."""
        self.start = max(self.start, offset)
        if self.marks is not None and self.places is not None:
            gone = bisect_right(self.marks, offset) - 1
            if gone > 0:
                del self.marks[:gone]
                del self.places[:gone]

    def mark(self, offset: int, lsn: int) -> None:
        """The event at *offset* has this lsn, and later ones have higher."""
        if self.staged is not None:
            return
        if self.marks is None or self.places is None:
            self.marks, self.places = array("q"), array("q")
        last = self.marks[-1] if self.marks else -MARK_BYTES
        late = self.modified >= self.marked + MARK_MS and offset > last
        if late or offset >= last + MARK_BYTES:
            self.marks.append(offset)
            self.places.append(lsn)
            self.marked = self.modified

    def let_go(self, lsn: int) -> None:
        """What lies before *lsn* can not be read any more: forget where it is."""
        if self.marks is not None and self.places is not None:
            gone = max(0, bisect_left(self.places, lsn) - 1)
            del self.marks[:gone]
            del self.places[:gone]

    def place(self, offset: int) -> int | None:
        """An lsn at or before that of the event at *offset*, and not long before."""
        if self.marks is None or self.places is None:
            return None
        found = bisect_right(self.marks, offset) - 1
        return self.places[found] if found >= 0 else None

    def first_from(self, lsn: int) -> int:
        """The first marked offset that is at *lsn* or behind it; else the end."""
        if self.marks is None or self.places is None:
            return self.readable
        found = bisect_left(self.places, lsn)
        return self.marks[found] if found < len(self.marks) else self.readable

    def boundary(self, offset: int) -> int:
        """An offset at or behind *offset* where an event begins, or the end."""
        if self.marks is not None:
            found = bisect_left(self.marks, offset)
            if found < len(self.marks):
                return max(self.marks[found], self.start)
        return self.readable
