"""Counters of one configured listener: its connections, events and bytes since the start.

A reload makes another `Listener` of it; both count here, so that no counter goes back
and limits hold for all of its connections together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gateway.net.rejections import Rejections


class ConnectionCounts(Counter[str]):
    """How many connections are open from each host; one with none is forgotten."""

    def add(self, host: str) -> None:
        """One more."""
        self[host] += 1

    def remove(self, host: str) -> None:
        """One less."""
        self[host] -= 1
        if self[host] <= 0:
            del self[host]


@dataclass(slots=True)
class Traffic:
    """Connections, events and bytes."""

    rejections: Rejections
    hosts: ConnectionCounts = field(default_factory=ConnectionCounts)
    """Open connections by host."""
    open: int = 0
    """Connections that are open."""
    accepted: int = 0
    """Connections since the start."""
    events: int = 0
    """Durable ones."""
    bytes: int = 0
    """Received, as they came over the wire."""
