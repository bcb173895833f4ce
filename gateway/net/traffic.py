"""Counters of one configured listener: its connections, events and bytes since the start.

A reload makes another `Listener` of it; both count here, so that no counter goes back
and limits hold for all of its connections together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gateway.net.rejections import Rejections


class ConnectionCounts(Counter[str]):
    """How many connections are open of each peer; one with none is forgotten."""

    def add(self, peer: str) -> None:
        self[peer] += 1

    def remove(self, peer: str) -> None:
        self[peer] -= 1
        if self[peer] <= 0:
            del self[peer]


@dataclass(slots=True)
class Peers:
    """Counts of the open connections, by `admission.Standing`."""

    addresses: ConnectionCounts = field(default_factory=ConnectionCounts)
    """Connections that count for their address, strangers too."""
    strangers: ConnectionCounts = field(default_factory=ConnectionCounts)
    """Connections of an address that have brought nothing yet."""
    names: ConnectionCounts = field(default_factory=ConnectionCounts)
    """Connections that count for their principal."""


@dataclass(slots=True)
class Traffic:
    """Connections, events and bytes."""

    rejections: Rejections
    peers: Peers = field(default_factory=Peers)
    open: int = 0
    """Connections that are open."""
    accepted: int = 0
    """Connections since the start."""
    events: int = 0
    """Durable ones."""
    bytes: int = 0
    """Received, as they came over the wire."""
