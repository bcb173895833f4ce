"""Rows: orders from outside the gateway for connected clients.

    push     {"route": "onScore", "body": {"score": 3}, "uid": "alice", "ttl": 60}
    answer   {"session": "…", "id": 7, "body": {"code": 200}}
    kick     {"session": "…"}     {"uid": "alice", "reason": "maintenance"}
    groups   {"join": "room-7", "session": "…"}     {"leave": "room-7", "uid": "alice"}

Each is a `Row`: of an outbox file, of what is posted to the admin port, or of what another
gateway of a lobby passes on.

A push, and a change of groups, is for exactly one of a session, a user, a group, attributes,
everyone.  Everyone has to be asked for by name: a job whose join found nothing writes nulls,
and what it computed for one player must not reach all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import inf

import msgspec

from gateway.protocols.pomelo.groups import checked_name
from gateway.protocols.pomelo.registry import PRIORITIES, Delivery, Member, Registry

_NAMES = "session, uid, group, attributes, all: true"
_MOST_ID = 0xFFFFFFFF
_REASON_CHARS = 200
_MEMBERSHIP_BYTES = 1024
"""More than a change of groups takes in a call: two names of 255 bytes."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Row:
    """A push, an answer, a kick, a change of groups, or what can be none of these."""

    ttl: float | None = None
    """Seconds from the writing of its file after which it is of no use."""

    @property
    def size(self) -> int:
        return 0

    @property
    def to_session(self) -> str | None:
        """The one session that it is for, if it is for one."""
        return None

    def begin(self, registry: Registry) -> Delivery:
        """Do it for clients that are connected; the rest is a delivery.  Raises ValueError."""
        raise NotImplementedError


@dataclass(slots=True, frozen=True)
class Rejected(Row):
    """A row of an outbox file that can not be carried out."""

    why: str

    def begin(self, registry: Registry) -> Delivery:
        """Raises ValueError, always: it has no addressee."""
        raise ValueError(self.why)


def seconds_of(ttl: object) -> float | None:
    """A time to live in seconds; None if none is given.  Raises ValueError."""
    if ttl is None:
        return None
    number = isinstance(ttl, int | float | Decimal) and not isinstance(ttl, bool)
    try:
        seconds = float(ttl) if number else inf  # type: ignore[arg-type]
    except OverflowError:
        seconds = inf
    if not 0 <= seconds < inf:
        raise ValueError("ttl: must be a number of seconds, 0 or more")
    return seconds


# Whom it is for


