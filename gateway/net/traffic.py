"""Counters of one configured listener: its connections, events and bytes since the start.

A reload makes another `Listener` of it; both count here, so that no counter goes back
and limits hold for all of its connections together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.net.limits import ConnectionCounts
from gateway.net.rejections import Rejections

__all__ = ["Traffic"]


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
