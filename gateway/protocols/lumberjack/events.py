"""The journal's format of Lumberjack batches, and the decoder that makes rows of them.

    body   = u8 format (1), u8 wire version, u64 window, u64 message_bytes, frames
    frames = the window's frames as they came: `C` frames still compressed, between
             bare `D` and `J` frames; each `D` and `J`, wherever it is, is one event

A window that does not consist of whole compressed frames (a `W` inside a `C`, two
windows in one `C`, events left over in it) is stored with its frames inflated.  So is
a window with a JSON array: each element has become a `J` frame of its own, with the
array's sequence number.  Arrays are split once, on arrival, and never by `decode`: a
batch has as many rows as events were counted, even if the JSON parser changes.
"""

from __future__ import annotations

import struct

import msgspec

from gateway.event import Rows
from gateway.protocols.lumberjack import wire
from gateway.protocols.payload import check, flaw_of

__all__ = ["HEADER", "decode", "elements", "pack"]

HEADER = struct.Struct(">BBQQ")
_FORMAT = 1

_HEAD = struct.Struct(">HII")
_U32 = struct.Struct(">I")
_JSON = frozenset(int.from_bytes(kind) for kind in (b"1J", b"2J"))
_COMPRESSED = b"C"[0]
_BRACE = ord("{")

#: When more than this of an unfinished event is inflated, inflate all that is left.
_LARGE = 1 << 20

_OCTETS = "application/octet-stream"

# An array is split only if its text has fewer commas than this, those inside its
# elements included: it bounds the cost of splitting before it begins.
_MOST_COMMAS = 1 << 19

_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.encode


def pack(version: int, window: int, message_bytes: int) -> bytes:
    """The head of a body.

    *version* is `1` or `2` in ASCII, *window* counts the connection's windows from 1,
    *message_bytes* is the limit in force.
    """
    return HEADER.pack(_FORMAT, version, window, message_bytes)


def elements(body: bytes, *, message_bytes: int, most: int) -> list[bytes] | None:
    """The elements of a JSON array, as they are spelled; None if it is not split.

    An array is split if it parses, has at most *message_bytes* bytes and at most *most*
    elements.  One that is not is stored as one event, with a flaw.
    """
    if len(body) > message_bytes or body.count(b",") >= _MOST_COMMAS:
        return None
    try:
        found = _split(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return [bytes(element) for element in found] if len(found) <= most else None


def decode(body: bytes) -> Rows:
    """The events of a batch; works for every body that a `Session` made."""
    form, version, window, message_bytes = HEADER.unpack_from(body)
    if form != _FORMAT:
        raise ValueError(f"Lumberjack batch of unknown format {form}")
    seqs: list[int] = []
    rows = Rows([], seqs, attributes={"version": chr(version), "window": str(window)})
    at, end = HEADER.size, len(body)
    while at < end:
        if body[at + 1] == _COMPRESSED:
            stop = at + 6 + _U32.unpack_from(body, at + 2)[0]
            _unpack(memoryview(body)[at:stop], rows, seqs, message_bytes)
        else:
            stop = _walk(body, at, rows, seqs, message_bytes)
            if stop == at:
                raise ValueError("Lumberjack batch ends inside a frame")
        at = stop
    return rows


def _unpack(frame: memoryview, rows: Rows, seqs: list[int], message_bytes: int) -> None:
    """Append the events of a compressed frame, inflating it piece by piece.

    Fresh memory for the whole frame would cost as much time as inflating it.
    """
    rest = b""
    pieces = wire.inflated(frame)
    for piece in pieces:
        frames = rest + piece if rest else piece
        rest = frames[_walk(frames, 0, rows, seqs, message_bytes) :]
        if len(rest) > _LARGE:  # or joining its pieces would take quadratic time
            rest += b"".join(pieces)
            rest = rest[_walk(rest, 0, rows, seqs, message_bytes) :]
    if rest:
        raise ValueError("Lumberjack batch ends inside a frame")


def _walk(
    frames: bytes, at: int, rows: Rows, seqs: list[int], message_bytes: int
) -> int:
    """Append the events from *at* on, up to a `C` frame or a frame that is cut off.

    Returns where they end.
    """
    head, json = _HEAD.unpack_from, _JSON
    add, add_seq = rows.payloads.append, seqs.append
    end = len(frames)
    last = end - 10
    while at <= last:
        kind, seq, size = head(frames, at)
        if kind not in json:
            if frames[at + 1] == _COMPRESSED:
                break
            stop = _data(frames, at, size, rows, message_bytes)
            if not stop:
                break
            add_seq(seq)
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
        try:
            check(payload)
            if (
                payload[0] == _BRACE
                and size <= message_bytes
                and (payload.isascii() or payload.decode())
            ):
                continue
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        flaw = flaw_of(payload, message_bytes)
        if flaw is not None:
            rows.flaws[len(rows.payloads) - 1] = flaw
    return at


def _data(frames: bytes, at: int, pairs: int, rows: Rows, message_bytes: int) -> int:
    """Append the event of the `D` frame at *at*.

    Returns where the frame ends, 0 if it is cut off.
    """
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
