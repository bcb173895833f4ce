"""Wire commands of Pravega's version 17 about table segments."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.protocols.pravega.codec import (
    Bool,
    Data,
    Entries,
    Int,
    Keys,
    Long,
    Longs,
    Message,
    Text,
    reply,
    request,
)
from gateway.protocols.pravega.errors import Need
from gateway.protocols.pravega.wire import NEVER, SegmentMessage, SegmentRequest

# -- Requests ------------------------------------------------------------------


@dataclass(slots=True)
class _TableRequest(SegmentMessage):
    """A request with a token in every version."""

    token: Text


@request(68, Need.ANY)
class GetTableSegmentInfo(SegmentRequest):
    """Answered with `TableSegmentInfo`."""


@request(70, Need.MANAGE)
class CreateTableSegment(SegmentRequest):
    """`key_bytes` is the size of every key; 0 for any size."""

    is_sorted: Bool = False
    key_bytes: Int = 0
    rollover_bytes: Long = 0


@request(71, Need.MANAGE)
class DeleteTableSegment(SegmentMessage):
    must_be_empty: Bool
    token: Text = ""


@request(74, Need.WRITE)
class UpdateTableEntries(_TableRequest):
    """Puts all entries, or none if a condition does not hold.

    An entry's version is the one that its key must have: -1, the key must not exist;
    `NEVER`, no condition.  `offset`, if it is not `NEVER`, must be the table's length.
    """

    entries: Entries
    offset: Long = NEVER


@request(76, Need.WRITE)
class RemoveTableKeys(_TableRequest):
    """Removes all keys or none; conditions as in `UpdateTableEntries`."""

    keys: Keys
    offset: Long = NEVER


@request(78, Need.READ)
class ReadTable(_TableRequest):
    """Asks for the entries of keys."""

    keys: Keys


@dataclass(slots=True)
class _Iteration(_TableRequest):
    """Asks for the next `count` of a table; `continuation` is from the last reply."""

    count: Int
    continuation: Data = b""
    prefix: Data = b""
    from_key: Data = b""
    to_key: Data = b""


@request(83, Need.READ)
class ReadTableKeys(_Iteration):
    """Answered with `TableKeysRead`."""


@request(85, Need.READ)
class ReadTableEntries(_Iteration):
    """Answered with `TableEntriesRead`."""


@request(88, Need.READ)
class ReadTableEntriesDelta(_TableRequest):
    """Asks for the entries that were put from a position on."""

    position: Long
    count: Int


# -- Replies -------------------------------------------------------------------


@reply(69)
class TableSegmentInfo(SegmentMessage):
    """`length` is the position of the next update."""

    start_offset: Long
    length: Long
    entries: Long
    key_bytes: Int


@reply(75)
class TableEntriesUpdated(Message):
    """The new version of each entry, in the order of the request."""

    request_id: Long
    versions: Longs


@reply(77)
class TableKeysRemoved(SegmentMessage): ...


@reply(79)
class TableRead(SegmentMessage):
    """One entry for each key of the request; version -1 where there is none."""

    entries: Entries


@reply(84)
class TableKeysRead(SegmentMessage):
    """Some keys, and the `continuation` to ask for more; no keys at the end."""

    keys: Keys
    continuation: Data = b""


@reply(86)
class TableEntriesRead(SegmentMessage):
    """Some entries, and the `continuation` to ask for more; none at the end."""

    entries: Entries
    continuation: Data = b""


@reply(87)
class TableEntriesDeltaRead(SegmentMessage):
    """The newest entry of each key that changed, oldest first."""

    entries: Entries
    should_clear: Bool
    reached_end: Bool
    last_position: Long
