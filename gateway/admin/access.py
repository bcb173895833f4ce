"""Who may ask the admin port anything.  Pure functions; no I/O.

Three rules, because the page shows peers, volumes and failures:

1. A port that other machines can reach needs a token; without one the daemon
   does not start.
2. With a token, everything but the two health paths asks for it: `Authorization:
   Bearer TOKEN`, or Basic with the token as the password, which is how a browser
   can be asked for it.
3. On loopback the `Host` field must name loopback.  A web page elsewhere can make
   its own name resolve to 127.0.0.1 (DNS rebinding) and have a browser read this
   port, but the browser then sends that name.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

__all__ = ["Misconfigured", "Tcp", "Unix", "admits", "guard", "knows", "parse"]


class Misconfigured(ValueError):  # noqa: N818 - states a fact about the configuration
    """A value of `admin.*` that the daemon must not start with; str() names the key."""


@dataclass(frozen=True, slots=True)
class Tcp:
    """`tcp:PORT` (every interface), `tcp:HOST:PORT` or `tcp:[IPv6]:PORT`."""

    host: str
    """Empty for every interface."""
    port: int
    """0 for any free one."""

    @property
    def loopback(self) -> bool:
        """Only this machine can connect.  Names other than localhost count as not."""
        ip = self._ip
        return self.host.lower() == "localhost" if ip is None else ip.is_loopback

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        anywhere = not self.host or (self._ip is not None and self._ip.is_unspecified)
        return f"http://{'127.0.0.1' if anywhere else self._bracketed}:{self.port}/"

    @property
    def _ip(self) -> IPv4Address | IPv6Address | None:
        try:
            return ip_address(self.host)
        except ValueError:
            return None

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return f"tcp:{self._bracketed}:{self.port}" if self.host else f"tcp:{self.port}"


@dataclass(frozen=True, slots=True)
class Unix:
    """`unix:PATH`; the file's mode says who may connect."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


_TCP = re.compile(
    r"tcp:(?:(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:\[\]]+)):)?(?P<port>\d{1,5})"
)
_HOST = re.compile(
    r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::\d*)?"
)


def parse(listen: str) -> Tcp | Unix:
    """Read `admin.listen`.  Raises `Misconfigured`."""
    if listen.startswith("unix:") and len(listen) > len("unix:"):
        return Unix(listen.removeprefix("unix:"))
    match = _TCP.fullmatch(listen)
    if match is None or int(match["port"]) > 65535:
        raise Misconfigured(
            f"admin.listen: {listen!r} is none of tcp:HOST:PORT, tcp:PORT, unix:PATH"
        )
    return Tcp(match["six"] or match["host"] or "", int(match["port"]))


def guard(where: Tcp | Unix, token: str | None) -> None:
    """Raise `Misconfigured` unless *token* suffices for *where*."""
    if token is not None and not token.strip():
        raise Misconfigured("admin.token: empty; give it a value or leave the key out")
    if token is None and isinstance(where, Tcp) and not where.loopback:
        raise Misconfigured(
            f"admin.token: required, because other machines can reach {where}"
            " (admin.listen); set it, or listen on tcp:127.0.0.1:PORT or unix:PATH"
        )


def knows(where: Tcp | Unix, hosts: Sequence[str]) -> bool:
    """Whether a request with these `Host` fields is meant for us.

    None at all is fine: HTTP/1.0 probes send none, and every browser does.
    """
    if not hosts or isinstance(where, Unix) or not where.loopback:
        return True
    match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if match is None:
        return False
    name = (match["six"] or match["host"]).lower()
    return name in {"localhost", "127.0.0.1", "::1", where.host.lower()}


def admits(token: str | None, authorization: Sequence[str]) -> bool:
    """Whether the `Authorization` fields carry the token; as slow when they do not."""
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
