"""Wire commands of Pravega's version 17 about segments: reads, attributes, merges."""

from __future__ import annotations

from gateway.protocols.pravega.codec import (
    AttributeUpdates,
    Bool,
    Byte,
    DataOrView,
    Int,
    Long,
    Message,
    Text,
    Uuid,
    reply,
    request,
)
from gateway.protocols.pravega.errors import Need
from gateway.protocols.pravega.wire import SegmentMessage, SegmentRequest

# -- Requests ------------------------------------------------------------------


@request(9, Need.READ)
class ReadSegment(Message):
    """Asks for about `size` bytes from an offset; waits at the tail."""

    segment: Text
    offset: Long
    size: Int
    token: Text = ""
    request_id: Long = -1


@request(11, Need.ANY)
class GetStreamSegmentInfo(SegmentRequest):
    """Answered with `StreamSegmentInfo`."""


@request(20, Need.MANAGE)
class CreateSegment(SegmentMessage):
    """`scale_type`: 0 none, 1 KB/s, 2 events/s."""

    target_rate: Int
    scale_type: Byte
    token: Text = ""
    rollover_bytes: Long = 0


@request(28, Need.MANAGE)
class SealSegment(SegmentRequest):
    """Ends a segment: nothing more can be appended."""


@request(30, Need.MANAGE)
class DeleteSegment(SegmentRequest): ...


@request(34, Need.ANY)
class GetSegmentAttribute(SegmentMessage):
    """Answered with `SegmentAttribute`."""

    attribute: Uuid
    token: Text = ""


@request(36, Need.WRITE)
class UpdateSegmentAttribute(SegmentMessage):
    """Sets an attribute if its value is `expected`; `NEVER` stands for no value."""

    attribute: Uuid
    new: Long
    expected: Long
    token: Text = ""


@request(38, Need.MANAGE)
class TruncateSegment(SegmentMessage):
    """Deletes the data before an offset; of a revisioned stream, `Need.WRITE` is enough."""

    offset: Long
    token: Text = ""


@request(40, Need.WRITE)
class CreateTransientSegment(Message):
    """Creates a segment for the parts of a large event."""

    request_id: Long
    writer: Uuid
    parent: Text
    token: Text = ""


@request(41, Need.READ)
class LocateOffset(SegmentMessage):
    """Asks where an event begins, at or after an offset."""

    target: Long
    token: Text = ""


@request(58, Need.WRITE)
class MergeSegments(Message):
    """Appends `source` to `target` and deletes it; `updates` are of `target`."""

    request_id: Long
    target: Text
    source: Text
    token: Text = ""
    updates: AttributeUpdates = ()


# -- Replies -------------------------------------------------------------------


@reply(10)
class SegmentRead(Message):
    """`at_tail`: more may come; `end_of_segment`: nothing more will come."""

    segment: Text
    offset: Long
    at_tail: Bool
    end_of_segment: Bool
    data: DataOrView
    request_id: Long = -1


@reply(12)
class StreamSegmentInfo(SegmentMessage):
    """`modified` is in milliseconds since the epoch."""

    exists: Bool
    sealed: Bool
    deleted: Bool
    modified: Long
    write_offset: Long
    start_offset: Long = 0


@reply(21)
class SegmentCreated(SegmentMessage):
    """Also the answer to `CreateTransientSegment`."""


@reply(29)
class SegmentSealed(SegmentMessage): ...


@reply(31)
class SegmentDeleted(SegmentMessage): ...


@reply(35)
class SegmentAttribute(Message):
    """`value` is `NEVER` if the attribute is not set."""

    request_id: Long
    value: Long


@reply(37)
class SegmentAttributeUpdated(Message):
    """`success` is whether the attribute had the expected value."""

    request_id: Long
    success: Bool


@reply(39)
class SegmentTruncated(SegmentMessage): ...


@reply(42)
class OffsetLocated(SegmentMessage):
    """`offset` is where an event begins, or the end."""

    offset: Long


@reply(59)
class SegmentsMerged(Message):
    """`write_offset` is the length of `target` now."""

    request_id: Long
    target: Text
    source: Text
    write_offset: Long = -1
