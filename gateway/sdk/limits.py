"""`listeners[].limits`: what the peers of a listener may take, whatever they speak."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field

from gateway.sdk.fields import ByteCount, Count, Seconds
from gateway.sdk.section import Section
from gateway.sdk.units import Size, Time

if TYPE_CHECKING:
    from gateway.sdk.protocol import Settings

__all__ = ["Limits", "limits_of"]

_MiB = 2**20
_Kind = TypeVar("_Kind")


class Limits(Section):
    """The limits of peers of one listener."""

    connections: Count = Field(
        default=10_000,
        description="Open connections (number); others wait to be let in",
    )
    connections_per_peer: Count = Field(
        default=1000,
        description="Open connections of one address or IPv6 /64 (number), or principal",
    )
    idle: Seconds = Field(
        default=900.0, description="Close a connection silent this long (time)"
    )
    connection_age: Annotated[float, Time("1s", "365d")] | None = Field(
        default=None,
        description="End a connection so old (time) and up to a fifth older, between messages",
    )
    handshake: Seconds = Field(
        default=10.0,
        description="For PROXY header, TLS and WebSocket upgrade together (time)",
    )
    message_bytes: ByteCount = Field(
        default=16 * _MiB,
        description="One event or message (size); some protocols have less by default",
    )
    inflated_bytes: ByteCount = Field(
        default=100 * _MiB, description="What one frame or batch may unpack to (size)"
    )
    unacknowledged_bytes: ByteCount = Field(
        default=8 * _MiB,
        description="Take no more of a connection with this much not yet on disk (size)",
    )
    read_ahead_bytes: Annotated[int, Size("0B", "1GiB")] = Field(
        default=8 * _MiB,
        description="Read ahead of a connection whose messages wait (size); "
        "below 64KiB: nothing",
    )
    minimum_rate: Annotated[int, Size("0B", "1GiB")] = Field(
        default=128,
        description="Bytes a second, at least, of a message that has begun (size)",
    )
    control_messages: Count = Field(
        default=1 << 14,
        description="Messages that move no data, at once (number); 100 more each second",
    )


def limits_of(kind: type[_Kind], settings: Settings[Any]) -> _Kind:
    """The limits that a protocol's own dataclass names, of one listener.

    A field has the value of the option of its name, or of the key of `Limits`; what is
    neither keeps its default.
    """
    known = dict(settings.limits) | dict(settings.options)
    names = [each.name for each in fields(kind) if each.name in known]  # type: ignore[arg-type]
    return kind(**{name: known[name] for name in names})
