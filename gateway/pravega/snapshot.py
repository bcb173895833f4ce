"""All of `Segments` as bytes, so that a start need not replay history.

    snapshot = msgpack [format (1), number, forgotten at, merged, merged before,
                segments]

It holds the state of a moment, changes included that are not durable yet: it must
replace an older one only when `Segments.durable` has reached its number.
"""

from __future__ import annotations

from array import array

import msgspec

from gateway.pravega.segment import Segment
from gateway.pravega.segments import Segments
from gateway.pravega.tables import Table

__all__ = ["restore", "save"]

_FORMAT = 1


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
    staged: list[bytes] | None
    marks: bytes
    places: bytes


class _Snapshot(msgspec.Struct, array_like=True):
    form: int
    number: int
    forgotten: int
    merged: list[str]
    merged_before: list[str]
    segments: list[_Segment]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Snapshot).decode


def save(state: Segments) -> bytes:
    """The state as it is now; `state.number` is what it covers."""
    return _encode(
        _Snapshot(
            _FORMAT,
            state.number,
            state.forgotten,
            sorted(state.merged),
            sorted(state.merged_before),
            [_saved(segment) for segment in state.segments.values()],
        )
    )


def restore(data: bytes) -> Segments:
    """The other way round; raises `ValueError`."""
    found = _decode(data)
    if found.form != _FORMAT:
        raise ValueError(f"Pravega snapshot of unknown format {found.form}")
    state = Segments()
    state.number = state.durable = found.number
    state.forgotten = found.forgotten
    state.merged = set(found.merged)
    state.merged_before = set(found.merged_before)
    for saved in found.segments:
        segment = state.segments[saved.name] = _restored(saved)
        state.staged_bytes += sum(map(len, segment.staged or ()))
    return state


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
        segment.staged,
        b"" if segment.marks is None else segment.marks.tobytes(),
        b"" if segment.places is None else segment.places.tobytes(),
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
    segment.staged = saved.staged
    if saved.table is not None:
        segment.table = table = Table(saved.table.key_bytes)
        for key, value, version in saved.table.entries:
            table.put(version, [(key, value)])
        table.position = saved.table.position
    if saved.marks:
        segment.marks, segment.places = array("q"), array("q")
        segment.marks.frombytes(saved.marks)
        segment.places.frombytes(saved.places)
    return segment
