"""What is particular to each protocol: `listeners[].options`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from gateway.config.fields import (
    ByteCount,
    Count,
    Definition,
    FolderName,
    Listen,
    PomeloProfile,
    Secret,
    Switch,
    Text,
)
from gateway.config.problems import Place
from gateway.config.section import Section
from gateway.config.units import Number, Size, Time

__all__ = [
    "OPTIONS",
    "Jwt",
    "LumberjackOptions",
    "Outbox",
    "PomeloOptions",
    "PravegaOptions",
    "RsioOptions",
]

_NAME_BYTES = 255
"""Of a publisher's name: docs/rsio-v0.md."""

KiB = 2**10
MiB = 2**20
MINUTE = 60.0
DAY = 86_400.0


class LumberjackOptions(Section):
    """What is particular to Lumberjack v1 and v2 (Filebeat, Logstash, …)."""

    stall_timeout: Annotated[float, Time("1s", "24h")] = Field(
        default=5 * MINUTE,
        description="Hang up when a window is not on disk after this long (time)",
    )
    keepalive_interval: Annotated[float, Time("1s", "10s")] = Field(
        default=3.0,
        description="Tell a waiting v2 writer this often that we are alive (time)",
    )
    window_events: Annotated[int, Number(1, 1 << 24)] = Field(
        default=65_536, description="Events in one window (number)"
    )
    pairs: Annotated[int, Number(1, 1 << 20)] = Field(
        default=1024, description="Key-value pairs in one v1 event (number)"
    )
    compressed_bytes: Annotated[int, Size("1KiB", "1GiB")] = Field(
        default=64 * MiB, description="One compressed frame, as it travels (size)"
    )


class Jwt(Section):
    """How to verify the JSON Web Token of a client (needs gateway[jwt])."""

    key: Secret = Field(description="The shared secret, or a public key in PEM")
    algorithms: list[Text] = Field(
        default=["HS256"], min_length=1, description="Signatures that count"
    )
    audience: Text | None = Field(default=None, description="What aud must be")
    issuer: Text | None = Field(default=None, description="What iss must be")
    leeway: Annotated[float, Time("0s", "24h")] = Field(
        default=0.0, description="How much clocks may differ (time)"
    )
    claim: Text = Field(default="sub", description="Who the client is: its uid")


class Outbox(Section):
    """Files of pushes, as a Spark job writes them."""

    directory: FolderName = Field(
        description="Below data_dir; pushes are read from its files"
    )
    retention: Annotated[float, Time("0s", "365d")] = Field(
        default=0.0,
        description="Keep files that were pushed in .done this long (time)",
    )
    file_bytes: ByteCount = Field(
        default=64 * MiB, description="One file; larger ones are set aside (size)"
    )


class PomeloOptions(Section):
    """What is particular to Pomelo (pinus, pitaya): game and mobile clients."""

    heartbeat: Annotated[float, Time("0s", "1h")] = Field(
        default=3.0,
        description="Between heartbeats, in whole seconds; 0s = none (time)",
    )
    handshake_timeout: Annotated[float, Time("100ms", "1h")] = Field(
        default=10.0, description="To connect and acknowledge the handshake (time)"
    )
    handshake_bytes: Annotated[int, Size("256B", "16MiB")] = Field(
        default=64 * KiB, description="One handshake (size)"
    )
    user_bytes: Annotated[int, Size("0B", "1MiB")] = Field(
        default=KiB, description="User data kept with every event (size)"
    )
    routes: Definition = Field(
        default=None,
        description="Dictionary: list of routes, routes with codes, or a JSON file",
    )
    client_protos: Definition = Field(
        default=None, description="Of requests and notifies: definitions or JSON file"
    )
    server_protos: Definition = Field(
        default=None, description="Of answers and pushes: definitions or a JSON file"
    )
    reload_interval: Annotated[float, Time("0s", "24h")] = Field(
        default=5.0, description="Look at those files this often; 0s = never (time)"
    )
    profiles: dict[str, PomeloProfile] = Field(
        default={}, description="Client's sys.type to profile; '*' = all others"
    )
    clients: dict[str, Text] = Field(
        default={}, description="Client's sys.type to its least version; {} = any"
    )
    token: Secret | None = Field(
        default=None, description="What clients must say in user.token"
    )
    jwt: Jwt | None = Field(default=None, description="Or who must have signed it")
    push_bytes: ByteCount = Field(
        default=MiB, description="Push no more to clients with this unsent (size)"
    )
    push_policy: Literal["drop", "kick"] = Field(
        default="drop", description="Then drop pushes, or kick the client"
    )
    outbox: Outbox | None = Field(
        default=None, description="Where a Spark job puts pushes; absent = nowhere"
    )

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """Clients read heartbeat as a whole number of seconds."""
        if self.heartbeat != int(self.heartbeat):
            yield ("heartbeat",), f"must be whole seconds, not {self.heartbeat:g}s"


class PravegaOptions(Section):
    """What is particular to Pravega: writers and readers of streams."""

    controller: Listen | None = Field(
        default=None,
        description="Where clients find streams (gRPC), as tcp:9090; absent = nowhere",
    )
    advertise: Text | None = Field(
        default=None,
        description="HOST:PORT that clients are sent to; default: as they called us",
    )
    users: dict[str, Secret] = Field(
        default={}, description="Names to passwords (basic); {} = nobody is asked"
    )
    tokens: dict[str, Secret] = Field(
        default={}, description="Names to bearer tokens; {} = nobody is asked"
    )
    token_lifetime: Annotated[float, Time("10s", "365d")] = Field(
        default=20 * MINUTE,
        description="Of what a controller lets clients in with (time)",
    )
    content_type: Text = Field(
        default="application/octet-stream",
        description="What events are; application/json = checked, and unpacked by Spark",
    )
    writer_retention: Annotated[float, Time("1m", "3650d")] = Field(
        default=7 * DAY,
        description="Remember the last number of a silent writer this long (time)",
    )
    recent_bytes: ByteCount = Field(
        default=128 * MiB, description="Newest data kept in memory for readers (size)"
    )
    segments: Count = Field(
        default=100_000, description="Segments, of all connections together (number)"
    )
    transaction_bytes: ByteCount = Field(
        default=256 * MiB,
        description="Held for open transactions and large events together (size)",
    )
    table_bytes: ByteCount = Field(
        default=64 * MiB, description="Keys and values of all tables together (size)"
    )
    numbers: Count = Field(
        default=2_000_000,
        description="Writers and attributes of all segments that are known (number)",
    )
    writers: Count = Field(
        default=10_000, description="Set up by one connection (number)"
    )
    reads: Count = Field(
        default=1000, description="Waiting for data on one connection (number)"
    )

    together: ClassVar[tuple[str, ...]] = (
        "writer_retention", "recent_bytes", "segments", "transaction_bytes",
        "table_bytes", "numbers", "token_lifetime", "users", "tokens", "content_type",
    )  # fmt: skip
    """What all Pravega listeners must agree on: they share their segments."""

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """Clients can only be sent to a host and a port, by somebody who sends them."""
        if self.advertise is None:
            return
        if self.controller is None:
            yield ("advertise",), "has no effect without controller"
        host, _, port = self.advertise.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            yield ("advertise",), f"must be HOST:PORT, not {self.advertise}"


class RsioOptions(Section):
    """What is particular to Reactive Streams IO."""

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


#: The protocols of this version and what is particular to each.
OPTIONS: dict[str, type[Section]] = {
    "lumberjack": LumberjackOptions,
    "pomelo": PomeloOptions,
    "pravega": PravegaOptions,
    "rsio": RsioOptions,
}
