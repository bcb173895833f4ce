"""Event boundaries in a segment's bytes: counts events, and splits them into payloads.

    event   00000000 | length u32 | data          big-endian

Everything that is appended passes here twice: to be counted, and to become rows.
Events that all have the same size are common, so they are not walked one by one.

No I/O, no clock.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator

from msgspec import Struct

from gateway.sdk import native

MOST_EVENTS = 1 << 15
"""An append of more is stored in parts, each of them acknowledged."""

STEP_EVENTS = 1 << 13
"""Events that are counted in one step: some 2 ms."""

_HEADER = 8
_WALKED, _COMPARED = 0.25, 0.01
"""The cost of an event that is counted alone, or with others of its size."""
STEP_COST = _WALKED * STEP_EVENTS
"""The most that a step of `EventCounter` costs a turn."""
_PIECE = 1 << 18
"""Bytes that are looked at together for one size."""
_EVENT = struct.Struct(">Q")
_TYPE = bytes(4)

#: From so many events on it pays to look for one size.
_STRIDE_EVENTS = 8

#: From so many events on it pays to keep their payloads in one piece.
_BLOCK_EVENTS = 64


def _stride(data: bytes | bytearray | memoryview) -> int:
    """The size of each event, header included, if all have the same; else 0."""
    end = len(data)
    if end < _HEADER:
        return 0
    # If the type is not 0, this is far larger than the data.
    stride: int = _HEADER + _EVENT.unpack_from(data)[0]
    if end % stride or end < _STRIDE_EVENTS * stride:
        return 0
    count = end // stride
    headers = _apart(data, 0, _HEADER, stride)
    return stride if headers == bytes(data[:_HEADER]) * count else 0


def _apart(
    data: bytes | bytearray | memoryview, first: int, size: int, stride: int
) -> bytes:
    """Bytes of each event, *size* of them from its byte *first* on, in one piece."""
    import numpy as np  # late: processes that only send need no numpy

    parts = np.ndarray(len(data) // stride, f"V{size}", data, first, (stride,))
    return parts.tobytes()


def cut(data: bytes | memoryview, at: int) -> tuple[int, int] | None:
    """Count events at *at*, `MOST_EVENTS` at most, and their end; None if they are not whole."""
    count, at = _of_one_size(data, at) or _walk(data, at, MOST_EVENTS)
    return _whole(data, count, at)


def _of_one_size(data: bytes | memoryview, at: int) -> tuple[int, int] | None:
    """Cut events of one size, as `cut` does; None if they differ in size, or are few."""
    left = len(data) - at
    if left < _HEADER:
        return None
    size = _HEADER + _EVENT.unpack_from(data, at)[0]
    if left < _STRIDE_EVENTS * size:
        return None
    piece = data[at : at + MOST_EVENTS * size]
    return (len(piece) // size, at + len(piece)) if _stride(piece) else None


def _whole(data: bytes | memoryview, count: int, at: int) -> tuple[int, int] | None:
    """The pair, unless these are no whole events."""
    end = len(data)
    whole = at == end or (at < end and count == MOST_EVENTS)
    return (count, at) if whole else None


def begins(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        yield at
        at += _HEADER + int.from_bytes(data[at + 4 : at + _HEADER])


def count_rows(data: bytes | memoryview) -> int:
    """Rows of *data*: one for each event, one if it is none or more than `MOST_EVENTS`."""
    found = cut(data, 0)
    return 1 if found is None or found[1] < len(data) else found[0]


def equal_payloads(data: bytes | memoryview) -> tuple[bytes, int] | None:
    """All payloads in one piece, and their one size; None if sizes differ or for less than 64."""
    end = len(data)
    # Before all events are looked at.
    if end < _HEADER or end < _BLOCK_EVENTS * (_HEADER + _EVENT.unpack_from(data)[0]):
        return None
    stride = _stride(data)
    if stride <= _HEADER:
        return None
    size = stride - _HEADER
    return _apart(data, _HEADER, size, stride), size


def payloads_at_once(
    data: bytes | memoryview, offset: int, count: int, *, json: bool
) -> tuple[bytes, array[int], array[int]] | None:
    """All *count* payloads in one piece, where each ends in it, and the offsets as of `split`.

    None if it is not whole events, or few, or with *json* one is perhaps no sound object, or
    where there is no kernel.
    """
    if native.kernel is None or count < _BLOCK_EVENTS:
        return None
    found = native.kernel.pieces(data, 0, _TYPE, True, len(data), json)
    if found is None:
        return None
    import numpy as np

    block, ends = found[0], array("q", found[1])
    offsets = np.arange(offset, offset + _HEADER * len(ends), _HEADER)
    offsets[1:] += np.asarray(ends)[:-1]
    return block, ends, array("q", offsets.tobytes())


def split(data: bytes, offset: int) -> tuple[list[bytes], array[int]] | None:
    """The payload of each event, and the offset at which each event begins.

    *offset* is where *data* begins in its segment.  None if it is not whole events.
    """
    end = len(data)
    stride = _stride(data)
    if stride:
        starts = range(0, end, stride)
        return (
            [data[at + _HEADER : at + stride] for at in starts],
            array("q", range(offset, offset + end, stride)),
        )
    payloads: list[bytes] = []
    seqs = array("q")
    add, add_seq, unpack_from = payloads.append, seqs.append, _EVENT.unpack_from
    at, last = 0, end - _HEADER
    while at <= last:
        stop = at + _HEADER + unpack_from(data, at)[0]
        add(data[at + _HEADER : stop])
        add_seq(offset + at)
        at = stop
    return (payloads, seqs) if at == end else None


class EventScan:
    """`cut`, in steps that are each short enough for a turn."""

    __slots__ = ("_at", "_count", "_data", "cost")

    def __init__(self, data: bytes | memoryview, at: int) -> None:
        self.cost = 0.0
        """The cost of the last step, in units of `gateway.sdk.costs`."""
        self._data = data
        self._at = at
        self._count = 0

    def step(self) -> bool:
        """Go on; true: `found` is known."""
        if not self._count and (found := _of_one_size(self._data, self._at)):
            self._count, self._at = found
            self.cost = _COMPARED * self._count
            return True
        most = min(STEP_EVENTS, MOST_EVENTS - self._count)
        count, self._at = _walk(self._data, self._at, most)
        self._count += count
        self.cost = _WALKED * count
        return count < most or self._count == MOST_EVENTS

    @property
    def found(self) -> tuple[int, int] | None:
        return _whole(self._data, self._count, self._at)


class EventCounter(Struct, eq=False, gc=False):
    """Counts events in data that only grows, and may be cut anywhere."""

    _count: int = 0
    _at: int = 0
    """Where the next event begins; beyond the end if the last one is not whole, and
    far beyond it if something is no event."""

    def step(self, data: bytearray) -> bool:
        """Count some thousands more; true: that is all of them."""
        at, last = self._at, len(data) - _HEADER
        if at > last:
            return True
        size = _HEADER + _EVENT.unpack_from(data, at)[0]
        stop = at + min(len(data) - at, _PIECE) // size * size
        if stop - at >= _STRIDE_EVENTS * size and _stride(data[at:stop]):
            self._count += (stop - at) // size
            self._at = stop
        else:
            count, self._at = _walk(data, at, STEP_EVENTS)
            self._count += count
        return self.done(data)

    def done(self, data: bytearray) -> bool:
        """All of *data* was counted."""
        return self._at > len(data) - _HEADER

    def rows(self, data: bytearray) -> int:
        """Rows of *data*, all counted: as `count_rows`, however many there are."""
        return self._count if self._at == len(data) else 1


def _walk(data: bytes | bytearray | memoryview, at: int, most: int) -> tuple[int, int]:
    """How many events begin from *at* on, and where the next one does."""
    unpack_from, last = _EVENT.unpack_from, len(data) - _HEADER
    count = 0
    if native.kernel and at <= last:
        count, _, at = native.kernel.walk(data, at, _TYPE, True, most, len(data))
    while at <= last and count < most:
        at += _HEADER + unpack_from(data, at)[0]
        count += 1
    return count, at
