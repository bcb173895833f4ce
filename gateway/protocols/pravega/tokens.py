"""Checks of the delegation token that a request, or the writer of an append, brings.

A token is checked each time it is used, as it may have expired since the writer was set
up.  No I/O, no clock: the check that is passed in knows the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gateway.protocols.pravega.codec import encode
from gateway.protocols.pravega.errors import NAME_IN_LOGS, Denied, Need
from gateway.protocols.pravega.wire import AuthTokenCheckFailed
from gateway.sdk.interfaces import Refusal

FAILED, EXPIRED = 0, 1
"""Codes of `AuthTokenCheckFailed`."""

TokenCheck: TypeAlias = Callable[[str, str, Need], int | Denied | None]
"""`check(token, segment, need)`: None, who brings the token may do that; the code of
`AuthTokenCheckFailed`, the token is not valid; or why its bearer may not."""


def check_token(
    check: TokenCheck, token: str, segment: str, need: Need, request_id: int
) -> None:
    """Raises `Refusal` if the token is not valid for the segment, and `Denied`.

    The refusal's reply, `AuthTokenCheckFailed`, makes a client ask for another token.
    """
    code = check(token, segment, need)
    if isinstance(code, Denied):
        raise code
    if code is not None:
        state = "expired" if code == EXPIRED else "not good"
        raise Refusal(
            f"token {state} for {segment[:NAME_IN_LOGS]!r}",
            reply=encode(AuthTokenCheckFailed(request_id, "", code)),
        )


def denied_reply(why: Denied, request_id: int) -> AuthTokenCheckFailed:
    """The reply to a client that may not do what it asked for, with the reason.

    It asks for another token if that may help: the reference's clients take the other code
    for final, and its writers wait for ever then.
    """
    code = EXPIRED if why.outdated else FAILED
    return AuthTokenCheckFailed(request_id, str(why), code)
