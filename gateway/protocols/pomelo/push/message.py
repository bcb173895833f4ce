"""A push from outside the gateway: one message, and which clients it is for."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.protocols.pomelo.push.addressee import Addressee
from gateway.protocols.pomelo.registry import Delivery, Registry

__all__ = ["Push", "Rejected"]


@dataclass(slots=True, frozen=True)
class Push:
    """One message."""

    route: str
    body: bytes
    """JSON."""
    to: Addressee

    def begin(self, registry: Registry) -> Delivery:
        """Encode it for whoever is connected now.

        Raises ValueError for a route or a body that can not be encoded
        (`Registry.begin`).
        """
        return registry.begin(self.to.members(registry), self.route, self.body)


@dataclass(slots=True, frozen=True)
class Rejected:
    """A row of an outbox file that is for nobody."""

    why: str
    body = b""

    def begin(self, registry: Registry) -> Delivery:
        """Raises ValueError, always: there is nobody to send it to."""
        raise ValueError(self.why)
