"""Signals of a session: what `Session.received` yields for the bytes that arrived.

Elements come as `decoder.Run`; everything else that its user must know of has a class
here.  Pings, compression and whatever crossed the end of its stream are dealt with
inside the session and make no signal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gateway.interfaces import Refusal
from gateway.protocols.rsio.decoder import Run
from gateway.protocols.rsio.streams import Consumed, Served

__all__ = [
    "Accepted",
    "Cancelled",
    "DemandAdded",
    "GoodbyeReceived",
    "Opened",
    "Signal",
    "StoredReceived",
    "SubscribeReceived",
    "SubscribeRejected",
    "Terminated",
    "TokenReceived",
    "Violated",
]


@dataclass(slots=True)
class Opened:
    """Both hellos were exchanged; `Session.extensions` are those in use."""


@dataclass(slots=True)
class TokenReceived:
    """The client says who it is; the user checks it."""

    scheme: str
    data: bytes


@dataclass(slots=True)
class SubscribeReceived:
    """The peer subscribes: `accept` or `fail` the stream."""

    stream: Served


@dataclass(slots=True)
class SubscribeRejected:
    """The peer subscribed to more streams than the limit; onError was sent."""

    stream: Served
    why: Refusal


@dataclass(slots=True)
class DemandAdded:
    """The peer requested more elements of a stream."""

    stream: Served


@dataclass(slots=True)
class Cancelled:
    """A stream that we serve is over: the peer cancelled it, or broke rule 3.9."""

    stream: Served


@dataclass(slots=True)
class StoredReceived:
    """The peer has the publisher's first *offset* elements safe (extension 2)."""

    stream: Served
    offset: int


@dataclass(slots=True)
class Accepted:
    """The peer accepted a subscription of ours: its onSubscribe arrived."""

    stream: Consumed


@dataclass(slots=True)
class Terminated:
    """A stream that we consume ended: onComplete if *error* is None, else onError."""

    stream: Consumed
    error: str | None


@dataclass(slots=True)
class Violated:
    """A publisher broke a rule; its stream was cancelled because of it."""

    stream: Consumed
    why: Refusal


@dataclass(slots=True)
class GoodbyeReceived:
    """The connection is over: write what `take` returns, then close the transport."""

    reason: str


Signal: TypeAlias = (
    Run | Opened | TokenReceived | SubscribeReceived | SubscribeRejected | DemandAdded
    | Cancelled | StoredReceived | Accepted | Terminated | Violated | GoodbyeReceived
)  # fmt: skip
