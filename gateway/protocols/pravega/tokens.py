"""Checks of the delegation token that a request, or the writer of an append, brings.

A token is checked each time it is used, as it may have expired since the writer was set
up.  No I/O, no clock: the check that is passed in knows the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gateway.protocols.pravega.codec import encode
from gateway.protocols.pravega.spoken import NAME_IN_LOGS
from gateway.protocols.pravega.wire import AuthTokenCheckFailed
from gateway.sdk.interfaces import Refusal

__all__ = ["TokenCheck", "allow_all", "check_token"]

_EXPIRED = 1

TokenCheck: TypeAlias = Callable[[str, str], int | None]
"""`check(token, segment)` gives the code of `AuthTokenCheckFailed`, or None if valid."""


def allow_all(token: str, segment: str) -> int | None:
    """A `TokenCheck` for listeners that require no token."""
    return None


def check_token(check: TokenCheck, token: str, segment: str, request_id: int) -> None:
    """Raises `Refusal` if the token is not valid for the segment.

    Its reply, `AuthTokenCheckFailed`, makes a client ask for another token.
    """
    code = check(token, segment)
    if code is not None:
        state = "expired" if code == _EXPIRED else "not good"
        raise Refusal(
            f"token {state} for {segment[:NAME_IN_LOGS]!r}",
            reply=encode(AuthTokenCheckFailed(request_id, "", code)),
        )
