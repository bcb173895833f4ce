"""A line of JSON behind its checksum: what small files of the store are made of.

crc32c of the JSON (8 hex digits) | space | JSON | newline

A type of ours is there as the list of what iterating gives, of which it is made again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import google_crc32c
import msgspec

__all__ = ["decode", "encode"]

_T = TypeVar("_T")


def encode(value: msgspec.Struct) -> bytes:
    """Its line, with the newline."""
    text = msgspec.json.encode(value, enc_hook=list)
    return b"%08x %b\n" % (google_crc32c.value(text), text)


def decode(line: bytes, kind: type[_T]) -> _T | None:
    """What a line without its newline says; None if it does not fit its checksum."""
    crc, text = line[:9], line[9:]
    if crc != b"%08x " % google_crc32c.value(text):
        return None
    return msgspec.json.decode(text, type=kind, dec_hook=_made)


def _made(kind: Callable[[object], object], plain: object) -> object:
    return kind(plain)
