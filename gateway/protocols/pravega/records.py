"""What Pravega's batches look like in the journal, and their way to rows.

    body   = msgpack [format (1), number of the change, records]
    record = msgpack [kind, fields …], one of the classes below

A body holds everything that one change does, and the events that it is about: so
they are durable together, or not at all.  Bodies are numbered without a hole, which
makes applying them twice harmless.

Events lie in segments as `00000000 | length u32 | data`; a block of whole ones is
stored as it came.  Bytes that are not whole events are one row, flawed `unframed`:
a byte stream's, for instance.  A row's `seq` is where its event begins in its segment.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

import msgspec

from gateway.event import Rows
from gateway.protocols.pravega.events import equal_payloads, split

__all__ = [
    "Append",
    "Attribute",
    "Body",
    "Create",
    "Delete",
    "Forget",
    "Merge",
    "Policy",
    "Put",
    "Record",
    "Remove",
    "Seal",
    "Truncate",
    "decode",
    "pack",
    "unpack",
]

_FORMAT = 1
_UNFRAMED = "unframed"


class _Record(msgspec.Struct, array_like=True):
    pass


class Append(_Record, tag=1):
    """A writer's block."""

    segment: str
    offset: int
    """Where in the segment it begins."""
    writer: bytes
    number: int
    """The writer's number of the last event in it."""
    claimed: int
    """How many events the writer says there are."""
    count: int
    """How many rows it is; none if it waits in a staged segment."""
    data: memoryview


class Create(_Record, tag=2):
    """A segment, or a table."""

    segment: str
    target_rate: int = 0
    scale_type: int = 0
    rollover_bytes: int = 0
    table: bool = False
    key_bytes: int = 0


class Seal(_Record, tag=3):
    """Nothing more is appended."""

    segment: str


class Truncate(_Record, tag=4):
    """Nothing is left before the offset."""

    segment: str
    offset: int


class Delete(_Record, tag=5):
    """The segment or table is gone."""

    segment: str


class Merge(_Record, tag=6):
    """A staged segment's data becomes another one's, and its events become rows."""

    target: str
    source: str
    offset: int
    claimed: int
    count: int
    data: memoryview


class Attribute(_Record, tag=7):
    """A segment's number."""

    segment: str
    attribute: bytes
    value: int


class Policy(_Record, tag=8):
    """How a segment should scale: kept, because its owner asks for it."""

    segment: str
    target_rate: int
    scale_type: int


class Put(_Record, tag=9):
    """A table's entries; their versions are `version` and those that follow it."""

    segment: str
    version: int
    entries: Sequence[tuple[bytes, bytes]]


class Remove(_Record, tag=10):
    """A table's keys."""

    segment: str
    version: int
    keys: Sequence[bytes]


class Forget(_Record, tag=11):
    """Writers who did nothing since the last `Forget` are forgotten."""


Record: TypeAlias = (
    Append
    | Create
    | Seal
    | Truncate
    | Delete
    | Merge
    | Attribute
    | Policy
    | Put
    | Remove
    | Forget
)


class Body(msgspec.Struct, array_like=True):
    """What a batch says."""

    form: int
    number: int
    records: list[Record]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Body).decode


def pack(number: int, records: list[Record]) -> bytes:
    """The body of change *number*."""
    return _encode(Body(_FORMAT, number, records))


def unpack(body: bytes) -> Body:
    """The other way round; raises `ValueError`.  Data are views of *body*."""
    found = _decode(body)
    if found.form != _FORMAT:
        raise ValueError(f"Pravega batch of unknown format {found.form}")
    return found


OCTETS = "application/octet-stream"


def decode(body: bytes, content_type: str = OCTETS) -> Rows:
    """The events of a batch.  Total on every body that `Segments` made.

    *content_type* is what writers are said to write.
    """
    written = [
        record
        for record in unpack(body).records
        if isinstance(record, Append | Merge) and record.count
    ]
    rows = Rows([], content_type=content_type, attributes=_about(written))
    if len(written) == 1:
        raw = bytes(written[0].data)
        found = equal_payloads(raw)
        if found is not None:
            rows.block, rows.size = found
            begin, stride = written[0].offset, 8 + rows.size
            rows.seqs = range(begin, begin + len(raw), stride)
            rows.channel = _segment(written[0])
            return rows
    rows.seqs = seqs = array("q")
    for record in written:
        _split(_segment(record), record.offset, bytes(record.data), rows, seqs)
    return rows


def _segment(record: Append | Merge) -> str:
    return record.segment if isinstance(record, Append) else record.target


def _about(written: Sequence[Append | Merge]) -> dict[str, str]:
    """Attributes of the rows: who wrote them, or what they came with."""
    about: dict[str, str] = {}
    merged: dict[str, None] = {}
    for record in written:
        if isinstance(record, Append):
            about["writer"] = str(UUID(bytes=record.writer))
            about["event_number"] = str(record.number)
        else:
            merged[record.source.rpartition("#")[2]] = None
    if merged:
        about["merged"] = " ".join(merged)
    return about


def _split(
    segment: str, offset: int, data: bytes, rows: Rows, seqs: array[int]
) -> None:
    first = len(rows.payloads)
    found = split(data, offset)
    if found is None:
        rows.flaws[first] = _UNFRAMED
        rows.content_types[first] = OCTETS
        found = [data], array("q", (offset,))
    payloads, offsets = found
    if first:
        rows.payloads += payloads
    else:
        rows.payloads = payloads
    seqs += offsets
    if rows.channel is None:
        rows.channel = segment
    elif rows.channel != segment:
        rows.channels |= dict.fromkeys(range(first, len(rows.payloads)), segment)
