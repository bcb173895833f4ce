"""Options of Pravega listeners: `listeners[].options` in the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from gateway.protocols.pravega.cache import RECENT_BYTES
from gateway.protocols.pravega.framing import NONE, Framing
from gateway.sdk.endpoint import Unix
from gateway.sdk.fields import ByteCount, Count, Listen, Secret, Text
from gateway.sdk.section import AT_ONCE, NEW_CONNECTIONS, Place, Section, restart
from gateway.sdk.units import Time

if TYPE_CHECKING:
    from gateway.sdk.protocol import Listener

MiB = 2**20
MINUTE = 60.0
DAY = 86_400.0

_STREAMS = re.compile(r"[A-Za-z0-9._*-]+/[A-Za-z0-9._*-]+")


def _streams(value: object) -> str:
    if isinstance(value, str) and _STREAMS.fullmatch(value):
        return str(value)
    raise ValueError(
        "must be SCOPE/STREAM, each of letters, digits, dots, dashes, _ and * for any,"
        f" not {value!r}"
    )


Streams = Annotated[
    str,
    PlainValidator(_streams),
    WithJsonSchema({"type": "string", "pattern": f"^{_STREAMS.pattern}$"}),
]


class Rule(Section):
    """Permissions of some principals for some streams."""

    principals: list[Text] = Field(
        min_length=1,
        description="Names of users and tokens, or subjects of certificates; * = any",
    )
    read: list[Streams] = Field(
        default=[], description="Streams and tables to read, as shop/orders or shop/*"
    )
    write: list[Streams] = Field(
        default=[], description="Streams and tables to write to, with transactions"
    )
    manage: list[Streams] = Field(
        default=[],
        description="Streams to create, scale, truncate, delete; shop/* = the scope, too",
    )
    groups: list[Streams] = Field(
        default=[],
        description="Reader groups to create, join and delete, as shop/billing",
    )

    def misfits(self) -> Iterator[tuple[Place, str]]:
        if not (self.read or self.write or self.manage or self.groups):
            yield (), "allows nothing: it needs read, write, manage or groups"


class Options(Section):
    """Options of a Pravega listener; most are about what all listeners share."""

    reload: ClassVar = NEW_CONNECTIONS
    reloads: ClassVar = dict.fromkeys(
        (
            "users", "tokens", "token_lifetime", "content_type", "framing", "writer_retention",
            "recent_bytes", "segments", "stream_retention", "synchronizers",
            "table_bytes",
        ),
        restart("all listeners share one container, which begins with it"),
    ) | {"access": AT_ONCE}  # fmt: skip

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
    access: list[Rule] | None = Field(
        default=None,
        description="Who may do what: nothing but what a rule says; null = everything",
    )
    token_lifetime: Annotated[float, Time("10s", "365d")] = Field(
        default=20 * MINUTE,
        description="Of what a controller lets clients in with (time)",
    )
    content_type: Text | dict[Streams, Text] = Field(
        default="application/octet-stream",
        description="What events are, or by SCOPE/STREAM; application/json = checked, and"
        " unpacked by Spark",
    )
    framing: Framing | dict[Streams, Framing] = Field(
        default=NONE,
        description="Header of registries' serializers: pravega-registry, confluent or none;"
        " or by SCOPE/STREAM",
    )
    writer_retention: Annotated[float, Time("1m", "3650d")] = Field(
        default=7 * DAY,
        description="Remember the last number of a silent writer this long (time)",
    )
    recent_bytes: ByteCount = Field(
        default=RECENT_BYTES,
        description="Newest data kept in memory for readers (size)",
    )
    segments: Count = Field(
        default=100_000, description="Segments, of all connections together (number)"
    )
    transaction_bytes: ByteCount = Field(
        default=256 * MiB,
        description="Held for open transactions and large events together (size)",
    )
    stream_retention: Annotated[float, Time("1m", "36500d")] | None = Field(
        default=None,
        description="Of streams without a retention policy; null = they are kept (time)",
    )
    retained_bytes: ByteCount | None = Field(
        default=None,
        description="Refuse appends when streams keep more (size, null: any)",
    )
    internal_bytes: ByteCount = Field(
        default=64 * MiB,
        description="State of reader groups and synchronizers, in memory (size)",
    )
    synchronizers: Literal["state", "rows"] = Field(
        default="state",
        description="Updates of state synchronizers: state, or rows of the tables, too",
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
        "table_bytes", "numbers", "token_lifetime", "users", "tokens", "access", "content_type", "framing",
        "internal_bytes", "synchronizers", "stream_retention", "retained_bytes",
    )  # fmt: skip
    """Must be the same for all Pravega listeners, as they share the container."""

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """`advertise` must be HOST:PORT, and needs a controller that gives it out."""
        if self.advertise is None:
            return
        if self.controller is None:
            yield ("advertise",), "has no effect without controller"
        host, _, port = self.advertise.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            yield ("advertise",), f"must be HOST:PORT, not {self.advertise}"


def misfits(listeners: Mapping[int, Listener[Options]]) -> Iterator[tuple[Place, str]]:
    """All Pravega listeners share one container; at most one has its controller."""
    found = {
        index: (listener.listen, listener.options)
        for index, listener in listeners.items()
    }
    first = next(iter(found), 0)
    controlled = None
    for index, (listen, options) in found.items():
        at = ("listeners", index, "options")
        if listeners[index].reuse_port:
            yield (
                ("listeners", index, "reuse_port"),
                (
                    "is not for pravega: its streams lie in one data_dir, and its clients"
                    " would meet several"
                ),
            )
        if options.controller is not None:
            if controlled is not None:
                yield (
                    (*at, "controller"),
                    f"listeners[{controlled}] has one already: there is one for all",
                )
            else:
                controlled = index
            if not options.advertise and isinstance(listen, Unix):
                yield (
                    (*at, "advertise"),
                    f"is needed, because the controller has no port to tell for {listen}",
                )
        for key in Options.together:
            if getattr(options, key) != getattr(found[first][1], key):
                yield ((*at, key), f"must be as in listeners[{first}]: one container")


def nameless(listeners: Iterable[Listener[Options]]) -> bool:
    """Whether rules are there, and no client can prove the name that they ask for."""
    return any(
        one.options.access and not (one.options.users or one.options.tokens)
        for one in listeners
    ) and not any(one.client_certificates for one in listeners)
