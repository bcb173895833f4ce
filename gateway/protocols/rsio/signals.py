"""Signals of a session: what `Session.received` yields for the bytes that arrived.

Elements come as `decoder.Run`; everything else that its user must know of has a class
here.  Pings, compression and whatever crossed the end of its stream are dealt with
inside the session and make no signal.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from gateway.protocols.rsio.decoder import Run
from gateway.protocols.rsio.streams import Consumed, Served
from gateway.sdk.interfaces import Refusal


class HelloReceived(Struct):
    """Both hellos were exchanged; `Session.extensions` are those in use."""


class TokenReceived(Struct):
    """The client says who it is; the user checks it."""

    scheme: str
    data: bytes


class Announced(Struct):
    """The client publishes under this name and may be subscribed to (extension 7)."""

    publisher: str
    instance: bytes
    """The sender's instance; empty if it does not say."""
    resumed: bool
    """Whether this instance was asked to resume before."""


class SubscribeReceived(Struct):
    """The peer subscribes: `accept` or `fail` the stream."""

    stream: Served


class SubscribeRejected(Struct):
    """The peer subscribed to more streams than the limit; onError was sent."""

    stream: Served
    why: Refusal


class DemandAdded(Struct):
    """The peer requested more elements of a stream."""

    stream: Served


class Cancelled(Struct):
    """A stream that we serve is over: the peer cancelled it, or broke rule 3.9."""

    stream: Served


class StoredReceived(Struct):
    """The peer has the publisher's first *offset* elements safe (extension 2)."""

    stream: Served
    offset: int


class Accepted(Struct):
    """The peer accepted a subscription of ours: its onSubscribe arrived."""

    stream: Consumed


class Terminated(Struct):
    """A stream that we consume ended: onComplete if *error* is None, else onError."""

    stream: Consumed
    error: str | None


class Violated(Struct):
    """A publisher broke a rule; its stream was cancelled because of it."""

    stream: Consumed
    why: Refusal


class GoodbyeReceived(Struct):
    """The connection is over: write what `take` returns, then close the transport."""

    reason: str


Signal: TypeAlias = (
    Run | HelloReceived | TokenReceived | Announced | SubscribeReceived | SubscribeRejected
    | DemandAdded | Cancelled | StoredReceived | Accepted | Terminated | Violated | GoodbyeReceived
)  # fmt: skip
