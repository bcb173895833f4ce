"""Scopes, streams, transactions and reader groups, kept in tables of the container.

The tables are durable and restored like every other segment.  They are read once, at the
start; after that the state is in memory, and each change of it is put into a table.

Changes become durable in the order in which they are made.  So a stream's segments are
created before its record is put, and deleted before its record is.  After a crash at any
moment the same call can be repeated, and no segment is left over.

Nothing is left of a deleted stream but its name and a number: the first that none of its
segments had.  Another stream of this name begins there, so a segment's name, whose rows are
in the tables for ever, is never given twice.  Where very many were deleted the oldest of
these names are forgotten, and all new ones begin behind their numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

import msgspec

from gateway.protocols.pravega.codec import Entry
from gateway.protocols.pravega.container import Container
from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.epochs import Part, head, replaced, scalings
from gateway.protocols.pravega.controller.grpc import over_limit
from gateway.protocols.pravega.controller.kept_records import (
    KeyValueTable,
    ReaderGroup,
    Scope,
    Stream,
    Transaction,
)
from gateway.protocols.pravega.controller.names import SYSTEM, TABLE, segment
from gateway.protocols.pravega.errors import SegmentError
from gateway.protocols.pravega.options import Options
from gateway.protocols.pravega.segment import Segment
from gateway.protocols.pravega.segments import Change
from gateway.protocols.pravega.wire import NEVER

_KEY_BYTES = 32
_EPOCH_BITS = 32
"""The id of a transaction has its epoch above so many bits of its upper half."""
_ENDING_MS = 60_000
"""Milliseconds after a transaction's end in which its segments may still be there."""
_BEHIND = 1000
"""How many replaced segments without data a stream remembers, for slow clients."""

_STREAMS, _GROUPS, _TRANSACTIONS, _OTHER, _TABLES = (
    f"{SYSTEM}{name}"
    for name in ("streams", "groups", "transactions", "controller", "tables")
)
_TOKEN_KEY = b"token key"
_NUMBER_KEY = b"first number"
_NUMBER_OF = "first number of "
_MOST_NAMES = 10_000
"""The most names of deleted streams and key-value tables that are remembered."""
_FORGOTTEN = 1000
"""The number of names that are forgotten at once."""

Key: TypeAlias = tuple[str, str, int, int]
"""The key of a transaction: scope, stream, and the two halves of its id."""

_Record = TypeVar("_Record", bound=msgspec.Struct)


