"""The admin port's pages of sessions and groups: who is connected to this gateway.

GET  /api/sessions?uid=alice&limit=100&after=17
     {"sessions": [{"session", "uid", "proven", "listener", "peer", "since", …}],
      "total": 3, "next": null}
GET  /api/groups?group=room-7
     {"groups": [{"group": "room-7", "members": 2}], "total": 40}

With `everywhere=1` they are those of all gateways of the lobby, and each says where it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from twisted.internet.defer import Deferred

from gateway.protocols.pomelo.registry import Member, Registry
from gateway.sdk.protocol import Answer, Get

if TYPE_CHECKING:
    from gateway.protocols.pomelo.lobby.lobby import Lobby

Page: TypeAlias = Callable[[Mapping[str, str]], Answer]
"""A GET page of one gateway."""
_FINE = 200

_FILTERS: Mapping[str, Callable[[Member], str | None]] = {
    "uid": lambda one: one.uid,
    "session": lambda one: one.origin.session,
    "listener": lambda one: one.origin.listener,
    "peer": lambda one: one.origin.peer,
}
_USUAL_SESSIONS, _MOST_SESSIONS = 100, 1000
"""Sessions of one page, if nothing is said, and at most."""


def sessions_page(registry: Registry) -> Page:
    """Lists those who are connected, in the order in which they came."""

    def answer(query: Mapping[str, str]) -> Answer:
        try:
            limit = _number(query, "limit", _USUAL_SESSIONS)
            after = _number(query, "after", 0)
            found = _matching(registry, query)
        except ValueError as why:
            return json_answer({"error": str(why)}, 400)
        most = min(limit, _MOST_SESSIONS)
        page = list(islice((one for one in found if one.number > after), most + 1))
        more = len(page) > most
        del page[most:]
        sessions = [_shown(one) for one in page]
        following = page[-1].number if more and page else None
        total = len(registry)
        return json_answer({"sessions": sessions, "total": total, "next": following})

    return answer


def groups_page(registry: Registry) -> Page:
    def answer(query: Mapping[str, str]) -> Answer:
        groups = registry.groups
        if unknown := [name for name in query if name != "group"]:
            return json_answer({"error": f"{unknown[0]!r}: must be group"}, 400)
        name = query.get("group")
        if name is None:
            sizes = list(islice(groups.sizes(), _MOST_SESSIONS))
        else:
            sizes = [(name, len(groups.members(name)))]
        found = [{"group": name, "members": count} for name, count in sizes if count]
        return json_answer({"groups": found, "total": len(groups)})

    return answer


PAGES: Mapping[str, Callable[[Registry], Page]] = {
    "sessions": sessions_page,
    "groups": groups_page,
}


def everywhere(name: str, lobby: Lobby) -> Get:
    """One of `PAGES`, of this gateway, or of all of the lobby."""
    own = PAGES[name](lobby.registry)

    async def of_all(query: Mapping[str, str]) -> Answer:
        if "after" in query:
            return json_answer({"error": "after: goes on within one gateway only"}, 400)
        here = own(query)
        if here.code != _FINE:
            return here
        found: list[dict[str, Any]] = []
        gateways: list[dict[str, Any]] = []
        heard = [lobby.itself(here.body), *await lobby.show(name, query)]
        for one in heard:
            about = one.as_json()
            if one.shown:
                page = json.loads(one.shown)
                found += ({**each, "gateway": one.gateway} for each in page[name])
                about["total"] = page["total"]
                about["more"] = page.get("next") is not None
            elif one.error is None:
                about["error"] = "lists no other gateway's clients: it is too old"
            gateways.append(about)
        total = sum(each.get("total", 0) for each in gateways)
        return json_answer({name: found, "total": total, "gateways": gateways})

    def answer(query: Mapping[str, str]) -> Answer | Deferred[Answer]:
        asked = dict(query)
        if asked.pop("everywhere", None) is None:
            return own(query)
        return Deferred.fromCoroutine(of_all(asked))

    return answer


def _matching(registry: Registry, query: Mapping[str, str]) -> Iterator[Member]:
    wanted = {name: query[name] for name in query if name not in ("limit", "after")}
    group = wanted.pop("group", None)
    for name in wanted:
        if name not in _FILTERS:
            known = ", ".join((*_FILTERS, "group", "limit", "after"))
            raise ValueError(f"{name!r}: must be one of {known}")
    uid = wanted.get("uid")
    members = registry.all() if uid is None else registry.claiming(uid)
    if group is not None:
        inside = set(registry.groups.members(group))
        members = [one for one in members if one in inside]
    return (
        one
        for one in members
        if all(_FILTERS[name](one) == value for name, value in wanted.items())
    )


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 18:
        raise ValueError(f"{name}: must be a number, not {text!r}")
    return int(text)


def _shown(one: Member) -> dict[str, Any]:
    origin = one.origin
    return {
        "session": origin.session,
        "uid": one.uid,
        "proven": one.uid is not None and origin.attributes.get("uid_unproven") is None,
        "reachable": one.uid is not None and one.reachable,
        "listener": origin.listener,
        "peer": origin.peer,
        "since": round(one.since, 3),
        "principal": origin.principal,
        "client": origin.attributes.get("client"),
    }


def json_answer(value: object, code: int = _FINE) -> Answer:
    return Answer(msgspec.json.encode(value), "application/json", code)
