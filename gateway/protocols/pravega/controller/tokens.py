"""Delegation tokens: the controller makes them for clients, the segment store checks them.

A token is a JWT (HS256): clients read from it when they must ask for another.  It is valid
for one stream, and allows everything with that stream's segments.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any

from gateway.protocols.pravega.controller.names import SYSTEM, TABLE

__all__ = ["DelegationTokens"]

_FAILED, _EXPIRED = 0, 1
_SEGMENT_PARTS = 3
_MOST_TOKENS = 10_000


class DelegationTokens:
    """Makes and checks delegation tokens."""

    def __init__(
        self, now: Callable[[], float], *, lifetime: float, required: bool
    ) -> None:
        """*lifetime* and *now* are in seconds; unless *required*, all tokens are valid."""
        self._now = now
        self._lifetime = lifetime
        self._required = required
        self.key = b""
        """The signing key, to be set before the first use."""
        self._checked: dict[str, dict[str, Any]] = {}

    def make(self, scope: str, stream: str, subject: str) -> str:
        """Make a token for a stream; empty unless tokens are required."""
        if not self._required:
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

    def check(self, token: str, segment: str) -> int | None:
        """The code of `AuthTokenCheckFailed`, or None if the token is valid.

        No token is valid for the controller's own tables.
        """
        if segment.startswith(SYSTEM):
            return _FAILED
        if not self._required:
            return None
        claims = self._claims(token)
        if claims is None:
            return _FAILED
        if claims["exp"] <= self._now():
            return _EXPIRED
        parts = segment.split("/")
        stream = "/".join(parts[:2])
        if len(parts) != _SEGMENT_PARTS or stream not in (
            claims["stream"],
            claims["stream"] + TABLE,  # Java asks for a table's token by its name
        ):
            return _FAILED
        return None

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


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _encode(claims: Mapping[str, Any]) -> str:
    return _base64(json.dumps(claims, separators=(",", ":")).encode())


def _decode(part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found
