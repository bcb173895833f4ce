"""RS.io messages as bytes.  docs/rsio-v0.md has it all.

A message is one octet of type and then its fields, all of them, in order; nothing says
how long it is as a whole, so a type that is not known ends the conversation.  A field
is an octet, an unsigned LEB128 varint, or octets behind their number; a String is
UTF-8.  What a length says is checked before its octets are waited for.

No I/O, no clock, no state.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from operator import attrgetter
from typing import Any

from gateway.interfaces import Refusal
from gateway.protocols.rsio import messages
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Code, Message
from gateway.protocols.varint import SMALL, varint

__all__ = [
    "FIELDS",
    "Short",
    "block",
    "encode",
    "on_next",
    "on_next_packed",
    "parse",
    "read_varint",
    "varint",
]

_MOST = 2**64 - 1
_MOST_OCTETS = 10


class _Kind(Enum):
    """Of a field: how it is written, and which limit holds for it."""

    BYTE = "byte"
    VARINT = "varint"
    IDS = "Array[Id]"
    NAME = "String, name_bytes"
    TEXT = "String, text_bytes"
    SHORT = "bytes, text_bytes"
    PART = "bytes, part_bytes"


_B, _V, _I, _N, _T, _S, _P = _Kind

#: Class and kinds of the fields, in the order of both class and wire.
FIELDS: dict[int, tuple[type[Any], tuple[_Kind, ...]]] = {
    Code.CLIENT_HELLO: (messages.ClientHello, (_B, _I)),
    Code.SERVER_HELLO: (messages.ServerHello, (_B, _I)),
    Code.GOODBYE: (messages.Goodbye, (_T,)),
    Code.GOODBYE_ACK: (messages.GoodbyeAck, (_T,)),
    Code.SUBSCRIBE: (messages.Subscribe, (_N, _V, _V)),
    Code.REQUEST: (messages.Request, (_V, _V)),
    Code.CANCEL: (messages.Cancel, (_V,)),
    Code.ON_SUBSCRIBE: (messages.OnSubscribe, (_V, _V)),
    Code.ON_COMPLETE: (messages.OnComplete, (_V,)),
    Code.ON_ERROR: (messages.OnError, (_V, _T)),
    Code.ON_NEXT_PART: (messages.OnNextPart, (_V, _V, _P)),
    Code.ON_NEXT_LAST_PART: (messages.OnNextLastPart, (_V, _V, _P)),
    Code.PING: (messages.Ping, (_S,)),
    Code.PONG: (messages.Pong, (_S,)),
    Code.SUBSCRIBE_FROM: (messages.SubscribeFrom, (_N, _V, _V, _V)),
    Code.STORED: (messages.Stored, (_V, _V)),
    Code.TOKEN: (messages.Token, (_N, _S)),
    Code.COMPRESS: (messages.Compress, (_V,)),
    Code.COMPRESS_ACK: (messages.CompressAck, (_V,)),
}

_ENCODED = {
    kind: (code, kinds, [attrgetter(name) for name in kind.__slots__])
    for code, (kind, kinds) in FIELDS.items()
}


class Short(Exception):
    """The message goes on behind the octets that are there."""

    def __init__(self, need: int) -> None:
        super().__init__(need)
        self.need = need
        """Where it ends at the earliest."""


def read_varint(buffer: bytes | bytearray, at: int) -> tuple[int, int]:
    """The number at *at*, and where it ends.  Raises `Short`, or `Refusal`."""
    if at < len(buffer) and (octet := buffer[at]) < 0x80:  # most are
        return octet, at + 1
    value = shift = 0
    for place in range(at, at + _MOST_OCTETS):
        if place >= len(buffer):
            raise Short(place + 1)
        octet = buffer[place]
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            if value > _MOST:
                raise Refusal("varint above 2^64 - 1")
            return value, place + 1
        shift += 7
    raise Refusal(f"varint of more than {_MOST_OCTETS} octets")


def parse(
    code: int, buffer: bytes | bytearray, at: int, limits: Limits
) -> tuple[Message, int]:
    """The message of type *code* whose fields begin at *at*, and where they end.

    Raises `Short`, or `Refusal` as soon as a length says too much.
    """
    kind, kinds = FIELDS[code]
    fields: list[Any] = []
    for each in kinds:
        field: int | tuple[int, ...] | bytes | str
        if each is _V:
            field, at = read_varint(buffer, at)
        elif each is _B:
            if at >= len(buffer):
                raise Short(at + 1)
            field, at = buffer[at], at + 1
        elif each is _I:
            field, at = _read_ids(buffer, at, limits)
        else:
            field, at = _read_octets(each, code, buffer, at, limits)
        fields.append(field)
    return kind(*fields), at


def _read_ids(
    buffer: bytes | bytearray, at: int, limits: Limits
) -> tuple[tuple[int, ...], int]:
    count, at = read_varint(buffer, at)
    if count > limits.extensions:
        raise Refusal(f"hello with {count} extensions", limit=limits.extensions)
    found = []
    for _ in range(count):
        number, at = read_varint(buffer, at)
        found.append(number)
    return tuple(found), at


def _read_octets(
    kind: _Kind, code: int, buffer: bytes | bytearray, at: int, limits: Limits
) -> tuple[bytes | str, int]:
    size, at = read_varint(buffer, at)
    if kind is _P:
        limit = limits.part_bytes
    elif kind is _N:
        limit = limits.name_bytes
    else:
        limit = limits.text_bytes
    if size > limit:
        raise Refusal(f"{Code(code).name.lower()} with {size} octets", limit=limit)
    stop = at + size
    if stop > len(buffer):
        raise Short(stop)
    octets = bytes(buffer[at:stop])
    if kind is _P or kind is _S:
        return octets, stop
    try:
        return octets.decode(), stop
    except UnicodeDecodeError:
        raise Refusal(f"{Code(code).name.lower()} with a String not UTF-8") from None


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    code, kinds, getters = _ENCODED[type(message)]
    parts = [SMALL[code] if code < 0x80 else bytes((code,))]
    for kind, get in zip(kinds, getters, strict=True):
        field = get(message)
        if kind is _V:
            parts.append(varint(field))
        elif kind is _B:
            parts.append(bytes((field,)))
        elif kind is _I:
            parts += (varint(len(field)), *map(varint, field))
        else:
            octets = field.encode() if isinstance(field, str) else field
            parts += (varint(len(octets)), octets)
    return b"".join(parts)


def on_next(
    subscriber: int, elements: Iterable[bytes], *, fixed: bool = False
) -> bytes:
    """Each of *elements* in an onNext; with its length unless the stream has *fixed* it."""
    head = b"\x21" + varint(subscriber)
    if fixed:
        return b"".join([head + element for element in elements])
    parts: list[bytes] = []
    small, most = SMALL, len(SMALL)
    for element in elements:
        size = len(element)
        parts += (head, small[size] if size < most else varint(size), element)
    return b"".join(parts)


def on_next_packed(subscriber: int, count: int, octets: bytes | bytearray) -> bytes:
    """*count* elements of a fixed size in one message."""
    return b"".join((b"\x24", varint(subscriber), varint(count), octets))


def block(octets: bytes) -> bytes:
    """Compressed messages."""
    return b"".join((b"\x47", varint(len(octets)), octets))
