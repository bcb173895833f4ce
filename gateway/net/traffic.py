"""Counters of one configured listener: its connections, events and bytes since the start.

A reload makes another `Listener` of it; both count here, so that no counter goes back
and limits hold for all of its connections together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.net.rejections import Rejections


class ConnectionCounts:
    """How many connections are open from each host."""

    __slots__ = ("_hosts",)

    def __init__(self) -> None:
        self._hosts: dict[str, int] = {}

    def __getitem__(self, host: str) -> int:
        return self._hosts.get(host, 0)

    def add(self, host: str) -> None:
        """One more."""
        self._hosts[host] = self[host] + 1

    def remove(self, host: str) -> None:
        """One less; a host with none is forgotten."""
        left = self[host] - 1
        if left > 0:
            self._hosts[host] = left
        else:
            self._hosts.pop(host, None)


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
