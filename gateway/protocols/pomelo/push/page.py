"""Pushes that come from outside: what they look like, and `POST /api/push`.

    {"route": "onScore", "body": {"score": 3}, "to": {"uid": "alice"}}

`to` is a session, a uid, or `{"all": {…}}`: every client whose events have all of
these attributes; `{}` stands for all clients.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from gateway.admin.site import Answer
from gateway.protocols.pomelo import Pushed, Registry

__all__ = ["Push", "page"]


class _To(msgspec.Struct, forbid_unknown_fields=True):
    session: str | None = None
    uid: str | int | None = None
    all: dict[str, str] | None = None


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    route: str
    body: msgspec.Raw
    to: _To


_REQUEST = msgspec.json.Decoder(_Request)


@dataclass(slots=True, frozen=True)
class Push:
    """One message for some clients; without `session` and `uid` for all that fit."""

    route: str
    body: bytes
    """JSON."""
    session: str | None = None
    uid: str | None = None
    where: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, request: bytes) -> Push:
        """From a request's body.  Raises ValueError, which says what is wrong."""
        try:
            asked = _REQUEST.decode(request)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as why:
            raise ValueError(f"the request is not a push: {why}") from None
        to = asked.to
        if [to.session, to.uid, to.all].count(None) != 2:
            raise ValueError("to: must have one of session, uid, all")
        uid = None if to.uid is None else str(to.uid)
        return cls(asked.route, bytes(asked.body), to.session, uid, to.all or {})

    def send(self, registry: Registry) -> Pushed:
        """To whoever is connected now.  Raises ValueError as `Registry.push` does."""
        if self.session is not None:
            members = registry.session(self.session)
        elif self.uid is not None:
            members = registry.user(self.uid)
        else:
            members = registry.all(self.where)
        return registry.push(members, self.route, self.body)


def page(registry: Registry) -> Callable[[bytes], Answer]:
    """Answers the body of `POST /api/push` with who got it."""

    def push(request: bytes) -> Answer:
        try:
            pushed = Push.parse(request).send(registry)
        except ValueError as why:
            return _json({"error": str(why)}, 400)
        return _json({"sent": pushed.sent, "dropped": pushed.dropped}, 200)

    return push


def _json(value: object, code: int) -> Answer:
    return Answer(json.dumps(value).encode(), "application/json", code)
