"""The journal's format of Lumberjack batches, and the decoder that makes rows of them.

    body   = u8 form (1), u8 wire version, varint window, varint message_bytes,
             (sizes,) pieces
    piece  = a `D` or `J` frame as it came: one event, or those of a JSON array
           | a `C` frame as it came; `W` frames in it are skipped
           | "2R", u32 skip, u32 take: of the events of the `C` frame that follows, *skip*
             belong to another batch, and the next *take* to this one
    sizes  = "2S", u32 bytes, and for each event a u16, little-endian: all that follows is
             one `C` frame of `J` frames, whose bodies begin with a brace and have these sizes

A compressed frame stays compressed, even if windows share it.  The windows that end with it
are one batch, and one that goes on after it refers to its part (`R`).  So a frame is stored
twice at most.  The sizes let its events be found, and checked, all at once.

A JSON array is split into an event for each element by a rule of its own (`elements`),
the same on arrival and in `decode`.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import filterfalse

import msgspec

from gateway.event import Rows
from gateway.protocols.lumberjack import wire
from gateway.protocols.lumberjack.frames import W
from gateway.sdk import native
from gateway.sdk.payload import (
    DEPTH,
    all_shallow,
    block_is_shallow,
    check,
    flaw_of,
    too_deep,
)
from gateway.sdk.varint import varint

_FORM = 1
"""The first byte of a body (docs/formats.md)."""

_HEAD = struct.Struct(">HII")
_OBJECT_HEAD = struct.Struct(">HIIB")
"""The head of an object's frame, and the first byte of its body."""
_SIZES_HEAD = struct.Struct(">HI")
_U32 = struct.Struct(">I")
_NUMBERS = struct.Struct(">II")
_VERSION2 = b"2"[0]
_SPACE = b" \t\n\r"
_JSON = frozenset(int.from_bytes(kind) for kind in (b"1J", b"2J"))
_COMPRESSED, _DATA, _PART, _SIZES = b"CDRS"
_PIECES = (_COMPRESSED, _PART)
_BRACE, _BRACKET = b"{["

#: When more than this of an unfinished event is inflated, inflate all that is left.
_JOINED_BYTES = 1 << 20

#: Inflated bytes that are decoded in one piece, at most.
_ONE_PIECE = 8 << 20
_BETWEEN = b",\n".ljust(_HEAD.size)
"""The stand-in for a frame's head: a comma, and a line break to know it by."""

_OCTETS = "application/octet-stream"

# An array is split only if its text has fewer commas than this, those inside its
# elements included, and not more elements than this.  It bounds the cost of splitting
# before it begins, and is part of the format: another bound is another format.
_MOST_COMMAS = 1 << 17
_MOST_ELEMENTS = 1 << 15

_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.encode

_limit = lru_cache(varint)
"""A limit's varint: every body has it."""


def pack(version: int, window: int, message_bytes: int) -> bytes:
    """The head of a body.

    *version* is `1` or `2` in ASCII, *window* counts the connection's windows from 1, and
    is 0 for tiny ones, *message_bytes* is the limit in force.
    """
    return bytes((_FORM, version)) + varint(window) + _limit(message_bytes)


def head(body: bytes) -> tuple[int, int, int, int]:
    """Version, window and `message_bytes` of a body, and where its pieces begin."""
    if body[0] != _FORM:
        raise ValueError(f"Lumberjack batch of unknown form {body[0]}")
    window, at = _varint(body, 2)
    message_bytes, at = _varint(body, at)
    return body[1], window, message_bytes, at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (octet := body[at]) > 0x7F:
        value |= (octet & 0x7F) << shift
        shift += 7
        at += 1
    return value | octet << shift, at + 1


def part(skip: int, take: int) -> bytes:
    """The piece before a compressed frame of which only some events are meant."""
    return _HEAD.pack(_VERSION2 << 8 | _PART, skip, take)


def sized(each: bytes | bytearray) -> bytes:
    """The piece before a compressed frame whose bodies have these sizes (`Compressed`)."""
    return _SIZES_HEAD.pack(_VERSION2 << 8 | _SIZES, len(each)) + each


