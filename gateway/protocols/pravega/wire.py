"""Pravega's wire, version 17: greetings, appends, refusals.

Names and fields are those of the protocol; `docs/pravega.md` says what we do with
them.  What an older version lacks has a default, and the newest layout is what we
write, to everyone: clients skip what they do not know.  A request's `token` is empty
where nothing demands one.  `wire_segments` and `wire_tables` have the other messages.

No I/O, no clock, no policy: that is `session`.
"""

from __future__ import annotations

from gateway.protocols.pravega.codec import (
    Data,
    EventData,
    Int,
    Long,
    Message,
    Rest,
    Text,
    Uuid,
    both,
    reply,
    request,
)

__all__ = [
    "NEVER",
    "OLDEST",
    "VERSION",
    "AppendBlock",
    "AppendBlockEnd",
    "AppendSetup",
    "AuthTokenCheckFailed",
    "ConditionalAppend",
    "ConditionalBlockEnd",
    "ConditionalCheckFailed",
    "DataAppended",
    "ErrorMessage",
    "Event",
    "Hello",
    "InvalidEventNumber",
    "KeepAlive",
    "NoSuchSegment",
    "OperationUnsupported",
    "Padding",
    "PartialEvent",
    "SegmentAlreadyExists",
    "SegmentIsSealed",
    "SegmentIsTruncated",
    "SetupAppend",
    "TableKeyBadVersion",
    "TableKeyDoesNotExist",
    "TableSegmentNotEmpty",
    "WrongHost",
]

VERSION = 17
OLDEST = 5

#: "No value": the event number of a new writer, an attribute that was never set.
NEVER = -(2**63)


# -- Both ways -----------------------------------------------------------------


@both(-127)
class Hello(Message):
    """The versions that the sender speaks; the first frame of a connection."""

    high: Int
    low: Int


@both(100)
class KeepAlive(Message):
    """A sign of life; the server gives an empty one back."""

    ignored: Rest = b""


# -- Appends: requests ---------------------------------------------------------


@request(-1)
class Padding(Message):
    """Fills a block to its announced length; only inside one."""

    zeros: Rest = b""


@request(-2)
class PartialEvent(Message):
    """The first part of an event that did not fit; ends a block."""

    data: Rest = b""


@request(0)
class Event(Message):
    """One event, as it lies in blocks and in segments."""

    data: Rest = b""


@request(1)
class SetupAppend(Message):
    """Asks for a writer's last event number on a segment."""

    request_id: Long
    writer: Uuid
    segment: Text
    token: Text = ""


@request(3)
class AppendBlock(Message):
    """Events; their `AppendBlockEnd` follows."""

    writer: Uuid
    data: Rest


@request(4)
class AppendBlockEnd(Message):
    """How much of the block counts, and the rest of its last event.

    Without a block before it, `data` is all there is.
    """

    writer: Uuid
    whole_bytes: Int
    data: Data
    events: Int
    last_event: Long
    request_id: Long = -1


@request(5)
class ConditionalAppend(Message):
    """One event, if the segment is as long as expected."""

    writer: Uuid
    event_number: Long
    expected_offset: Long
    event: EventData
    request_id: Long = -1


@request(89)
class ConditionalBlockEnd(Message):
    """Bytes as they are, if the segment is as long as expected."""

    writer: Uuid
    event_number: Long
    expected_offset: Long
    data: Data
    request_id: Long = -1


# -- Appends: replies ----------------------------------------------------------


@reply(2)
class AppendSetup(Message):
    """The writer's last event number; `NEVER` if it is new."""

    request_id: Long
    segment: Text
    writer: Uuid
    last_event: Long


@reply(7)
class DataAppended(Message):
    """Everything behind `previous` up to `last_event` is durable."""

    writer: Uuid
    last_event: Long
    previous: Long = -1
    request_id: Long = -1
    write_offset: Long = -1


@reply(8)
class ConditionalCheckFailed(Message):
    """The segment was not as long as expected."""

    writer: Uuid
    event_number: Long
    request_id: Long = -1


# -- Refusals ------------------------------------------------------------------


@reply(50)
class WrongHost(Message):
    """The segment lives elsewhere."""

    request_id: Long
    segment: Text
    correct_host: Text
    trace: Text = ""


@reply(51)
class SegmentIsSealed(Message):
    """`offset` is the event number of an append, the offset of a read."""

    request_id: Long
    segment: Text
    trace: Text = ""
    offset: Long = -1


@reply(52)
class SegmentAlreadyExists(Message):
    """A segment of this name is there."""

    request_id: Long
    segment: Text
    trace: Text = ""


@reply(53)
class NoSuchSegment(Message):
    """`offset` as in `SegmentIsSealed`."""

    request_id: Long
    segment: Text
    trace: Text = ""
    offset: Long = -1


@reply(55)
class InvalidEventNumber(Message):
    """Another connection writes with this writer's id.

    Before v16 there was no request id, and the event number came first.
    """

    writer: Uuid
    request_id: Long
    trace: Text = ""
    event_number: Long = -1

    def __post_init__(self) -> None:
        if self.event_number == -1:
            self.event_number, self.request_id = self.request_id, -1


@reply(56)
class SegmentIsTruncated(Message):
    """Nothing is left before `start_offset`."""

    request_id: Long
    segment: Text
    start_offset: Long
    trace: Text = ""
    offset: Long = -1


@reply(57)
class OperationUnsupported(Message):
    """We do not do this."""

    request_id: Long
    operation: Text
    trace: Text = ""


@reply(60)
class AuthTokenCheckFailed(Message):
    """`code`: -1 unspecified, 0 failed, 1 expired."""

    request_id: Long
    trace: Text = ""
    code: Int = -1


@reply(61)
class ErrorMessage(Message):
    """`code`: -1 unspecified, 0 illegal argument."""

    request_id: Long
    segment: Text
    message: Text
    code: Int = -1


@reply(80)
class TableSegmentNotEmpty(Message):
    """It was to be deleted only if empty."""

    request_id: Long
    segment: Text
    trace: Text = ""


@reply(81)
class TableKeyDoesNotExist(Message):
    """A condition failed."""

    request_id: Long
    segment: Text
    trace: Text = ""


@reply(82)
class TableKeyBadVersion(Message):
    """A condition failed."""

    request_id: Long
    segment: Text
    trace: Text = ""
