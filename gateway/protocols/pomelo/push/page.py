"""`POST /api/push` of the admin port: parses the request, pushes, says who got it.

    {"route": "onScore", "body": {"score": 3}, "uid": "alice"}

The addressee is the same as in a row of an outbox file; it may also stand in an object
`to`.  There, `{"all": {…}}` with attributes is the older spelling of `attributes`.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from twisted.internet.defer import Deferred

from gateway.protocols.pomelo.push.addressee import Addressee, Given, addressee
from gateway.protocols.pomelo.push.delivery import Slices
from gateway.protocols.pomelo.push.message import Push, push
from gateway.protocols.pomelo.registry import Delivery, Registry
from gateway.sdk.protocol import Answer, Post

__all__ = ["page", "parse"]


class _To(msgspec.Struct, forbid_unknown_fields=True):
    session: str | None = None
    uid: str | int | None = None
    group: str | int | None = None
    attributes: dict[str, str | None] | None = None
    all: bool | dict[str, str | None] | None = None


class _Request(_To, forbid_unknown_fields=True, kw_only=True):
    route: str
    body: msgspec.Raw
    to: _To | None = None
    ttl: Any = None
    """It is sent at once: this is for rows, which are the same otherwise."""
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
    body = bytes(asked.body)
    return push(asked.route, body, _addressee(to), asked.ttl, asked.priority)


def _addressee(to: _To) -> Addressee:
    everyone, attributes = to.all, to.attributes
    if isinstance(everyone, dict):
        if attributes is not None:
            raise ValueError("more than one addressee: all, and attributes")
        everyone, attributes = None, everyone
    return addressee(Given(to.session, to.uid, to.group, attributes, everyone))


def page(registry: Registry, reactor: Any) -> Post:
    """Answers the body of `POST /api/push` with how many clients got the push."""

    def answer(request: bytes) -> Answer | Deferred[Answer]:
        try:
            delivery = parse(request).begin(registry)
        except ValueError as why:
            return _json({"error": str(why)}, 400)
        return Deferred.fromCoroutine(_deliver(delivery, Slices(reactor)))

    return answer


async def _deliver(delivery: Delivery, slices: Slices) -> Answer:
    await slices.deliver(delivery)
    pushed = delivery.pushed
    return _json({"sent": pushed.sent, "dropped": pushed.dropped}, 200)


def _json(value: object, code: int) -> Answer:
    return Answer(json.dumps(value).encode(), "application/json", code)
