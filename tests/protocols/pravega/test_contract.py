"""Pravega keeps what every protocol of the gateway promises."""

import struct

from gateway.plugins import installed
from gateway.protocols.pravega import draft_wire
from gateway.protocols.pravega.codec import REPLIES, decode, encode
from gateway.protocols.pravega.frames import Frames
from gateway.protocols.pravega.wire import (
    AppendBlock,
    AppendBlockEnd,
    DataAppended,
    Hello,
    SetupAppend,
)
from gateway.protocols.pravega.wire_segments import CreateSegment
from gateway_testkit.contract import ProtocolContract

_WRITER = b"w" * 16


def append(last: int, *events: bytes) -> tuple[bytes, int]:
    """A block of events, of which the last has this number."""
    data = b"".join(struct.pack(">II", 0, len(event)) + event for event in events)
    end = AppendBlockEnd(_WRITER, len(data), data, len(events), last, 9)
    return encode(end), len(events)


class TestPravega(ProtocolContract):
    protocol = installed().protocols["pravega"]
    options = {"content_type": "application/json"}
    opening = b"".join(
        encode(message)
        for message in (
            Hello(17, 5),
            CreateSegment(1, "scope/stream/0", 0, 0),
            SetupAppend(2, _WRITER, "scope/stream/0"),
        )
    )
    batches = [
        append(1, b'{"a":1}'),
        append(3, b'{"a":2}', b"no JSON"),
        append(4, b'{"a":4}'),
        append(7, b"", b"x" * 100, b'{"a":7}'),
    ]
    too_much = {"limits.message_bytes": struct.pack(">iI", 4, 1 << 20)}
    unfinished = encode(AppendBlock(_WRITER, bytes(1000)))
    endless = None

    def acknowledged(self, sent: bytes) -> int:
        """The number of the last event that is appended."""
        numbers = [0]
        for kind, payload in Frames(REPLIES).feed(sent):
            reply = decode(kind, payload)
            if isinstance(reply, DataAppended):
                assert reply.previous in (-(2**63), numbers[-1])
                numbers.append(reply.last_event)
        return numbers[-1]

    replies = acknowledged


def draft_block(offset: int, *events: bytes) -> tuple[bytes, int]:
    """A block of events that begins at this offset."""
    data = b"".join(struct.pack(">II", 0, len(event)) + event for event in events)
    begin = draft_wire.block(draft_wire.BEGIN_BLOCK, _WRITER, offset, len(data))
    end = draft_wire.block(draft_wire.END_BLOCK, _WRITER, offset + len(data), len(data))
    return begin + data + end, len(events)


class TestDraft2016(TestPravega):
    opening = draft_wire.setup_append(_WRITER, "scope/stream/0")
    batches = [
        draft_block(0, b'{"a":1}'),
        draft_block(15, b'{"a":2}', b"no JSON"),
        draft_block(45, b'{"a":4}'),
    ]
    unfinished = draft_wire.block(draft_wire.BEGIN_BLOCK, _WRITER, 0, 2000) + bytes(
        1000
    )

    def acknowledged(self, sent: bytes) -> int:
        """The level says up to which offset all is durable."""
        levels = [0]
        for kind, payload in Frames(draft_wire.REPLIES).feed(sent):
            if kind == draft_wire.DATA_APPENDED:
                levels.append(draft_wire.decode_data_appended(payload)[1])
        assert levels == sorted(levels)
        return {0: 0, 15: 1, 45: 3, 60: 4}[levels[-1]]

    replies = acknowledged
