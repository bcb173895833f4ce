"""The authentication hook: a service of the game's decides about each handshake.

    -> POST {"listener": "game", "session": "…", "peer": "192.0.2.1:4000", "handshake": {…}}
    <- 200 {"uid": "alice", "expires_at": 1763838000, "user": {"name": "Alice"}}
                                       admitted; all may be left out
    <- 401 or 403 {"msg": "banned"}    not admitted

`user` is any JSON, and stands in the handshake's response as it is.
With any other answer, or none in time, the client is not admitted.
"""

from __future__ import annotations

import math

import msgspec

from gateway.event import Origin, client_of
from gateway.protocols.pomelo.auth import Admitted, Denied, checked_uid
from gateway.protocols.pomelo.text import ascii_text, reason_in
from gateway.sdk.http_client import Backend, Unreachable

OUTCOMES = ("admitted", "denied", "failed")
_DENIED = (401, 403)


class _Question(msgspec.Struct):
    listener: str
    session: str
    peer: str
    handshake: msgspec.Raw


class _Admitted(msgspec.Struct):
    uid: str | int | None = None
    expires_at: float | None = None
    user: msgspec.Raw = msgspec.Raw(b"null")


class Hook:
    """Asks the service about one listener's clients; its word for one has *user_bytes* at most."""

    def __init__(self, backend: Backend, user_bytes: int) -> None:
        self.backend = backend
        self._user_bytes = user_bytes
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        """Outcomes of handshakes."""

    async def ask(self, origin: Origin, said: bytes) -> Admitted:
        """Ask who the client is.  Raises `Denied`, or `Unreachable` if no answer can be used."""
        question = _Question(
            origin.listener, origin.session, origin.peer, msgspec.Raw(said)
        )
        try:
            admitted = await self._ask(question, client_of(origin))
        except Denied:
            self.outcomes["denied"] += 1
            raise
        except Unreachable:
            self.outcomes["failed"] += 1
            raise
        self.outcomes["admitted"] += 1
        return admitted

    async def _ask(self, question: _Question, client: str) -> Admitted:
        reply = await self.backend.post(question, client)
        if reply.code in _DENIED:
            raise Denied(reason_in(reply.body, "msg", "denied"))
        if reply.code != 200:
            raise Unreachable(f"answers {reply.code}")
        found: _Admitted = reply.json(_Admitted)
        try:
            uid = checked_uid(found.uid)
        except Denied as why:
            raise Unreachable(f"answers 200, and {why}") from None
        expires_at = found.expires_at
        if expires_at is not None and not math.isfinite(expires_at):
            raise Unreachable("answers 200, and expires_at is no time")
        return Admitted(uid, uid, expires_at=expires_at, user=self._told(found.user))

    def _told(self, user: msgspec.Raw) -> bytes | None:
        given = bytes(user)
        if given == b"null":
            return None
        try:
            told = ascii_text(given)
        except UnicodeDecodeError:
            raise Unreachable("answers 200, and user is not UTF-8") from None
        if len(told) > self._user_bytes:
            raise Unreachable(
                f"answers 200, and user has {len(told)} bytes in ASCII, limit "
                f"{self._user_bytes} (options.handshake_bytes)"
            )
        return told
