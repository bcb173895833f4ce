"""Messages of the 2016 draft of Pravega's protocol, encoded and decoded.

    0 Event             data                          only inside a block
    1 SetupAppend       uuid | segment
    2 AppendSetup       segment | uuid | ack level i64
    3 BeginAppendBlock  uuid | offset i64 | length i32        -1: left open
    4 EndAppendBlock    uuid | offset i64 | length i32
    5 DataAppended      uuid | ack level i64
    8 ReadSegment       segment | offset i64 | length i32
    9 SegmentRead       segment | offset i64 | flags u8 | data
   -2 PartialMessage    which u8 (0 begin, 1 middle, 2 end) | data
  100 KeepAlive         data

The draft gives no type numbers.  These are the ones of Pravega's code of July 2016, or
the gateway's own where that has none.  Numbers are big-endian; a segment's name is a u16
length and modified UTF-8.  `frames` cuts frames.  Offsets and lengths count whole Event
messages, headers included, as segments contain them.

No I/O, no clock.  `draft_session` decides what a message does.
"""

from __future__ import annotations

import struct

from msgspec import Struct

from gateway.protocols.pravega import modified_utf8
from gateway.protocols.pravega.frames import frame
from gateway.sdk.interfaces import Refusal

PARTIAL, EVENT, KEEP_ALIVE = -2, 0, 100
SETUP_APPEND, APPEND_SETUP = 1, 2
BEGIN_BLOCK, END_BLOCK, DATA_APPENDED = 3, 4, 5
READ_SEGMENT, SEGMENT_READ = 8, 9

REQUESTS = frozenset(
    (PARTIAL, EVENT, SETUP_APPEND, BEGIN_BLOCK, END_BLOCK, READ_SEGMENT, KEEP_ALIVE)
)
REPLIES = frozenset((PARTIAL, APPEND_SETUP, DATA_APPENDED, SEGMENT_READ, KEEP_ALIVE))

#: Which part of a message a PartialMessage has.
BEGIN, MIDDLE, END = range(3)

#: The length in a BeginAppendBlock whose messages follow one by one.
OPEN = -1

_BLOCK = struct.Struct(">16sqi")
_LEVEL = struct.Struct(">16sq")
_READ = struct.Struct(">qi")
_FOUND = struct.Struct(">qB")
_TAIL, _ENDED = 1, 2


class Block(Struct):
    """A BeginAppendBlock or an EndAppendBlock."""

    writer: bytes
    offset: int
    length: int


class ReadSegment(Struct):
    """A ReadSegment message."""

    segment: str
    offset: int
    length: int


def event(data: bytes) -> bytes:
    return frame(EVENT, data)


def setup_append(writer: bytes, segment: str) -> bytes:
    return frame(SETUP_APPEND, writer, modified_utf8.encode(segment))


def append_setup(segment: str, writer: bytes, level: int) -> bytes:
    return frame(
        APPEND_SETUP, modified_utf8.encode(segment), _LEVEL.pack(writer, level)
    )


def block(kind: int, writer: bytes, offset: int, length: int) -> bytes:
    """Encode a BeginAppendBlock or EndAppendBlock message."""
    return frame(kind, _BLOCK.pack(writer, offset, length))


def data_appended(writer: bytes, level: int) -> bytes:
    return frame(DATA_APPENDED, _LEVEL.pack(writer, level))


def segment_read(
    segment: str, offset: int, data: bytes | memoryview, *, at_tail: bool, end: bool
) -> bytes:
    """Encode a SegmentRead message; a read may be answered with several."""
    found = _FOUND.pack(offset, at_tail * _TAIL | end * _ENDED)
    return frame(SEGMENT_READ, modified_utf8.encode(segment), found, data)


def decode_setup_append(payload: bytes) -> tuple[bytes, str]:
    """Writer id and segment of a SetupAppend; raises `Refusal`, as all of these."""
    _check(payload, 16)
    segment, rest = _named(payload[16:])
    _nothing(rest)
    return payload[:16], segment


def decode_append_setup(payload: bytes) -> tuple[str, bytes, int]:
    """Segment, writer id and level of an AppendSetup."""
    segment, rest = _named(payload)
    _check(rest, _LEVEL.size, exactly=True)
    writer, level = _LEVEL.unpack(rest)
    return segment, writer, level


def decode_block(payload: bytes) -> Block:
    _check(payload, _BLOCK.size, exactly=True)
    return Block(*_BLOCK.unpack(payload))


def decode_data_appended(payload: bytes) -> tuple[bytes, int]:
    """Writer id and level of a DataAppended."""
    _check(payload, _LEVEL.size, exactly=True)
    writer, level = _LEVEL.unpack(payload)
    return writer, level


def decode_read_segment(payload: bytes) -> ReadSegment:
    segment, rest = _named(payload)
    _check(rest, _READ.size, exactly=True)
    return ReadSegment(segment, *_READ.unpack(rest))


def _named(payload: bytes) -> tuple[str, bytes]:
    _check(payload, 2)
    stop = 2 + int.from_bytes(payload[:2])
    _check(payload, stop)
    return modified_utf8.decode(payload[2:stop]), payload[stop:]


def _check(payload: bytes, size: int, *, exactly: bool = False) -> None:
    if len(payload) < size:
        raise Refusal(f"message too short: {len(payload)} bytes where {size} belong")
    if exactly:
        _nothing(payload[size:])


def _nothing(rest: bytes) -> None:
    if rest:
        raise Refusal(f"{len(rest)} bytes too many in a message")
