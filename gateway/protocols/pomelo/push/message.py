"""A push from outside the gateway: one message, which clients it is for, how urgent."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import isfinite

from gateway.protocols.pomelo.push.addressee import Addressee
from gateway.protocols.pomelo.push.row import Row
from gateway.protocols.pomelo.registry import PRIORITIES, Delivery, Registry


@dataclass(slots=True, frozen=True)
class Push(Row):
    """One message."""

    route: str
    body: bytes
    """JSON."""
    to: Addressee
    priority: str = "normal"
    """One of `registry.PRIORITIES`."""

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return len(self.body)

    @property
    def to_session(self) -> str | None:
        """See `Row`."""
        return self.to.session

    def begin(self, registry: Registry) -> Delivery:
        """Encode it for whoever is connected now.

        Raises ValueError for a route or a body that can not be encoded
        (`Registry.begin`).
        """
        members = self.to.members(registry)
        return registry.begin(members, self.route, self.body, self.priority)


@dataclass(slots=True, frozen=True)
class Rejected(Row):
    """A row of an outbox file that is for nobody."""

    why: str

    def begin(self, registry: Registry) -> Delivery:
        """Raises ValueError, always: there is nobody to send it to."""
        raise ValueError(self.why)


def push(route: str, body: bytes, to: Addressee, ttl: object, priority: object) -> Push:
    """The push with this time to live and priority, each None if it was not given.

    Raises ValueError if they are not what they may be.
    """
    if priority is None:
        priority = "normal"
    if not isinstance(priority, str) or priority not in PRIORITIES:
        raise ValueError(f"priority: must be one of {', '.join(PRIORITIES)}")
    return Push(route, body, to, priority, ttl=seconds_of(ttl))


def seconds_of(ttl: object) -> float | None:
    """A time to live in seconds; None if none is given.  Raises ValueError."""
    if ttl is None:
        return None
    number = isinstance(ttl, int | float | Decimal) and not isinstance(ttl, bool)
    seconds = float(ttl) if number else -1.0  # type: ignore[arg-type]
    if not isfinite(seconds) or seconds < 0:
        raise ValueError("ttl: must be a number of seconds, 0 or more")
    return seconds
