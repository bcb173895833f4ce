"""What is wrong with an event's JSON, if anything is: the same words in every protocol.

An event is stored as it came, whatever this says, because its sender would send it
for ever; a `flaw` only tells readers what to expect.
"""

from __future__ import annotations

import msgspec

__all__ = ["check", "flaw_of"]

_SPACE = b" \t\n\r"

check = msgspec.json.Decoder(msgspec.Raw).decode
"""Raises `msgspec.DecodeError`, or RecursionError, if it is not JSON.  Does not look
at the encoding of strings."""


def flaw_of(payload: bytes, message_bytes: int) -> str | None:
    """The flaw of a payload that should be a JSON object of at most *message_bytes*."""
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