def elements(
    body: bytes | memoryview, *, message_bytes: int
) -> list[msgspec.Raw] | None:
    """The elements of a JSON array, as they are spelled; None if it is not split.

    An array is split if it parses, has at most *message_bytes* bytes, is not too deep, and
    has neither too many commas nor too many elements.  One that is not is one event, with
    a flaw.
    """
    if len(body) > message_bytes:
        return None
    if len(body) >= _MOST_COMMAS and bytes(body).count(b",") >= _MOST_COMMAS:
        return None
    try:
        found = _split(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if len(found) <= _MOST_ELEMENTS and not too_deep(body) else None


@dataclass(slots=True)
class _Decoding:
    """The rows of one body, as far as they are decoded."""

    rows: Rows
    seqs: list[int]
    message_bytes: int

    def keep(self, first: int, skip: int, take: int) -> None:
        """Drop the rows from *first* on, but for *take* of them after *skip*."""
        rows = self.rows
        start = first + skip
        stop = start + take
        if len(rows.payloads) < stop:
            raise ValueError("Lumberjack batch refers to events that are not there")
        for column in (rows.payloads, self.seqs):
            del column[stop:]
            del column[first:start]
        rows.flaws = _shifted(rows.flaws, first, start, stop)
        rows.content_types = _shifted(rows.content_types, first, start, stop)


def _shifted(
    found: dict[int, str], first: int, start: int, stop: int
) -> dict[int, str]:
    kept = {row: text for row, text in found.items() if row < first}
    kept |= {
        row - start + first: text for row, text in found.items() if start <= row < stop
    }
    return kept


def decode(body: bytes) -> Rows:
    """The events of a batch; works for every body that a `Session` made."""
    version, window, message_bytes, at = head(body)
    seqs: list[int] = []
    rows = Rows([], seqs, attributes={"version": chr(version), "window": str(window)})
    decoding = _Decoding(rows, seqs, message_bytes)
    end = len(body)
    if at < end and body[at + 1] == _SIZES:
        stop = at + 6 + _U32.unpack_from(body, at + 2)[0]
        if _in_one_piece(memoryview(body)[stop:], body[at + 6 : stop], decoding):
            return rows
        at = stop
    while at < end:
        kind = body[at + 1]
        if kind not in _PIECES:
            stop = _walk(body, at, decoding)
            if stop == at:
                raise ValueError("Lumberjack batch ends inside a frame")
            at = stop
            continue
        meant = None
        if kind == _PART:
            meant = _NUMBERS.unpack_from(body, at + 2)
            at += 10
        first = len(rows.payloads)
        stop = at + 6 + _U32.unpack_from(body, at + 2)[0]
        _unpack(memoryview(body)[at:stop], decoding)
        if meant is not None:
            decoding.keep(first, *meant)
        at = stop
    return rows


def _in_one_piece(frame: memoryview, sizes: bytes, decoding: _Decoding) -> bool:
    """Make the rows of a compressed frame by its sizes; False, and none, if one may have a flaw."""
    import numpy as np  # late: processes that decode nothing need no numpy

    each = np.frombuffer(sizes, "<u2")
    size = int(each.sum()) + _HEAD.size * len(each)
    if size > _ONE_PIECE or each.max() > decoding.message_bytes:
        return False
    try:
        found = _gather(wire.inflated_at_once(frame, size), sizes)
    except ValueError:
        return False
    if found is None:
        return False
    rows = decoding.rows
    rows.block, ends, seqs = found
    rows.ends, rows.seqs = array("q", ends), array("q", seqs)
    return True


def gather(frames: bytes, sizes: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Bodies of `J` frames in one piece, their ends in it, and their numbers, both as int64.

    Each body begins with a brace and has its size in *sizes*.  None if one of them has a
    flaw, or perhaps has.
    """
    import numpy as np

    each = np.frombuffer(sizes, "<u2").astype(np.int64)
    count, head = len(each), _HEAD.size
    ends = each.cumsum()
    heads = ends - each + np.arange(0, head * count, head)
    # All bodies become one array.  If no element has a line break, the commas between bodies
    # are no part of one; so there is an element at least between any two of them, and as
    # there are as many elements as bodies, each body is one.
    try:
        text = bytearray().join((frames, b"]"))
        size = len(text)
        seqs = np.ndarray(size - 4, ">u4", text, 0, (1,))[heads + 2].astype(np.int64)
        np.ndarray(size - head, f"V{head}", text, 0, (1,))[heads] = np.void(_BETWEEN)
        text[0] = _BRACKET
        found = _split(text)
        block = b"".join(found)
        block.isascii() or block.decode()
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
    if len(found) != count or len(block) != ends[-1] or b"\n" in block:
        return None
    if each.max() > 2 * DEPTH and not block_is_shallow(block, ends.tolist()):
        return None
    return block, ends.tobytes(), seqs.tobytes()


_gather = native.kernel.rows if native.kernel else gather


def _unpack(frame: memoryview, decoding: _Decoding) -> None:
    """Append the events of a compressed frame, inflating it piece by piece.

    Fresh memory for the whole frame would cost as much time as inflating it.
    """
    rest = b""
    pieces = wire.inflated(frame)
    for piece in pieces:
        frames = rest + piece if rest else piece
        rest = frames[_walk(frames, 0, decoding) :]
        if len(rest) > _JOINED_BYTES:  # or joining its pieces would take quadratic time
            rest += b"".join(pieces)
            rest = rest[_walk(rest, 0, decoding) :]
    if rest:
        raise ValueError("Lumberjack batch ends inside a frame")


def _walk(frames: bytes, at: int, decoding: _Decoding) -> int:
    """Append events from *at* on, up to a `C`, an `R` or a frame that is cut off; their end."""
    head, json = _HEAD.unpack_from, _JSON
    rows, seqs = decoding.rows, decoding.seqs
    message_bytes = decoding.message_bytes
    add, add_seq = rows.payloads.append, seqs.append
    end = len(frames)
    last = end - 10
    while at <= last:
        kind, seq, size = head(frames, at)
        if kind not in json:
            letter = frames[at + 1]
            if letter in _PIECES:
                break
            if letter == W:
                at += 6
                continue
            if letter != _DATA:
                raise ValueError(f"Lumberjack batch has a frame {letter:#x}")
            stop = _data(frames, at, size, rows, message_bytes)
            if not stop:
                break
            add_seq(seq)
            at = stop
            continue
        if at < last and frames[at + 10] == _BRACE:
            stop = _objects(frames, at, decoding)
            if stop > at:
                at = stop
                continue
        start = at + 10
        stop = start + size
        if stop > end:
            break
        payload = frames[start:stop]
        at = stop
        add(payload)
        add_seq(seq)
        _odd(payload, seq, decoding)
    if last < at <= end - 6 and frames[at + 1] == W:
        at += 6
    return at


def _objects(frames: bytes, at: int, decoding: _Decoding) -> int:
    """Append events from *at* on that begin with a brace and fit the limit; their end."""
    rows, seqs, most = decoding.rows, decoding.seqs, decoding.message_bytes
    first = len(rows.payloads)
    head, json = _OBJECT_HEAD.unpack_from, _JSON
    add, add_seq = rows.payloads.append, seqs.append
    end = len(frames)
    last = end - 11
    # The loop that runs once for each event; all else is done in C for the whole run.
    while at <= last:
        kind, seq, size, brace = head(frames, at)
        start = at + 10
        stop = start + size
        if brace != _BRACE or kind not in json or stop > end or size > most:
            break
        add(frames[start:stop])
        add_seq(seq)
        at = stop
    run = rows.payloads[first:]
    try:
        deque(map(check, run), 0)
        deque(map(bytes.decode, filterfalse(bytes.isascii, run)), 0)
        sound = not run or all_shallow(run)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        sound = False
    if not sound:
        for row, each in enumerate(run, first):
            flaw = flaw_of(each, most)
            if flaw is not None:
                rows.flaws[row] = flaw
    return at


def _odd(payload: bytes, seq: int, decoding: _Decoding) -> None:
    """The last row is perhaps no JSON object: split an array, else say what flaw it has."""
    rows, limit = decoding.rows, decoding.message_bytes
    found: Sequence[bytes | msgspec.Raw] = (payload,)
    if payload.lstrip(_SPACE).startswith(b"["):
        split = elements(payload, message_bytes=limit)
        if split is not None:
            rows.payloads.pop()
            decoding.seqs.pop()
            rows.payloads += map(bytes, split)
            decoding.seqs += [seq] * len(split)
            found = split
    first = len(rows.payloads) - len(found)
    for row, each in enumerate(rows.payloads[first:], first):
        flaw = flaw_of(each, limit)
        if flaw is not None:
            rows.flaws[row] = flaw


def _data(frames: bytes, at: int, pairs: int, rows: Rows, message_bytes: int) -> int:
    """Append the event of the `D` frame at *at*; its end, 0 if it is cut off."""
    items: list[bytes] = []
    start, at, end = at + 6, at + 10, len(frames)
    for _ in range(2 * pairs):
        if at + 4 > end:
            return 0
        (size,) = _U32.unpack_from(frames, at)
        at += 4 + size
        if at > end:
            return 0
        items.append(frames[at - size : at])
    row = len(rows.payloads)
    try:
        rows.payloads.append(_object([item.decode() for item in items]))
    except UnicodeDecodeError:
        rows.payloads.append(frames[start:at])
        rows.content_types[row] = _OCTETS
        rows.flaws[row] = "invalid-utf8"
    if at - start > message_bytes:
        rows.flaws[row] = "oversized"
    return at


def _object(items: list[str]) -> bytes:
    """A JSON object of alternating keys and values; duplicate keys are all kept."""
    keys, values = items[::2], items[1::2]
    merged = dict(zip(keys, values, strict=True))
    if len(merged) == len(keys):
        return _encode(merged)
    pairs = (_encode(k) + b":" + _encode(v) for k, v in zip(keys, values, strict=True))
    return b"{" + b",".join(pairs) + b"}"
