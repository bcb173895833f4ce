"""Records in the controller's tables: scopes, streams, reader groups, tables,
transactions.
"""

from __future__ import annotations

import msgspec

from gateway.protocols.pravega.controller.epochs import Part, equal_ranges


class Stream(msgspec.Struct, omit_defaults=True):
    first: int = 0
    """Number of its first segment; earlier streams of this name had lower numbers."""
    count: int = 0
    """How many segments it was created with; 0 in the record of a scope."""
    config: bytes = b""
    """The last `StreamConfig`, encoded."""
    tags: list[str] = []
    sealed: bool = False
    scaled: list[Part] = []
    """The segments, the oldest first, if the stream was ever scaled."""

    @property
    def parts(self) -> list[Part]:
        """The segments; without the oldest, of a stream that was scaled very often."""
        return self.scaled or _made(self.first, self.count)

    @property
    def active(self) -> list[Part]:
        """The segments of the newest epoch, which are written to unless it is sealed."""
        return sorted(
            (part for part in self.parts if part.is_active), key=lambda part: part.low
        )

    @property
    def epoch(self) -> int:
        return max((part.epoch for part in self.scaled), default=0)

    @property
    def next_number(self) -> int:
        """None of its segments has it, or a higher one."""
        numbers = (part.number + 1 for part in self.scaled)
        return max(numbers, default=self.first + self.count)


class ReaderGroup(msgspec.Struct, omit_defaults=True):
    """A reader group of Java clients."""

    config: bytes = b""
    """The `ReaderGroupConfiguration`, encoded."""
    cuts: dict[str, bytes] = {}
    """The `StreamCut`, encoded, that it says it has read up to; by `scope/stream`."""


class KeyValueTable(msgspec.Struct, omit_defaults=True):
    """A key-value table; each of its segments is a table of the container."""

    first: int
    """Number of its first segment."""
    count: int
    config: bytes = b""
    """The `KeyValueTableConfig`, encoded."""

    @property
    def parts(self) -> list[Part]:
        return _made(self.first, self.count)


class Transaction(msgspec.Struct, omit_defaults=True):
    """A transaction, open or ended."""

    state: int
    high: int
    low: int
    lease: int
    """Milliseconds."""
    begun: int
    """Milliseconds since the epoch."""
    ended: int = 0


class Scope(msgspec.Struct):
    """A scope, whose record has nothing but its name."""

    streams: dict[str, Stream] = {}
    """Streams by name."""
    groups: dict[str, ReaderGroup] = {}
    tables: dict[str, KeyValueTable] = {}


def _made(first: int, count: int) -> list[Part]:
    """Segments as something is created with them: of equal ranges."""
    return [
        Part(number, low, high)
        for number, (low, high) in enumerate(equal_ranges(count), first)
    ]
