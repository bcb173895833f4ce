"""Snapshots of `Segments` as bytes, so that a start replays only the newest changes.

    snapshot = pieces, each preceded by its length u32 (little-endian), in msgpack:
               head | entries … | segments … | staged … | marks

A snapshot has the state of one moment, with changes that are not durable at that moment:
it may replace an older one only when `Segments.durable` has reached its number.

To encode 100 000 segments takes a second, which is too long to hold up connections.  So
`SnapshotWriter` works in steps while the state goes on changing.  A segment that is about
to change is encoded before it does.  Of its table, which may have hundreds of thousands of
entries, only references are copied then: the entries are encoded in later steps, and come
before their segment.  Staged data only grows, so its length at the moment is enough.  The lsns of changes that
were not durable at the moment become known later, and come last.

No I/O, no clock.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import TypeAlias

import msgspec

from gateway.protocols.pravega.segment import KeptData, Segment
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.tables import ENTRY_BYTES, Table

_FORM = 1
"""The form of a snapshot, in its first piece (docs/formats.md)."""
_LENGTH = struct.Struct("<I")

#: A step ends after so many segments, or with the segment that exceeds so many bytes.
_STEP_SEGMENTS = 500
_STEP_BYTES = 1 << 20


_Entry: TypeAlias = tuple[bytes, bytes, int]
"""Key, value and version."""


class _Table(msgspec.Struct, array_like=True):
    key_bytes: int
    position: int


class _Segment(msgspec.Struct, array_like=True):
    name: str
    born: int
    start: int
    length: int
    sealed: bool
    modified: int
    events: int
    policy: tuple[int, int, int]
    attributes: dict[bytes, int] | None
    writers: dict[bytes, int]
    idle: dict[bytes, int]
    table: _Table | None
    mark_offsets: bytes
    mark_lsns: bytes
    marked_at: int
    kept: tuple[int, bytes] | None
    """The data of an internal segment, and where it begins."""
    mark_times: bytes
    written_at: int


class _Head(msgspec.Struct, array_like=True, tag=0):
    form: int
    number: int
    writers_forgotten_at: int
    merged: list[str]


class _Some(msgspec.Struct, array_like=True, tag=1):
    segments: list[_Segment]


class _Staged(msgspec.Struct, array_like=True, tag=2):
    name: str
    data: bytes


class _Marks(msgspec.Struct, array_like=True, tag=3):
    """The last piece: a snapshot without it is cut short."""

    marks: list[tuple[int, str, int, int]]
    """Number, segment, offset and lsn of each change."""


class _Entries(msgspec.Struct, array_like=True, tag=4):
    """Some of a table's entries, in the order of versions; its segment comes later."""

    name: str
    entries: list[_Entry]


_Piece: TypeAlias = _Head | _Some | _Staged | _Marks | _Entries

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Piece).decode


class _TableLeft:
    """A table that is still to be encoded, as it was, and then its *segment*, which is."""

    def __init__(self, name: str, table: Table, segment: bytes) -> None:
        self.name = name
        self.segment = segment
        self._keys = list(table.entries)
        self._values = list(table.entries.values())
        self._at = 0

    def next_entries(self) -> list[_Entry]:
        """The entries of one step, up to the one that exceeds its bytes; none at the end."""
        found: list[_Entry] = []
        size = 0
        while size < _STEP_BYTES and self._at < len(self._keys):
            key, (value, version) = self._keys[self._at], self._values[self._at]
            found.append((key, value, version))
            size += ENTRY_BYTES + len(key) + len(value)
            self._at += 1
        return found


class SnapshotWriter:
    """A snapshot of the state at its creation, as it goes on.  Implements `state.ChangeObserver`."""

    def __init__(self, state: Segments, first_lsn: int = 0) -> None:
        """Marks of deleted events, before *first_lsn*, are dropped."""
        self.number = state.number
        """The last change in the snapshot, which must be durable before its use."""
        self._state = state
        self._first_lsn = first_lsn
        self._out = BytesIO()
        self._left = dict(state.segments)
        self._names = list(reversed(self._left))
        self._staged = [
            (segment.name, segment.staged.data, len(segment.staged.data))
            for segment in (state.segments.values() if state.staged_bytes else ())
            if segment.staged is not None
        ]
        self._at = 0
        self._tables: deque[_TableLeft] = deque()
        self._marks: list[tuple[int, str, int, int]] = []
        self._write(
            _Head(_FORM, state.number, state.writers_forgotten_at, list(state.merged))
        )
        state.observer = self

    def will_change(self, segment: Segment) -> None:
        if self._left.get(segment.name) is segment:
            del self._left[segment.name]
            self._save_alone(segment)

    def written(self, number: int, name: str, offset: int, lsn: int) -> None:
        if number <= self.number:
            self._marks.append((number, name, offset, lsn))

    def step(self) -> bool:
        """Encode a part of the state; False when nothing is left."""
        stop = self._out.tell() + _STEP_BYTES
        some: list[_Segment] = []
        tables = 0
        while (
            (self._names or self._tables)
            and len(some) + tables < _STEP_SEGMENTS
            and self._out.tell() < stop
        ):
            if self._tables:
                self._tabulate()
                tables += 1
                continue
            segment = self._left.pop(self._names.pop(), None)
            if segment is None:
                continue  # encoded before it changed
            if _is_large(segment):
                self._save_alone(segment)
            else:
                some.append(self._saved(segment))
        if some:
            self._write(_Some(some))
        elif self._staged and not (self._names or self._tables):
            self._stage()
        return bool(self._names or self._tables or self._staged)

    def _save_alone(self, segment: Segment) -> None:
        piece = _Some([self._saved(segment)])
        if segment.table is None:
            self._write(piece)
        else:
            left = _TableLeft(segment.name, segment.table, _encode(piece))
            self._tables.append(left)

    def _tabulate(self) -> None:
        """Some of the first table that is left, or its segment."""
        table = self._tables[0]
        if entries := table.next_entries():
            self._write(_Entries(table.name, entries))
        else:
            self._write_encoded(table.segment)
            self._tables.popleft()

    def _saved(self, segment: Segment) -> _Segment:
        segment.drop_marks_before(self._first_lsn)
        return _saved(segment)

    def _stage(self) -> None:
        name, data, length = self._staged[-1]
        stop = min(self._at + _STEP_BYTES, length)
        self._write(_Staged(name, bytes(data[self._at : stop])))
        self._at = stop
        if stop == length:
            self._staged.pop()
            self._at = 0

    def finish(self) -> bytes:
        """The snapshot; call it when `step` is done and `number` is durable."""
        self._state.observer = None
        self._write(_Marks(self._marks))
        return self._out.getvalue()

    def _write(self, piece: _Piece) -> None:
        self._write_encoded(_encode(piece))

    def _write_encoded(self, data: bytes) -> None:
        self._out.write(_LENGTH.pack(len(data)))
        self._out.write(data)


