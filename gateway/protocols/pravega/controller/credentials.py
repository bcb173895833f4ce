"""Checks the `authorization` header of a call: Basic (name, password) or Bearer (token)."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Mapping

from pydantic import SecretStr


class Credentials:
    """The callers that are known."""

    def __init__(
        self, users: Mapping[str, SecretStr], tokens: Mapping[str, SecretStr]
    ) -> None:
        """*users* are passwords by name, *tokens* bearer tokens by name; without both, no
        credentials are required.
        """
        self._users = {name.encode(): _bytes(word) for name, word in users.items()}
        self._tokens = {_bytes(token): name for name, token in tokens.items()}

    @property
    def required(self) -> bool:
        return bool(self._users or self._tokens)

    def name(self, authorization: str) -> str | None:
        """The name that the header authenticates; None if it is missing or wrong."""
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
        # Compare for unknown names too: it must take as long.
        same = hmac.compare_digest(password, known or b"")
        return name.decode() if same and known else None

    def _bearer(self, token: bytes) -> str | None:
        found = None
        for known, name in self._tokens.items():
            if hmac.compare_digest(known, token):
                found = name
        return found


def _bytes(secret: SecretStr) -> bytes:
    return secret.get_secret_value().encode()
