"""Whom a push is for: exactly one of a session, a user, a group, attributes, everyone.

Everyone has to be asked for by name.  A job whose join found nothing writes nulls, and
what it computed for one player must not reach all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from gateway.protocols.pomelo.groups import checked_name
from gateway.protocols.pomelo.registry import Member, Registry

_NAMES = "session, uid, group, attributes, all: true"


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
        """Those of them who are connected now."""
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
    """The addressee that was given.

    Raises ValueError if there is none, or more than one, or if it names nobody.
    """
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