@dataclass(slots=True, frozen=True)
class Addressee:
    """One of these is set."""

    session: str | None = None
    uid: str | None = None
    group: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Clients whose events have all of these attributes."""
    everyone: bool = False

    def members(self, registry: Registry) -> list[Member]:
        if self.session is not None:
            return registry.session(self.session)
        if self.uid is not None:
            return registry.user(self.uid)
        if self.group is not None:
            return registry.groups.members(self.group)
        if self.attributes:
            return registry.all(self.attributes)
        return registry.all() if self.everyone else []


class Given(msgspec.Struct):
    """How a row or a request names an addressee; what is None, or False, is not given."""

    session: str | None = None
    uid: str | int | None = None
    group: str | int | None = None
    attributes: dict[str, str | None] | None = None
    everyone: bool | None = msgspec.field(default=None, name="all")


def addressee(to: Given) -> Addressee:
    """The addressee that was given.  Raises ValueError if there is none, or more than one."""
    uid, attributes = to.uid, to.attributes
    given = (to.session, uid, to.group, attributes, to.everyone or None)
    if given.count(None) == len(given):
        raise ValueError(f"no addressee: must have one of {_NAMES}")
    if given.count(None) < len(given) - 1:
        raise ValueError(f"more than one addressee: must have one of {_NAMES}")
    if to.group is not None:
        return Addressee(group=checked_name(to.group))
    if attributes is None:
        return Addressee(
            to.session, None if uid is None else str(uid), everyone=bool(to.everyone)
        )
    wanted = {name: value for name, value in attributes.items() if value is not None}
    if not attributes:
        raise ValueError("attributes: names none; everyone is all: true")
    if len(wanted) < len(attributes):
        missing = next(name for name, value in attributes.items() if value is None)
        raise ValueError(f"attributes: {missing!r} is null")
    return Addressee(attributes=wanted)


# Pushes


@dataclass(slots=True, frozen=True)
class Push(Row):
    """One message, which clients it is for, how urgent."""

    route: str
    body: bytes
    """JSON."""
    to: Addressee
    priority: str = "normal"
    """One of `registry.PRIORITIES`."""

    @property
    def size(self) -> int:
        return len(self.body)

    @property
    def to_session(self) -> str | None:
        return self.to.session

    def begin(self, registry: Registry) -> Delivery:
        """Encode it for the addressees.  Raises ValueError for a route or body that can not be."""
        members = self.to.members(registry)
        return registry.begin(members, self.route, self.body, self.priority)


def push(route: str, body: bytes, to: Given, ttl: object, priority: object) -> Push:
    """The push with this time to live and priority, each None if it was not given.

    Raises ValueError if they are not what they may be, or if it has no addressee.
    """
    whom = addressee(to)
    if priority is None:
        priority = "normal"
    if not isinstance(priority, str) or priority not in PRIORITIES:
        raise ValueError(f"priority: must be one of {', '.join(PRIORITIES)}")
    return Push(route, body, whom, priority, ttl=seconds_of(ttl))


# Answers


@dataclass(slots=True, frozen=True)
class AnswerRow(Row):
    """The answer to one request of one session."""

    session: str
    id: int
    """The id of the request, as its client counts."""
    body: bytes
    """JSON."""

    @property
    def size(self) -> int:
        return len(self.body)

    @property
    def to_session(self) -> str | None:
        return self.session

    def begin(self, registry: Registry) -> Delivery:
        """Answer the request; nothing else is to deliver.  Raises ValueError for bad JSON."""
        answered = registry.answer(self.session, self.id, self.body)
        return Delivery.done(answered=int(answered))


def answer_row(
    session: str | None, number: object, body: bytes, ttl: object
) -> AnswerRow:
    """The answer that was given.  Raises ValueError if it is to nothing."""
    seconds = seconds_of(ttl)
    if session is None:
        raise ValueError("an answer must have a session")
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not 0 < number <= _MOST_ID:  # type: ignore[operator]
        raise ValueError(f"id: must be a number from 1 to {_MOST_ID}")
    return AnswerRow(session, number, body, ttl=seconds)  # type: ignore[arg-type]


# Kicks


@dataclass(slots=True, frozen=True)
class Kick(Row):
    """One session, or all of those who are, or say that they are, one user, must go."""

    reason: str
    """The reason that they are told."""
    session: str | None = None
    uid: str | None = None

    @property
    def to_session(self) -> str | None:
        return self.session

    def begin(self, registry: Registry) -> Delivery:
        if self.session is not None:
            members = registry.session(self.session)
        else:
            members = registry.claiming(self.uid or "")
        return Delivery.done(kicked=registry.kick(members, self.reason))


class _KickAsked(msgspec.Struct, forbid_unknown_fields=True):
    uid: str | int | None = None
    session: str | None = None
    reason: str = "kicked"


_KICK = msgspec.json.Decoder(_KickAsked)


def kick(request: bytes) -> Kick:
    """The kick that a request's body asks for.  ValueError says what is wrong."""
    try:
        asked = _KICK.decode(request)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as why:
        raise ValueError(f"the request is no kick: {why}") from None
    if (asked.uid is None) == (asked.session is None):
        raise ValueError("must have one of session, uid")
    if not 0 < len(asked.reason) <= _REASON_CHARS:
        raise ValueError(f"reason: must have 1 to {_REASON_CHARS} characters")
    uid = None if asked.uid is None else str(asked.uid)
    return Kick(asked.reason, asked.session, uid)


# Changes of groups


@dataclass(slots=True, frozen=True)
class Membership(Row):
    """Members that join a group, or leave it."""

    group: str
    joins: bool
    to: Addressee

    @property
    def size(self) -> int:
        return _MEMBERSHIP_BYTES

    @property
    def to_session(self) -> str | None:
        return self.to.session

    def apply(self, registry: Registry) -> int:
        """Change it for those who are connected now; returns for how many it did."""
        groups = registry.groups
        change = groups.join if self.joins else groups.leave
        return sum(change(member, self.group) for member in self.to.members(registry))

    def begin(self, registry: Registry) -> Delivery:
        """Change it; there is nothing to deliver."""
        return Delivery.done(changed=self.apply(registry))


class GroupChange(msgspec.Struct, forbid_unknown_fields=True):
    """How a request, or an answer, asks for a change of groups."""

    join: str | int | None = None
    leave: str | int | None = None
    session: str | None = None
    uid: str | int | None = None


_GROUP_CHANGE = msgspec.json.Decoder(GroupChange)


def change(request: bytes) -> Membership:
    """The change that a request's body asks for.  ValueError says what is wrong."""
    try:
        return membership_of(_GROUP_CHANGE.decode(request))
    except (ValueError, RecursionError) as why:
        raise ValueError(f"the request changes no group: {why}") from None


def membership_of(asked: GroupChange) -> Membership:
    return membership(asked.join, asked.leave, Given(asked.session, asked.uid))


def membership(
    join: str | int | None,
    leave: str | int | None,
    to: Given,
    ttl: object = None,
) -> Membership:
    """The change that was asked for.  Raises ValueError if it is none."""
    seconds = seconds_of(ttl)
    given = leave if join is None else join
    if given is None or (join is not None and leave is not None):
        raise ValueError("must have one of join, leave")
    whom = addressee(to)
    return Membership(checked_name(given), join is not None, whom, ttl=seconds)
