"""The body of a Pravega batch in the journal: the records of one change.

    body   = msgpack [format (1), number of the change, records]
    record = msgpack [kind, fields …], one of the classes below

A body has everything that one change does, its events included, so all of it becomes
durable or nothing.  Changes are numbered without a gap, so that none is applied twice.

Appended data is stored as it came: events are `00000000 | length u32 | data`.  Each event
is a row, with its offset in the segment as `seq`.  Where events are said to be JSON each
is checked, and one that is not an object has a flaw.  Data that is not whole events, of a
byte stream for instance, is one row with the flaw `unframed`.  So is data of an append that
claims few events and looks like very many.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard
from uuid import UUID

import msgspec

from gateway.event import Rows
from gateway.protocols.pravega.events import equal_payloads, payloads_at_once, split
from gateway.protocols.pravega.framing import (
    NONE,
    ByStream,
    Framing,
    peel,
    typed,
)
from gateway.protocols.pravega.segment import KeptData, Segment, Written
from gateway.protocols.pravega.tables import Table
from gateway.sdk.payload import flaws_of

if TYPE_CHECKING:
    from gateway.protocols.pravega.state import State

_FORMAT = 1
_UNFRAMED, _NO_SCHEMA = "unframed", "no-schema"
_HEADER = 8
_BIN_32 = 1 << 16
"""Bytes from here on have a length of 32 bits before them (msgpack)."""


class _Record(msgspec.Struct, array_like=True):
    """A record: what it changes when it is made, and when it is durable."""

    @property
    def segments(self) -> tuple[str, ...]:
        """Names of the segments that the record changes; the one it writes to is last."""
        return (self.segment,)  # type: ignore[attr-defined]

    @property
    def rows(self) -> int:
        return 0

    @property
    def payload_bytes(self) -> int:
        return 0

    @property
    def merged_bytes(self) -> int:
        """Bytes that it has of a staged segment."""
        return 0

    def apply(self, state: State, now: int) -> None:
        """Change the state: the record is made, or read back."""
        raise NotImplementedError

    def stored(self, state: State, number: int, lsn: int) -> Iterable[Written]:
        """Note it durable in change *number*, first row *lsn*; gives the data that it wrote."""
        return ()


class _WithData(Protocol):
    offset: int
    count: int
    data: memoryview

    @property
    def segments(self) -> tuple[str, ...]: ...


class _Data(_Record):
    @property
    def rows(self: _WithData) -> int:
        return self.count

    @property
    def payload_bytes(self: _WithData) -> int:
        return max(0, len(self.data) - _HEADER * self.count) if self.count else 0

    def stored(
        self: _WithData, state: State, number: int, lsn: int
    ) -> Iterable[Written]:
        name = self.segments[-1]
        return state.written(number, name, self.offset, self.data, lsn)


class Append(_Data, tag=1):
    """Data of a writer."""

    segment: str
    offset: int
    """Where the data begins in the segment."""
    writer: bytes
    number: int
    """The writer's number of the last event in the data."""
    claimed: int
    """The number of events, as the writer counts."""
    count: int
    """How many rows the data becomes; 0 in a staged segment, and in an internal one."""
    data: memoryview

    def apply(self, state: State, now: int) -> None:
        segment, size = state.changed(self.segment, now), len(self.data)
        segment.length = self.offset + size
        segment.events += self.claimed
        segment.written_at = now
        before = segment.numbers
        segment.wrote(self.writer, self.number)
        state.numbers += segment.numbers - before
        if segment.staged is not None:
            segment.staged.add(bytes(self.data))
            state.staged_bytes += size
        elif segment.kept is not None:
            if self.offset != segment.kept.end:  # what lay between was lost
                with state.counted(segment):
                    segment.kept = KeptData(self.offset)
            segment.kept.add(bytes(self.data))
            state.kept_bytes += size
        else:
            state.retain(segment, size)


class Create(_Record, tag=2):
    """A new segment or table."""

    segment: str
    target_rate: int = 0
    scale_type: int = 0
    rollover_bytes: int = 0
    table: bool = False
    key_bytes: int = 0

    def apply(self, state: State, now: int) -> None:
        made = state.segments[self.segment] = Segment(self.segment, state.number)
        made.modified = now
        made.target_rate, made.scale_type = self.target_rate, self.scale_type
        made.rollover_bytes = self.rollover_bytes
        if self.table:
            made.table = Table(self.key_bytes)


