"""The protocol's limits on one RS.io connection, with their defaults.

docs/rsio-v0.md says what happens to a peer that exceeds one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True, kw_only=True)
class Limits:
    """Limits of the protocol itself; sizes in bytes."""

    extensions: int = 64
    """Extensions in one hello."""
    name_bytes: int = 255
    """A publisher's name, or a token's scheme."""
    text_bytes: int = 4096
    """A reason, an error, the data of a ping or of a token."""
    element_bytes: int = 1 << 20
    """One element, whole or joined; a stream that exceeds it is cancelled."""
    declared_bytes: int = 16 << 20
    """The declared size of an element, or of all in one onNextPacked; more ends the connection."""
    part_bytes: int = 1 << 20
    """One part of a split element, or one block."""
    unfinished_elements: int = 64
    """Split elements of a connection that are incomplete."""
    unfinished_bytes: int = 16 << 20
    """The bytes held of them."""
    streams: int = 256
    """Streams of one connection, in each direction."""
    inflated_bytes: int = 16 << 20
    """Bytes that one block inflates to."""
    block_signals: int = 1 << 14
    """Messages other than elements that blocks may hold; each octet of a block allows 4
    more, each element that we send 1 more."""
    remembered: int = 1 << 16
    """Cancelled streams whose late elements are still skipped."""

    def __post_init__(self) -> None:
        """No other limit keeps an element of `element_bytes` out, whole or in parts."""
        for name in ("declared_bytes", "unfinished_bytes"):
            object.__setattr__(self, name, max(getattr(self, name), self.element_bytes))
