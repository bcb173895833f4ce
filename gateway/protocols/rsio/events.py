"""The journal's format of RS.io batches, and the decoder that makes rows of them.

    body   = u8 format (1 or 2), varint message_bytes, String content type,
             varint number of streams, streams, messages; in format 2 they are zlib
    stream = varint Id, varint element size, varint first, varint count, varint
             resumed, String name
    resumed = 0; 1 if its numbers go on from those of earlier streams of its sender;
             2 if they do and its sender is known by token and name together
    messages = onNext and onNextPacked as they came, of all streams, in their order;
             an element that came in parts is one onNext

    body   = u8 format (3), varint resumed, varint number, bytes instance, String name:
             no events; from here on this instance of the sender publishes, and no earlier
             one (`offsets`)

Elements are stored as the network brought them, and what those of one read have in
common is stored once.  Those that came in blocks are compressed again, because a block
can not be inflated without those before it.  They are numbered from 1 in each stream; if the publisher
resumes (extension 2), the numbers continue those of its earlier streams.  `seq` is that
number.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

from isal import isal_zlib

from gateway.event import Rows
from gateway.protocols.rsio.decoder import Run
from gateway.protocols.rsio.messages import Code
from gateway.protocols.rsio.wire import read_varint
from gateway.sdk import native
from gateway.sdk.payload import flaws_of
from gateway.sdk.varint import varint

_PLAIN, _PACKED, _INSTANCE = 1, 2, 3
RESUMED, NAMED = 1, 2
_LEAST_COMPRESSED_BYTES = 512
"""Messages of fewer bytes are not worth compressing."""
_DENSE = 32
"""The factor of a fast compressor from which on a better one makes it smaller yet."""
_OCTETS = "application/octet-stream"
_JSON = "application/json"


@dataclass(slots=True)
class Part:
    """The elements of one stream in a batch."""

    publisher: str
    id: int
    size: int
    """Octets of each element; 0 if they differ."""
    first: int
    """Number of the first element."""
    count: int
    resumed: int
    """Not 0: the numbers are the publisher's own, across connections (extension 2);
    `NAMED`: it is known by token and name together (extension 7)."""


@dataclass(slots=True, frozen=True)
class InstanceRecord:
    """The journal's record that an instance of a sender begins."""

    publisher: str
    resumed: int
    """The count that its stream is resumed at, as in `Part`."""
    number: int
    """The number of the record among all such ones of a gateway, in their order."""
    instance: bytes
    """Empty: a sender that does not say its instance."""
    durable: int | None = None
    """How many elements it was told are durable, as it may have been forgotten; None in records
    of earlier commits."""

    def packed(self) -> bytes:
        """The body of a batch without events."""
        head = (_INSTANCE, self.resumed, self.number, len(self.instance))
        name = _string(self.publisher)
        told = b"" if self.durable is None else varint(self.durable)
        return b"".join([*map(varint, head), self.instance, name, told])


def instance_record(body: bytes) -> InstanceRecord | None:
    """The record in a batch's body; None if it has elements."""
    if body[0] != _INSTANCE:
        return None
    resumed, at = read_varint(body, 1)
    number, at = read_varint(body, at)
    size, at = read_varint(body, at)
    name, end = _read_string(body, at + size)
    durable = read_varint(body, end)[0] if end < len(body) else None
    return InstanceRecord(name, resumed, number, body[at : at + size], durable)


def pack(
    contributions: Sequence[Part],
    runs: Sequence[Run],
    *,
    message_bytes: int,
    content_type: str,
    compress: bool = False,
) -> bytes:
    """The body of a batch; *message_bytes* is the limit in force.

    With *compress* the messages are compressed, if that makes them smaller.
    """
    messages = b"".join([run.messages for run in runs])
    form = _PLAIN
    if compress and len(messages) >= _LEAST_COMPRESSED_BYTES:
        packed = _compressed(messages)
        if len(packed) < len(messages):
            messages, form = packed, _PACKED
    head = [varint(form), varint(message_bytes), _string(content_type)]
    head.append(varint(len(contributions)))
    for part in contributions:
        numbers = (part.id, part.size, part.first, part.count, part.resumed)
        head += map(varint, numbers)
        head.append(_string(part.publisher))
    return b"".join([*head, messages])


def _compressed(messages: bytes) -> bytes:
    packed: bytes = isal_zlib.compress(messages, 1)
    if len(packed) * _DENSE < len(messages):
        packed = zlib.compress(messages, 6)
    return packed


def parts(body: bytes) -> list[Part]:
    """The streams of a batch, without decoding their elements."""
    return [] if body[0] == _INSTANCE else _head(body)[2]