class Catalog:
    """Everything that the controller knows, by name.

    39 methods: what is in memory changes only with the entry that is stored of it, here.
    """

    def __init__(self, container: Container, options: Options) -> None:
        self.container = container
        self._options = options
        self.scopes: dict[str, Scope] = {}
        self.transactions: dict[Key, Transaction] = {}
        """Transactions by scope, stream, and the two halves of the id; the oldest first."""
        self._by_stream: dict[tuple[str, str], dict[Key, Transaction]] = {}
        self.token_key = b""
        self._numbers: dict[str, int] = {}
        """The first number that no segment had of what was deleted, by `scope/name`."""
        self._first_number = 0
        """The first number of segments of a new name, behind those of forgotten ones."""
        self.last = 0
        """Number of the last change: when it is durable, everything here is."""

    def load(self) -> None:
        """Read the tables; make them if this is the first start."""
        state = self.container.state
        for name in (_STREAMS, _GROUPS, _TRANSACTIONS, _OTHER):
            if name not in state.segments:
                self.submit(state.create_table(name, self.container.now))
        other = state.table(_OTHER)
        self._first_number = int.from_bytes(other.get(_NUMBER_KEY).value)
        for encoded, (value, _) in other.entries.items():
            if encoded.startswith(_NUMBER_OF.encode()):
                place = encoded.decode().removeprefix(_NUMBER_OF)
                self._numbers[place] = int.from_bytes(value)
        for key, stream in self._records(_STREAMS, Stream):
            scope, _, name = key.partition("/")
            into = self.scopes.setdefault(scope, Scope())
            if name:
                into.streams[name] = stream
        for key, group in self._records(_GROUPS, ReaderGroup):
            scope, _, name = key.partition("/")
            self.scopes.setdefault(scope, Scope()).groups[name] = group
        if _TABLES in state.segments:  # made with the first of them
            for key, table in self._records(_TABLES, KeyValueTable):
                scope, _, name = key.partition("/")
                self.scopes.setdefault(scope, Scope()).tables[name] = table
        for key, found in self._records(_TRANSACTIONS, Transaction):
            scope, name, _ = key.split("/")
            self._keep((scope, name, found.high, found.low), found)
        self.token_key = state.table(_OTHER).get(_TOKEN_KEY).value
        if not self.token_key:
            self.token_key = os.urandom(_KEY_BYTES)
            self._put(_OTHER, _TOKEN_KEY, self.token_key)

    # -- room ----------------------------------------------------------------------

    def check_room(self, segments: int) -> None:
        """Raise `Failed` if there is no room for so many segments more."""
        there, most = len(self.container.state.segments), self._options.segments
        if there + segments > most:
            what = f"{there} segments and {segments} more"
            raise over_limit(what, most, "options.segments")

    def check_tables(self, size: int) -> None:
        """Raise `Failed` if the tables have no room for so many bytes more."""
        size += self.container.state.table_bytes
        most = self._options.table_bytes
        if size > most:
            raise over_limit(f"{size} bytes in tables", most, "options.table_bytes")

    @property
    def internal_room(self) -> int:
        """Bytes that may still be added to internal segments."""
        return self._options.internal_bytes - self.container.state.kept_bytes

    # -- look up -------------------------------------------------------------------

    def stream(self, scope: str, name: str) -> Stream | None:
        found = self.scopes.get(scope)
        return None if found is None else found.streams.get(name)

    def each_stream(self) -> Iterator[tuple[str, str, Stream]]:
        """Scope, name and stream, of those that are still there when their turn comes."""
        for scope, found in list(self.scopes.items()):
            for name, stream in list(found.streams.items()):
                if self.stream(scope, name) is stream:
                    yield scope, name, stream

    def _records(
        self, table: str, kind: type[_Record]
    ) -> Iterable[tuple[str, _Record]]:
        decoder = msgspec.msgpack.Decoder(kind)
        for key, (value, _) in self.container.state.table(table).entries.items():
            yield key.decode(), decoder.decode(value)

    # -- changes -------------------------------------------------------------------

    def submit(self, change: Change, submitter: Any = None, origin: Any = None) -> None:
        """Make a change durable, after all earlier ones."""
        self.container.submit(change, submitter, origin)
        self.last = change.number

    def _put(self, table: str, key: bytes, value: bytes) -> None:
        container = self.container
        entry = Entry(key, NEVER, value)
        self.submit(container.state.put(table, [entry], container.now))

    def _drop(self, table: str, keys: Iterable[str]) -> None:
        container = self.container
        entries = [Entry(key.encode(), NEVER) for key in keys]
        if entries:
            self.submit(container.state.remove(table, entries, container.now))

    def _save(self, table: str, key: str, record: msgspec.Struct) -> None:
        self._put(table, key.encode(), msgspec.msgpack.encode(record))

    def add_scope(self, name: str) -> None:
        self.scopes[name] = Scope()
        self._save(_STREAMS, name, Stream())

    def drop_scope(self, name: str) -> None:
        """Delete a scope without streams."""
        del self.scopes[name]
        self._drop(_STREAMS, [name])

    def add_stream(self, scope: str, name: str, stream: Stream) -> None:
        """Create a stream with its segments, for which there must be room."""
        # New numbers: rows of deleted segments stay in the tables under their names.
        stream.first = self.first_number(scope, name)
        self.create_segments(self.segments(scope, name, stream))
        # A crash in an earlier call may have left segments with higher numbers.
        left, there = stream.first + stream.count, self.container.state.segments
        while (found := there.get(segment(scope, name, left))) is not None:
            if found.length or found.table is not None:
                break
            self.delete_segments([found.name])
            left += 1
        self.save_stream(scope, name, stream)

    def add_internal(self, scope: str, name: str) -> None:
        """Create a stream of one segment, for a reader group or for watermarks."""
        config = messages.StreamConfig(
            stream_info=messages.StreamInfo(scope=scope, stream=name),
            scaling=messages.ScalingPolicy(segments=1),
        )
        self.check_room(1)
        self.add_stream(scope, name, Stream(count=1, config=config.SerializeToString()))

    def save_stream(self, scope: str, name: str, stream: Stream) -> None:
        self.scopes[scope].streams[name] = stream
        self._save(_STREAMS, f"{scope}/{name}", stream)

    def drop_stream(self, scope: str, name: str) -> None:
        """Forget a stream, whose segments are deleted; their names stay used."""
        gone = self.scopes[scope].streams.pop(name)
        self._remember(f"{scope}/{name}", gone.next_number)
        self._drop(_STREAMS, [f"{scope}/{name}"])

    def first_number(self, scope: str, name: str) -> int:
        """Where the numbers begin of segments of a new stream or key-value table."""
        return self._numbers.get(f"{scope}/{name}", self._first_number)

    def _remember(self, key: str, number: int) -> None:
        """Let no new stream of this name have segments with lower numbers."""
        self._numbers.pop(key, None)
        self._numbers[key] = number
        self._put(_OTHER, (_NUMBER_OF + key).encode(), number.to_bytes(8))
        if len(self._numbers) <= _MOST_NAMES:
            return
        oldest = list(self._numbers)[:_FORGOTTEN]
        highest = max(self._numbers.pop(name) for name in oldest)
        self._first_number = max(self._first_number, highest)
        self._put(_OTHER, _NUMBER_KEY, self._first_number.to_bytes(8))
        self._drop(_OTHER, (_NUMBER_OF + name for name in oldest))

    def save_group(self, scope: str, name: str, group: ReaderGroup) -> None:
        self.scopes[scope].groups[name] = group
        self._save(_GROUPS, f"{scope}/{name}", group)

    def drop_group(self, scope: str, name: str) -> None:
        del self.scopes[scope].groups[name]
        self._drop(_GROUPS, [f"{scope}/{name}"])

    def add_table(
        self, scope: str, name: str, count: int, config: bytes, key_bytes: int
    ) -> None:
        """Make a key-value table, of so many segments, with keys of a fixed size."""
        state, now = self.container.state, self.container.now
        if _TABLES not in state.segments:
            self.submit(state.create_table(_TABLES, now))
        # Clients in Rust and Python make such tables themselves, with the number 0.
        first = max(1, self.first_number(scope, name + TABLE))
        table = KeyValueTable(first, count, config)
        for each in self.table_segments(scope, name, table):
            if each in state.segments:
                self.submit(state.delete(each, now))  # of a call that a crash cut off
            self.submit(state.create_table(each, now, key_bytes=key_bytes))
        self.scopes[scope].tables[name] = table
        self._save(_TABLES, f"{scope}/{name}", table)

    def drop_table(self, scope: str, name: str) -> None:
        """Delete a key-value table, with its segments."""
        gone = self.scopes[scope].tables.pop(name)
        self.delete_segments(self.table_segments(scope, name, gone))
        self._remember(f"{scope}/{name}{TABLE}", gone.first + gone.count)
        self._drop(_TABLES, [f"{scope}/{name}"])

    def table_segments(self, scope: str, name: str, table: KeyValueTable) -> list[str]:
        return [segment(scope, name + TABLE, part.id) for part in table.parts]

    def save_transaction(self, scope: str, stream: str, found: Transaction) -> None:
        """Store a transaction, new or changed; it becomes the newest."""
        key = scope, stream, found.high, found.low
        self._keep(key, found)
        self._save(_TRANSACTIONS, _transaction_key(*key), found)

    def _keep(self, key: Key, found: Transaction) -> None:
        for known in (self.transactions, self._by_stream.setdefault(key[:2], {})):
            known.pop(key, None)
            known[key] = found

    def transactions_of(self, scope: str, stream: str) -> dict[Key, Transaction]:
        """Transactions of one stream, the oldest first."""
        return dict(self._by_stream.get((scope, stream), {}))

    def drop_transactions(self, keys: Iterable[Key]) -> None:
        gone = list(keys)
        for key in gone:
            del self.transactions[key], self._by_stream[key[:2]][key]
            if not self._by_stream[key[:2]]:
                del self._by_stream[key[:2]]
        self._drop(_TRANSACTIONS, (_transaction_key(*key) for key in gone))

    # -- segments --------------------------------------------------------------------

    def scale(self, scope: str, name: str, scaling: Scaling) -> None:
        """Give a stream other segments, in one change; raises `SegmentError`."""
        stream, container = self.scopes[scope].streams[name], self.container
        scaled = msgspec.structs.replace(stream, scaled=scaling.parts)
        change = container.state.scale(
            scaling.created,
            scaling.sealed,
            (_STREAMS, f"{scope}/{name}".encode(), msgspec.msgpack.encode(scaled)),
            container.now,
            merged=scaling.merged,
        )
        stream.scaled = scaling.parts
        self.submit(change, scaling.submitter, scaling.origin)

    def head(
        self,
        scope: str,
        name: str,
        begin: Callable[[Segment], int] = lambda found: found.start,
    ) -> tuple[list[Part], set[int]]:
        """The segments that a stream begins with, and the ids of those behind them; or
        would, if each began where *begin* says.
        """
        parts, there = self.scopes[scope].streams[name].parts, self.there(scope, name)
        # Readers may stand on a segment that never had a byte as on any other, until a
        # truncation has passed it: until what took its place was truncated.
        passed: set[int] = set()

        def has_nothing(part: Part) -> bool:
            found = there.get(part)
            if found is None:
                return True
            left = found.length - begin(found)
            return found.sealed and not left and (found.length > 0 or part.id in passed)

        def is_truncated(part: Part) -> bool:
            found = there.get(part)
            return has_nothing(part) or (found is not None and begin(found) > 0)

        for old, new in reversed(scalings(parts)):
            if all(map(is_truncated, new)):
                passed.update(part.id for part in old)
        return head(parts, has_nothing)

    def at(self, scope: str, name: str, time: int) -> dict[Part, int]:
        """A cut before which everything was written before *time*, as far as known, in
        milliseconds since the epoch: an offset of each of its segments.
        """

        def begin(found: Segment) -> int:
            return max(found.start, min(found.offset_before(time), found.readable))

        parts, _ = self.head(scope, name, begin)
        there = self.there(scope, name)
        return {part: begin(there[part]) if part in there else 0 for part in parts}

    def drop_behind_head(self, scope: str, name: str) -> None:
        """Delete truncated, replaced segments, and forget the oldest if they are many."""
        stream = self.scopes[scope].streams[name]
        if not stream.scaled:
            return
        _, behind = self.head(scope, name)
        self.delete_segments(segment(scope, name, id_) for id_ in sorted(behind))
        if len(behind) <= _BEHIND:
            return
        needed = [
            high >> _EPOCH_BITS
            for (_, _, high, _), found in self.transactions_of(scope, name).items()
            if not found.ended or found.ended + _ENDING_MS > self.container.now
        ]
        old = sorted(
            (part for part in stream.scaled if part.id in behind),
            key=lambda part: part.until,
        )
        gone = {
            part.id
            for part in old[: len(old) - _BEHIND // 2]
            if part.until <= min(needed, default=part.until)
        }
        stream.scaled = [part for part in stream.scaled if part.id not in gone]
        self.save_stream(scope, name, stream)

    def there(self, scope: str, name: str) -> dict[Part, Segment]:
        """The state of each of a stream's segments that is not deleted."""
        return {
            part: found
            for part in self.scopes[scope].streams[name].parts
            if (found := self.segment_state(scope, name, part)) is not None
        }

    def segment_state(self, scope: str, name: str, part: Part) -> Segment | None:
        """The state of a stream's segment; None if it is deleted."""
        return self.container.state.segments.get(segment(scope, name, part.id))

    def create_segments(self, names: Iterable[str]) -> None:
        """Create segments, as far as they do not exist."""
        state, now = self.container.state, self.container.now
        for name in names:
            if name not in state.segments:
                self.submit(state.create(name, now))

    def delete_segments(self, names: Iterable[str]) -> None:
        """Delete segments, as far as they exist."""
        state, now = self.container.state, self.container.now
        for name in names:
            if name in state.segments:
                self.submit(state.delete(name, now))

    def seal_segments(self, names: Iterable[str]) -> None:
        """Seal segments, as far as they exist and are not sealed."""
        state, now = self.container.state, self.container.now
        for name in names:
            found = state.segments.get(name)
            if found is not None and not found.sealed:
                try:
                    self.submit(state.seal(name, now))
                except SegmentError:
                    continue  # it is a table: clients may create one of this name

    def segments(self, scope: str, name: str, stream: Stream) -> list[str]:
        return [segment(scope, name, part.id) for part in stream.parts]


class Scaling:
    """A change of a stream's segments in the making, for `Catalog.scale`."""

    def __init__(
        self,
        catalog: Catalog,
        scope: str,
        name: str,
        *,
        submitter: Any = None,
        origin: Any = None,
    ) -> None:
        """*submitter* is told of the events that it makes durable, of this *origin*."""
        stream = catalog.scopes[scope].streams[name]
        self._place = scope, name
        self._there = catalog.container.state.segments
        self._epoch = stream.epoch
        self._number = stream.next_number
        self.parts = stream.parts
        """The stream's segments, when the change is done."""
        self.created: dict[str, None] = {}
        self.sealed: list[str] = []
        self.merged: list[tuple[str, str]] = []
        """Appends to new and other segments: (target, source)."""
        self.submitter, self.origin = submitter, origin

    def replace(
        self, ended: Iterable[Part], ranges: Iterable[tuple[float, float]]
    ) -> list[Part]:
        """Begin an epoch: replace some segments by new ones of these ranges."""
        self._epoch += 1
        gone = {part.id for part in ended}
        wanted = list(ranges)
        numbers = [self._free_number() for _ in wanted]
        self.parts, made = replaced(self.parts, gone, numbers, wanted, self._epoch)
        self.created |= dict.fromkeys(segment(*self._place, part.id) for part in made)
        self.sealed += [segment(*self._place, id_) for id_ in sorted(gone)]
        return made

    def _free_number(self) -> int:
        # A client may have made a segment of this name without the controller.
        while True:
            id_ = self._epoch << 32 | self._number
            self._number += 1
            if segment(*self._place, id_) not in self._there:
                return id_ & 0xFFFF_FFFF


def _transaction_key(scope: str, stream: str, high: int, low: int) -> str:
    return f"{scope}/{stream}/{high}.{low}"
