"""The header that serializers of schema registries put before each event: whose, and its id.

    event = first octet | id u32, big-endian | body         Pravega's registry 1, Confluent's 0

The row of such an event has the body as its payload.  Its content type says what stood before
it, `application/json;framing=confluent;schema=7`, so a reader of the stream gets the same
bytes back.

No I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Generic, Literal, TypeAlias, TypeVar

from attrs import field, frozen

Framing: TypeAlias = Literal["none", "pravega-registry", "confluent"]

NONE: Framing = "none"
_FIRST: Mapping[str, int] = {"confluent": 0, "pravega-registry": 1}
_BYTES = 5
_MOST_FOUND = 1 << 12
"""Streams that are remembered: they come and go, for as long as a process lives."""
_Of = TypeVar("_Of", bound=str)
_TYPED = re.compile(r";framing=(confluent|pravega-registry);schema=(\d{1,10})")


@frozen
class ByStream(Generic[_Of]):
    """An option of a stream, by a segment's name; of several patterns the first one counts.

    A stream that fits none has *none*.
    """

    _asked: _Of | Mapping[str, _Of]
    _none: _Of
    _found: dict[str, _Of] = field(factory=dict, eq=False)

    def __call__(self, segment: str) -> _Of:
        if isinstance(self._asked, str):
            return self._asked
        stream = segment.rpartition("/")[0]
        found = self._found.get(stream)
        if found is None:
            if len(self._found) >= _MOST_FOUND:
                self._found.clear()
            fit = (
                one for each, one in self._asked.items() if fnmatchcase(stream, each)
            )
            found = self._found[stream] = next(fit, self._none)
        return found


def peel(event: bytes, framing: Framing) -> tuple[bytes, int] | None:
    """The body of an event and the id before it; None if there is no such header."""
    if len(event) < _BYTES or event[0] != _FIRST[framing]:
        return None
    return event[_BYTES:], int.from_bytes(event[1:_BYTES])


@lru_cache(maxsize=1 << 12)
def typed(content_type: str, framing: Framing, schema: int) -> str:
    """The content type of a body that stood behind this header."""
    return f"{content_type};framing={framing};schema={schema}"


@lru_cache(maxsize=1 << 12)
def header(content_type: str | None) -> bytes:
    """The bytes before a body of this content type in its event; empty for most."""
    found = _TYPED.search(content_type or "")
    if found is None:
        return b""
    return bytes([_FIRST[found[1]]]) + int(found[2]).to_bytes(4)
