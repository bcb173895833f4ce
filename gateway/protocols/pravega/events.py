"""Event boundaries in a segment's bytes: counts events, and splits them into payloads.

    event   00000000 | length u32 | data          big-endian

Everything that is appended passes here twice: to be counted, and to become rows.
Events that all have the same size are common, so they are not walked one by one.

No I/O, no clock.
"""

from __future__ import annotations

import struct
from array import array

__all__ = [
    "MOST_EVENTS",
    "EventCounter",
    "count_events",
    "count_rows",
    "cut",
    "equal_payloads",
    "split",
]

MOST_EVENTS = 1 << 15
"""An append of more is stored in parts, each of them acknowledged."""

_HEADER = 8
_EVENT = struct.Struct(">Q")
_TOO_LONG = 1 << 32
"""A header, read as one number, that is not below this has another type than 0."""

#: From so many events on it pays to look for one size.
_STRIDE_EVENTS = 8

#: From so many events on it pays to keep their payloads in one piece.
_BLOCK_EVENTS = 64


def _stride(data: bytes) -> int:
    """The size of each event, header included, if all have the same; else 0."""
    end = len(data)
    if end < _HEADER:
        return 0
    # If the type is not 0, this is far larger than the data.
    stride: int = _HEADER + _EVENT.unpack_from(data)[0]
    if end % stride or end < _STRIDE_EVENTS * stride:
        return 0
    count = end // stride
    for at in range(_HEADER - 1, -1, -1):  # the lowest byte differs first
        if data[at::stride].count(data[at]) != count:
            return 0
    return stride


def count_events(data: bytes) -> int | None:
    """How many events *data* consists of; None if it is not whole events."""
    stride = _stride(data)
    if stride:
        return len(data) // stride
    unpack_from, end = _EVENT.unpack_from, len(data)
    at = count = 0
    last = end - _HEADER
    while at <= last:
        at += _HEADER + unpack_from(data, at)[0]  # beyond the end if the type is not 0
        count += 1
    return count if at == end else None


def cut(data: bytes, at: int) -> tuple[int, int] | None:
    """How many events begin at *at*, `MOST_EVENTS` at most, and where they end.

    None if that is not whole events.
    """
    end = len(data)
    if at == end:
        return 0, at
    if end - at < _HEADER:
        return None
    unpack_from = _EVENT.unpack_from
    size = _HEADER + unpack_from(data, at)[0]
    piece = data[at : at + MOST_EVENTS * size]
    if _stride(piece):
        return len(piece) // size, at + len(piece)
    count, last = 0, end - _HEADER
    while at <= last and count < MOST_EVENTS:
        at += _HEADER + unpack_from(data, at)[0]
        count += 1
    return (count, at) if at == end or (at < end and count == MOST_EVENTS) else None


def count_rows(data: bytes) -> int:
    """How many rows *data* becomes: one for each event.

    One if it is not events, or more than `MOST_EVENTS`.
    """
    found = cut(data, 0)
    return 1 if found is None or found[1] < len(data) else found[0]


def equal_payloads(data: bytes) -> tuple[bytes, int] | None:
    """All payloads in one piece and the size of each, if all have the same size.

    None for events of different sizes, and for less than 64.
    """
    stride = _stride(data)
    if stride <= _HEADER or len(data) < _BLOCK_EVENTS * stride:
        return None
    import numpy as np  # late: processes that decode nothing need no numpy

    events = np.frombuffer(data, np.uint8).reshape(-1, stride)
    return events[:, _HEADER:].tobytes(), stride - _HEADER


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


class EventCounter:
    """Counts events in bytes that come in pieces, cut anywhere."""

    __slots__ = ("_begun", "_broken", "_head", "_left")

    def __init__(self) -> None:
        self._begun = 0
        self._head = b""
        """The first bytes of an incomplete header."""
        self._left = 0
        """How many bytes of the last event have not come."""
        self._broken = False

    @property
    def rows(self) -> int:
        """How many rows all of it becomes, as in `count_rows`."""
        whole = not (self._broken or self._head or self._left)
        return self._begun if whole else 1

    def feed(self, data: bytes) -> None:
        """Count the next piece."""
        if not (self._head or self._left or self._broken):
            count = count_events(data)
            if count is not None:
                self._begun += count
                return
        if not self._broken:
            self._walk(self._head + data if self._head else data)

    def _walk(self, data: bytes) -> None:
        at, end = self._left, len(data)
        while at + _HEADER <= end:
            size = _EVENT.unpack_from(data, at)[0]
            if size >= _TOO_LONG:
                self._broken = True
                return
            self._begun += 1
            at += _HEADER + size
        self._head = data[at:]
        self._left = max(0, at - end)
