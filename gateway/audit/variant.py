"""Reads one string out of a VARIANT value, as Spark writes it to Parquet.

The binary form is Parquet's "Variant Binary Encoding": metadata holds the keys, a
value refers to them by number.  Only what `look_up` needs is here: objects, strings
and integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

_PRIMITIVE, _SHORT_STRING, _OBJECT = 0, 1, 2
_LONG_STRING = 16
#: Type number of a primitive to its size in bytes.
_INTEGERS = {3: 1, 4: 2, 5: 4, 6: 8}


def look_up(metadata: bytes, value: bytes, path: Sequence[str]) -> str | None:
    """The string (or integer) below these keys; None if there is none.

    Raises IndexError or UnicodeDecodeError for bytes that are no VARIANT.
    """
    keys = _keys(metadata)
    at = 0
    for key in path:
        number = keys.get(key)
        if number is None:
            return None
        found = _member(value, at, number)
        if found is None:
            return None
        at = found
    return _text(value, at)


@lru_cache(maxsize=1024)
def _keys(metadata: bytes) -> dict[str, int]:
    width = (metadata[0] >> 6) + 1
    count = _int(metadata, 1, width)
    begin = 1 + width * (count + 2)
    bounds = [_int(metadata, 1 + width * (n + 1), width) for n in range(count + 1)]
    return {
        metadata[begin + bounds[n] : begin + bounds[n + 1]].decode(): n
        for n in range(count)
    }


def _member(value: bytes, at: int, number: int) -> int | None:
    """Where an object's member is; None if it has none or is no object."""
    head = value[at]
    if head & 3 != _OBJECT:
        return None
    offset_width = (head >> 2 & 3) + 1
    id_width = (head >> 4 & 3) + 1
    count_width = 4 if head >> 6 & 1 else 1
    count = _int(value, at + 1, count_width)
    ids = at + 1 + count_width
    offsets = ids + count * id_width
    values = offsets + (count + 1) * offset_width
    for n in range(count):
        if _int(value, ids + n * id_width, id_width) == number:
            return values + _int(value, offsets + n * offset_width, offset_width)
    return None


def _text(value: bytes, at: int) -> str | None:
    kind, rest = value[at] & 3, value[at] >> 2
    if kind == _SHORT_STRING:
        return value[at + 1 : at + 1 + rest].decode()
    if kind == _PRIMITIVE and rest == _LONG_STRING:
        size = _int(value, at + 1, 4)
        return value[at + 5 : at + 5 + size].decode()
    if kind == _PRIMITIVE and rest in _INTEGERS:
        digits = value[at + 1 : at + 1 + _INTEGERS[rest]]
        return str(int.from_bytes(digits, "little", signed=True))
    return None


def _int(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")
