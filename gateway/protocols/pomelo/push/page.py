"""The admin port's pages that ask something of connected clients: push, kick, groups.

    POST /api/push   {"route": "onScore", "body": {"score": 3}, "uid": "alice"}
    POST /api/kick   {"uid": "alice", "reason": "maintenance"}
    POST /api/group  {"join": "room-7", "session": "…"}

The answer says how many clients it reached: `{"sent": 1, "dropped": 0}`; in a lobby, with
those of all gateways, and one line for each that was asked.

The addressee of a push is the same as in a row of an outbox file; it may also stand in an
object `to`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from twisted.internet.defer import Deferred

from gateway.protocols.pomelo.admin import json_answer
from gateway.protocols.pomelo.lobby.lobby import Lobby, total
from gateway.protocols.pomelo.push.row import Given, Push, Row, push
from gateway.sdk.protocol import Answer, Post


class _To(Given, forbid_unknown_fields=True): ...


class _Request(_To, forbid_unknown_fields=True, kw_only=True):
    route: str
    body: msgspec.Raw
    to: _To | None = None
    ttl: Any = None
    """A key of rows in files, which are the same otherwise; without effect here."""
    priority: Any = None


_REQUEST = msgspec.json.Decoder(_Request)


def parse(request: bytes) -> Push:
    """The push that a request's body asks for.  ValueError says what is wrong."""
    try:
        asked = _REQUEST.decode(request)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as why:
        raise ValueError(f"the request is not a push: {why}") from None
    to: _To = asked
    if asked.to is not None:
        if any(getattr(asked, name) is not None for name in _To.__struct_fields__):
            raise ValueError("more than one addressee: in to, and beside it")
        to = asked.to
    return push(asked.route, bytes(asked.body), to, asked.ttl, asked.priority)


def page(lobby: Lobby, parse: Callable[[bytes], Row]) -> Post:
    """The page that answers how many clients had what; *parse* raises ValueError with the refusal."""

    async def carry_out(row: Row) -> Answer:
        try:
            heard = await lobby.carry_out(row)
        except ValueError as why:
            return json_answer({"error": str(why)}, 400)
        told: dict[str, Any] = total(heard)
        if lobby.others:
            told["gateways"] = [one.as_json() for one in heard]
        return json_answer(told)

    def answer(request: bytes) -> Answer | Deferred[Answer]:
        try:
            row = parse(request)
        except ValueError as why:
            return json_answer({"error": str(why)}, 400)
        return Deferred.fromCoroutine(carry_out(row))

    return answer
