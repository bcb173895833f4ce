"""Who may do what with a segment: the token that a request carries, or its writer's.

A token is looked at each time it is used: it may have been good when a writer was set
up and be good no longer.  No I/O, no clock: who checks knows the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gateway.interfaces import Refusal
from gateway.protocols.pravega.codec import encode
from gateway.protocols.pravega.wire import AuthTokenCheckFailed

__all__ = ["SHOWN", "Check", "anyone", "demand"]

_EXPIRED = 1

#: So much of a name, which may be of 64 KiB, is said in a log.
SHOWN = 100

Check: TypeAlias = Callable[[str, str], int | None]
"""The code of `AuthTokenCheckFailed`, if a token is not good for a segment now."""


def anyone(token: str, segment: str) -> int | None:
    """Nobody is asked for a token."""
    return None


def demand(check: Check, token: str, segment: str, request_id: int) -> None:
    """Raises `Refusal`, with the reply that lets a client ask for another token."""
    code = check(token, segment)
    if code is not None:
        raise Refusal(
            f"token {'expired' if code == _EXPIRED else 'not good'} for {segment[:SHOWN]!r}",
            reply=encode(AuthTokenCheckFailed(request_id, "", code)),
        )
