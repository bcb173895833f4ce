"""Access control of the admin port: token and Host field.  No I/O.

Four rules, because the page shows peers, volumes and failures:

1. A port that other machines can reach needs a token; without one the daemon
   does not start.
2. With a token, everything but the two health paths asks for it: `Authorization:
   Bearer TOKEN`, or Basic with the token as the password, which is how a browser
   can be asked for it.
3. Without a token the port is for looking only: to push, to kick and to see payloads
   asks for one, unless `admin.trust_loopback` says that whoever is on this machine may.
   (Who may open a unix socket is the file's to say.)
4. On loopback the `Host` field must name loopback.  A web page elsewhere can make
   its own name resolve to 127.0.0.1 (DNS rebinding) and have a browser read this
   port, but the browser then sends that name.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Sequence

from gateway.sdk.endpoint import Endpoint, Systemd, Tcp, Unix

__all__ = [
    "Misconfigured",
    "authorized",
    "browser_url",
    "check",
    "host_allowed",
    "trusted",
]

_HOST = re.compile(
    r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::\d*)?"
)

_ANY = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound


class Misconfigured(ValueError):
    """A value of `admin.*` that the daemon must not start with; str() names the key."""


def check(where: Endpoint, token: str | None) -> Tcp | Unix:
    """*where*; raises `Misconfigured` if it needs a token and there is none."""
    if isinstance(where, Systemd):
        raise Misconfigured(f"admin.listen: must be tcp:... or unix:..., not {where}")
    if token is not None and not token.strip():
        raise Misconfigured("admin.token: empty; give it a value or leave the key out")
    if token is None and isinstance(where, Tcp) and not where.local:
        raise Misconfigured(
            f"admin.token: required, because other machines can reach {where}"
            " (admin.listen); set it, or listen on tcp:127.0.0.1:PORT or unix:PATH"
        )
    return where


def trusted(where: Tcp | Unix, token: str | None, *, trust_loopback: bool) -> bool:
    """Whether who may look may also change, and see payloads."""
    return token is not None or trust_loopback or isinstance(where, Unix)


def host_allowed(where: Tcp | Unix, hosts: Sequence[str]) -> bool:
    """Whether a request with these `Host` fields is answered.

    None at all is fine: HTTP/1.0 probes send none, and every browser does.
    """
    if not hosts or isinstance(where, Unix) or not where.local:
        return True
    match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if match is None:
        return False
    name = (match["six"] or match["host"]).lower()
    return name in {"localhost", "127.0.0.1", "::1", where.host.lower()}


def browser_url(where: Tcp | Unix) -> str | None:
    """Its URL for a browser on this machine; None for a unix socket."""
    if isinstance(where, Unix):
        return None
    near = "127.0.0.1" if where.host in _ANY else where.host
    return f"http://{str(Tcp(near, where.port)).removeprefix('tcp:')}/"


def authorized(token: str | None, authorization: Sequence[str]) -> bool:
    """Whether the `Authorization` fields carry the token; in constant time."""
    if token is None:
        return True
    if len(authorization) != 1:
        return False
    scheme, _, credentials = authorization[0].partition(" ")
    given = credentials.strip().encode("latin-1")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).partition(b":")[2]
        except binascii.Error:
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given, token.encode())