def decode(body: bytes) -> Rows:
    """The events of a batch; never fails on a body that was made here."""
    if body[0] == _INSTANCE:
        return Rows([])
    message_bytes, content_type, table, at = _head(body)
    if body[0] == _PACKED:
        body, at = isal_zlib.decompress(memoryview(body)[at:]), 0
    if len(table) == 1 and table[0].size:
        return _fixed(body, at, table[0])
    if len(table) == 1 and native.kernel:
        rows = _at_once(body, at, table[0], message_bytes, content_type)
        if rows is not None:
            return rows
    sizes = {part.id: part.size for part in table}
    found: dict[int, list[int]] = {part.id: [] for part in table}
    payloads: list[bytes] = []
    end = len(body)
    while at < end:
        start = len(payloads)
        number, after = read_varint(body, at + 1)
        if body[at] == Code.ON_NEXT_PACKED:
            at = _packed(body, after, sizes[number], payloads)
        else:
            at = _walk(body, at, after, sizes[number], payloads)
        if len(table) > 1:
            found[number] += range(start, len(payloads))
    if at != end:
        raise ValueError("RS.io batch that ends inside an element")
    rows = Rows(payloads, content_type=_OCTETS if table[0].size else content_type)
    _set_numbers(rows, table, found)
    _set_content_types(rows, table, found, content_type)
    if content_type == _JSON:
        _check_json(rows, message_bytes)
    return rows


def _at_once(
    body: bytes, at: int, part: Part, message_bytes: int, content_type: str
) -> Rows | None:
    """Elements of one stream by the kernel: one block of rows.

    None if it does not know that all of them are sound.
    """
    _, after = read_varint(body, at + 1)
    json = content_type == _JSON
    largest = message_bytes if json else len(body)
    head = body[at:after]
    found = native.kernel.pieces(body, at, head, False, largest, json)
    if found is None:
        return None
    block, ends = found[0], array("q", found[1])
    seqs = range(part.first, part.first + len(ends))
    return Rows(
        [],
        seqs,
        channel=part.publisher,
        content_type=content_type,
        block=block,
        ends=ends,
    )


def _fixed(body: bytes, at: int, part: Part) -> Rows:
    """Elements of one stream, all of one size: one block of rows."""
    size, end = part.size, len(body)
    pieces: list[bytes] = []
    while at < end:
        _, after = read_varint(body, at + 1)
        if body[at] == Code.ON_NEXT_PACKED:
            count, after = read_varint(body, after)
            at = after + count * size
            pieces.append(body[after:at])
        else:
            at = _walk(body, at, after, size, pieces)
    if at != end:
        raise ValueError("RS.io batch that ends inside an element")
    block = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return Rows(
        [],
        range(part.first, part.first + len(block) // size),
        channel=part.publisher,
        content_type=_OCTETS,
        block=block,
        ends=range(size, len(block) + 1, size),
    )


def _head(body: bytes) -> tuple[int, str, list[Part], int]:
    if body[0] not in (_PLAIN, _PACKED):
        raise ValueError(f"RS.io batch of unknown format {body[0]}")
    message_bytes, at = read_varint(body, 1)
    content_type, at = _read_string(body, at)
    count, at = read_varint(body, at)
    table = []
    for _ in range(count):
        numbers: list[int] = []
        for _ in range(5):
            number, at = read_varint(body, at)
            numbers.append(number)
        name, at = _read_string(body, at)
        table.append(Part(name, *numbers))
    return message_bytes, content_type, table, at


def _packed(body: bytes, at: int, size: int, payloads: list[bytes]) -> int:
    count, at = read_varint(body, at)
    stop = at + count * size
    payloads += [body[start : start + size] for start in range(at, stop, size)]
    return stop


def _walk(body: bytes, at: int, after: int, size: int, payloads: list[bytes]) -> int:
    """Append the elements of a run of onNext messages; returns where it ends."""
    head = body[at:after]
    skip = len(head)
    add, starts = payloads.append, body.startswith
    while starts(head, at):
        at += skip
        if size:
            length = size
        else:
            length = body[at]
            if length < 0x80:
                at += 1
            elif (high := body[at + 1]) < 0x80:
                length += (high << 7) - 0x80
                at += 2
            else:
                length, at = read_varint(body, at)
        add(body[at : at + length])
        at += length
    return at


def _set_numbers(rows: Rows, table: list[Part], found: dict[int, list[int]]) -> None:
    first = table[0]
    rows.channel = first.publisher
    if len(table) == 1:
        rows.seqs = range(first.first, first.first + len(rows.payloads))
        return
    seqs = [0] * len(rows.payloads)
    for part in table:
        for seq, row in enumerate(found[part.id], part.first):
            seqs[row] = seq
        if part.publisher != first.publisher:
            rows.channels |= zip(found[part.id], repeat(part.publisher))
    rows.seqs = seqs


def _set_content_types(
    rows: Rows, table: list[Part], found: dict[int, list[int]], content_type: str
) -> None:
    """Set the content types of streams that differ from the first one's."""
    for part in table[1:]:
        kind = _OCTETS if part.size else content_type
        if kind != rows.content_type:
            rows.content_types |= dict.fromkeys(found[part.id], kind)


def _check_json(rows: Rows, message_bytes: int) -> None:
    """Set the flaw of each element that should be JSON and is not."""
    kinds, usual = rows.content_types, rows.content_type
    if not kinds and usual != _JSON:
        return
    places = range(len(rows.payloads)) if kinds else ()
    others = {row for row in places if kinds.get(row, usual) != _JSON}
    rows.flaws.update(flaws_of(rows.payloads, message_bytes, but=others))


def _string(text: str) -> bytes:
    octets = text.encode()
    return varint(len(octets)) + octets


def _read_string(body: bytes, at: int) -> tuple[str, int]:
    size, at = read_varint(body, at)
    return body[at : at + size].decode(), at + size
