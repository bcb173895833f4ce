"""Encodes and decodes pomelo-protobuf, which differs from Google's protobuf:

    key     = varint tag << 3 | wire type, as in Google's
    int32   is zig-zag, like sint32
    repeated numbers: the key once, with the wire type of the number, then how many
              there are (not how many bytes), then the numbers
    a message without fields is an empty body
    browsers' clients write wire type 2 where it should be 0

A definition maps `option type name` to a tag.  `message X` in it defines a type, for
this message or, at the top, for all.  `parse` turns a definition into the form that
Pomelo sends in its handshake.

Pomelo's own server decodes an unknown tag, a wrong wire type or a message that is cut
off to garbage, or hangs; here they raise `Undecodable`.  bool, uInt64 and sInt64 are
additions of pinus.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import Any

from gateway.protocols.pomelo.text import text
from gateway.sdk.varint import varint

Decoded = dict[str, Any]

#: How deep messages may lie in messages.
_MOST_DEPTH = 32
#: Fields and elements in one message, all that lies in it included: what a small body
#: may grow to.
_MOST_VALUES = 1 << 16
_MESSAGE_VALUES = 8
"""The values that a message within counts as, as it takes longer than a number."""

_INT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5
_OPTIONS = frozenset(("required", "optional", "repeated"))
_F32 = struct.Struct("<f")
_F64 = struct.Struct("<d")
_MOST_TAG = (1 << 29) - 1


class Unusable(ValueError):
    """A definition with an error in it; str() says where and which."""


class Undecodable(ValueError):
    """Bytes that are not a message of this definition."""


class Unencodable(ValueError):
    """A value that does not fit its definition."""


@dataclass(slots=True, eq=False)
class _Field:
    name: str
    kind: str
    repeated: bool
    required: bool
    key: bytes
    packed: bool
    """Whether its elements share one key."""
    message: _Message | None = None
    read: _Read | None = None
    write: _Write | None = None

    @property
    def values(self) -> int:
        """The values that one counts as, for `_MOST_VALUES`."""
        return 1 if self.message is None else _MESSAGE_VALUES


@dataclass(slots=True, eq=False)
class _Message:
    by_key: dict[int, _Field] = field(default_factory=dict)
    by_name: dict[str, _Field] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)


def parse(source: Mapping[str, Any], where: str = "protos") -> dict[str, Any]:
    """A definition in the form that a handshake carries.

    Raises `Unusable` for a malformed field or a tag that is taken, which Pomelo's own
    server silently leaves out.  *where* begins the message.
    """
    if not isinstance(source, Mapping):
        raise Unusable(f"{where}: must be an object of routes and their fields")
    return {key: _parse(value, f"{where}: {key}") for key, value in source.items()}


def _parse(source: Any, where: str) -> dict[str, Any]:
    if not isinstance(source, Mapping):
        raise Unusable(f"{where}: must be an object of fields and their tags")
    parsed: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    tags: dict[str, str] = {}
    for spelled, tag in source.items():
        words = spelled.split(" ")
        if words[0] == "message" and len(words) == 2:
            messages[words[1]] = _parse(tag, f"{where}: {spelled}")
            continue
        if len(words) != 3 or words[0] not in _OPTIONS:
            raise Unusable(
                f"{where}: {spelled!r} must be 'required|optional|repeated TYPE NAME' "
                "or 'message NAME'"
            )
        option, kind, name = words
        if type(tag) is not int or not 0 < tag <= _MOST_TAG:
            raise Unusable(
                f"{where}: {spelled!r}: tag {tag!r} is not a number from 1 to {_MOST_TAG}"
            )
        if str(tag) in tags or name in parsed or name.startswith("__"):
            raise Unusable(f"{where}: the tag or the name of {spelled!r} is taken")
        parsed[name] = {"option": option, "type": kind, "tag": tag}
        tags[str(tag)] = name
    parsed["__messages"] = messages
    parsed["__tags"] = tags
    return parsed


class Schema:
    """The messages that clients send, or those that servers send.

    With *surrogates*, strings are encoded for browsers' clients, which want CESU-8: each
    half of a surrogate pair on its own.
    """

    def __init__(
        self,
        parsed: Mapping[str, Any],
        *,
        surrogates: bool = False,
        where: str = "protos",
    ) -> None:
        self._encode_text = _surrogates if surrogates else _utf8
        self._roots = {
            key.removeprefix("message "): value
            for key, value in parsed.items()
            if key.startswith("message ")
        }
        self._built: dict[int, _Message] = {}
        self._messages = {
            key: self._build(value, f"{where}: {key}") for key, value in parsed.items()
        }
        self._built.clear()  # its keys are ids of what *parsed* holds

    def __contains__(self, route: str) -> bool:
        return route in self._messages

    @property
    def routes(self) -> list[str]:
        return [key for key in self._messages if not key.startswith("message ")]

    # Definitions

    def _build(self, parsed: Mapping[str, Any], where: str) -> _Message:
        built = self._built.get(id(parsed))
        if built is not None:
            return built
        built = self._built[id(parsed)] = _Message()
        for name, about in parsed.items():
            if name not in ("__messages", "__tags"):
                self._add(built, name, about, parsed["__messages"], where)
        return built

    def _add(
        self,
        message: _Message,
        name: str,
        about: Mapping[str, Any],
        nested: Mapping[str, Any],
        where: str,
    ) -> None:
        kind, option = about["type"], about["option"]
        wire, read, write = _KINDS.get(kind, (_BYTES, None, None))
        repeated = option == "repeated"
        tag = about["tag"] << 3 | wire
        one = _Field(
            name, kind, repeated, option == "required", varint(tag),
            packed=repeated and wire != _BYTES,
        )  # fmt: skip
        if kind in _KINDS:
            one.read = read
            one.write = self._encode_text if kind == "string" else write
        else:
            inner = nested.get(kind) or self._roots.get(kind)
            if inner is None:
                known = ", ".join(
                    sorted({*_KINDS, *nested, *self._roots}, key=str.lower)
                )
                raise Unusable(
                    f"{where}: {option} {kind} {name}: the type must be one of {known}, "
                    f"not {kind!r}"
                )
            one.message = self._build(inner, f"{where}: {kind}")
        message.by_key[tag] = message.by_key[about["tag"] << 3 | _BYTES] = one
        message.by_name[name] = one
        if one.required:
            message.required.append(name)

    # Messages

    def decode(self, route: str, body: bytes) -> Decoded:
        """A body as a JSON object.  Raises `Undecodable` only."""
        try:
            return _Decoding(body).message(self._messages[route], 0, len(body), 0)
        except (IndexError, struct.error):
            raise Undecodable("it is cut off") from None
        except UnicodeDecodeError:
            raise Undecodable("a string is not UTF-8") from None

    def encode(self, route: str, value: Mapping[str, Any]) -> bytes:
        """The body of a JSON object, without undefined fields.  Raises `Unencodable` only."""
        return self._encode(self._messages[route], value, 0)

    def _encode(self, message: _Message, value: Any, depth: int) -> bytes:
        if not isinstance(value, Mapping):
            raise Unencodable(f"{value!r:.80} is not an object")
        if depth > _MOST_DEPTH:
            raise Unencodable(f"more than {_MOST_DEPTH} messages in one another")
        for name in message.required:
            if value.get(name) is None:
                raise Unencodable(f"{name} is required")
        parts: list[bytes] = []
        for name, given in value.items():
            one = message.by_name.get(name)
            if one is None or given is None:
                continue
            if not one.repeated:
                parts += (one.key, self._value(one, given, depth))
                continue
            if not isinstance(given, (list, tuple)):
                raise Unencodable(f"{name} is no array")
            if one.packed and given:
                parts += (one.key, varint(len(given)))
                parts += [self._value(one, each, depth) for each in given]
            else:
                for each in given:
                    parts += (one.key, self._value(one, each, depth))
        return b"".join(parts)

    def _value(self, one: _Field, value: Any, depth: int) -> bytes:
        if one.message is not None:
            inner = self._encode(one.message, value, depth + 1)
            return varint(len(inner)) + inner
        assert one.write is not None
        try:
            return one.write(value)
        except (AttributeError, TypeError, ValueError, OverflowError, struct.error):
            raise Unencodable(f"{one.name}: {value!r:.80} is no {one.kind}") from None


class _Decoding:
    __slots__ = ("_body", "_left")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._left = _MOST_VALUES

    def message(self, message: _Message, at: int, stop: int, depth: int) -> Decoded:
        if depth > _MOST_DEPTH:
            raise Undecodable(f"more than {_MOST_DEPTH} messages in one another")
        body, by_key = self._body, message.by_key
        value: Decoded = {}
        while at < stop:
            key = body[at]
            at += 1
            if key > 0x7F:
                key, at = _read_varint(body, at - 1, stop)
            one = by_key.get(key)
            if one is None:
                raise Undecodable(f"no field has tag {key >> 3}, wire type {key & 7}")
            if not one.repeated:
                self._spend(one.values)
                value[one.name], at = self._one(one, at, stop, depth)
                continue
            count = 1
            if one.packed:
                count, at = _read_varint(body, at, stop)
            self._spend(count * one.values)
            values = value.setdefault(one.name, [])
            for _ in range(count):
                each, at = self._one(one, at, stop, depth)
                values.append(each)
        if at != stop:
            raise Undecodable("it is cut off")
        return value

    def _one(self, one: _Field, at: int, stop: int, depth: int) -> tuple[Any, int]:
        if one.read is not None:
            return one.read(self._body, at, stop)
        assert one.message is not None
        size, at = _read_varint(self._body, at, stop)
        if at + size > stop:
            raise Undecodable("it is cut off")
        return self.message(one.message, at, at + size, depth + 1), at + size

    def _spend(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise Undecodable(f"more than {_MOST_VALUES} values")


# Values to bytes


def _utf8(value: str) -> bytes:
    data = value.encode()
    return varint(len(data)) + data


def _surrogates(value: str) -> bytes:
    if value.isascii():
        data = value.encode()
    else:
        pairs = value.encode("utf-16-be", "surrogatepass")
        halves = "".join(
            chr(pairs[at] << 8 | pairs[at + 1]) for at in range(0, len(pairs), 2)
        )
        data = halves.encode("utf-8", "surrogatepass")
    return varint(len(data)) + data


def _unsigned(value: Any) -> bytes:
    return varint(int(value))


def _signed(value: Any) -> bytes:
    number = int(value)
    return varint(-2 * number - 1 if number < 0 else 2 * number)


def _float(value: Any) -> bytes:
    return _F32.pack(_NAMED.get(value, value))


def _double(value: Any) -> bytes:
    return _F64.pack(_NAMED.get(value, value))


_NAMED = {name: float(name) for name in ("NaN", "Infinity", "-Infinity")}


def _boolean(value: Any) -> bytes:
    return b"\x01" if value else b"\x00"


# Bytes to values


def _read_varint(body: bytes, at: int, stop: int) -> tuple[int, int]:
    number = body[at]
    at += 1
    if number > 0x7F:
        number &= 0x7F
        shift = 7
        while True:
            byte = body[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise Undecodable("a number has more than 64 bits")
        if number >> 64:
            raise Undecodable("a number has more than 64 bits")
    if at > stop:
        raise Undecodable("it is cut off")
    return number, at


def _read_signed(body: bytes, at: int, stop: int) -> tuple[int, int]:
    number, at = _read_varint(body, at, stop)
    return (-(number >> 1) - 1 if number & 1 else number >> 1), at


def _read_bool(body: bytes, at: int, stop: int) -> tuple[bool, int]:
    number, at = _read_varint(body, at, stop)
    return number != 0, at


def _read_float(body: bytes, at: int, stop: int) -> tuple[float | str, int]:
    return _named(_F32.unpack_from(body, at)[0]), at + 4


def _read_double(body: bytes, at: int, stop: int) -> tuple[float | str, int]:
    return _named(_F64.unpack_from(body, at)[0]), at + 8


def _named(number: float) -> float | str:
    """A number; of those that JSON does not have, the name as JavaScript writes it."""
    if isfinite(number):
        return number
    return "NaN" if isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _read_text(body: bytes, at: int, stop: int) -> tuple[str, int]:
    size, at = _read_varint(body, at, stop)
    if at + size > stop:
        raise Undecodable("it is cut off")
    return text(body[at : at + size]), at + size


_Read = Callable[[bytes, int, int], tuple[Any, int]]
_Write = Callable[[Any], bytes]

_KINDS: Mapping[str, tuple[int, _Read, _Write]] = {
    **dict.fromkeys(("uInt32", "uInt64"), (_INT, _read_varint, _unsigned)),
    **dict.fromkeys(("int32", "sInt32", "sInt64"), (_INT, _read_signed, _signed)),
    "bool": (_INT, _read_bool, _boolean),
    "double": (_DOUBLE, _read_double, _double),
    "float": (_FLOAT, _read_float, _float),
    "string": (_BYTES, _read_text, _utf8),
}
"""Wire type, reader and writer of what is no message."""