class Seal(_Record, tag=3):
    """A segment takes no more appends."""

    segment: str

    def apply(self, state: State, now: int) -> None:
        state.changed(self.segment, now).sealed = True

    def stored(self, state: State, number: int, lsn: int) -> Iterable[Written]:
        if (segment := state.since(number, self.segment)) is not None:
            segment.closed = True
        return ()


class Truncate(_Record, tag=4):
    """A segment begins at the offset."""

    segment: str
    offset: int

    def apply(self, state: State, now: int) -> None:
        segment = state.changed(self.segment, now)
        with state.counted(segment):
            segment.truncate(self.offset)

    def stored(self, state: State, number: int, lsn: int) -> Iterable[Written]:
        if (segment := state.since(number, self.segment)) is not None:
            segment.truncated(self.offset)
        return ()


class Delete(_Record, tag=5):
    """A segment or table is deleted."""

    segment: str

    def apply(self, state: State, now: int) -> None:
        state.drop(self.segment)

    def stored(self, state: State, number: int, lsn: int) -> Iterable[Written]:
        state.has_left(self.segment, number)
        return ()


class Merge(_Data, tag=6):
    """The data of a staged segment, `source`, is appended to `target`; it becomes rows."""

    target: str
    source: str
    offset: int
    claimed: int
    count: int
    data: memoryview

    @property
    def segments(self) -> tuple[str, ...]:
        return self.source, self.target

    @property
    def merged_bytes(self) -> int:
        return len(self.data)

    def apply(self, state: State, now: int) -> None:
        target = state.changed(self.target, now)
        target.length = self.offset + len(self.data)
        target.events += self.claimed
        target.written_at = now
        state.retain(target, len(self.data))
        state.drop(self.source)
        state.remember_merge(self.source)


class Attribute(_Record, tag=7):
    """A new value of an attribute; `NEVER` removes it."""

    segment: str
    attribute: bytes
    value: int

    def apply(self, state: State, now: int) -> None:
        segment = state.changed(self.segment, now)
        with state.counted(segment):
            segment.set_attribute(self.attribute, self.value)


class Put(_Record, tag=9):
    """Entries put into a table; their versions are `version` and the following ones."""

    segment: str
    version: int
    entries: Sequence[tuple[bytes, bytes]]

    def apply(self, state: State, now: int) -> None:
        with state.table_of(self.segment, now) as table:
            table.put(self.version, self.entries)


class Remove(_Record, tag=10):
    """Keys removed from a table; the removals take versions from `version` on."""

    segment: str
    version: int
    keys: Sequence[bytes]

    def apply(self, state: State, now: int) -> None:
        with state.table_of(self.segment, now) as table:
            table.remove(self.version, self.keys)


class ForgetIdleWriters(_Record, tag=11):
    """Writers that wrote nothing since the last such record are forgotten, everywhere."""

    @property
    def segments(self) -> tuple[str, ...]:
        """No names: it changes all segments, and has no list of them."""
        return ()

    def apply(self, state: State, now: int) -> None:
        state.writers_forgotten_at = now
        forgotten = 0
        for segment in state.segments.values():
            if segment.idle or segment.writers:
                forgotten += len(segment.idle)
                segment.idle, segment.writers = segment.writers, {}
        state.numbers -= forgotten


class Keep(_Record, tag=12):
    """A segment is internal from here on: what is appended to it stays in the state."""

    segment: str

    def apply(self, state: State, now: int) -> None:
        segment = state.changed(self.segment, now)
        if segment.kept is None:
            with state.counted(segment):
                segment.kept = KeptData(segment.length)


Record: TypeAlias = (
    Append | Create | Seal | Truncate | Delete | Merge | Attribute
    | Put | Remove | ForgetIdleWriters | Keep
)  # fmt: skip


class Body(msgspec.Struct, array_like=True):
    form: int
    number: int
    records: list[Record]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Body).decode


def pack(number: int, records: list[Record]) -> bytes:
    """Encode the body of change *number*, in no more memory than it needs.

    It stays for long where its data is read again, and msgspec leaves half as much room
    behind what it encodes.
    """
    if any(map(_is_large, records)):
        return b"".join(pieces(number, records))
    return bytes(memoryview(_encode(Body(_FORMAT, number, records))))


def _is_large(record: Record) -> TypeGuard[Append | Merge]:
    return isinstance(record, Append | Merge) and len(record.data) >= _BIN_32


def pieces(number: int, records: list[Record]) -> list[bytes | memoryview]:
    """The pieces of `pack`, data of large records as views: data is a record's last field."""
    found: list[bytes | memoryview] = []
    around = bytearray(_encode((_FORMAT, number, [None] * len(records))))
    del around[len(around) - len(records) :]
    for record in records:
        if _is_large(record):
            around += _encode(msgspec.structs.replace(record, data=memoryview(b"")))
            around[-2:] = b"\xc6" + len(record.data).to_bytes(4)  # bin 32, not bin 8
            found += (bytes(around), record.data)
            around.clear()
        else:
            around += _encode(record)
    return [*found, bytes(around)]


