"""Finds the flaw of an event's JSON payload, in the same words for every protocol.

A flawed event is stored and acknowledged like any other, or its sender would send it
for ever; the flaw tells readers of the table what to expect.
"""

from __future__ import annotations

import msgspec

__all__ = ["check", "flaw_of"]

_SPACE = b" \t\n\r"

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
