"""Pravega's wire, version 17: tables, which are segments of keys and values."""

from __future__ import annotations

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
from gateway.protocols.pravega.wire import NEVER

__all__ = [
    "CreateTableSegment",
    "DeleteTableSegment",
    "GetTableSegmentInfo",
    "ReadTable",
    "ReadTableEntries",
    "ReadTableEntriesDelta",
    "ReadTableKeys",
    "RemoveTableKeys",
    "TableEntriesDeltaRead",
    "TableEntriesRead",
    "TableEntriesUpdated",
    "TableKeysRead",
    "TableKeysRemoved",
    "TableRead",
    "TableSegmentInfo",
    "UpdateTableEntries",
]


# -- Tables: requests ----------------------------------------------------------


@request(68)
class GetTableSegmentInfo(Message):
    """Asks how a table is."""

    request_id: Long
    segment: Text
    token: Text = ""


@request(70)
class CreateTableSegment(Message):
    """`key_bytes`: 0 for keys of any size."""

    request_id: Long
    segment: Text
    token: Text = ""
    is_sorted: Bool = False
    key_bytes: Int = 0
    rollover_bytes: Long = 0


@request(71)
class DeleteTableSegment(Message):
    """Removes a table."""

    request_id: Long
    segment: Text
    must_be_empty: Bool
    token: Text = ""


@request(74)
class UpdateTableEntries(Message):
    """Puts all entries or none.

    A version is a condition: `NEVER` none, -1 the key must not exist.
    """

    request_id: Long
    segment: Text
    token: Text
    entries: Entries
    offset: Long = NEVER


@request(76)
class RemoveTableKeys(Message):
    """Removes all keys or none; versions as in `UpdateTableEntries`."""

    request_id: Long
    segment: Text
    token: Text
    keys: Keys
    offset: Long = NEVER


@request(78)
class ReadTable(Message):
    """Asks for the entries of keys."""

    request_id: Long
    segment: Text
    token: Text
    keys: Keys


@request(83)
class ReadTableKeys(Message):
    """Iterates over keys."""

    request_id: Long
    segment: Text
    token: Text
    count: Int
    continuation: Data = b""
    prefix: Data = b""
    from_key: Data = b""
    to_key: Data = b""


@request(85)
class ReadTableEntries(Message):
    """Iterates over entries."""

    request_id: Long
    segment: Text
    token: Text
    count: Int
    continuation: Data = b""
    prefix: Data = b""
    from_key: Data = b""
    to_key: Data = b""


@request(88)
class ReadTableEntriesDelta(Message):
    """Asks for what was put from a position on."""

    request_id: Long
    segment: Text
    token: Text
    position: Long
    count: Int


# -- Tables: replies -----------------------------------------------------------


@reply(69)
class TableSegmentInfo(Message):
    """How a table is."""

    request_id: Long
    segment: Text
    start_offset: Long
    length: Long
    entries: Long
    key_bytes: Int


@reply(75)
class TableEntriesUpdated(Message):
    """The new version of each entry."""

    request_id: Long
    versions: Longs


@reply(77)
class TableKeysRemoved(Message):
    """They are."""

    request_id: Long
    segment: Text


@reply(79)
class TableRead(Message):
    """One entry per key that was asked for."""

    request_id: Long
    segment: Text
    entries: Entries


@reply(84)
class TableKeysRead(Message):
    """No keys: the end."""

    request_id: Long
    segment: Text
    keys: Keys
    continuation: Data = b""


@reply(86)
class TableEntriesRead(Message):
    """No entries: the end."""

    request_id: Long
    segment: Text
    entries: Entries
    continuation: Data = b""


@reply(87)
class TableEntriesDeltaRead(Message):
    """The newest version of each key that changed, oldest first."""

    request_id: Long
    segment: Text
    entries: Entries
    should_clear: Bool
    reached_end: Bool
    last_position: Long
