"""Filters of one viewer of a tap: texts in any column, with or without payloads.

The query of a tap (`query`) is exact, and shared by all who ask the same; this is for
people who look for something, and each viewer's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.event import SCHEMA
from gateway.sdk.publisher import Fault

FIND = "find."
"""The prefix of keys of the query: `find.peer=10.0.`."""
_PAYLOADS = ("payload", "payload_text", "payload_base64")
_PRIVATE = (*_PAYLOADS, "attributes")
_COLUMNS = tuple(SCHEMA.names)


class Choice:
    """*wanted* has texts by column, all of which an event must contain, whatever their
    case; without *payloads* events come without payload and attributes.

    Raises `Fault` for what is no column, or not to be seen.
    """

    def __init__(self, wanted: Mapping[str, str], *, payloads: bool) -> None:
        for column in wanted:
            if column not in _COLUMNS:
                there = ", ".join(_COLUMNS)
                raise Fault(400, f"no column {column[:40]!r}; there is {there}")
            if column in _PRIVATE and not payloads:
                raise Fault(403, f"{column} is not shown here without a token")
        self._wanted = {name: text.lower() for name, text in wanted.items() if text}
        self._needles = [_needle(text) for text in self._wanted.values()]
        self._payloads = payloads

    @property
    def any(self) -> bool:
        """Every event will do."""
        return not self._wanted

    def of(self, elements: Sequence[bytes], most: int) -> Sequence[bytes]:
        """The wanted *elements*, *most* at most; gaps always are."""
        if self.any and self._payloads:
            return elements
        chosen: list[bytes] = []
        for element in elements:
            if len(chosen) >= most:
                break
            if is_gap(element):
                chosen.append(element)
                continue
            lower = element.lower() if self._needles else b""
            if not all(needle in lower for needle in self._needles):
                continue
            event = json.loads(element)
            if all(text in _text(event, name) for name, text in self._wanted.items()):
                chosen.append(element if self._payloads else _public(event))
        return chosen


def is_gap(element: bytes) -> bool:
    """Whether an element tells of events that were left out."""
    return element.startswith(b'{"gap"')


def _needle(text: str) -> bytes:
    """Bytes that the JSON of a match has in any case: its longest part without escapes."""
    plain = "".join(
        one if (one.isascii() and one.isalnum()) or one in " ._-:/" else "\0"
        for one in text
    )
    return max(plain.split("\0"), key=len).encode()


def _text(event: Mapping[str, Any], column: str) -> str:
    if column == "payload":
        found = next((event[name] for name in _PAYLOADS if name in event), "")
    else:
        found = event.get(column)
    if found is None:
        return ""
    if isinstance(found, str):
        return found.lower()
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).lower()


def _public(event: Mapping[str, Any]) -> bytes:
    shown = {name: value for name, value in event.items() if name not in _PRIVATE}
    return json.dumps(shown, ensure_ascii=False).encode()
