"""Encodes and decodes the wire commands that `wire` declares as annotated dataclasses.

`request`, `reply` or `both` makes a class a command; what a client's asks for of the segment
that it names is said with it.  Its fields are in the order of the
wire, annotated with the types below.  Fields with a default were added by later
versions: older peers do not send them.  Bytes after the last known field are skipped,
as newer peers may send more.

UUIDs are `bytes` of length 16.  No I/O, no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import groupby
from typing import Annotated, Any, TypeVar, dataclass_transform, get_type_hints

from gateway.protocols.pravega import modified_utf8
from gateway.protocols.pravega.errors import Need
from gateway.protocols.pravega.frames import pieces
from gateway.sdk.interfaces import Refusal

_T = TypeVar("_T")


class _Short(Exception):
    """The payload ends inside of a field."""


@dataclass(slots=True, frozen=True)
class _Field:
    """Codec of one type: `read(payload, offset)` gives the value and the next offset."""

    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any], bytes]
    code: str = ""
    """The format of `struct`, if all values have one size; else empty."""


def _fixed(code: str) -> _Field:
    packing = struct.Struct(">" + code)

    def read(raw: bytes, at: int) -> tuple[Any, int]:
        if at + packing.size > len(raw):
            raise _Short
        return packing.unpack_from(raw, at)[0], at + packing.size

    return _Field(read, packing.pack, code)


_BYTE, _INT, _LONG, _BOOL, _UUID = map(_fixed, ("b", "i", "q", "?", "16s"))
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")

_MOST_ITEMS = 1 << 15
"""A key, with a version and a value, takes 8 bytes at least, and a while to be decoded."""

_VIEWED = 1 << 16
"""Data from so many bytes on is a view of its message, where a command takes one."""


def _take(raw: bytes, at: int, size: int) -> tuple[bytes, int]:
    if not 0 <= size <= len(raw) - at:
        raise _Short
    return raw[at : at + size], at + size


def _read_text(raw: bytes, at: int) -> tuple[str, int]:
    size, at = _take(raw, at, 2)
    value, at = _take(raw, at, int.from_bytes(size))
    return modified_utf8.decode(value), at


def _read_data(raw: bytes, at: int) -> tuple[bytes, int]:
    size, at = _INT.read(raw, at)
    return _take(raw, at, size)


def _read_viewed(raw: bytes, at: int) -> tuple[bytes | memoryview, int]:
    size, at = _INT.read(raw, at)
    if not _VIEWED <= size <= len(raw) - at:
        return _take(raw, at, size)
    return memoryview(raw)[at : at + size], at + size


def _write_data(value: bytes) -> bytes:
    return _I32.pack(len(value)) + value


def _read_rest(raw: bytes, at: int) -> tuple[bytes, int]:
    return raw[at:], len(raw)


def _read_event(raw: bytes, at: int) -> tuple[bytes, int]:
    kind, at = _INT.read(raw, at)
    if kind:
        raise Refusal(f"nested message of type {kind}, not an event")
    return _read_data(raw, at)


def _write_event(value: bytes) -> bytes:
    return b"\0\0\0\0" + _write_data(value)


def _list(read: Callable[[bytes, int], tuple[Any, int]], write: Any) -> _Field:
    def read_all(raw: bytes, at: int) -> tuple[list[Any], int]:
        count, at = _INT.read(raw, at)
        if not 0 <= count <= len(raw) - at:  # every item takes a byte at least
            raise _Short
        if count > _MOST_ITEMS:
            raise Refusal(f"list of {count} items", limit=_MOST_ITEMS)
        items = []
        for _ in range(count):
            item, at = read(raw, at)
            items.append(item)
        return items, at

    def write_all(items: Sequence[Any]) -> bytes:
        return b"".join((_I32.pack(len(items)), *map(write, items)))

    return _Field(read_all, write_all)


@dataclass(slots=True, frozen=True)
class Entry:
    """A key of a table with its version, and its value where a value is sent."""

    key: bytes
    version: int
    value: bytes = b""


def _read_key(raw: bytes, at: int) -> tuple[Entry, int]:
    _, at = _INT.read(raw, at)
    key, at = _read_data(raw, at)
    if not key:  # Java leaves out the version of an empty key
        return Entry(key, -(2**63)), at
    version, at = _LONG.read(raw, at)
    return Entry(key, version), at


def _write_key(entry: Entry) -> bytes:
    head = struct.pack(">ii", 4 + len(entry.key) + 8, len(entry.key))
    return head + entry.key + (_I64.pack(entry.version) if entry.key else b"")


def _read_entry(raw: bytes, at: int) -> tuple[Entry, int]:
    key, at = _read_key(raw, at)
    _, at = _INT.read(raw, at)
    value, at = _read_data(raw, at)
    return Entry(key.key, key.version, value), at


def _write_entry(entry: Entry) -> bytes:
    head = struct.pack(">ii", 4 + len(entry.value), len(entry.value))
    return _write_key(entry) + head + entry.value


@dataclass(slots=True, frozen=True)
class AttributeUpdate:
    """A new value of one attribute, perhaps on condition of its old value."""

    attribute: bytes
    kind: int
    """1: replace.  4: replace if the value is `old`."""
    new: int
    old: int


_UPDATE = struct.Struct(">16sbqq")


def _read_update(raw: bytes, at: int) -> tuple[AttributeUpdate, int]:
    part, at = _take(raw, at, _UPDATE.size)
    return AttributeUpdate(*_UPDATE.unpack(part)), at


def _write_update(update: AttributeUpdate) -> bytes:
    return _UPDATE.pack(update.attribute, update.kind, update.new, update.old)


Byte = Annotated[int, _BYTE]
Int = Annotated[int, _INT]
Long = Annotated[int, _LONG]
Bool = Annotated[bool, _BOOL]
Uuid = Annotated[bytes, _UUID]
Text = Annotated[str, _Field(_read_text, modified_utf8.encode)]
_DATA = _Field(_read_data, _write_data)
Data = Annotated[bytes, _DATA]
DataOrView = Annotated[bytes | memoryview, _Field(_read_viewed, _write_data)]
EventData = Annotated[bytes, _Field(_read_event, _write_event)]
Rest = Annotated[bytes, _Field(_read_rest, bytes)]
Longs = Annotated[Sequence[int], _list(_LONG.read, _I64.pack)]
Keys = Annotated[Sequence[Entry], _list(_read_key, _write_key)]
Entries = Annotated[Sequence[Entry], _list(_read_entry, _write_entry)]
AttributeUpdates = Annotated[
    Sequence[AttributeUpdate], _list(_read_update, _write_update)
]


class Message:
    """A wire command."""

    __slots__ = ()


_CODES: dict[type[Message], int] = {}
_LAYOUTS: dict[type[Message], list[tuple[str, _Field, Any]]] = {}
_STEPS: dict[type[Message], list[_Step]] = {}

#: Commands that clients send, and those that servers send, by type.
REQUESTS: dict[int, type[Message]] = {}
REPLIES: dict[int, type[Message]] = {}

NEEDS: dict[type[Message], Need | None] = {}
"""The permission that each request needs.

