"""A line of JSON behind its form and its checksum: what small files of the store are made of.

form | space | crc32c of form, space and JSON (8 hex digits) | space | JSON | newline

A type of ours is there as the list of what iterating gives, of which it is made again.
docs/formats.md has the forms and an example of each.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import google_crc32c
import msgspec

__all__ = ["FORM", "OtherForm", "decode", "encode", "of_file"]

FORM = 1
"""The form of the lines that are written here, and read."""

_LINE = re.compile(rb"([0-9]{1,9}) ([0-9a-f]{8}) (.*)", re.DOTALL)
_T = TypeVar("_T")


class OtherForm(ValueError):
    """A sound line of a form that is not known here: a newer version wrote it."""


@contextlib.contextmanager
def of_file(path: Path | str) -> Iterator[None]:
    """Say of which file an `OtherForm` inside is."""
    try:
        yield
    except OtherForm as why:
        raise OtherForm(f"{path}: {why}") from None


def encode(value: msgspec.Struct) -> bytes:
    """The line of a value, with the newline."""
    text = msgspec.json.encode(value, enc_hook=list)
    form = b"%d" % FORM
    return b"%b %08x %b\n" % (form, _sum(form, text), text)


def decode(line: bytes, kind: type[_T]) -> _T | None:
    """The value of a line without its newline; None if it does not fit its checksum.

    Raises `OtherForm`.
    """
    if (found := _LINE.fullmatch(line)) is None:
        return None
    form, checksum, text = found.groups()
    if checksum != b"%08x" % _sum(form, text):
        return None
    if int(form) != FORM:
        raise OtherForm(
            f"it has form {int(form)}, and this version reads form {FORM}: a newer version"
            " of gateway wrote it"
        )
    return msgspec.json.decode(text, type=kind, dec_hook=_made)


def _sum(form: bytes, text: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(form + b" "), text))


def _made(kind: Callable[[object], object], plain: object) -> object:
    return kind(plain)
