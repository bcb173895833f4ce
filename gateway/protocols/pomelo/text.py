"""JSON and text as Pomelo's clients write and read them: CESU-8 comes in, ASCII goes out.

And what a service says of an error.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

_MOST_CHARS = 200
_NOT_ASCII = re.compile("[^\x00-\x7f]")


def cesu8(data: bytes) -> bytes:
    """CESU-8 as UTF-8: browsers' Pomelo clients encode each half of a surrogate pair.

    Raises UnicodeDecodeError if it is neither.
    """
    pairs = data.decode("utf-8", "surrogatepass").encode("utf-16-be", "surrogatepass")
    return pairs.decode("utf-16-be").encode()


def text(data: bytes) -> str:
    """UTF-8, or CESU-8 as browsers' clients write it.  Raises UnicodeDecodeError."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return cesu8(data).decode()


def reason_in(body: bytes, name: str, otherwise: str) -> str:
    """The text of this name in what a service has answered, cut; or *otherwise*."""
    try:
        found = msgspec.json.decode(body, type=dict[str, Any]).get(name)
    except (ValueError, RecursionError):
        return otherwise
    return found[:_MOST_CHARS] if isinstance(found, str) and found else otherwise


def ascii_json(value: Any) -> bytes:
    """JSON in ASCII: browsers' Pomelo clients do not decode four-byte UTF-8.

    Raises ValueError for a number that is none, or has no end: JSON knows none of those.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def ascii_text(found: bytes) -> bytes:
    """A JSON text with everything beyond ASCII escaped, and no other change."""
    if found.isascii():
        return found
    escaped = _NOT_ASCII.sub(lambda one: json.dumps(one[0])[1:-1], found.decode())
    return escaped.encode()
