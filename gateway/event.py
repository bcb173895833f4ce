"""The one kind of event, and how a batch of them travels before it is rows.

A *batch* is the unit of acknowledgement.  It travels as the bytes that its protocol
delivered (`Batch.body`), which are compact and already checked.  The spool turns it into
`Rows` when it writes it, with the decoder that its protocol registered.  Live events and
recovered events so take the same road, and a batch costs the journal one copy.

`SCHEMA` is the vocabulary of the whole system (docs/design.md §3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from itertools import chain
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec import Struct

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BATCH_BYTES",
    "DELETED",
    "MAX_LSN",
    "SCHEMA",
    "SCHEMA_VERSION",
    "SCHEMA_VERSION_KEY",
    "Batch",
    "Decode",
    "DecodeTogether",
    "Origin",
    "Rows",
    "Stored",
    "Together",
    "address_of",
    "client_of",
    "network_of",
]

if TYPE_CHECKING:
    SCHEMA: pa.Schema
    """(node, lsn) names an event while its node remembers (docs/adr/0042); the rest is docs/design.md §3."""
else:

    def __getattr__(name: str) -> object:
        """Make `SCHEMA` when it is asked for: who only sends events needs no Arrow, and
        starts in two thirds of the time.
        """
        if name != "SCHEMA":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, _schema())


def _schema() -> pa.Schema:
    import pyarrow as pa

    name = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            pa.field("node", name, nullable=False),
            pa.field("lsn", pa.int64(), nullable=False),
            pa.field("received_at", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("protocol", name, nullable=False),
            pa.field("listener", name, nullable=False),
            pa.field("session", name, nullable=False),
            pa.field("peer", name, nullable=False),
            pa.field("principal", name),
            pa.field("channel", name),
            pa.field("kind", name, nullable=False),
            pa.field("seq", pa.int64()),
            pa.field("content_type", name, nullable=False),
            pa.field("payload", pa.binary(), nullable=False),
            pa.field("attributes", pa.map_(pa.string(), pa.string())),
            pa.field("flaw", name),
        ]
    )


#: Nobody reaches it; a name with a greater lsn is not ours.
MAX_LSN = 1 << 62

#: The form of spool files: one more whenever `SCHEMA` gains a column.  It stands in the
#: files, so that a Spark job that does not know a column stops instead of dropping it.
SCHEMA_VERSION = 1
SCHEMA_VERSION_KEY = b"gateway.schema"

#: The flaw of a row begins with it where the contents were deleted (`gateway spark delete`): such
#: a row holds the event's place for readers that go by lsns or offsets.
DELETED = "deleted"


@dataclass(slots=True, eq=False)
class Origin:
    """Where batches come from: what one connection's events have in common.

    The journal writes an origin once per segment and refers to it by number, so
    every batch of a connection must carry the *same object*.
    """

    protocol: str
    """The protocol's name, which is its decoder's too."""
    listener: str
    """The listener's name in the configuration."""
    session: str
    """The connection, unique for this node's life."""
    peer: str
    """`address:port` of the real peer, behind PROXY too."""
    principal: str | None = None
    """The peer's proven name: subject of a certificate or token."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """More about the connection (TLS version, …)."""
    latest: int = 0
    """`received_at` of its newest batch: set by the journal only."""
    unacknowledged: int = 0
    """Bytes of its batches that wait to be acknowledged: set by the journal only."""
    address: str = ""
    """The address with which its batches are counted while they wait for the disk."""
    queued: int = 0
    """Bytes that it counts for in that queue.  Like `address`, set by the journal only."""


@lru_cache(maxsize=1 << 12)
def network_of(host: str) -> str:
    """The host itself, or the /64 of an IPv6 address: the unit in which peers are counted.

    An IPv4 address that IPv6 maps is that one.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64)) + "/64"


def address_of(peer: str) -> str:
    """The `network_of` a peer, or the user of this machine who it is; or else itself."""
    if peer.startswith("unix:"):
        return peer.partition(",")[0]
    return network_of((peer.rpartition(":")[0] or peer).strip("[]"))


