"""What a `Session` tells: one small object for each thing that happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gateway.interfaces import Refusal
from gateway.protocols.rsio.decoder import Run
from gateway.protocols.rsio.messages import Extension
from gateway.protocols.rsio.streams import Consumed, Served

__all__ = [
    "Asked",
    "Cancelled",
    "Demanded",
    "Ended",
    "Event",
    "Identified",
    "Left",
    "Opened",
    "Rejected",
    "Safe",
    "Started",
    "Violated",
]


@dataclass(slots=True)
class Opened:
    """Both sides said hello."""

    extensions: frozenset[Extension]


@dataclass(slots=True)
class Identified:
    """The client says who it is; believe it, or say goodbye."""

    scheme: str
    data: bytes


@dataclass(slots=True)
class Asked:
    """The peer subscribes: `accept` the stream, or `fail` it."""

    stream: Served


@dataclass(slots=True)
class Rejected:
    """The peer subscribed to more than it may; it was told."""

    stream: Served
    why: Refusal


@dataclass(slots=True)
class Demanded:
    """A subscriber wants more."""

    stream: Served


@dataclass(slots=True)
class Cancelled:
    """A stream that we serve is over: it was cancelled, or broke a rule and was told."""

    stream: Served


@dataclass(slots=True)
class Safe:
    """A subscriber has so many of our elements safe (extension 2)."""

    stream: Served
    offset: int


@dataclass(slots=True)
class Started:
    """A stream that we subscribed to was accepted."""

    stream: Consumed


@dataclass(slots=True)
class Ended:
    """A stream that we consume has ended; without *error*, it is complete."""

    stream: Consumed
    error: str | None


@dataclass(slots=True)
class Violated:
    """A publisher did what it must not; its stream was cancelled because of it."""

    stream: Consumed
    why: Refusal


@dataclass(slots=True)
class Left:
    """The conversation is over: write what is left, then close."""

    reason: str
    answered: bool
    """The goodbye was ours."""


Event: TypeAlias = (
    Run | Opened | Identified | Asked | Rejected | Demanded | Cancelled | Safe
    | Started | Ended | Violated | Left
)  # fmt: skip
