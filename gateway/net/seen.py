"""A snapshot of one connection, for `/api/connections`: who it is, and what it did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seen:
    """One connection at one moment."""

    listener: str
    session: str
    peer: str
    principal: str | None
    seconds: float
    """Since it was accepted."""
    bytes: int
    """Received."""
    events: int
    """Made durable."""
    unacknowledged: int
    """Bytes that wait to be acknowledged."""
    paused: bool
    """Its server takes nothing at the moment."""
    last_error: str | None
    """What it did last that did not end it."""
