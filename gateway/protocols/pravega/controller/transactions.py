"""The methods about transactions: create, ping, commit, abort, state, and their leases.

A transaction has a segment for each segment of its stream, and its data is staged there.
A commit merges all of them in one change.  An abort, or the end of the lease, seals them,
and deletes them a while later.  Once durable, either is final, and repeated calls get the
same answer.

After a restart every open transaction has its whole lease again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

from attrs import define
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from gateway.protocols.pravega.controller.catalog import Catalog, Transaction
from gateway.protocols.pravega.controller.grpc import Code, Failed
from gateway.protocols.pravega.controller.messages import Message, new
from gateway.protocols.pravega.controller.methods import (
    FAILURE,
    SUCCESS,
    Caller,
    Methods,
    Unfinished,
    find,
    over_limit,
    status,
)
from gateway.protocols.pravega.controller.names import transaction
from gateway.protocols.pravega.errors import SegmentError

__all__ = ["Transactions"]

OPEN, COMMITTED, ABORTED = 1, 3, 5
"""States of a transaction, as the protocol numbers them; there are no others here."""

_NO_STREAM, _NO_TRANSACTION = 2, 3
_PING_OK, _PING_LEASE, _PING_AGE, _PING_COMMITTED, _PING_ABORTED = 0, 1, 2, 5, 6

_LEASE_MS = 600_000
_AGE_MS = 86_400_000
_GRACE_SECONDS = 30.0
"""An aborted transaction's segments are deleted later: clients may still append."""
_KEPT_MS = 3_600_000
_KEPT = 100_000
_MAX_OPEN = 10_000

Key = tuple[str, str, int, int]


