"""The connected Pomelo clients, and pushes to them: by session, uid or attributes.

A push is encoded once for all clients with the same `Terms`.  The protocol acknowledges
no pushes; `Delivery` counts the clients that one was written to, and `Registry.outcomes`
counts what became of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Protocol, Self

import msgspec
from attrs import define, field

from gateway.event import Origin
from gateway.protocols.pomelo.groups import Groups
from gateway.protocols.pomelo.handshake import Terms
from gateway.protocols.pomelo.index import AttributeIndex
from gateway.protocols.pomelo.routes import check_route
from gateway.sdk.payload import check

#: For one client, a message was sent, or dropped, or not sent because its uid is only
#: claimed.  A push as a whole was for nobody who is connected, or was refused, because it
#: could not be encoded, or had expired.
OUTCOMES = ("sent", "dropped", "nobody", "refused", "expired", "unproven")

#: How much of a client's output may be unsent for a push to be added, as a part of
#: `options.push_bytes`: what matters least is dropped first.
PRIORITIES: Mapping[str, float] = {"low": 0.25, "normal": 1.0, "high": 2.0}


class Client(Protocol):
    """One that has sent its handshake."""

    @property
    def origin(self) -> Origin: ...

    @property
    def terms(self) -> Terms: ...

    @property
    def uid(self) -> str | None:
        """The user that it belongs to; None if it named none."""


class Member(Client, Protocol):
    """One whose handshake is finished, so that it may be pushed to."""

    @property
    def reachable(self) -> bool:
        """Pushes to its uid reach it; False: it only claims that uid."""

    @property
    def number(self) -> int:
        """The number from `Registry.join`: clients are in this order."""

    @property
    def since(self) -> float:
        """When it joined, in seconds since the epoch."""

    def push(self, package: bytes, share: float = 1.0) -> bool | None:
        """Send a push, true, unless more than *share* of `options.push_bytes` is unsent.

        None: it has left meanwhile.
        """

    def answer(self, number: int, answer: bytes) -> bool:
        """Answer its request with this id by this JSON; false if none waits for that."""

    def kick(self, reason: str) -> None:
        """Answer its pending requests, kick it, and close the connection."""


@define(eq=False)
class Delivery:
    """A push on its way: encoded, and written to some of its clients so far; or what else
    was asked for, and is done.
    """

    _members: Iterator[Member]
    _packages: Mapping[Terms, bytes]
    _outcomes: dict[str, int]
    _share: float = 1.0
    counts: dict[str, int] = field(factory=lambda: {"sent": 0, "dropped": 0})
    """How many clients had what of it so far; dropped: they read too slowly (options.push_bytes)."""

    @classmethod
    def done(cls, **did: int) -> Self:
        """Nothing is left to deliver; to how many it was done, and what."""
        return cls(iter(()), {}, {}, counts=did)

    def send(self, most: int | None = None) -> int:
        """Write it to the next *most* clients, or all; how many there were, 0 at the end."""
        packages, share = self._packages, self._share
        each = [
            member.push(packages[member.terms], share)
            for member in islice(self._members, most)
        ]
        for name, sent in (("sent", True), ("dropped", False)):
            if count := each.count(sent):
                self.counts[name] += count
                self._outcomes[name] += count
        return len(each)


class Registry:
    """All clients of one gateway, or of one listener."""

    def __init__(self) -> None:
        self._sessions: dict[str, Member] = {}
        self._uids: dict[str, dict[Member, None]] = {}
        self._joined = 0
        self._index = AttributeIndex()
        self.groups = Groups()
        """The groups of clients."""
        self.judges: list[Callable[[str, bytes], None]] = []
        """`Handshaker.judge` of each listener: they know the definitions of routes."""
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        """Outcomes of all pushes so far."""

    def __len__(self) -> int:
        return len(self._sessions)

    def join(self, member: Member) -> int:
        """The client can be pushed to from now on; returns how many have joined so far."""
        self._sessions[member.origin.session] = member
        if member.uid is not None:
            self._uids.setdefault(member.uid, {})[member] = None
        self._index.join(member)
        self._joined += 1
        return self._joined

    def leave(self, member: Member) -> None:
        """The client is gone; does nothing if it had not joined."""
        if self._sessions.pop(member.origin.session, None) is None:
            return
        self._index.leave(member)
        self.groups.forget(member)
        others = self._uids.get(member.uid) if member.uid is not None else None
        if others is not None:
            others.pop(member, None)
            if not others and member.uid is not None:
                del self._uids[member.uid]

    def session(self, name: str) -> list[Member]:
        member = self._sessions.get(name)
        return [] if member is None else [member]

    def user(self, uid: str) -> list[Member]:
        """All clients of this user that pushes may reach."""
        found = [one for one in self._uids.get(uid, ()) if one.reachable]
        self.outcomes["unproven"] += len(self._uids.get(uid, ())) - len(found)
        return found

    def claiming(self, uid: str) -> list[Member]:
        """All clients that belong to this user, or say so."""
        return list(self._uids.get(uid, ()))

    def all(self, where: Mapping[str, str] | None = None) -> list[Member]:
        """All clients, or those whose events have all of these attributes.

        A uid is an attribute of those only that pushes to it may reach.
        """
        if not where:
            return list(self._sessions.values())
        uid = where.get("uid")
        members: Iterable[Member] = (
            self._index.candidates(where, self._sessions.values())
            if uid is None
            else self.user(uid)
        )
        wanted = where.items()
        return [each for each in members if wanted <= each.origin.attributes.items()]

    def begin(
        self, to: Iterable[Member], route: str, body: bytes, priority: str = "normal"
    ) -> Delivery:
        """Encode this JSON on this route, to be sent a few clients at a time.

        Raises ValueError if the body is not JSON or does not fit the route's
        definition, or if clients could not read the route.
        """
        members = list(to)
        try:
            check_route(route)
            _check_json(body)
            if not members:
                self._judge(route, body)
            packages = {
                terms: terms.push(route, body) for terms in {m.terms for m in members}
            }
        except ValueError:
            self.outcomes["refused"] += 1
            raise
        self.outcomes["nobody"] += not members
        return Delivery(iter(members), packages, self.outcomes, PRIORITIES[priority])

    def _judge(self, route: str, body: bytes) -> None:
        """Raises ValueError if no listener's clients could be sent this."""
        refused: list[ValueError] = []
        for judge in self.judges:
            try:
                judge(route, body)
            except ValueError as why:
                refused.append(why)
        if refused and len(refused) == len(self.judges):
            raise refused[0]

    def answer(self, session: str, number: int, body: bytes) -> bool:
        """Answer a request by this JSON; false if none waits.  Raises ValueError if it is none."""
        try:
            _check_json(body)
        except ValueError:
            self.outcomes["refused"] += 1
            raise
        member = self._sessions.get(session)
        answered = member is not None and member.answer(number, body)
        self.outcomes["nobody"] += not answered
        return answered

    def kick(self, to: Iterable[Member], reason: str) -> int:
        """Kick these clients; returns how many they are."""
        members = list(to)
        for member in members:
            member.kick(reason)
        return len(members)


def _check_json(body: bytes) -> None:
    try:
        check(body)
        body.decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as why:
        raise ValueError(f"the body is not JSON: {why}") from None
