"""RS.io messages to bytes and back; docs/rsio-v0.md defines the format.

A message is one octet of type and then its fields, all of them, in order.  Nothing
says how long the whole message is, so an unknown type ends the conversation.  A field
is an octet, an unsigned LEB128 varint, or a varint length and so many octets; a String
is UTF-8.  A length is checked against its limit before its octets are waited for.

No I/O, no clock, no state.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, get_args

import msgspec

from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import INSTANCE_BYTES, Code, Form, Message
from gateway.sdk.interfaces import Refusal
from gateway.sdk.varint import SMALL, varint

_GREATEST = 2**64 - 1
_MOST_OCTETS = 10


def _forms(message: type[Message]) -> tuple[Form, ...]:
    """How a message's fields are written, in the order of the wire."""
    return tuple(get_args(field.type)[1] for field in msgspec.structs.fields(message))


_B, _V, _I, _N, _T, _S, _P, _L = Form

#: The messages that have a class, by type.
MESSAGES: dict[int, type[Message]] = {kind.code: kind for kind in get_args(Message)}

_FIELDS: dict[int, tuple[type[Any], tuple[Form, ...]]] = {
    code: (kind, _forms(kind)) for code, kind in MESSAGES.items()
}

_ENCODED = {
    kind: (bytes((code,)), [attrgetter(name) for name in kind.__struct_fields__], forms)
    for code, (kind, forms) in _FIELDS.items()
}


class Incomplete(Exception):
    """More octets are needed; not an error."""

    def __init__(self, need: int) -> None:
        super().__init__(need)
        self.need = need
        """The buffer must be at least so long before another try makes sense."""


def read_varint(buffer: bytes | bytearray, at: int) -> tuple[int, int]:
    """The number at *at*, and the position behind it.  Raises `Incomplete`, or `Refusal`."""
    if at < len(buffer) and (octet := buffer[at]) < 0x80:  # most are
        return octet, at + 1
    value = shift = 0
    for place in range(at, at + _MOST_OCTETS):
        if place >= len(buffer):
            raise Incomplete(place + 1)
        octet = buffer[place]
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            if value > _GREATEST:
                raise Refusal("varint above 2^64 - 1")
            return value, place + 1
        shift += 7
    raise Refusal(f"varint of more than {_MOST_OCTETS} octets")


def parse(
    code: int, buffer: bytes | bytearray, at: int, limits: Limits
) -> tuple[Message, int]:
    """The message of type *code* whose fields begin at *at*, and the position behind.

    Raises `Incomplete`, or `Refusal` as soon as a length exceeds its limit.
    """
    kind, forms = _FIELDS[code]
    fields: list[Any] = []
    for form in forms:
        field: int | tuple[int, ...] | bytes | str
        if form is _V:
            field, at = read_varint(buffer, at)
        elif form is _B:
            if at >= len(buffer):
                raise Incomplete(at + 1)
            field, at = buffer[at], at + 1
        elif form is _I:
            field, at = _read_ids(buffer, at, limits)
        else:
            field, at = _read_octets(form, code, buffer, at, limits)
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
    form: Form, code: int, buffer: bytes | bytearray, at: int, limits: Limits
) -> tuple[bytes | str, int]:
    size, at = read_varint(buffer, at)
    if form is _P:
        limit = limits.part_bytes
    elif form is _N:
        limit = limits.name_bytes
    elif form is _L:
        limit = INSTANCE_BYTES
    else:
        limit = limits.text_bytes
    if size > limit:
        raise Refusal(f"{Code(code).name.lower()} with {size} octets", limit=limit)
    stop = at + size
    if stop > len(buffer):
        raise Incomplete(stop)
    octets = bytes(buffer[at:stop])
    if form is _P or form is _S or form is _L:
        return octets, stop
    try:
        return octets.decode(), stop
    except UnicodeDecodeError:
        raise Refusal(f"{Code(code).name.lower()} with a String not UTF-8") from None


def encode(message: Message) -> bytes:
    code, getters, forms = _ENCODED[type(message)]
    parts = [code]
    for form, get in zip(forms, getters, strict=True):
        field = get(message)
        if form is _V:
            parts.append(varint(field))
        elif form is _B:
            parts.append(bytes((field,)))
        elif form is _I:
            parts += (varint(len(field)), *map(varint, field))
        else:
            octets = field.encode() if isinstance(field, str) else field
            parts += (varint(len(octets)), octets)
    return b"".join(parts)


def on_next(
    subscriber: int, elements: Iterable[bytes], *, fixed: bool = False
) -> bytes:
    """An onNext for each of *elements*; without lengths if the stream's are *fixed*."""
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
    """An onNextPacked: *count* elements of a fixed size."""
    return b"".join((b"\x24", varint(subscriber), varint(count), octets))


def block(octets: bytes) -> bytes:
    """A block message: *octets* are compressed messages."""
    return b"".join((b"\x47", varint(len(octets)), octets))