@define(eq=False, slots=False)
class Transactions:
    """The methods about transactions.

    *check_room* raises `Failed` if there is no room for so many segments.

    *grant* makes a delegation token for scope, stream and the caller's name;
    *ranges* gives a stream's segments with their key ranges.
    """

    methods = Methods()

    _catalog: Catalog
    _clock: IReactorTime
    _check_room: Callable[[int], None]
    _grant: Callable[[str, str, str], str]
    _ranges: Callable[[str, str], list[Message]]

    def __attrs_post_init__(self) -> None:
        self._leases: dict[Key, IDelayedCall] = {}
        """The timers that abort open transactions."""
        self._deletions: dict[Key, IDelayedCall] = {}
        """The timers that delete the segments of aborted ones."""

    @property
    def open(self) -> int:
        """How many transactions are open."""
        return len(self._leases)

    # -- start and stop --------------------------------------------------------------

    def start(self) -> None:
        """Finish what a crash interrupted, and start the leases of open transactions."""
        state = self._catalog.container.state
        for key, found in list(self._catalog.transactions.items()):
            names = [name for _, name in self._pairs(key)]
            if found.state == ABORTED:
                self._catalog.delete_segments(names)
            elif found.state == OPEN and any(name in state.segments for name in names):
                self._start_lease(key, found)
            elif found.state == OPEN:
                # The crash was after its merge, or before its first segment.
                merged = any(map(state.was_merged, names))
                self._end(key, found, COMMITTED if merged else ABORTED)

    def stop(self) -> None:
        """Cancel all timers."""
        for timers in (self._leases, self._deletions):
            for timer in timers.values():
                timer.cancel()
            timers.clear()

    # -- calls -----------------------------------------------------------------------

    @methods("CreateTxnRequest", "createTransaction")
    def create(self, request: Message, caller: Caller) -> Message:
        """Create a transaction, with a segment for each segment of the stream."""
        info, catalog = request.stream_info, self._catalog
        stream = find(catalog, info)
        if stream.sealed:
            raise Failed(Code.FAILED_PRECONDITION, "the stream is sealed")
        if not 0 < request.lease <= _LEASE_MS:
            what = f"a lease of {request.lease} ms"
            raise over_limit(what, _LEASE_MS, code=Code.INVALID_ARGUMENT)
        self._check_room(stream.count)
        if len(self._leases) >= _MAX_OPEN:
            raise over_limit(f"{_MAX_OPEN} open transactions and one more", _MAX_OPEN)
        self._forget_ended()
        # The upper half of `high` is the epoch.  `low` must not be negative: Rust
        # clients extend its sign into `high`.
        found = Transaction(
            OPEN,
            secrets.randbits(32),
            secrets.randbits(63),
            request.lease,
            catalog.container.now,
        )
        key = info.scope, info.stream, found.high, found.low
        catalog.save_transaction(info.scope, info.stream, found)
        catalog.create_segments(name for _, name in self._pairs(key))
        self._start_lease(key, found)
        return new(
            "CreateTxnResponse",
            txn=new("TxnId", high=found.high, low=found.low),
            ranges=self._ranges(info.scope, info.stream),
            token=self._grant(info.scope, info.stream, caller.name),
        )

    @methods("PingTxnRequest", "pingTransaction")
    def ping(self, request: Message, caller: Caller) -> Message:
        """Restart the lease of a transaction, perhaps with another length."""
        key, found = self._find(request)
        if found is None:
            raise Failed(Code.NOT_FOUND, "no such transaction")
        if found.state != OPEN:
            ended = found.state == COMMITTED
            return status(_PING_COMMITTED if ended else _PING_ABORTED)
        if not 0 < request.lease <= _LEASE_MS:
            return status(_PING_LEASE)
        if self._catalog.container.now - found.begun > _AGE_MS:
            return status(_PING_AGE)
        found.lease = request.lease
        self._start_lease(key, found)
        return status(_PING_OK)

    @methods("TxnRequest", "commitTransaction")
    def commit(self, request: Message, caller: Caller) -> Message:
        """Commit a transaction: its events become events of the stream, in one change.

        Raises `Unfinished` while what came last is still being counted.
        """
        key, found = self._find(request)
        if found is None or found.state == ABORTED:
            return status(self._missing(request))
        if found.state == COMMITTED:
            return status(SUCCESS)
        state, now = self._catalog.container.state, self._catalog.container.now
        pairs = [pair for pair in self._pairs(key) if pair[1] in state.segments]
        for _, name in pairs:
            if not state.is_counted(name):
                state.count_staged(name)
                raise Unfinished
        try:
            merged = state.merge(pairs, now)
        except SegmentError:
            return status(FAILURE)
        self._catalog.submit(merged, caller.submitter, caller.origin)
        self._end(key, found, COMMITTED)
        return status(SUCCESS)

    @methods("TxnRequest", "abortTransaction")
    def abort(self, request: Message, caller: Caller) -> Message:
        """Abort a transaction."""
        key, found = self._find(request)
        if found is None or found.state == COMMITTED:
            return status(self._missing(request))
        if found.state == OPEN:
            self._abort(key, found)
        return status(SUCCESS)

    @methods("TxnRequest", "checkTransactionState")
    def state(self, request: Message, caller: Caller) -> Message:
        """The state of a transaction."""
        _, found = self._find(request)
        if found is None:
            raise Failed(Code.NOT_FOUND, "no such transaction")
        return status(found.state)

    @methods("ListCompletedTxnRequest", "listCompletedTransactions")
    def completed(self, request: Message, caller: Caller) -> Message:
        """The ended transactions of a stream, as far as they are remembered."""
        info = request.stream_info
        return new(
            "ListCompletedTxnResponse",
            response=[
                new(
                    "TxnResponse",
                    txn=new("TxnId", high=high, low=low),
                    status=int(found.state == ABORTED),
                )
                for (scope, stream, high, low), found in self._of(
                    info.scope, info.stream
                )
                if found.state != OPEN
            ],
        )

    # -- called when a stream ends ---------------------------------------------------

    def abort_all(self, scope: str, stream: str) -> None:
        """Abort the open transactions of a stream that is going to be sealed."""
        for key, found in self._of(scope, stream):
            if found.state == OPEN:
                self._abort(key, found)

    def forget_all(self, scope: str, stream: str, parents: list[str]) -> None:
        """Forget the transactions of a sealed stream that is going to be deleted."""
        keys = [key for key, _ in self._of(scope, stream)]
        for key in keys:
            _cancel(self._leases, key)
            _cancel(self._deletions, key)
        self._catalog.delete_segments(
            transaction(parent, high, low)
            for _, _, high, low in keys
            for parent in parents
        )
        self._catalog.drop_transactions(keys)

    def _of(self, scope: str, stream: str) -> list[tuple[Key, Transaction]]:
        return [
            (key, found)
            for key, found in self._catalog.transactions.items()
            if key[:2] == (scope, stream)
        ]

    def _find(self, request: Message) -> tuple[Key, Transaction | None]:
        info, txn = request.stream_info, request.txn
        key = info.scope, info.stream, txn.high, txn.low
        return key, self._catalog.transactions.get(key)

    def _missing(self, request: Message) -> int:
        info = request.stream_info
        stream = self._catalog.stream(info.scope, info.stream)
        return _NO_STREAM if stream is None else _NO_TRANSACTION

    def _pairs(self, key: Key) -> Iterator[tuple[str, str]]:
        """Each segment of the stream, with the transaction's segment for it."""
        scope, name, high, low = key
        stream = self._catalog.scopes[scope].streams[name]
        for parent in self._catalog.segments(scope, name, stream):
            yield parent, transaction(parent, high, low)

    def _end(self, key: Key, found: Transaction, state: int) -> None:
        _cancel(self._leases, key)
        found.state = state
        found.ended = self._catalog.container.now
        self._catalog.save_transaction(key[0], key[1], found)

    def _abort(self, key: Key, found: Transaction) -> None:
        self._end(key, found, ABORTED)
        self._catalog.seal_segments(name for _, name in self._pairs(key))
        self._deletions[key] = self._clock.callLater(
            _GRACE_SECONDS, self._delete_segments, key
        )

    def _delete_segments(self, key: Key) -> None:
        del self._deletions[key]
        self._catalog.delete_segments(name for _, name in self._pairs(key))

    def _forget_ended(self) -> None:
        """Delete the records of old transactions that have ended."""
        known = self._catalog.transactions
        now, over = self._catalog.container.now, len(known) - _KEPT
        gone: list[Key] = []
        for key, found in known.items():
            if found.state == OPEN or key in self._deletions:
                continue
            if found.ended + _KEPT_MS > now and len(gone) >= over:
                break
            gone.append(key)
        self._catalog.drop_transactions(gone)

    # -- leases --------------------------------------------------------------------------

    def _start_lease(self, key: Key, found: Transaction) -> None:
        _cancel(self._leases, key)
        self._leases[key] = self._clock.callLater(
            found.lease / 1000, self._expire, key, found
        )

    def _expire(self, key: Key, found: Transaction) -> None:
        del self._leases[key]
        self._abort(key, found)


def _cancel(timers: dict[Key, IDelayedCall], key: Key) -> None:
    timer = timers.pop(key, None)
    if timer is not None:
        timer.cancel()
