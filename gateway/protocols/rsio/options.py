"""Options of RS.io listeners: `listeners[].options` in the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from gateway.sdk.endpoint import Unix
from gateway.sdk.fields import ByteCount, Count, Secret, Switch, Text
from gateway.sdk.section import NEW_CONNECTIONS, Section
from gateway.sdk.units import Number, Time

if TYPE_CHECKING:
    from gateway.sdk.protocol import Listener

_NAME_BYTES = 255
"""Bytes of a publisher's name: docs/rsio-v0.md."""

MiB = 2**20


class Options(Section):
    """Options of listeners for Reactive Streams IO."""

    reload: ClassVar = NEW_CONNECTIONS

    subscribe: list[Text] = Field(
        default=["events"], description="Peers' publishers to take events from"
    )
    publish: list[Literal["tap", "events"]] = Field(
        default=[],
        description="What peers may read of all events: tap (live), events (replay)",
    )
    window: Annotated[int, Number(1, 1 << 31)] = Field(
        default=1024,
        description="Elements of one stream on their way and not on disk (number)",
    )
    content_type: Text = Field(
        default="application/json",
        description="What elements are; those of a fixed size are octets",
    )
    element_bytes: ByteCount = Field(
        default=MiB, description="One element, whole or joined (size)"
    )
    streams: Count = Field(
        default=256, description="Subscriptions of one connection, each way (number)"
    )
    hello_timeout: Annotated[float, Time("100ms", "1h")] = Field(
        default=10.0, description="From the connection to the peer's hello (time)"
    )
    goodbye_timeout: Annotated[float, Time("100ms", "1h")] = Field(
        default=5.0, description="From our goodbye to its answer (time)"
    )
    keepalive_interval: Annotated[float, Time("0s", "1h")] = Field(
        default=30.0,
        description="Ask a silent peer for a sign of life; 0s = never (time)",
    )
    offsets: Switch = Field(
        default=True, description="Let named senders resume without doubles"
    )
    names: Count = Field(
        default=1 << 17,
        description="Names without a token that are remembered for that (number)",
    )
    token_names: Count = Field(
        default=1 << 14, description="The same, of each token (number)"
    )
    compression: Switch = Field(
        default=True, description="Let peers compress what they send"
    )
    tokens: dict[str, Secret] = Field(
        default={}, description="Names to tokens of who may connect; {} = everyone"
    )
    check_publishers: Switch = Field(
        default=False, description="Publish check/…, which gateway rsio-check reads"
    )

    @field_validator("subscribe")
    @classmethod
    def _each_once(cls, names: list[str]) -> list[str]:
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"has {name!r} twice: its events would be doubled")
            if len(name.encode()) > _NAME_BYTES:
                raise ValueError(f"{name[:20]!r}… is longer than {_NAME_BYTES} bytes")
        return names


def names(listener: Listener[Options]) -> bool:
    """Whether it knows senders by their names."""
    options = listener.options
    return bool(options.offsets and options.subscribe)


def unproved_names(listener: Listener[Options]) -> bool:
    """Whether a stranger may say the name of a sender, and so take it from that."""
    proved = listener.options.tokens or listener.client_certificates
    return names(listener) and not proved and not isinstance(listener.listen, Unix)
