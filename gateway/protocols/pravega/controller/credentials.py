"""Who calls: Basic (name and password) or Bearer (a token), in `authorization`."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Mapping

__all__ = ["Credentials"]


class Credentials:
    """Names with passwords, and tokens with the names of those who have them."""

    def __init__(self, users: Mapping[str, str], tokens: Mapping[str, str]) -> None:
        self._users = {name.encode(): word.encode() for name, word in users.items()}
        self._tokens = {token.encode(): name for token, name in tokens.items()}

    @property
    def required(self) -> bool:
        """Whether anybody must say who they are."""
        return bool(self._users or self._tokens)

    def name(self, authorization: str) -> str | None:
        """Whose credentials these are; None: nobody's."""
        scheme, _, rest = authorization.strip().partition(" ")
        match scheme.lower():
            case "basic":
                return self._basic(rest.strip())
            case "bearer":
                return self._bearer(rest.strip().encode(errors="replace"))
        return None

    def _basic(self, encoded: str) -> str | None:
        try:
            name, _, password = b64decode(encoded, validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return None
        known = self._users.get(name)
        # The comparison takes as long for those who do not exist.
        same = hmac.compare_digest(password, known or b"")
        return name.decode() if same and known else None

    def _bearer(self, token: bytes) -> str | None:
        found = None
        for known, name in self._tokens.items():
            if hmac.compare_digest(known, token):
                found = name
        return found
