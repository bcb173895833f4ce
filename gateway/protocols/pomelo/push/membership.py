"""A change of groups from outside the gateway: who joins one, or leaves it.

{"join": "room-7", "session": "…"}     {"leave": "room-7", "uid": "alice"}
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from gateway.protocols.pomelo.groups import checked_name
from gateway.protocols.pomelo.push.addressee import Addressee, Given, addressee
from gateway.protocols.pomelo.push.row import Row
from gateway.protocols.pomelo.registry import Delivery, Registry


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """How a request, or an answer, asks for it."""

    join: str | int | None = None
    leave: str | int | None = None
    session: str | None = None
    uid: str | int | None = None


@dataclass(slots=True, frozen=True)
class Membership(Row):
    """One change."""

    group: str
    joins: bool
    to: Addressee

    def apply(self, registry: Registry) -> int:
        """Change it for those who are connected now; returns for how many it did."""
        groups = registry.groups
        change = groups.join if self.joins else groups.leave
        return sum(change(member, self.group) for member in self.to.members(registry))

    @property
    def to_session(self) -> str | None:
        """See `Row`."""
        return self.to.session

    def begin(self, registry: Registry) -> Delivery:
        """Change it; there is nothing to deliver."""
        return Delivery.done(changed=self.apply(registry))


_ASKED = msgspec.json.Decoder(Asked)


def change(request: bytes) -> Membership:
    """The change that a request's body asks for.  ValueError says what is wrong."""
    try:
        return membership_of(_ASKED.decode(request))
    except (ValueError, RecursionError) as why:
        raise ValueError(f"the request changes no group: {why}") from None


def membership_of(asked: Asked) -> Membership:
    """The same for what a request, or an answer, asks for."""
    to = Given(asked.session, asked.uid)
    return membership(asked.join, asked.leave, to)


def membership(
    join: str | int | None,
    leave: str | int | None,
    to: Given,
    ttl: float | None = None,
) -> Membership:
    """The change that was asked for.  Raises ValueError if it is none."""
    given = leave if join is None else join
    if given is None or (join is not None and leave is not None):
        raise ValueError("must have one of join, leave")
    return Membership(checked_name(given), join is not None, addressee(to), ttl=ttl)