def client_of(origin: Origin) -> str:
    """The client that a peer belongs to where each client has a share.

    That is its proven name, or else its address: a host, the /64 of an IPv6 one, or a user
    of this machine.  Empty for the gateway's own pages.
    """
    if origin.principal:
        return f"name {origin.principal}"
    return address_of(origin.peer)


#: Memory of a batch that waits for the disk, beside its body, with the objects of its sender
#: that wait for it: some 870 bytes in CPython 3.11 (tests/store/journal/test_journal.py).
BATCH_BYTES = 1024


class Batch(Struct, eq=False):
    """Events that are stored together or not at all, as their protocol carried them."""

    origin: Origin
    received_at: int
    """When the batch was complete: microseconds since the epoch, UTC.  The journal sets
    it by the wall clock, whatever a protocol says; within a connection it never runs
    backwards."""
    count: int
    """How many events `body` decodes to; each gets an lsn."""
    body: bytes
    """Bytes from which the protocol's decoder makes `count` rows, now or after a crash."""
    payload_bytes: int
    """Size of the events' payloads once decoded: what memory and files will hold."""
    answers: int = 1
    """How many answers to its sender are written when it is stored."""
    taken: bool = False
    """The journal writes it, or has: set by the journal only."""
    withdrawn: bool = False
    """The journal is not to store it any more: `Journal.withdraw`."""
    submitted_at: float = 0.0
    """Seconds of a monotonic clock; set by the journal only."""


@dataclass(slots=True)
class Rows:
    """The events of one batch, decoded; columns, not objects."""

    payloads: list[bytes]
    seqs: Sequence[int] | None = None
    """The protocol's own numbers, one per payload, or none at all."""
    channel: str | None = None
    kind: str = "data"
    """`data`, `request`, `notify` or `session`."""
    content_type: str = "application/json"
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Added to the origin's."""
    flaws: dict[int, str] = field(default_factory=dict)
    """Row number to short reason, for the events that are not fine."""
    content_types: dict[int, str] = field(default_factory=dict)
    """Row number to content type, for the rows that differ from `content_type`."""
    channels: dict[int, str] = field(default_factory=dict)
    """Row number to channel, for the rows that differ from `channel`."""
    kinds: dict[int, str] = field(default_factory=dict)
    """Row number to kind, for the rows that differ from `kind`."""
    block: bytes = b""
    """All payloads in one piece, instead of `payloads`."""
    ends: Sequence[int] = ()
    """The end of each payload in `block`: a range, or whole numbers in a list, tuple, `array`
    or numpy array; nothing if there is no block."""

    @property
    def count(self) -> int:
        """How many events these are."""
        return len(self.ends) or len(self.payloads)

    def each(self) -> Iterator[bytes]:
        """The payloads, whichever way they are held."""
        if not len(self.ends):
            return iter(self.payloads)
        block, ends = self.block, self.ends
        return (block[at:end] for at, end in zip(chain((0,), ends), ends, strict=False))

    def size(self, row: int) -> int:
        """Bytes of the payload of a row."""
        if not len(self.ends):
            return len(self.payloads[row])
        return self.ends[row] - (self.ends[row - 1] if row else 0)


class Stored(Struct):
    """A batch with its place in the journal: what listeners and readers get."""

    batch: Batch
    lsn: int
    """The lsn of the batch's first event."""


#: Turns a batch's body into rows.  Total on every body its protocol ever submitted.
Decode = Callable[[bytes], Rows]

#: The same of small batches at once, which have so many events each: the rows of the first
#: of them, as many as can be decoded together, which may be none.
Together = Callable[[Sequence[bytes], Sequence[int]], Rows]


@runtime_checkable
class DecodeTogether(Protocol):
    """A `Decode` that has a `Together`, which a file of small batches is made with."""

    together: Together

    def __call__(self, body: bytes, /) -> Rows: ...
