"""The limits of one RS.io connection, with their defaults.

docs/rsio-v0.md says what becomes of a peer that asks for more.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(slots=True, frozen=True, kw_only=True)
class Limits:
    """Of the protocol itself; sizes in bytes."""

    extensions: int = 64
    """In one hello."""
    name_bytes: int = 255
    """Of a publisher's name."""
    text_bytes: int = 4096
    """Of a reason or an error; of a ping, and of a token, too."""
    element_bytes: int = 1 << 20
    """Whole or joined; a stream that exceeds it is cancelled."""
    declared_bytes: int = 16 << 20
    """An element, or the elements packed together, that claims more ends the
    connection."""
    part_bytes: int = 1 << 20
    """Of a split element."""
    unfinished_elements: int = 64
    """Split elements of a connection that are still arriving."""
    unfinished_bytes: int = 16 << 20
    """… and what of them is held."""
    streams: int = 256
    """That one connection may have open with us, each way."""
    inflated_bytes: int = 16 << 20
    """What one compressed block may hold."""
    block_signals: int = 1 << 14
    """Messages that blocks may hold, beside elements: more come with their octets, and
    with the elements that we send."""
    remembered: int = 1 << 16
    """Cancelled streams whose late elements are still recognised."""
