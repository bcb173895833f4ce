"""A line of JSON behind its checksum: what small files of the store are made of.

crc32c of the JSON (8 hex digits) | space | JSON | newline
"""

from __future__ import annotations

from typing import TypeVar

import google_crc32c
import msgspec

__all__ = ["decode", "encode"]

_T = TypeVar("_T")


def encode(value: msgspec.Struct) -> bytes:
    """Its line, with the newline."""
    text = msgspec.json.encode(value)
    return b"%08x %b\n" % (google_crc32c.value(text), text)


def decode(line: bytes, kind: type[_T]) -> _T | None:
    """What a line without its newline says; None if it does not fit its checksum."""
    crc, text = line[:9], line[9:]
    if crc != b"%08x " % google_crc32c.value(text):
        return None
    return msgspec.json.decode(text, type=kind)