def unpack(body: bytes) -> Body:
    """Decode a body; raises `ValueError`.  The data of its records are views of it."""
    found = _decode(body)
    if found.form != _FORMAT:
        raise ValueError(f"Pravega batch of unknown format {found.form}")
    return found


OCTETS = "application/octet-stream"
_JSON = "application/json"
_UNCHANGED = ByStream(NONE, NONE)
_ANY_SIZE = 1 << 62
_WITH_DATA = (Append, Merge)


def decode(
    body: bytes,
    content_type: str | Callable[[str], str] = OCTETS,
    framing: Callable[[str], Framing] = _UNCHANGED,
) -> Rows:
    """The rows of a batch; succeeds for every body that `Segments` made.

    *content_type* is what the events are, or says it by a segment's name, for a change brings
    those of one stream; those with the flaw `unframed` are bytes.  JSON is checked.
    *framing* says by a segment's name which header is taken off its events.
    """
    written = [
        record
        for record in unpack(body).records
        if isinstance(record, _WITH_DATA) and record.count
    ]
    kind = content_type if isinstance(content_type, str) else OCTETS
    if written and not isinstance(content_type, str):
        kind = content_type(written[0].segments[-1])
    rows = Rows([], content_type=kind, attributes=_attributes(written))
    headers = {name for each in written if framing(name := each.segments[-1]) != NONE}
    if (
        len(written) == 1
        and written[0].count > 1
        and not headers
        and _at_once(written[0], rows)
    ):
        rows.channel = written[0].segments[-1]
        return rows
    rows.seqs = seqs = array("q")
    for record in written:
        _split(record, bytes(record.data), rows, seqs)
    if headers:
        _peel(rows, framing)
    if kind == _JSON:
        unframed = {*rows.flaws}
        rows.flaws |= flaws_of(rows.payloads, _ANY_SIZE, but=unframed)
    return rows


def _peel(rows: Rows, framing: Callable[[str], Framing]) -> None:
    """Take the headers off, and say in content types and attributes what they were."""
    schemas: dict[str, None] = {}
    types: dict[int, str] = {}
    for row, event in enumerate(rows.payloads):
        kind = framing(rows.channels.get(row, rows.channel or ""))
        if kind == NONE or row in rows.flaws:
            continue
        found = peel(event, kind)
        if found is None:
            rows.flaws[row] = _NO_SCHEMA
            continue
        rows.payloads[row], schema = found
        schemas[str(schema)] = None
        types[row] = typed(rows.content_type, kind, schema)
    if schemas:
        rows.attributes = {**rows.attributes, "schema": " ".join(schemas)}
    if len(types) == len(rows.payloads) and len({*types.values()}) == 1:
        rows.content_type = types[0]
    else:
        rows.content_types |= types


def _at_once(record: Append | Merge, rows: Rows) -> bool:
    """Make one block of the events of a record; false, and no rows, if that can not be."""
    data, begin = record.data, record.offset
    json = rows.content_type == _JSON
    if not json and (equal := equal_payloads(data)) is not None:
        rows.block, size = equal
        rows.ends = range(size, len(rows.block) + 1, size)
        rows.seqs = range(begin, begin + len(data), _HEADER + size)
        return True
    found = payloads_at_once(data, begin, record.count, json=json)
    if found is not None:
        rows.block, rows.ends, rows.seqs = found
    return found is not None


def _attributes(written: Sequence[Append | Merge]) -> dict[str, str]:
    """Attributes of the rows: their writer, or the transactions they came with."""
    about: dict[str, str] = {}
    merged: dict[str, None] = {}
    for record in written:
        if isinstance(record, Append):
            about["writer"] = _uuid(record.writer)
            about["event_number"] = str(record.number)
        else:
            merged[record.source.rpartition("#")[2]] = None
    if merged:
        about["merged"] = " ".join(merged)
    return about


@lru_cache(maxsize=1024)
def _uuid(writer: bytes) -> str:
    return str(UUID(bytes=writer))


def _split(record: Append | Merge, data: bytes, rows: Rows, seqs: array[int]) -> None:
    first, segment, offset = len(rows.payloads), record.segments[-1], record.offset
    found = None
    if record.count > 1 or len(data) == _HEADER + int.from_bytes(data[4:_HEADER]):
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
