"""Finds the flaw of an event's JSON payload, in the same words for every protocol.

A flawed event is stored and acknowledged like any other, or its sender would send it
for ever; the flaw tells readers of the table what to expect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

__all__ = ["check", "flaw_of", "flaws_of"]

_SPACE = b" \t\n\r"
_BRACE = ord("{")

check = msgspec.json.Decoder(msgspec.Raw).decode
"""Raises `msgspec.DecodeError` or RecursionError if bytes are not JSON.  Does not check
that strings are UTF-8."""


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
        check(payload)
    except UnicodeDecodeError:
        return "invalid-utf8"
    except msgspec.DecodeError:
        return "invalid-json"
    except RecursionError:
        return "too-deep"
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
            if payload[0] == _BRACE and (payload.isascii() or payload.decode()):
                continue
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            pass
        flaw = flaw_of(payload, message_bytes)
        if flaw is not None:
            yield place, flaw
