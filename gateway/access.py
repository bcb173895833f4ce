"""Access control of the admin ports, the daemon's and the job's: token and Host field.
No I/O.

Four rules, because the page shows peers, volumes and failures:

1. A port that other machines can reach, by themselves or through a load balancer, needs
   a token: a configuration without one is none (`gateway.config.model`).
2. With a token, everything but the two health paths asks for it: `Authorization:
   Bearer TOKEN`, or Basic with the token as the password, for browsers.
3. Without a token the port is for looking only.  Pushing, kicking and reading payloads ask
   for one, unless `admin.trust_loopback` trusts all users of this machine.  (A unix
   socket's file says who may open it.)
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
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from gateway.sdk.endpoint import Tcp, Unix

if TYPE_CHECKING:
    from gateway.config.model import Admin

_HOST = re.compile(
    r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::\d*)?"
)


@dataclass(frozen=True, slots=True)
class Access:
    """Rules of one admin port: which requests may look, and which may do more."""

    where: Tcp | Unix
    token: str | None = None
    trust_loopback: bool = False
    proxied: bool = False
    """Load balancers bring peers from elsewhere."""

    @classmethod
    def to(cls, admin: Admin) -> Access:
        token = None if admin.token is None else admin.token.get_secret_value()
        return cls(
            cast("Tcp | Unix", admin.listen),  # `Config.misfits` allows no other
            token,
            admin.trust_loopback,
            admin.proxy_protocol is not None,
        )

    @property
    def trusted(self) -> bool:
        """Whether who may look may also change things, and see payloads."""
        by_file = isinstance(self.where, Unix)
        return self.token is not None or self.trust_loopback or by_file

    def knows(self, hosts: Sequence[str]) -> bool:
        """Whether a request with these `Host` fields is answered.

        None at all is fine: HTTP/1.0 probes send none, and every browser does.
        """
        where = self.where
        if not hosts or self.proxied or isinstance(where, Unix) or not where.local:
            return True
        match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if match is None:
            return False
        name = (match["six"] or match["host"]).lower()
        return name in {"localhost", "127.0.0.1", "::1", where.host.lower()}

    def admits(self, authorization: Sequence[str]) -> bool:
        """Whether the `Authorization` fields carry the token; in constant time."""
        if self.token is None:
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
        return hmac.compare_digest(given, self.token.encode())