def save(state: Segments, first_lsn: int = 0) -> bytes:
    """A snapshot of the state as it is now; usable when `state.number` is durable."""
    saving = SnapshotWriter(state, first_lsn)
    while saving.step():
        pass
    return saving.finish()


def restore(data: bytes) -> Segments:
    """The state that a snapshot has; raises `ValueError` for a broken one."""
    pieces = _pieces(data)
    head = next(pieces, None)
    if not isinstance(head, _Head) or head.form != _FORM:
        raise ValueError("no Pravega snapshot, or one of a later version")
    state = Segments()
    state.number = state.durable = head.number
    state.writers_forgotten_at = head.writers_forgotten_at
    state.merged = dict.fromkeys(head.merged)
    entries: dict[str, list[_Entry]] = {}
    for piece in pieces:
        match piece:
            case _Entries():
                entries.setdefault(piece.name, []).extend(piece.entries)
            case _Some():
                for saved in piece.segments:
                    own = entries.pop(saved.name, ()) if saved.table else ()
                    state.restore_segment(_restored(saved, own))
            case _Staged():
                staged = state.segments[piece.name].staged
                if staged is not None:
                    staged.add(piece.data)
                    state.staged_bytes += len(piece.data)
            case _Marks():
                if entries:
                    raise ValueError(f"entries of no table: {', '.join(entries)[:200]}")
                _mark(state, piece.marks)
                return state
    raise ValueError("a Pravega snapshot that is cut short")


def _pieces(data: bytes) -> Iterator[_Piece]:
    at, end = 0, len(data)
    view = memoryview(data)
    while at + _LENGTH.size <= end:
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0]
        yield _decode(view[start:at])


def _mark(state: Segments, marks: Iterable[tuple[int, str, int, int]]) -> None:
    for number, name, offset, lsn in marks:
        segment = state.segments.get(name)
        if segment is not None and segment.born <= number:
            segment.mark(offset, lsn)


def _is_large(segment: Segment) -> bool:
    return (
        segment.table is not None
        or segment.kept is not None
        or len(segment.writers) + len(segment.idle) > 100
    )


def _saved(segment: Segment) -> _Segment:
    table = segment.table
    return _Segment(
        segment.name,
        segment.born,
        segment.start,
        segment.length,
        segment.sealed,
        segment.modified,
        segment.events,
        (segment.target_rate, segment.scale_type, segment.rollover_bytes),
        segment.attributes,
        segment.writers,
        segment.idle,
        None if table is None else _Table(table.key_bytes, table.position),
        array("q", segment.mark_offsets).tobytes(),
        array("q", segment.mark_lsns).tobytes(),
        segment.marked_at,
        None
        if segment.kept is None
        else (segment.kept.begin, bytes(segment.kept.data)),
        array("q", segment.mark_times).tobytes(),
        segment.written_at,
    )


def _restored(saved: _Segment, entries: Sequence[_Entry]) -> Segment:
    segment = Segment(saved.name, saved.born)
    segment.start = segment.head = saved.start
    segment.length = segment.readable = saved.length
    segment.sealed = segment.closed = saved.sealed
    segment.modified = saved.modified
    segment.events = saved.events
    segment.target_rate, segment.scale_type, segment.rollover_bytes = saved.policy
    segment.attributes = saved.attributes
    segment.writers, segment.idle = saved.writers, saved.idle
    if saved.table is not None:
        table = saved.table
        segment.table = Table.restored(table.key_bytes, table.position, entries)
    segment.marked_at = saved.marked_at
    if saved.kept is not None:
        segment.kept = KeptData(*saved.kept)
    if saved.mark_offsets:
        segment.mark_offsets = array("q", saved.mark_offsets)
        segment.mark_lsns = array("q", saved.mark_lsns)
        segment.mark_times = array("q", saved.mark_times)
        segment.truncated(saved.start)
    segment.written_at = segment.stored_at = saved.written_at
    return segment