None: it names no segment, is part of a block, or is checked with the token and segment of
its writer's setup."""


def _message(
    code: int, *directions: dict[int, type[Message]], need: Need | None = None
) -> Callable[[type[_T]], type[_T]]:
    def make(cls: type[_T]) -> type[_T]:
        made: Any = dataclass(slots=True)(cls)
        _CODES[made] = code
        for direction in directions:
            direction[code] = made
        if any(each is REQUESTS for each in directions):
            NEEDS[made] = need
        return made  # type: ignore[no-any-return]

    return make


@dataclass_transform()
def request(code: int, need: Need | None) -> Callable[[type[_T]], type[_T]]:
    """Declare the command of type *code*, sent by clients, and what it asks for."""
    return _message(code, REQUESTS, need=need)


@dataclass_transform()
def reply(code: int) -> Callable[[type[_T]], type[_T]]:
    """Declare the command of type *code*, sent by servers."""
    return _message(code, REPLIES)


@dataclass_transform()
def both(code: int) -> Callable[[type[_T]], type[_T]]:
    """Declare the command of type *code*, sent by both sides."""
    return _message(code, REQUESTS, REPLIES)


def _layout(cls: type[Message]) -> list[tuple[str, _Field, Any]]:
    found = _LAYOUTS.get(cls)
    if found is None:
        hints = get_type_hints(cls, include_extras=True)
        found = _LAYOUTS[cls] = [
            (each.name, hints[each.name].__metadata__[0], each.default)
            for each in fields(cls)  # type: ignore[arg-type]
        ]
    return found


@dataclass(slots=True, frozen=True)
class _Step:
    """Consecutive fields of fixed size, coded by one `struct`; or one other field."""

    names: list[str]
    packing: struct.Struct | None
    field: _Field
    """The codec of the field if `packing` is None."""


def _steps(cls: type[Message]) -> list[_Step]:
    found = _STEPS.get(cls)
    if found is None:
        found = _STEPS[cls] = []
        for fixed, some in groupby(_layout(cls), lambda one: bool(one[1].code)):
            group = list(some)
            if fixed:
                packing = struct.Struct(
                    ">" + "".join(each.code for _, each, _ in group)
                )
                names = [name for name, _, _ in group]
                found.append(_Step(names, packing, group[0][1]))
            else:
                found += [_Step([name], None, field) for name, field, _ in group]
    return found


def encode(sent: Message) -> bytes:
    """The whole frame of a command, header included."""
    return b"".join(encode_in_pieces(sent))


def encode_in_pieces(sent: Message) -> Sequence[bytes | memoryview]:
    """The same; data is none of it copied."""
    cls = type(sent)
    parts: list[bytes | memoryview] = []
    for step in _steps(cls):
        values = [getattr(sent, name) for name in step.names]
        if step.field.write is _write_data:  # it may be a megabyte
            parts += _I32.pack(len(values[0])), values[0]
            continue
        pack = step.field.write if step.packing is None else step.packing.pack
        parts.append(pack(*values))
    return pieces(_CODES[cls], *parts)


def decode(code: int, payload: bytes) -> Message:
    """The command with this type, which must be known.  Raises `Refusal` for a wrong payload."""
    cls = REQUESTS.get(code) or REPLIES[code]
    values: list[Any] = []
    at = 0
    try:
        for step in _steps(cls):
            packing = step.packing
            if packing is None:
                value, at = step.field.read(payload, at)
                values.append(value)
            else:
                values += packing.unpack_from(payload, at)
                at += packing.size
    except (_Short, struct.error):
        return _decode_short(cls, payload)
    return cls(*values)


def _decode_short(cls: type[Message], payload: bytes) -> Message:
    """Decode a payload that ends early: from an older version, or broken."""
    values: list[Any] = []
    at = 0
    for name, field, default in _layout(cls):
        try:
            value, at = field.read(payload, at)
        except _Short:
            if default is MISSING or len(payload) - at >= 8:
                raise Refusal(
                    f"{cls.__name__} of {len(payload)} bytes ends in {name!r}"
                ) from None
            value, at = default, len(payload)
        values.append(value)
    return cls(*values)
