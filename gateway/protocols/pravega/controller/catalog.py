"""Scopes, streams, transactions and reader groups, kept in tables of the container.

The tables are durable and restored like every other segment.  They are read once, at the
start; after that the state is in memory, and each change of it is put into a table.

Changes become durable in the order in which they are made.  So a stream's segments are
created before its record is put, and deleted before its record is: after a crash at any
moment the same call can be repeated, and no segment is left over; but of a stream whose
creation a crash cut off, if another one is deleted before that is repeated.

Nothing is left of a deleted stream but a number, one for all streams: the first that no
segment of a deleted stream had.  New streams begin there, so a segment's name, whose rows
are in the tables for ever, is never given twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from gateway.protocols.pravega.codec import Entry
from gateway.protocols.pravega.container import Container
from gateway.protocols.pravega.controller.names import SYSTEM, segment
from gateway.protocols.pravega.errors import SegmentError
from gateway.protocols.pravega.segments import Change
from gateway.protocols.pravega.wire import NEVER

__all__ = ["Catalog", "ReaderGroup", "Scope", "Stream", "Transaction"]

_KEY_BYTES = 32

_STREAMS, _GROUPS, _TRANSACTIONS, _OTHER = (
    f"{SYSTEM}{name}" for name in ("streams", "groups", "transactions", "controller")
)
_TOKEN_KEY = b"token key"
_NUMBER_KEY = b"first number"

_Record = TypeVar("_Record", bound=msgspec.Struct)


class Stream(msgspec.Struct, omit_defaults=True):
    """A stream."""

    first: int = 0
    """Number of its first segment; earlier streams of this name had lower numbers."""
    count: int = 0
    """How many segments it has; 0 in the record of a scope, and of a stream that an earlier
    version has deleted."""
    config: bytes = b""
    """Its last `StreamConfig`, encoded."""
    tags: list[str] = []
    sealed: bool = False

    @property
    def numbers(self) -> range:
        """The numbers of its segments."""
        return range(self.first, self.first + self.count)


class ReaderGroup(msgspec.Struct, omit_defaults=True):
    """A reader group of Java clients."""

    config: bytes = b""
    """Its `ReaderGroupConfiguration`, encoded."""
    cuts: dict[str, bytes] = {}
    """The `StreamCut`, encoded, that it says it has read up to; by `scope/stream`."""


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
    """By name."""
    groups: dict[str, ReaderGroup] = {}

    def stream(self, name: str) -> Stream | None:
        """A stream; None if there is none of this name."""
        return self.streams.get(name)


class Catalog:
    """Everything that the controller knows, by name."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.scopes: dict[str, Scope] = {}
        self.transactions: dict[tuple[str, str, int, int], Transaction] = {}
        """By scope, stream, and the two halves of the id; the oldest first."""
        self.token_key = b""
        self.first_number = 0
        """Segments of deleted streams had lower numbers; new streams begin here."""
        self.last = 0
        """Number of the last change: when it is durable, everything here is."""

    def load(self) -> None:
        """Read the tables; make them if this is the first start."""
        state = self.container.state
        for name in (_STREAMS, _GROUPS, _TRANSACTIONS, _OTHER):
            if name not in state.segments:
                self.submit(state.create_table(name, self.container.now))
        number = state.table(_OTHER).get(_NUMBER_KEY).value
        self.first_number = int.from_bytes(number)
        deleted: dict[str, int] = {}
        for key, stream in self._records(_STREAMS, Stream):
            scope, _, name = key.partition("/")
            into = self.scopes.setdefault(scope, Scope())
            if name and stream.count:
                into.streams[name] = stream
            elif name:  # an earlier version has deleted it
                deleted[key] = stream.first
        if deleted:
            self._begin_at(max(deleted.values()))
            self._drop(_STREAMS, deleted)
        for key, group in self._records(_GROUPS, ReaderGroup):
            scope, _, name = key.partition("/")
            self.scopes.setdefault(scope, Scope()).groups[name] = group
        for key, found in self._records(_TRANSACTIONS, Transaction):
            scope, name, _ = key.split("/")
            self.transactions[scope, name, found.high, found.low] = found
        self.token_key = state.table(_OTHER).get(_TOKEN_KEY).value
        if not self.token_key:
            self.token_key = os.urandom(_KEY_BYTES)
            self._put(_OTHER, _TOKEN_KEY, self.token_key)

    def stream(self, scope: str, name: str) -> Stream | None:
        """A stream; None if there is none of this name."""
        found = self.scopes.get(scope)
        return None if found is None else found.stream(name)

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
        """Add a scope, whose name must be new."""
        self.scopes[name] = Scope()
        self._save(_STREAMS, name, Stream())

    def drop_scope(self, name: str) -> None:
        """Delete a scope without streams."""
        del self.scopes[name]
        self._drop(_STREAMS, [name])

    def save_stream(self, scope: str, name: str, stream: Stream) -> None:
        """Store a stream, new or changed."""
        self.scopes[scope].streams[name] = stream
        self._save(_STREAMS, f"{scope}/{name}", stream)

    def drop_stream(self, scope: str, name: str) -> None:
        """Forget a stream, whose segments are deleted; their names stay used."""
        gone = self.scopes[scope].streams.pop(name)
        self._begin_at(gone.first + gone.count)
        self._drop(_STREAMS, [f"{scope}/{name}"])

    def _begin_at(self, number: int) -> None:
        """Let no new stream have segments with lower numbers."""
        if number > self.first_number:
            self.first_number = number
            self._put(_OTHER, _NUMBER_KEY, number.to_bytes(8))

    def save_group(self, scope: str, name: str, group: ReaderGroup) -> None:
        """Store a reader group, new or changed."""
        self.scopes[scope].groups[name] = group
        self._save(_GROUPS, f"{scope}/{name}", group)

    def drop_group(self, scope: str, name: str) -> None:
        """Delete a reader group."""
        del self.scopes[scope].groups[name]
        self._drop(_GROUPS, [f"{scope}/{name}"])

    def save_transaction(self, scope: str, stream: str, found: Transaction) -> None:
        """Store a transaction, new or changed; it becomes the newest."""
        key = scope, stream, found.high, found.low
        self.transactions.pop(key, None)
        self.transactions[key] = found
        self._save(_TRANSACTIONS, _transaction_key(*key), found)

    def drop_transactions(self, keys: Iterable[tuple[str, str, int, int]]) -> None:
        """Delete the records of transactions."""
        gone = list(keys)
        for key in gone:
            del self.transactions[key]
        self._drop(_TRANSACTIONS, (_transaction_key(*key) for key in gone))

    # -- segments --------------------------------------------------------------------

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
        """Names of a stream's segments."""
        return [segment(scope, name, number) for number in stream.numbers]


def _transaction_key(scope: str, stream: str, high: int, low: int) -> str:
    return f"{scope}/{stream}/{high}.{low}"
