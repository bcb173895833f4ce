"""The journal's format of Pomelo batches, and the decoder that makes rows of them.

    body   = u8 format (1 or 2), u32 message_bytes, u16 number of codes, u32 number of flawed
             events, codes, flawed events, packages
    code   = u16 code, u8 size, route: the route that the code stands for in packages
    flawed = u32 row, u8 flaw: events whose body could not be decoded to JSON
    packages = data packages as they came; a body that was protobuf is replaced by its
             JSON; in format 2 bodies may be compressed, as their flags say
    body   = u8 format (3), zlib: a body that would take much more than was received
    body   = u8 format (4), JSON objects, one a line: events of the session itself

The dictionary may change; so every batch has the routes of the codes in it.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

from gateway.event import Rows
from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.text import cesu8, text
from gateway.sdk import native
from gateway.sdk.payload import flaw_of, flaws_of

_HEAD = struct.Struct(">BIHI")
_CODE = struct.Struct(">HB")
_FLAWED = struct.Struct(">IB")
_PLAIN, _ZIPPED, _PACKED, _SESSION = 1, 2, 3, 4
_PLAIN_FORM = bytes((_PLAIN,))
_FORMATS = (_PLAIN, _ZIPPED)
_ZLIB_OR_GZIP = 47
_ID = wire.HIGH_FIRST - 1
_BLOCK_EVENTS = 64
"""The least number of events whose payloads are worth keeping in one piece."""
_OCTETS = "application/octet-stream"

UNDECODABLE_PROTOBUF, UNDECODABLE_ZLIB = 0, 1
_FLAWS = ("undecodable-protobuf", "undecodable-zlib")


def head(
    message_bytes: int,
    codes: Mapping[wire.Route, str],
    flawed: Iterable[tuple[int, int]],
    *,
    zipped: bool = False,
) -> bytes:
    """The bytes of a batch before its packages.

    *message_bytes* is the limit in force, *codes* are the routes of the codes in the
    packages, *flawed* has rows and their flaws (`UNDECODABLE_…`).  With *zipped* bodies
    may be compressed.
    """
    flaws = b"".join(_FLAWED.pack(row, flaw) for row, flaw in flawed)
    form = _ZIPPED if zipped else _PLAIN
    parts = [_HEAD.pack(form, message_bytes, len(codes), len(flaws) // _FLAWED.size)]
    for code, route in codes.items():
        name = route.encode()
        parts += (_CODE.pack(code, len(name)), name)
    parts.append(flaws)
    return b"".join(parts)


@lru_cache
def plain_head(message_bytes: int) -> bytes:
    """A `head` without codes and flawed events."""
    return head(message_bytes, {}, ())


def packed(body: bytes) -> bytes:
    """A body in format 3."""
    return bytes((_PACKED,)) + zlib.compress(body, 1)


def session_body(payloads: Iterable[bytes]) -> bytes:
    """A body in format 4; a payload is JSON without line breaks."""
    return bytes((_SESSION,)) + b"\n".join(payloads)


def inflater() -> zlib._Decompress:
    """An inflater for the body of a message whose flag says that it is compressed."""
    return zlib.decompressobj(wbits=_ZLIB_OR_GZIP)


def repacked(number: int, route: int | str, body: bytes) -> bytes:
    """A request's package, or a notify's if *number* is 0, with another body."""
    if number:
        return wire.request(number, route, body)
    return wire.notify(route, body)


class _Decoder:
    """Decodes the batches of every `Session`.  Implements `event.DecodeTogether`."""

    def __call__(self, body: bytes) -> Rows:
        """The events of a batch; works for every body that a `Session` made."""
        form = body[0] if body else 0
        if form == _SESSION:
            payloads = body[1:].split(b"\n")
            return Rows(payloads, [0] * len(payloads), kind="session")
        if form == _PACKED:
            body = zlib.decompress(body[1:])
        form, message_bytes, codes, flawed = _HEAD.unpack_from(body)
        if form not in _FORMATS:
            raise ValueError(f"Pomelo batch of unknown format {form}")
        names, at = _routes(body, codes)
        flaws: dict[int, str] = {}
        for _ in range(flawed):
            row, flaw = _FLAWED.unpack_from(body, at)
            flaws[row] = _FLAWS[flaw]
            at += _FLAWED.size
        if not flaws and (all_at_once := _at_once(body, at, names)):
            return all_at_once[0]
        found: list[wire.Found] = []
        compressed: list[int] = []
        end = len(body)
        while (at := wire.scan(body, at, end, wire.MOST_BYTES, found)) < end:
            if form != _ZIPPED:
                raise ValueError("Pomelo batch that ends inside a package")
            compressed.append(len(found))
            found.append(wire.zipped(body, at, end))
            at = found[-1][-1]
        if flaws or compressed:
            rows = _rows(body, found, names)
            for row in compressed:
                rows.payloads[row] = inflater().decompress(rows.payloads[row])
            rows.flaws = flaws
            rows.content_types = dict.fromkeys(flaws, _OCTETS)
            _check(rows, message_bytes)
            return rows
        return _checked(body, found, names, message_bytes)

    def together(self, bodies: Sequence[bytes], counts: Sequence[int]) -> Rows:
        """Rows of the first batches with so many plain messages each and the same codes."""
        message_bytes, names, messages = _messages(bodies)
        packages = b"".join(messages)
        ends = [*accumulate(map(len, messages))]
        at_once = _at_once(packages, 0, names)
        if at_once is not None:
            rows, stops = at_once
            if _whole(counts, ends, stops) == rows.count:
                return rows
        found: list[wire.Found] = []
        wire.scan(packages, 0, len(packages), wire.MOST_BYTES, found)
        del found[_whole(counts, ends, [stop for _, _, _, stop in found]) :]
        if not found:
            return Rows([])
        return _checked(packages, found, names, message_bytes)


decode = _Decoder()


def _routes(body: bytes, codes: int) -> tuple[dict[wire.Route, str], int]:
    """The routes of so many codes, and where they end."""
    at = _HEAD.size
    names: dict[wire.Route, str] = {}
    for _ in range(codes):
        code, size = _CODE.unpack_from(body, at)
        at += _CODE.size + size
        names[code] = body[at - size : at].decode()
    return names, at


def _messages(
    bodies: Sequence[bytes],
) -> tuple[int, dict[wire.Route, str], list[bytes]]:
    """Limit, routes and packages of the first plain batches, as long as they agree."""
    message_bytes, head = 0, b""
    names: dict[wire.Route, str] = {}
    messages: list[bytes] = []
    for body in bodies:
        if not head or not body.startswith(head):
            if body[:1] != _PLAIN_FORM:
                break
            _, limit, codes, flawed = _HEAD.unpack_from(body)
            if flawed or (head and limit != message_bytes):
                break
            own, at = _routes(body, codes)
            if any(names.setdefault(code, own[code]) != own[code] for code in own):
                break
            message_bytes, head = limit, body[:at]
        messages.append(body[len(head) :])
    return message_bytes, names, messages


def _whole(counts: Sequence[int], ends: Sequence[int], stops: Sequence[int]) -> int:
    """The number of messages in the first batches that are whole.

    *counts* says how many messages each batch has, and *ends* where it ends; *stops* are the
    places where messages end.
    """
    whole = 0
    for row, end in zip(accumulate(counts), ends, strict=False):
        if row > len(stops) or stops[row - 1] != end:
            break
        whole = row
    return whole


def _at_once(
    body: bytes, at: int, names: dict[wire.Route, str]
) -> tuple[Rows, Sequence[int]] | None:
    """The rows of plain messages, in one block, and where each message ends.

    None where there is no kernel, for few, and if it does not know that all are sound.
    """
    if native.kernel is None:
        return None
    found = native.kernel.messages(body, at, _BLOCK_EVENTS)
    if found is None:
        return None
    rows = Rows([])
    rows.block, ends, seqs, stops, changes = found
    rows.ends, rows.seqs = array("q", ends), array("q", seqs)
    rows.kind, rows.channel = _kind(changes[0][1]), _name(changes[0][2], names)
    until = [*(row for row, _, _ in changes[1:]), rows.count]
    for (row, number, route), stop in zip(changes, until, strict=True):
        if (channel := _name(route, names)) != rows.channel:
            rows.channels.update(dict.fromkeys(range(row, stop), channel))
        if (kind := _kind(number)) != rows.kind:
            rows.kinds.update(dict.fromkeys(range(row, stop), kind))
    return rows, array("q", stops)


def _checked(
    body: bytes,
    found: list[wire.Found],
    names: dict[wire.Route, str],
    message_bytes: int,
) -> Rows:
    """The rows of plain messages, each looked at."""
    rows = _rows(body, found, names)
    _check(rows, message_bytes)
    return rows


def _rows(body: bytes, found: list[wire.Found], names: dict[wire.Route, str]) -> Rows:
    payloads = [body[at:stop] for _, _, at, stop in found]
    rows = Rows(payloads, [number & _ID for number, _, _, _ in found])
    first_number, first_route, _, _ = found[0]
    rows.kind, rows.channel = _kind(first_number), _name(first_route, names)
    for row, (number, route, _, _) in enumerate(found):
        if route != first_route:
            rows.channels[row] = _name(route, names)
        if (number == 0) != (first_number == 0):
            rows.kinds[row] = _kind(number)
    return rows


def _kind(number: int) -> str:
    return "request" if number else "notify"


def _name(route: wire.Route, names: dict[wire.Route, str]) -> str:
    name = names.get(route)
    if name is None:
        assert isinstance(route, bytes), "every code is among the names"
        name = names[route] = _text(route)
    return name


_text = lru_cache(maxsize=1 << 10)(text)
"""A route as text; batches are small, and have the same ones."""


def _check(rows: Rows, message_bytes: int) -> None:
    """Note the flaws of payloads; turn what a browser wrote in CESU-8 into UTF-8."""
    payloads = rows.payloads
    for row, first in [*flaws_of(payloads, message_bytes, but=rows.flaws)]:
        flaw: str | None = first
        if first in ("invalid-utf8", "oversized"):  # CESU-8 is longer than UTF-8
            payloads[row] = _as_utf8(payloads[row])
            flaw = flaw_of(payloads[row], message_bytes)
        if flaw is not None:
            rows.flaws[row] = flaw


def _as_utf8(payload: bytes) -> bytes:
    try:
        return cesu8(payload)
    except UnicodeDecodeError:
        return payload
