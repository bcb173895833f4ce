"""The file format of a journal segment: bytes to records and back, without I/O or clock.

A segment is a header and then records, appended in groups; one `fdatasync` follows
each group.  Integers are little-endian.

    header   magic 8 | version u16 | 0 u16 | salt u32 | first lsn i64 | created µs i64
             | crc32c u32
    record   sync u32 | kind u8 | tag 3 | length u32 | count u32 | lsn i64 | synced u64
             | crc32c u32 of these | crc32c u32 of these and the payload
             | payload (length bytes)

Every CRC starts from the segment's random salt, so neither the left-overs of another
file nor bytes that a peer chose can pass for a record.  With the first one a search
for a record behind damage reads no payload that none has.  In a body full of beginnings of
records that would be the body again for each of them.  The tag, the first
bytes of the salt, is there so that it passes over the records of another segment, where
this one was written over that (`spares`).

`lsn` is that of the record's first event; a batch without events (metadata) has that of
the next one.  `synced` is how many bytes of the segment had been synced when the record
was written.  It tells a torn tail from damage:

- A bad record that lies in what a later good record calls synced was acknowledged: its
  loss is reported (`Damage`), and reading goes on behind it.
- A bad record that no later one calls synced was never acknowledged: the segment ends
  before it.  A reader may know better (`Scan`, *durable* and *synced*).  The mark beside
  the journal, and the name and the first record of the next segment, say more than a
  segment does that has lost its end.
- So does a good record that does not follow from those before it: its lsn is not the
  next one, or its origin is not there.  It is left of a write that failed and was cut
  off, where the cut did not survive a power cut.

    origin   msgpack of [number, protocol, listener, session, peer, principal,
             attributes]; written before the first batch that refers to it; a number
             is used once
    batch    origin number u32 | received_at µs i64 | payload bytes u64 | body
    seal     nothing; the segment was closed in good order
    before   msgpack of [name, bytes]: how much was synced of the segment before this one,
             without its seal; the first record, where there was one in this run
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c
import msgspec

from gateway.event import MAX_LSN, Batch, Origin, Stored
from gateway.store.names import INCARNATION

VERSION = 1
SUFFIX = ".journal"
UNKNOWN = Origin("unknown", "unknown", "unknown", "unknown")

_NAME = re.compile(
    rf"(\d{{20}})-({INCARNATION})(?:\.(\d+))?{re.escape(SUFFIX)}", re.ASCII
)
_OLD_NAME = re.compile(rf"\d{{20}}(?:\.\d+)?{re.escape(SUFFIX)}", re.ASCII)
_MAGIC = b"gwjrnl\r\n"
_HEADER = struct.Struct("<8sHHIqqI")
HEADER_BYTES = _HEADER.size
_SALT_AT = 12
_SYNC = 0x9C5A_E7D1
_SYNC_BYTES = struct.pack("<I", _SYNC)
_FIXED = struct.Struct("<IIIIqQ")  # kind and tag are one number
_SUMS = struct.Struct("<II")
_RECORD = struct.Struct("<IB3xIIqQII")
_BATCH = struct.Struct("<IqQ")
_U32 = struct.Struct("<I")
_FIXED_BYTES, RECORD_BYTES, _BATCH_BYTES = _FIXED.size, _RECORD.size, _BATCH.size
_unpack, _unpack_batch = _RECORD.unpack_from, _BATCH.unpack_from
_pack_fixed, _pack_sums, _pack_batch = _FIXED.pack, _SUMS.pack, _BATCH.pack
_SMALL = 1 << 10
"""Payloads up to this size are in one piece with their records."""
_ORIGIN, _BATCHED, _SEAL, _BEFORE = 1, 2, 3, 4

_crc = google_crc32c.extend


class InvalidSegment(Exception):
    """Not a segment that this version can read; the text says why."""


class OtherFormat(InvalidSegment):
    """A segment in the format of an earlier or later version."""


@dataclass(slots=True)
class Damage:
    """Acknowledged bytes that can not be read back."""

    offset: int
    """Where in the segment."""
    length: int
    first_lsn: int
    """First event lost, if `events` is not 0."""
    events: int
    """How many; 0 where an origin, batches without events, or a seal was."""

    def __str__(self) -> str:
        """The size and the place of the damage."""
        if self.length:
            return f"{self.length} damaged bytes at {self.offset}"
        return f"missing from byte {self.offset} on"


@dataclass(slots=True)
class Header:
    """The header of a segment."""

    first_lsn: int
    created: int
    """Microseconds since the epoch."""
    salt: int

    def encode(self) -> bytes:
        head = _HEADER.pack(
            _MAGIC, VERSION, 0, self.salt, self.first_lsn, self.created, 0
        )
        return head[:-4] + struct.pack("<I", _crc(self.salt, head[:-4]))

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """Raises `InvalidSegment`."""
        if len(data) < HEADER_BYTES:
            raise InvalidSegment(f"a header of {len(data)} bytes, not {HEADER_BYTES}")
        magic, version, _, salt, lsn, created, crc = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise InvalidSegment("not a journal segment")
        if _crc(salt, data[: HEADER_BYTES - 4]) != crc:
            raise InvalidSegment("its header is damaged")
        if version != VERSION:
            raise OtherFormat(f"journal format {version}; this version reads {VERSION}")
        return cls(lsn, created, salt)


def mend_header(data: bytes, first_lsn: int) -> bytes | None:
    """A segment with a damaged header, with a good one; None if that can not be.

    The salt is all that matters of a header.  The first record's sum tells whether a salt is
    the right one: the one that is there, or with one of its bits flipped.
    """
    if len(data) < HEADER_BYTES + _RECORD.size:
        return None
    fixed = data[HEADER_BYTES : HEADER_BYTES + _FIXED.size]
    _, kind, _, _, lsn, _, fixed_sum, _ = _unpack(data, HEADER_BYTES)
    if kind != _SEAL and lsn != first_lsn:
        return None  # of another segment; a seal stands in the place of a lost one
    (found,) = _U32.unpack_from(data, _SALT_AT)
    for salt in (found, *(found ^ 1 << bit for bit in range(32))):
        if _crc(salt, fixed) == fixed_sum:
            return Header(first_lsn, 0, salt).encode() + data[HEADER_BYTES:]
    return None


def begins(data: bytes, salt: int) -> bool:
    """Whether a record of the segment with this salt begins here; it may not be whole."""
    if len(data) < RECORD_BYTES:
        return False
    sync, *_, fixed_sum, _ = _unpack(data)
    return bool(sync == _SYNC and _crc(salt, data[:_FIXED_BYTES]) == fixed_sum)


def place_of_lost(first_lsn: int, last_lsn: int) -> bytes:
    """A segment that says of these lsns that they were acknowledged and are lost.

    There are no bytes of a peer in it, so it needs no salt.
    """
    header = Header(first_lsn, 0, 0)
    return header.encode() + seal(header, last_lsn, HEADER_BYTES + 1)


def seal(header: Header, last_lsn: int, synced: int) -> bytes:
    """The seal of a segment that has lost some of what it had up to *last_lsn*.

    Where it has lost its end, more bytes were *synced* than stand before the seal.
    """
    return b"".join(Encoder(header).seal(last_lsn + 1, synced))


class Name(NamedTuple):
    """The parts of a segment's file name; names sort as segments were begun."""

    first_lsn: int
    attempt: int
    """Later attempts with this lsn follow a failed sync of the earlier."""
    incarnation: str
    """The incarnation that gives its lsns (`gateway.store.node.incarnation`)."""


