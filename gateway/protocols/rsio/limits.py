"""What one RS.io connection may ask for, and what a listener offers; defaults included.

docs/rsio-v0.md says what becomes of a peer that asks for more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Limits", "Options"]


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


@dataclass(slots=True, frozen=True, kw_only=True)
class Options:
    """Of a listener; times in seconds, sizes in bytes."""

    subscribe: Sequence[str] = ("events",)
    """The peer's publishers whose elements become events."""
    window: int = 1024
    """Elements of one stream that may be on their way and not yet durable."""
    content_type: str = "application/json"
    """What elements of variable size are; those of a fixed size are octets."""
    element_bytes: int = 1 << 20
    """One element, whole or joined."""
    streams: int = 256
    """Subscriptions of one connection to our publishers."""
    hello_timeout: float = 10.0
    """From the connection to the peer's hello."""
    goodbye_timeout: float = 5.0
    """From our goodbye to its answer."""
    keepalive_interval: float = 30.0
    """A peer that knows the extension is asked for a sign of life this often while it
    is silent; 0 for never."""
    offsets: bool = True
    """Offer extension 2: senders that have a name resume without doubles."""
    compression: bool = True
    """Offer extension 6."""
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Who may connect: name to secret.  Empty: everyone who gets this far."""
    check_publishers: bool = False
    """Serve `check/…`, which `gateway rsio-check` subscribes to."""
