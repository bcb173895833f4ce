"""Delegation tokens: the controller makes them for clients, the segment store checks them.

A token is a JWT (HS256): clients read from it when they must ask for another.  It is valid
for one stream, and allows what `access` allows its bearer.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, field

from gateway.protocols.pravega.controller.access import Access, of_segment
from gateway.protocols.pravega.controller.names import SYSTEM, TABLE
from gateway.protocols.pravega.errors import Denied, Need
from gateway.protocols.pravega.tokens import EXPIRED, FAILED, TokenCheck

if TYPE_CHECKING:
    from gateway.protocols.pravega.options import Rule

_SEGMENT_PARTS = 3
_MOST_TOKENS = 10_000


@define(eq=False, slots=False)
class DelegationTokens:
    """Makes and checks delegation tokens.

    A token proves who its bearer is, for one stream, until it expires.  What the bearer
    may do is asked of the rules each time: they may have changed since.

    *lifetime* and *now* are in seconds.  Unless callers of the controller must say who
    they are (*required*), a client is who its certificate says.
    """

    _now: Callable[[], float]
    _lifetime: float
    _required: bool
    _access: Access = field(factory=Access)

    def __attrs_post_init__(self) -> None:
        self._rules_since = self._now()
        self.key = b""
        """The signing key, to be set before the first use."""
        self._checked: dict[str, dict[str, Any]] = {}

    def make(self, scope: str, stream: str, subject: str) -> str:
        """Make a token for a stream; empty if none is asked for."""
        if not (self._required or self._access.ruled):
            return ""
        now = int(self._now())
        claims = {
            "sub": subject,
            "aud": "segmentstore",
            "iat": now,
            "exp": now + max(1, int(self._lifetime)),
            "stream": f"{scope}/{stream}",
        }
        head = {"alg": "HS256", "typ": "JWT"}
        signed = f"{_encode(head)}.{_encode(claims)}"
        return f"{signed}.{self._sign(signed)}"

    def configure(self, rules: Iterable[Rule] | None) -> None:
        if self._access.configure(rules):
            self._rules_since = self._now()

    def checks(
        self, principal: str | None, proved: Callable[[str], object]
    ) -> TokenCheck:
        """The check of a client whose certificate proves this name; None: it has none.

        *proved* is told whose each token is.
        """
        return partial(self.check, principal=principal, proved=proved)

    def check(
        self,
        token: str,
        segment: str,
        need: Need,
        *,
        principal: str | None = None,
        proved: Callable[[str], object] | None = None,
    ) -> int | Denied | None:
        """Check a token, as `TokenCheck` says.  The controller's own tables are for no client."""
        if segment.startswith(SYSTEM):
            return FAILED
        if not (self._required or self._access.ruled):
            return None
        who, outdated = principal, False
        if self._required or token:
            claims = self._claims(token)
            if claims is None:
                return FAILED
            if claims["exp"] <= self._now():
                return EXPIRED
            if not _is_for(claims["stream"], segment):
                return FAILED
            who, outdated = claims["sub"], claims["iat"] < self._rules_since
        if proved is not None:
            proved(who or "")
        denied = self._access.denial(who or "", need, of_segment(segment))
        if denied is not None:
            denied.outdated = outdated
        return denied

    def _claims(self, token: str) -> dict[str, Any] | None:
        """The claims of a token with a valid signature; None for any other."""
        found = self._checked.get(token)
        if found is None:
            signed, _, signature = token.rpartition(".")
            # As bytes: a str must be ASCII for this comparison.
            if not hmac.compare_digest(
                self._sign(signed).encode(), signature.encode(errors="replace")
            ):
                return None
            found = _decode(signed.partition(".")[2])
            if len(self._checked) >= _MOST_TOKENS:
                self._checked.clear()
            self._checked[token] = found
        return found

    def _sign(self, signed: str) -> str:
        return _base64(hmac.digest(self.key, signed.encode(errors="replace"), "sha256"))


def _is_for(stream: str, segment: str) -> bool:
    parts = segment.split("/")
    # Java asks for a table's token by its name.
    known = (stream, stream + TABLE)
    return len(parts) == _SEGMENT_PARTS and "/".join(parts[:2]) in known


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _encode(claims: Mapping[str, Any]) -> str:
    return _base64(json.dumps(claims, separators=(",", ":")).encode())


def _decode(part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found