def name(first_lsn: int, incarnation: str, attempt: int = 0) -> str:
    """A segment's file name."""
    tail = f".{attempt}" if attempt else ""
    return f"{first_lsn:020d}-{incarnation}{tail}{SUFFIX}"


def parse_name(text: str) -> Name | None:
    """The parts of a segment's file name; None if it is none."""
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    lsn, attempt = int(match[1]), int(match[3] or 0)
    return Name(lsn, attempt, match[2]) if 0 < lsn <= MAX_LSN else None


def incarnation_of(text: str) -> str:
    """The incarnation that gave the lsns of the segment of this name; empty for another name."""
    parsed = parse_name(text)
    return parsed.incarnation if parsed else ""


def check_form(name: str) -> None:
    """Raise `OtherFormat` for the name of a segment of before incarnations were in names."""
    if _OLD_NAME.fullmatch(name):
        raise OtherFormat(
            f"{name} does not say which incarnation gave its lsns: an earlier version wrote"
            " it (docs/upgrade.md)"
        )


def in_order(names: Iterable[str]) -> list[tuple[int, int | None, str]]:
    """The names of segments, oldest first: (first lsn, that of the next, name).

    Other names are passed over.
    """
    found = sorted((parsed, name) for name in names if (parsed := parse_name(name)))
    nexts = [*(parsed.first_lsn for parsed, _ in found[1:]), None]
    return [
        (parsed.first_lsn, before, name)
        for (parsed, name), before in zip(found, nexts, strict=False)
    ]


