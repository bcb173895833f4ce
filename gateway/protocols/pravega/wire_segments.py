"""Pravega's wire, version 17: segments, their data and their attributes."""

from __future__ import annotations

from gateway.protocols.pravega.codec import (
    AttributeUpdates,
    Bool,
    Byte,
    Data,
    Int,
    Long,
    Merged,
    Message,
    Text,
    Texts,
    Uuid,
    reply,
    request,
)

__all__ = [
    "CreateSegment",
    "CreateTransientSegment",
    "DeleteSegment",
    "FlushToStorage",
    "GetSegmentAttribute",
    "GetStreamSegmentInfo",
    "ListStorageChunks",
    "LocateOffset",
    "MergeSegments",
    "MergeSegmentsBatch",
    "OffsetLocated",
    "ReadSegment",
    "SealSegment",
    "SegmentAttribute",
    "SegmentAttributeUpdated",
    "SegmentCreated",
    "SegmentDeleted",
    "SegmentPolicyUpdated",
    "SegmentRead",
    "SegmentSealed",
    "SegmentTruncated",
    "SegmentsBatchMerged",
    "SegmentsMerged",
    "StorageFlushed",
    "StreamSegmentInfo",
    "TruncateSegment",
    "UpdateSegmentAttribute",
    "UpdateSegmentPolicy",
]


# -- Segments: requests --------------------------------------------------------


@request(9)
class ReadSegment(Message):
    """Asks for some `size` bytes from an offset; waits at the tail."""

    segment: Text
    offset: Long
    size: Int
    token: Text = ""
    request_id: Long = -1


@request(11)
class GetStreamSegmentInfo(Message):
    """Asks how a segment is."""

    request_id: Long
    segment: Text
    token: Text = ""


@request(20)
class CreateSegment(Message):
    """`scale_type`: 0 none, 1 KB/s, 2 events/s."""

    request_id: Long
    segment: Text
    target_rate: Int
    scale_type: Byte
    token: Text = ""
    rollover_bytes: Long = 0


@request(28)
class SealSegment(Message):
    """Lets nothing more be appended."""

    request_id: Long
    segment: Text
    token: Text = ""


@request(30)
class DeleteSegment(Message):
    """Removes a segment."""

    request_id: Long
    segment: Text
    token: Text = ""


@request(32)
class UpdateSegmentPolicy(Message):
    """As in `CreateSegment`."""

    request_id: Long
    segment: Text
    target_rate: Int
    scale_type: Byte
    token: Text = ""


@request(34)
class GetSegmentAttribute(Message):
    """Asks for one number."""

    request_id: Long
    segment: Text
    attribute: Uuid
    token: Text = ""


@request(36)
class UpdateSegmentAttribute(Message):
    """Replaces a number that is as expected (`NEVER`: not set)."""

    request_id: Long
    segment: Text
    attribute: Uuid
    new: Long
    expected: Long
    token: Text = ""


@request(38)
class TruncateSegment(Message):
    """Removes what is before an offset."""

    request_id: Long
    segment: Text
    offset: Long
    token: Text = ""


@request(40)
class CreateTransientSegment(Message):
    """Asks for a segment that a large event is gathered in."""

    request_id: Long
    writer: Uuid
    parent: Text
    token: Text = ""


@request(41)
class LocateOffset(Message):
    """Asks for an event's beginning near an offset."""

    request_id: Long
    segment: Text
    target: Long
    token: Text = ""


@request(58)
class MergeSegments(Message):
    """Appends a segment to another one and removes it."""

    request_id: Long
    target: Text
    source: Text
    token: Text = ""
    updates: AttributeUpdates = ()


@request(90)
class MergeSegmentsBatch(Message):
    """Appends several, all or none."""

    request_id: Long
    target: Text
    sources: Texts
    token: Text = ""


@request(-3)
class FlushToStorage(Message):
    """An administrator's."""

    container: Int
    token: Text
    request_id: Long


@request(-5)
class ListStorageChunks(Message):
    """An administrator's."""

    segment: Text
    token: Text
    request_id: Long


# -- Segments: replies ---------------------------------------------------------


@reply(10)
class SegmentRead(Message):
    """Bytes; with `end_of_segment`, the last there will ever be."""

    segment: Text
    offset: Long
    at_tail: Bool
    end_of_segment: Bool
    data: Data
    request_id: Long = -1


@reply(12)
class StreamSegmentInfo(Message):
    """`modified` is in milliseconds since the epoch."""

    request_id: Long
    segment: Text
    exists: Bool
    sealed: Bool
    deleted: Bool
    modified: Long
    write_offset: Long
    start_offset: Long = 0


@reply(21)
class SegmentCreated(Message):
    """Also the answer to `CreateTransientSegment`."""

    request_id: Long
    segment: Text


@reply(29)
class SegmentSealed(Message):
    """It is."""

    request_id: Long
    segment: Text


@reply(31)
class SegmentDeleted(Message):
    """It is."""

    request_id: Long
    segment: Text


@reply(33)
class SegmentPolicyUpdated(Message):
    """It is."""

    request_id: Long
    segment: Text


@reply(35)
class SegmentAttribute(Message):
    """`NEVER` if it is not set."""

    request_id: Long
    value: Long


@reply(37)
class SegmentAttributeUpdated(Message):
    """Whether the condition held."""

    request_id: Long
    success: Bool


@reply(39)
class SegmentTruncated(Message):
    """It is."""

    request_id: Long
    segment: Text


@reply(42)
class OffsetLocated(Message):
    """Where an event begins."""

    request_id: Long
    segment: Text
    offset: Long


@reply(59)
class SegmentsMerged(Message):
    """`write_offset`: how long the target is now."""

    request_id: Long
    target: Text
    source: Text
    write_offset: Long = -1


@reply(91)
class SegmentsBatchMerged(Message):
    """Each source, and how long the target was with it."""

    request_id: Long
    target: Text
    merged: Merged


@reply(-4)
class StorageFlushed(Message):
    """It is."""

    request_id: Long
