"""All of `Segments` as bytes, so that a start need not replay history.

    snapshot = pieces, each behind its length u32 (little-endian), msgpack:
               head | segments … | staged … | marks

It holds the state of one moment, changes included that are not durable then: it may
replace an older one only when `Segments.durable` has reached its number.

A hundred thousand segments take a second to write, and nobody may wait so long.  So
`SnapshotWriter` does it step by step while the state goes on changing: a segment that is about
to change is written down before it does.  What is staged only grows, so that its
length of that moment is enough.  Where in the journal the newest changes of the moment
lie is not known before they are durable, and comes last.

No I/O, no clock.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import TypeAlias

import msgspec

from gateway.protocols.pravega.segment import Segment
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.tables import Table

__all__ = ["SnapshotWriter", "restore", "save"]

_FORMAT = 1
_LENGTH = struct.Struct("<I")

#: What a step writes at most: so many segments, or so many bytes and one segment more.
_STEP_SEGMENTS = 500
_STEP_BYTES = 1 << 20


class _Table(msgspec.Struct, array_like=True):
    key_bytes: int
    position: int
    entries: list[tuple[bytes, bytes, int]]


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
    marks: bytes
    places: bytes
    marked: int = 0


class _Head(msgspec.Struct, array_like=True, tag=0):
    form: int
    number: int
    forgotten: int
    merged: list[str]


class _Some(msgspec.Struct, array_like=True, tag=1):
    segments: list[_Segment]


class _Staged(msgspec.Struct, array_like=True, tag=2):
    name: str
    data: bytes


class _Marks(msgspec.Struct, array_like=True, tag=3):
    """The last piece: without it, it is not all there."""

    marks: list[tuple[int, str, int, int]]
    """Number of the change, segment, offset, lsn."""


_Piece: TypeAlias = _Head | _Some | _Staged | _Marks

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Piece).decode


class SnapshotWriter:
    """A snapshot in the making: implements `segments.Keeper`."""

    def __init__(self, state: Segments) -> None:
        """Of the state as it is now."""
        self.number = state.number
        """What it covers; give it away when this is durable."""
        self._state = state
        self._out = BytesIO()
        self._left = dict(state.segments)
        self._names = list(reversed(self._left))
        self._staged = [
            (segment.name, segment.staged.data, len(segment.staged.data))
            for segment in state.segments.values()
            if segment.staged is not None
        ]
        self._at = 0
        self._marks: list[tuple[int, str, int, int]] = []
        self._write(_Head(_FORMAT, state.number, state.forgotten, list(state.merged)))
        state.keeper = self

    def keep(self, segment: Segment) -> None:
        """See `segments.Keeper`."""
        if self._left.get(segment.name) is segment:
            del self._left[segment.name]
            self._write(_Some([_saved(segment)]))

    def written(self, number: int, name: str, offset: int, lsn: int) -> None:
        """See `segments.Keeper`."""
        if number <= self.number:
            self._marks.append((number, name, offset, lsn))

    def step(self) -> bool:
        """Write a little of it; false when there is nothing more to write."""
        room = self._out.tell() + _STEP_BYTES
        some: list[_Segment] = []
        while self._names and len(some) < _STEP_SEGMENTS and self._out.tell() < room:
            segment = self._left.pop(self._names.pop(), None)
            if segment is None:
                continue  # written before it changed
            if _is_large(segment):
                self._write(_Some([_saved(segment)]))
            else:
                some.append(_saved(segment))
        if some:
            self._write(_Some(some))
        elif self._staged and not self._names:
            self._stage()
        return bool(self._names or self._staged)

    def _stage(self) -> None:
        name, data, length = self._staged[-1]
        stop = min(self._at + _STEP_BYTES, length)
        self._write(_Staged(name, bytes(data[self._at : stop])))
        self._at = stop
        if stop == length:
            self._staged.pop()
            self._at = 0

    def finish(self) -> bytes:
        """All of it, when there are no more steps and its number is durable."""
        self._state.keeper = None
        self._write(_Marks(self._marks))
        return self._out.getvalue()

    def _write(self, piece: _Piece) -> None:
        data = _encode(piece)
        self._out.write(_LENGTH.pack(len(data)))
        self._out.write(data)


def save(state: Segments) -> bytes:
    """The state as it is now, at once; `state.number` is what it covers."""
    saving = SnapshotWriter(state)
    while saving.step():
        pass
    return saving.finish()


def restore(data: bytes) -> Segments:
    """The other way round; raises `ValueError`."""
    pieces = _pieces(data)
    head = next(pieces, None)
    if not isinstance(head, _Head) or head.form != _FORMAT:
        raise ValueError("no Pravega snapshot, or one of a later version")
    state = Segments()
    state.number = state.durable = head.number
    state.forgotten = head.forgotten
    state.merged = dict.fromkeys(head.merged)
    for piece in pieces:
        match piece:
            case _Some():
                for saved in piece.segments:
                    state.put_back(_restored(saved))
            case _Staged():
                staged = state.segments[piece.name].staged
                if staged is not None:
                    staged.add(piece.data)
                    state.staged_bytes += len(piece.data)
            case _Marks():
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
    """Whether it should be a piece of its own."""
    return segment.table is not None or len(segment.writers) + len(segment.idle) > 100


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
        None
        if table is None
        else _Table(
            table.key_bytes,
            table.position,
            [(key, value, version) for key, (value, version) in table.entries.items()],
        ),
        b"" if segment.marks is None else segment.marks.tobytes(),
        b"" if segment.places is None else segment.places.tobytes(),
        segment.marked,
    )


def _restored(saved: _Segment) -> Segment:
    segment = Segment(saved.name, saved.born)
    segment.start = saved.start
    segment.length = segment.readable = saved.length
    segment.sealed = segment.closed = saved.sealed
    segment.modified = saved.modified
    segment.events = saved.events
    segment.target_rate, segment.scale_type, segment.rollover_bytes = saved.policy
    segment.attributes = saved.attributes
    segment.writers, segment.idle = saved.writers, saved.idle
    if saved.table is not None:
        segment.table = table = Table(saved.table.key_bytes)
        for key, value, version in saved.table.entries:
            table.put(version, [(key, value)])
        table.position = saved.table.position
    segment.marked = saved.marked
    if saved.marks:
        segment.marks, segment.places = array("q"), array("q")
        segment.marks.frombytes(saved.marks)
        segment.places.frombytes(saved.places)
    return segment
