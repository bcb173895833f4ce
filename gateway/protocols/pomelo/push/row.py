"""A row of an outbox file, whatever it asks for: how it begins, how long it is wanted."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.protocols.pomelo.registry import Delivery, Registry

__all__ = ["Row"]


@dataclass(slots=True, frozen=True, kw_only=True)
class Row:
    """A push, an answer, a change of groups, or what can be none of these."""

    ttl: float | None = None
    """Seconds, from when its file was written, after which nobody wants it any more."""

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return 0

    def begin(self, registry: Registry) -> Delivery:
        """Do it for whoever is connected now; what is left to do is a delivery.

        Raises ValueError if it can not be done.
        """
        raise NotImplementedError