class Encoder:
    """Turns batches into the chunks to append to one segment."""

    def __init__(self, header: Header) -> None:
        self.salt = header.salt
        self._tag = (header.salt & 0xFF_FFFF) << 8
        self._origins: dict[Origin, int] = {}
        self._numbers = 0

    def batch(self, batch: Batch, lsn: int, synced: int) -> list[bytes]:
        """The chunks of one batch, as `group` makes them."""
        return self.group((batch,), lsn, synced)

    def group(self, batches: Iterable[Batch], lsn: int, synced: int) -> list[bytes]:
        """The records of batches, each behind that of its origin if that is new.

        *synced* bytes of the segment are durable.  This loop runs for each batch.
        """
        chunks: list[bytes] = []
        salt, origins = self.salt, self._origins
        kind = _BATCHED | self._tag
        for batch in batches:
            number = origins.get(batch.origin)
            if number is None:
                number = origins[batch.origin] = self._numbers
                self._numbers += 1
                origin = _pack_origin(number, batch.origin)
                chunks += self._record(_ORIGIN, lsn, 0, synced, origin, b"")
            count, body = batch.count, batch.body
            head = _pack_batch(number, batch.received_at, batch.payload_bytes)
            length = _BATCH_BYTES + len(body)
            if length > _SMALL:
                chunks += self._record(_BATCHED, lsn, count, synced, head, body)
            else:
                fixed = _pack_fixed(_SYNC, kind, length, count, lsn, synced)
                fixed_sum = _crc(salt, fixed)
                payload = head + body
                sums = _pack_sums(fixed_sum, _crc(fixed_sum, payload))
                chunks.append(fixed + sums + payload)
            lsn += count
        return chunks

    def seal(self, lsn: int, synced: int) -> list[bytes]:
        """The last record: everything before *lsn* is durable, in *synced* bytes."""
        return self._record(_SEAL, lsn, 0, synced, b"", b"")

    def before(self, name: str, synced: int, lsn: int) -> list[bytes]:
        """The first record: *synced* bytes of the segment *name* must be there."""
        told = msgspec.msgpack.encode([name, synced])
        return self._record(_BEFORE, lsn, 0, HEADER_BYTES, told, b"")

    def _record(
        self, kind: int, lsn: int, count: int, synced: int, head: bytes, body: bytes
    ) -> list[bytes]:
        length = len(head) + len(body)
        fixed = _pack_fixed(_SYNC, kind | self._tag, length, count, lsn, synced)
        fixed_sum = _crc(self.salt, fixed)
        if length <= _SMALL:  # a copy costs less than another piece
            payload = head + body
            return [fixed + _pack_sums(fixed_sum, _crc(fixed_sum, payload)) + payload]
        sum_ = _crc(_crc(fixed_sum, head), body)
        return [fixed + _pack_sums(fixed_sum, sum_) + head, body]


@dataclass(slots=True)
class _Record:
    kind: int
    lsn: int
    count: int
    synced: int
    start: int
    end: int


