"""Admission of Pomelo clients: a shared token or a JSON Web Token in `user.token`.

With a JWT, its claim is the principal and the uid.  Otherwise the uid is what the client
says in `user.uid`, which proves nothing.  With a shared token it is good enough to push to;
without one only if `options.trust_uid` says so.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.protocols.pomelo.options import Jwt

_MOST_UID_BYTES = 255


class Denied(Exception):
    """The client is not admitted; str() says why, and may be sent to the client."""


class Unavailable(Exception):
    """The configuration needs a package that is not installed."""


@dataclass(slots=True, frozen=True)
class Admitted:
    uid: str | None = None
    principal: str | None = None
    """The client's proven name; None if it proved nothing."""
    reachable: bool = True
    """Pushes to the uid reach it."""
    expires_at: float | None = None
    """When its token is over, in seconds since the epoch; None: never."""
    user: bytes | None = None
    """The `user` of its handshake's response, JSON in ASCII; None: the one that is for all."""


Admit = Callable[[Mapping[str, Any]], Admitted]
"""Decides on a handshake's `user` object.  Raises `Denied`."""


def admission(token: str | None, jwt: Jwt | None, *, trust_uid: bool = False) -> Admit:
    """The rule for these options; with both given, either is enough.  Raises `Unavailable`."""
    verify = None if jwt is None else _verifier(jwt)

    def admit(user: Mapping[str, Any]) -> Admitted:
        given = user.get("token")
        if token is None and verify is None:
            return Admitted(checked_uid(user.get("uid")), reachable=trust_uid)
        if not isinstance(given, str):
            raise Denied("no token")
        if token is not None and hmac.compare_digest(given.encode(), token.encode()):
            return Admitted(checked_uid(user.get("uid")))
        if verify is None:
            raise Denied("wrong token")
        subject, expires_at = verify(given)
        return Admitted(subject, subject, expires_at=expires_at)

    return admit


def checked_uid(given: Any) -> str | None:
    """The uid that was given, as text; None if there is none.  Raises `Denied`."""
    if given is None or isinstance(given, bool):
        return None
    uid = str(given) if isinstance(given, (str, int)) else ""
    try:
        size = len(uid.encode())
    except UnicodeEncodeError:  # half of a surrogate pair, as a JWT may have it
        size = 0
    if not 0 < size <= _MOST_UID_BYTES:
        raise Denied(f"uid must be a string of 1 to {_MOST_UID_BYTES} bytes")
    return uid


def _verifier(about: Jwt) -> Callable[[str], tuple[str, float]]:
    try:
        import jwt
    except ImportError:
        raise Unavailable(
            "options.jwt needs PyJWT: pip install 'pyjwt[crypto]'"
        ) from None
    key, fit = about.key.get_secret_value(), False
    for name in about.algorithms:
        try:
            jwt.get_algorithm_by_name(name).prepare_key(key)
            fit = True
        except NotImplementedError:
            raise Unavailable(
                f"options.jwt.algorithms: {name!r} is none that PyJWT knows here"
            ) from None
        except (jwt.PyJWTError, TypeError, ValueError):
            continue
    if not fit:
        raise Unavailable(
            f"options.jwt.key: is no key for {' or '.join(about.algorithms)}"
        )

    def verify(token: str) -> tuple[str, float]:
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=list(about.algorithms),
                audience=about.audience,
                issuer=about.issuer,
                leeway=about.leeway,
                options={"require": ["exp", about.claim]},
            )
        except (jwt.PyJWTError, RecursionError, ValueError) as why:
            raise Denied(f"token: {why}") from None
        subject = checked_uid(claims[about.claim])
        if subject is None:
            raise Denied(f"token: claim {about.claim!r} names nobody")
        return subject, float(claims["exp"]) + about.leeway

    return verify
