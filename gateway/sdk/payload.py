"""Finds the flaw of an event's JSON payload, in the same words for every protocol.

A flawed event is stored and acknowledged like any other, or its sender would send it
for ever; the flaw tells readers of the table what to expect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, pairwise

import msgspec

__all__ = [
    "DEPTH",
    "all_shallow",
    "block_is_shallow",
    "check",
    "flaw_of",
    "flaws_of",
    "too_deep",
]

DEPTH = 500
"""The most levels of objects and arrays in one another in a payload without a flaw.

Readers of the tables have limits of their own: Spark's parser (Jackson) ends at 1000,
simdjson at 1024, BigQuery at 500.  Python's parsers up to 3.11 end some hundred before
1000, by who calls them.  So it is counted here, and no parser's limit is met before."""

_SPACE = b" \t\n\r"
_BRACE = ord("{")
_OPENS, _CLOSES, _EITHER_CASE = ord("["), ord("]"), 0xDF
"""A bracket, and a brace without the bit in which they differ."""
_OTHERS = bytes({*range(256)} - {*b'[]{}"'})
_TOGETHER = 16
"""Payloads whose brackets are counted in one piece."""

check = msgspec.json.Decoder(msgspec.Raw).decode
"""Raises `msgspec.DecodeError` or RecursionError if bytes are not JSON.  Does not check
that strings are UTF-8, nor the depth: RecursionError comes beyond `DEPTH`, or not at all.
"""


def flaw_of(payload: bytes, message_bytes: int) -> str | None:
    """The flaw of a payload, or None.

    A payload without a flaw is a JSON object of at most *message_bytes*.
    """
    if not payload:
        return "empty"
    if len(payload) > message_bytes:
        return "oversized"
    try:
        payload.decode()
        if too_deep(payload):
            return "too-deep"
        check(payload)
    except UnicodeDecodeError:
        return "invalid-utf8"
    except msgspec.DecodeError:
        return "invalid-json"
    return None if payload.lstrip(_SPACE).startswith(b"{") else "not-an-object"


def flaws_of(
    payloads: Sequence[bytes], message_bytes: int, *, but: Collection[int] = ()
) -> Iterator[tuple[int, str]]:
    """Each flawed payload's place with its flaw; those at *but* are not looked at."""
    for place, payload in enumerate(payloads):
        if place in but:
            continue
        try:
            check(payload)
            if (
                payload[0] == _BRACE
                and (payload.isascii() or payload.decode())
                and all_shallow((payload,))
            ):
                continue
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            pass
        flaw = flaw_of(payload, message_bytes)
        if flaw is not None:
            yield place, flaw


def all_shallow(payloads: Sequence[bytes]) -> bool:
    """None of these is too deep; they are JSON, and not none."""
    if max(map(len, payloads)) <= 2 * DEPTH:  # of which each level takes two
        return True
    if len(payloads) < _TOGETHER:
        return not any(map(too_deep, payloads))
    return block_is_shallow(b"".join(payloads), [*accumulate(map(len, payloads))])


def block_is_shallow(block: bytes, ends: Sequence[int]) -> bool:
    """The same of payloads of which each ends there, behind the one before."""
    import numpy as np  # late: processes that decode nothing need no numpy

    text = np.frombuffer(block, np.uint8)
    start = 0
    # In parts: fresh memory for all of it would cost more than the counting.
    for at in range(0, len(ends), _TOGETHER):
        part = ends[at : at + _TOGETHER]
        opens = (text[start : part[-1]] & _EITHER_CASE) == _OPENS
        if np.count_nonzero(opens) > DEPTH:
            pairs = pairwise((start, *part))
            if any(too_deep(block[begin:end]) for begin, end in pairs):
                return False
        start = part[-1]
    return True


def too_deep(payload: bytes | memoryview) -> bool:
    """More than `DEPTH` objects and arrays are open at some place, outside of strings.

    What is no JSON is counted as if it were.
    """
    payload = bytes(payload)
    if len(payload) <= DEPTH or payload.count(b"[") + payload.count(b"{") <= DEPTH:
        return False
    import numpy as np

    if b"\\" in payload:  # what it escapes is no quote
        payload = payload.replace(rb"\\", b"").replace(rb"\"", b"")
    parts = np.frombuffer(payload.translate(None, _OTHERS), np.uint8)
    outside = ~np.logical_xor.accumulate(parts == ord('"'))
    kinds = parts[outside] & _EITHER_CASE
    steps = (kinds == _OPENS).astype(np.int8) - (kinds == _CLOSES)
    return bool(steps.cumsum(dtype=np.int32).max(initial=0) > DEPTH)