class Scan:
    """Reads a segment, whatever a crash left of it.

    Iterate, once, to get the batches in order; then `end`, `next_lsn`, `batches`, `sealed`
    and `damage` tell how it went, and its bytes are let go.  Never raises once the header
    was read.
    """

    def __init__(
        self,
        data: bytes,
        *,
        name: str = "",
        before: int | None = None,
        durable: int = 0,
        synced: int = 0,
        growing: bool = False,
    ) -> None:
        """*name* is its file's: a header that begins with another lsn is of an older
        segment, whose file this was (`spares`), and so may be what is behind.

        Events from lsn *before* on were written again in a later segment.

        So may batches without events have been that stand there, but some of them
        were acknowledged before: they are given back, and come again.

        Events up to lsn *durable* were acknowledged: where the segment was not closed in
        good order and lacks some, they are damage at its end.  So is whatever can not be
        read of the first *synced* bytes, which tells of batches without events, too.

        One that is *growing* ends where no whole record is: what is behind may be of an
        older segment (`spares`), and newer than what was read before it.

        Raises `InvalidSegment` if the header is not one, or another's.
        """
        self.header = Header.decode(data)
        said, first = parse_name(name), self.header.first_lsn
        if said and said.first_lsn != first:
            raise InvalidSegment(
                f"its header is that of a segment that begins with lsn {first}, and its "
                f"name says {said.first_lsn}"
            )
        self.damage: list[Damage] = []
        self.end = HEADER_BYTES
        """Where the last good record ends."""
        self.next_lsn = self.header.first_lsn
        self.batches = 0
        """How many it has, with those that have no event."""
        self.sealed = False
        self.lacks_end = False
        """Whether the last damage is one that only *durable* or *synced* tells."""
        self.protocols: set[str] = set()
        """The protocols of its batches, once `survey` has read them."""
        self.payload_bytes = 0
        """The decoded size of its events, once `survey` has read them."""
        self._data = data
        self._before = before
        self._durable = durable if before is None else min(durable, before - 1)
        self._synced = synced
        self._growing = growing
        self._origins: dict[int, Origin] = {}

    @property
    def salt(self) -> int:
        """The salt, for `begins`."""
        return self.header.salt

    def __iter__(self) -> Iterator[Stored]:
        for record in self._records():
            if record.kind == _BATCHED:
                yield self._batch(record)
            yield from self._as_expected()
        self._origins.clear()
        self._data = b""

    def of_before(self) -> tuple[str, int] | None:
        """Name and synced bytes of the segment before, if the first record tells them."""
        record = self._record(HEADER_BYTES)
        if record is None or record.kind != _BEFORE:
            return None
        name, synced = msgspec.msgpack.decode(self._data[record.start : record.end])
        return name, synced

    def survey(self) -> Scan:
        """Read without keeping batches; for recovery."""
        for record in self._records():
            if record.kind == _BATCHED:
                *_, payload_bytes = _BATCH.unpack_from(self._data, record.start)
                self.payload_bytes += payload_bytes
        self.protocols = {origin.protocol for origin in self._origins.values()}
        self._origins.clear()
        return self

    def _records(self) -> Iterator[_Record]:
        synced = self._synced
        while (record := self._next(at := self.end)) is not None:
            if self._is_superseded(record):
                synced = 0  # what lies here is somewhere else
                break
            if not self._follows(record, at):
                lost = record.lsn - self.next_lsn
                size = record.start - _RECORD.size - at
                self.damage.append(Damage(at, size, self.next_lsn, lost))
            if record.kind == _ORIGIN:
                self._learn(record)
            elif record.kind == _BATCHED and self._is_stray(record):
                break
            self.end = record.end
            self.next_lsn = record.lsn + record.count
            self.sealed = record.kind == _SEAL
            self.batches += record.kind == _BATCHED
            yield record
        lost = max(self._durable + 1 - self.next_lsn, 0)
        if not self.sealed and (lost or at < synced):
            # What is behind may be of an older segment.
            end = min(len(self._data), synced) if at < synced else len(self._data)
            self.damage.append(Damage(at, end - at, self.next_lsn, lost))
            self.next_lsn += lost
            self.lacks_end = True

    def _as_expected(self) -> Iterator[Stored]:
        """The batches from `end` on, as long as nothing is to be said of them.

        What stops it is for `_records`: another kind of record, damage, the end.
        """
        data, salt, origins = self._data, self.header.salt, self._origins
        before = MAX_LSN + 1 if self._before is None else self._before
        last = len(data)
        at, lsn = self.end, self.next_lsn
        while (start := at + RECORD_BYTES) <= last and lsn < before:
            sync, kind, length, count, own, synced, fixed_sum, sum_ = _unpack(data, at)
            if sync != _SYNC or kind != _BATCHED or own != lsn or synced > at:
                return
            end = start + length
            if end > last or _crc(salt, data[at : at + _FIXED_BYTES]) != fixed_sum:
                return
            if length <= _SMALL:  # a copy costs less than another sum
                payload = data[start:end]
                body = payload[_BATCH_BYTES:]
                found = _crc(fixed_sum, payload)
            else:
                begin = start + _BATCH_BYTES
                body = data[begin:end]  # the only copy
                found = _crc(_crc(fixed_sum, data[start:begin]), body)
            if found != sum_:
                return
            number, received_at, payload_bytes = _unpack_batch(data, start)
            origin = origins.get(number)
            if origin is None:
                return
            at = self.end = end
            lsn = self.next_lsn = lsn + count
            self.sealed = False
            self.batches += 1
            yield Stored(Batch(origin, received_at, count, body, payload_bytes), own)

    def _is_superseded(self, record: _Record) -> bool:
        """Whether a later segment has it, or what was written in its place."""
        if self._before is None or record.lsn < self._before:
            return False
        return record.count > 0 or record.lsn > self._before

    def _follows(self, record: _Record, at: int) -> bool:
        here = record.start == at + _RECORD.size and record.lsn == self.next_lsn
        # Where more was synced before it than is there, a lost end is sealed.
        return here and record.synced <= at

    def _is_stray(self, record: _Record) -> bool:
        """Whether a batch is left of a write that failed.

        An origin is written before its batches.  Where nothing is damaged and it is not
        there, a later write has begun to replace it, and was torn behind the new one.
        """
        (number,) = _U32.unpack_from(self._data, record.start)
        return number not in self._origins and not self.damage

    def _next(self, at: int) -> _Record | None:
        """The record at *at*, or the one behind the damage there, if that is damage."""
        record = self._record(at)
        if record is None and not self._growing:
            record = self._find(at + 1)
        if record is None or self._follows(record, at):
            return record
        if self._growing:
            return None
        later: _Record | None = record
        while later is not None:
            if later.synced > at or self._was_durable(later):
                return record
            later = self._record(later.end) or self._find(later.end + 1)
        return None

    def _was_durable(self, record: _Record) -> bool:
        if record.end <= self._synced:
            return True
        return record.count > 0 and record.lsn + record.count - 1 <= self._durable

    def _find(self, at: int) -> _Record | None:
        tag = re.escape(_U32.pack(self.header.salt)[:3])
        begin = _SYNC_BYTES + b"(?=." + tag + b")"
        for found in re.compile(begin, re.DOTALL).finditer(self._data, at):
            if (record := self._record(found.start())) is not None:
                return record
        return None

    def _record(self, at: int) -> _Record | None:
        start = at + _RECORD.size
        if start > len(self._data):
            return None
        sync, kind, length, count, lsn, synced, fixed_sum, sum_ = _unpack(
            self._data, at
        )
        end = start + length
        if sync != _SYNC or end > len(self._data) or lsn < self.next_lsn:
            return None
        if _crc(self.header.salt, self._data[at : at + _FIXED.size]) != fixed_sum:
            return None
        if _crc(fixed_sum, self._data[start:end]) != sum_:
            return None
        return _Record(kind, lsn, count, synced, start, end)

    def _learn(self, record: _Record) -> None:
        fields = msgspec.msgpack.decode(self._data[record.start : record.end])
        self._origins[fields[0]] = Origin(*fields[1:])

    def _batch(self, record: _Record) -> Stored:
        number, received_at, payload_bytes = _BATCH.unpack_from(
            self._data, record.start
        )
        origin = self._origins.get(number, UNKNOWN)
        body = self._data[record.start + _BATCH.size : record.end]
        batch = Batch(origin, received_at, record.count, body, payload_bytes)
        return Stored(batch, record.lsn)


def _pack_origin(number: int, origin: Origin) -> bytes:
    names = [origin.protocol, origin.listener, origin.session, origin.peer]
    principal, attributes = origin.principal, dict(origin.attributes)
    pack = msgspec.msgpack.encode
    try:
        "".join(
            [
                *names,
                *attributes,
                *attributes.values(),
                "" if principal is None else principal,
            ]
        )
        return pack([number, *names, principal, attributes])
    except (TypeError, UnicodeEncodeError):  # no file could ever have it
        names = [_text(each) for each in names]
        principal = None if principal is None else _text(principal)
        attributes = {_text(key): _text(value) for key, value in attributes.items()}
        return pack([number, *names, principal, attributes])


def _text(given: object) -> str:
    """Text that has UTF-8: a plug-in may say what it heard of a peer as it is."""
    return str(given).encode(errors="replace").decode()
