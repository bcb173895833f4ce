"""What is asked for from outside the gateway, of whoever is connected: how it begins.

A row of an outbox file is one, what is posted to the admin port, and what another gateway
of a lobby passes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.protocols.pomelo.registry import Delivery, Registry


@dataclass(slots=True, frozen=True, kw_only=True)
class Row:
    """A push, an answer, a kick, a change of groups, or what can be none of these."""

    ttl: float | None = None
    """Seconds, from when its file was written, after which nobody wants it any more."""

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return 0

    @property
    def to_session(self) -> str | None:
        """The one session that it is for, if it is for one."""
        return None

    def begin(self, registry: Registry) -> Delivery:
        """Do it for whoever is connected now; what is left to do is a delivery.

        Raises ValueError if it can not be done.
        """
        raise NotImplementedError
