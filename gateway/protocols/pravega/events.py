"""Where events begin and end in the bytes of a segment.

    event   00000000 | length u32 | data          big-endian

Every byte that is appended goes through here twice, once to be counted and once to
become rows, so events that are all of one size, which is common, are not looked at one
by one.  No I/O, no clock.
"""

from __future__ import annotations

import struct
from array import array

__all__ = ["EventCounter", "count_events", "count_rows", "equal_payloads", "split"]

_HEADER = 8
_EVENT = struct.Struct(">Q")
_TOO_LONG = 1 << 32
"""A header of a higher value has another type than 0."""

#: Fewer events are looked at one by one.
_RUN = 8

#: Of fewer events it does not pay to keep them in one piece.
_BLOCK = 64


def _stride(data: bytes) -> int:
    """How far apart the events are, if all have one size; else 0."""
    end = len(data)
    if end < _HEADER:
        return 0
    stride: int = _HEADER + _EVENT.unpack_from(data)[0]  # far too much, as below
    if end % stride or end < _RUN * stride:
        return 0
    count = end // stride
    for at in range(_HEADER - 1, -1, -1):  # the lowest byte differs first
        if data[at::stride].count(data[at]) != count:
            return 0
    return stride


def count_events(data: bytes) -> int | None:
    """How many whole events there are; None if they are not that."""
    stride = _stride(data)
    if stride:
        return len(data) // stride
    unpack_from, end = _EVENT.unpack_from, len(data)
    at = count = 0
    last = end - _HEADER
    while at <= last:
        at += _HEADER + unpack_from(data, at)[0]  # far too much, if the type is not 0
        count += 1
    return count if at == end else None


def count_rows(data: bytes) -> int:
    """How many rows they make: bytes that are no events are one."""
    count = count_events(data)
    return 1 if count is None else count


def equal_payloads(data: bytes) -> tuple[bytes, int] | None:
    """Events without their headers, in one piece, and the size of each, if all have
    one size and there are many.
    """
    stride = _stride(data)
    if stride <= _HEADER or len(data) < _BLOCK * stride:
        return None
    import numpy as np  # not before there is something to decode

    events = np.frombuffer(data, np.uint8).reshape(-1, stride)
    return events[:, _HEADER:].tobytes(), stride - _HEADER


def split(data: bytes, offset: int) -> tuple[list[bytes], array[int]] | None:
    """Events without their headers, and where each begins, if *data* begins at
    *offset*; None if they are not whole events.
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
    """Counts the events of bytes that come in pieces, cut anywhere."""

    __slots__ = ("_begun", "_broken", "_head", "_left")

    def __init__(self) -> None:
        self._begun = 0
        self._head = b""
        """Of a header that is not all there."""
        self._left = 0
        """How much of the last event has not come."""
        self._broken = False

    @property
    def rows(self) -> int:
        """How many rows it all makes: what is not whole events is one."""
        whole = not (self._broken or self._head or self._left)
        return self._begun if whole else 1

    def feed(self, data: bytes) -> None:
        """The next piece."""
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
