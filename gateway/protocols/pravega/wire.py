"""Wire commands of Pravega's version 17: Hello, KeepAlive, appends, error replies.

Names and fields are the protocol's own; docs/pravega.md says what the gateway does with
each.  Fields that older versions do not send have a default.  The newest layout is
written to every client: clients skip fields that they do not know.  `token` is a
delegation token, empty where none is required.  `wire_segments` and `wire_tables` have
the other commands.

No I/O, no clock.  `session` decides what a command does.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.protocols.pravega.codec import (
    Data,
    DataOrView,
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
from gateway.protocols.pravega.errors import Need

VERSION = 17
OLDEST = 5

#: "No value": the event number of a new writer, an attribute that was never set.
NEVER = -(2**63)


# -- What many commands begin with ---------------------------------------------


@dataclass(slots=True)
class SegmentMessage(Message):
    """A command about one segment; `request_id` comes back in its reply."""

    request_id: Long
    segment: Text


@dataclass(slots=True)
class SegmentRequest(SegmentMessage):
    """A command about one segment with no more than a token."""

    token: Text = ""


@dataclass(slots=True)
class _Error(SegmentMessage):
    """`trace` is the server's stack trace; the gateway sends an empty one."""

    trace: Text = ""


# -- Both ways -----------------------------------------------------------------


@both(-127)
class Hello(Message):
    """The versions that the sender speaks; the first frame of a connection."""

    high: Int
    low: Int


@both(100)
class KeepAlive(Message):
    """Answered with an empty one."""

    ignored: Rest = b""


# -- Appends: requests ---------------------------------------------------------


@request(1, Need.WRITE)
class SetupAppend(Message):
    """Asks for a writer's last event number on a segment."""

    request_id: Long
    writer: Uuid
    segment: Text
    token: Text = ""


@request(3, None)
class AppendBlock(Message):
    """Events of one append; an `AppendBlockEnd` follows."""

    writer: Uuid
    data: Rest


@request(4, None)
class AppendBlockEnd(Message):
    """The first `whole_bytes` of the block are whole events; `data` ends the last event.

    Without an `AppendBlock` before it, `data` has all the events.
    """

    writer: Uuid
    whole_bytes: Int
    data: DataOrView
    events: Int
    last_event: Long
    request_id: Long = -1


@request(5, None)
class ConditionalAppend(Message):
    """Appends one event if the segment's length is `expected_offset`."""

    writer: Uuid
    event_number: Long
    expected_offset: Long
    event: EventData
    request_id: Long = -1


@request(89, None)
class ConditionalBlockEnd(Message):
    """Appends bytes as they are if the segment's length is `expected_offset`."""

    writer: Uuid
    event_number: Long
    expected_offset: Long
    data: Data
    request_id: Long = -1


# -- Appends: replies ----------------------------------------------------------


@reply(2)
class AppendSetup(SegmentMessage):
    """The writer's last event number; `NEVER` for a new writer."""

    writer: Uuid
    last_event: Long


@reply(7)
class DataAppended(Message):
    """The events after number `previous` up to `last_event` are durable."""

    writer: Uuid
    last_event: Long
    previous: Long = -1
    request_id: Long = -1
    write_offset: Long = -1


@reply(8)
class ConditionalCheckFailed(Message):
    """The segment's length was not `expected_offset`; nothing was appended."""

    writer: Uuid
    event_number: Long
    request_id: Long = -1


# -- Error replies -------------------------------------------------------------


@reply(50)
class WrongHost(SegmentMessage):
    """Another host serves the segment."""

    correct_host: Text
    trace: Text = ""


@reply(51)
class SegmentIsSealed(_Error):
    """`offset` is that of a read; for an append, its event number."""

    offset: Long = -1


@reply(52)
class SegmentAlreadyExists(_Error): ...


@reply(53)
class NoSuchSegment(_Error):
    """`offset` as in `SegmentIsSealed`."""

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
class SegmentIsTruncated(SegmentMessage):
    """The data before `start_offset` are gone."""

    start_offset: Long
    trace: Text = ""
    offset: Long = -1


@reply(57)
class OperationUnsupported(Message):
    """The gateway does not support this request."""

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
class ErrorMessage(SegmentMessage):
    """`code`: -1 unspecified, 0 illegal argument."""

    message: Text
    code: Int = -1


@reply(80)
class TableSegmentNotEmpty(_Error):
    """The table was to be deleted only if empty, and has entries."""


@reply(81)
class TableKeyDoesNotExist(_Error):
    """An update or removal is conditional on a key that does not exist."""


@reply(82)
class TableKeyBadVersion(_Error):
    """A key has another version than the update or removal expects."""
