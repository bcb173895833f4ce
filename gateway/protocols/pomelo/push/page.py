"""`POST /api/push` of the admin port: parses the request, pushes, says who got it.

    {"route": "onScore", "body": {"score": 3}, "to": {"uid": "alice"}}

`to` is a session, a uid, or `{"all": {…}}`: every client whose events have all of
these attributes; `{}` stands for all clients.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from gateway.admin.site import Answer
from gateway.protocols.pomelo.push.message import Push
from gateway.protocols.pomelo.registry import Registry

__all__ = ["page", "parse"]


class _To(msgspec.Struct, forbid_unknown_fields=True):
    session: str | None = None
    uid: str | int | None = None
    all: dict[str, str] | None = None


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    route: str
    body: msgspec.Raw
    to: _To


_REQUEST = msgspec.json.Decoder(_Request)


def parse(request: bytes) -> Push:
    """The push that a request's body asks for.  ValueError says what is wrong."""
    try:
        asked = _REQUEST.decode(request)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as why:
        raise ValueError(f"the request is not a push: {why}") from None
    to = asked.to
    if [to.session, to.uid, to.all].count(None) != 2:
        raise ValueError("to: must have one of session, uid, all")
    uid = None if to.uid is None else str(to.uid)
    return Push(asked.route, bytes(asked.body), to.session, uid, to.all or {})


def page(registry: Registry) -> Callable[[bytes], Answer]:
    """Answers the body of `POST /api/push` with how many clients got the push."""

    def push(request: bytes) -> Answer:
        try:
            pushed = parse(request).send(registry)
        except ValueError as why:
            return _json({"error": str(why)}, 400)
        return _json({"sent": pushed.sent, "dropped": pushed.dropped}, 200)

    return push


def _json(value: object, code: int) -> Answer:
    return Answer(json.dumps(value).encode(), "application/json", code)
