"""What clients of Pravega's 2016 draft say and read that our own writer does not."""

import struct
from typing import NamedTuple

from gateway.protocols.pravega.draft_wire import PARTIAL, READ_SEGMENT
from gateway.protocols.pravega.frames import frame

__all__ = ["SegmentRead", "decode_segment_read", "partial", "read_segment"]

_FOUND = struct.Struct(">qB")


class SegmentRead(NamedTuple):
    """A SegmentRead message."""

    segment: str
    offset: int
    at_tail: bool
    end: bool
    data: bytes


def partial(which: int, data: bytes) -> bytes:
    """A PartialMessage."""
    return frame(PARTIAL, bytes((which,)), data)


def read_segment(segment: str, offset: int, length: int) -> bytes:
    """A ReadSegment message."""
    name = segment.encode()
    return frame(
        READ_SEGMENT, len(name).to_bytes(2), name, struct.pack(">qi", offset, length)
    )


def decode_segment_read(payload: bytes) -> SegmentRead:
    """Decode a SegmentRead."""
    stop = 2 + int.from_bytes(payload[:2])
    offset, flags = _FOUND.unpack_from(payload, stop)
    data = payload[stop + _FOUND.size :]
    name = payload[2:stop].decode()
    return SegmentRead(name, offset, bool(flags & 1), bool(flags & 2), data)
