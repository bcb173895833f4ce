"""A push from outside the gateway: one message, and which clients it is for."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.protocols.pomelo.registry import Pushed, Registry

__all__ = ["Push"]


@dataclass(slots=True, frozen=True)
class Push:
    """One message; without `session` and `uid` it is for all clients that match."""

    route: str
    body: bytes
    """JSON."""
    session: str | None = None
    uid: str | None = None
    where: dict[str, str] = field(default_factory=dict)
    """Attributes that the clients' events must have, all of them."""

    def send(self, registry: Registry) -> Pushed:
        """Send it to whoever is connected now.

        Raises ValueError, and sends nothing, for a route or a body that can not be
        encoded (`Registry.push`).
        """
        if self.session is not None:
            members = registry.session(self.session)
        elif self.uid is not None:
            members = registry.user(self.uid)
        else:
            members = registry.all(self.where)
        return registry.push(members, self.route, self.body)
