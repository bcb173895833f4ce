"""The methods about transactions: create, ping, commit, abort, state, and their leases.

A transaction has a segment for each that its stream has when it begins, and its data is
staged there.
A commit merges all of them in one change, whatever the stream was scaled to meanwhile.  Where
segments that it wrote to were scaled, this is done a moment later, with others (`commits`).
An abort, or the end of the lease, seals them, and deletes them a while later.
Once durable, either is final, and repeated calls get the same answer.

    OPEN ──► COMMITTING ──► COMMITTED        OPEN ──► COMMITTED        OPEN ──► ABORTED

After a restart every open transaction has its whole lease again, and what was committing is
committed.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping

from attrs import define
from twisted.internet.interfaces import IDelayedCall

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller.catalog import Catalog, Key
from gateway.protocols.pravega.controller.commits import Commits, staged_names
from gateway.protocols.pravega.controller.grpc import Code, Failed, over_limit
from gateway.protocols.pravega.controller.kept_records import Transaction
from gateway.protocols.pravega.controller.messages import Message
from gateway.protocols.pravega.controller.methods import (
    FAILURE,
    SUCCESS,
    Caller,
    Methods,
    Unfinished,
    find,
    segment_range,
    status,
)
from gateway.protocols.pravega.controller.tokens import DelegationTokens
from gateway.protocols.pravega.errors import SegmentError

OPEN, COMMITTING, COMMITTED, ABORTED = 1, 2, 3, 5
"""States of a transaction, as the protocol numbers them; there are no others here."""
_WILL_BE_THERE = (COMMITTING, COMMITTED)

_NO_STREAM, _NO_TRANSACTION = 2, 3
_PING_OK, _PING_LEASE, _PING_AGE, _PING_COMMITTED, _PING_ABORTED = 0, 1, 2, 5, 6

_LEASE_MS = 600_000
_AGE_MS = 86_400_000
_GRACE_SECONDS = 30.0
"""An aborted transaction's segments are deleted later: clients may still append."""
_KEPT_MS = 3_600_000
_MOST_ENDED = 100_000
_MAX_OPEN = 10_000


@define(eq=False, slots=False)
class Transactions:
    """The methods about transactions.

    *note* is told which writer has written all before a time, and up to which place:
    `Watermarks.noted`.
    """

    methods = Methods()

    _catalog: Catalog
    _tokens: DelegationTokens
    _note: Callable[[tuple[str, str], str, int, Mapping[int, int]], int]

    def __attrs_post_init__(self) -> None:
        self._leases: dict[Key, IDelayedCall] = {}
        """The timers that abort open transactions."""
        self._deletions: dict[Key, IDelayedCall] = {}
        """The timers that delete the segments of aborted ones."""
        self._times: dict[Key, tuple[str, int]] = {}
        """The writer of what is being committed, and the time that it told with it."""
        self._clock = self._catalog.container.clock
        self._commits = Commits(self._catalog, self._committed)

    @property
    def open(self) -> int:
        return len(self._leases)

    # -- start and stop --------------------------------------------------------------

    def start(self) -> None:
        """Finish what a crash interrupted, and start the leases of open transactions."""
        state = self._catalog.container.state
        for key, found in list(self._catalog.transactions.items()):
            names = staged_names(self._catalog, key)
            if found.state == ABORTED:
                self._catalog.delete_segments(names)
            elif found.state == OPEN and any(name in state.segments for name in names):
                self._start_lease(key, found)
            elif found.state == COMMITTING:
                self._catalog.seal_segments(names)
                self._commits.wait(key)
            elif found.state == OPEN:
                # The crash was after its merge, or before its first segment.
                merged = any(map(state.was_merged, names))
                self._end(key, found, COMMITTED if merged else ABORTED)

    def stop(self) -> None:
        """Cancel all timers."""
        self._commits.stop()
        for timers in (self._leases, self._deletions):
            for timer in timers.values():
                timer.cancel()
            timers.clear()

    # -- calls -----------------------------------------------------------------------

    @methods(messages.CreateTxnRequest, "createTransaction")
    def create(self, request: messages.CreateTxnRequest, caller: Caller) -> Message:
        """Create a transaction, with a segment for each segment of the stream."""
        info, catalog = request.stream_info, self._catalog
        stream = find(catalog, info)
        if stream.sealed:
            raise Failed(Code.FAILED_PRECONDITION, "the stream is sealed")
        if not 0 < request.lease <= _LEASE_MS:
            what = f"a lease of {request.lease} ms"
            raise over_limit(what, _LEASE_MS, code=Code.INVALID_ARGUMENT)
        self._catalog.check_room(len(stream.active))
        if len(self._leases) >= _MAX_OPEN:
            raise over_limit(f"{_MAX_OPEN} open transactions and one more", _MAX_OPEN)
        self._forget_ended()
        # The upper half of `high` is the epoch.  `low` must not be negative: Rust
        # clients extend its sign into `high`.
        found = Transaction(
            OPEN,
            stream.epoch << 32 | secrets.randbits(32),
            secrets.randbits(63),
            request.lease,
            catalog.container.now,
        )
        key = info.scope, info.stream, found.high, found.low
        catalog.save_transaction(info.scope, info.stream, found)
        catalog.create_segments(staged_names(catalog, key))
        self._start_lease(key, found)
        return messages.CreateTxnResponse(
            txn=messages.TxnId(high=found.high, low=found.low),
            ranges=[
                segment_range(info.scope, info.stream, part) for part in stream.active
            ],
            token=self._tokens.make(info.scope, info.stream, caller.name),
        )

    @methods(messages.PingTxnRequest, "pingTransaction")
    def ping(self, request: messages.PingTxnRequest, caller: Caller) -> Message:
        """Restart the lease of a transaction, perhaps with another length."""
        key, found = self._find(request)
        if found is None:
            raise Failed(Code.NOT_FOUND, "no such transaction")
        if found.state != OPEN:
            committed = found.state in _WILL_BE_THERE
            return status(_PING_COMMITTED if committed else _PING_ABORTED)
        if not 0 < request.lease <= _LEASE_MS:
            return status(_PING_LEASE)
        if self._catalog.container.now - found.begun > _AGE_MS:
            return status(_PING_AGE)
        found.lease = request.lease
        self._start_lease(key, found)
        return status(_PING_OK)

    @methods(messages.TxnRequest, "commitTransaction")
    def commit(self, request: messages.TxnRequest, caller: Caller) -> Message:
        """Commit a transaction: its events become events of the stream, in one change.

        Raises `Unfinished` while what came last is still being counted, and `Failed` if a
        stream that was scaled has no room for the epochs that it takes.
        """
        key, found = self._find(request)
        if found is None or found.state == ABORTED:
            return status(self._missing(request))
        if found.state in _WILL_BE_THERE:
            return status(SUCCESS)
        state = self._catalog.container.state
        names = staged_names(self._catalog, key)
        for name in names:
            if not state.is_counted(name):
                state.count_staged(name)
                raise Unfinished
        waits = self._commits.must_wait(key)
        if request.writer and request.timestamp > 0:  # clients without a time say less
            self._times[key] = request.writer, request.timestamp
        if waits:
            self._save(key, found, COMMITTING)
            # Nothing may come to what was committed.
            self._catalog.seal_segments(names)
            self._commits.wait(key, caller)
            return status(SUCCESS)
        try:
            self._commits.merge(key, caller)
        except SegmentError:
            self._times.pop(key, None)
            return status(FAILURE)
        return status(SUCCESS)

    def _committed(self, key: Key, position: Mapping[int, int]) -> None:
        """Note that a transaction is merged, up to a place of its stream."""
        self._end(key, self._catalog.transactions[key], COMMITTED)
        if (told := self._times.pop(key, None)) is not None:
            with contextlib.suppress(Failed):  # there is no room: the commit stands
                self._note(key[:2], *told, position)

    @methods(messages.TxnRequest, "abortTransaction")
    def abort(self, request: messages.TxnRequest, caller: Caller) -> Message:
        key, found = self._find(request)
        if found is None or found.state in _WILL_BE_THERE:
            return status(self._missing(request))
        if found.state == OPEN:
            self._abort(key, found)
        return status(SUCCESS)

    @methods(messages.TxnRequest, "checkTransactionState")
    def state(self, request: messages.TxnRequest, caller: Caller) -> Message:
        _, found = self._find(request)
        if found is None:
            raise Failed(Code.NOT_FOUND, "no such transaction")
        return status(found.state)

    @methods(messages.ListCompletedTxnRequest, "listCompletedTransactions")
    def completed(
        self, request: messages.ListCompletedTxnRequest, caller: Caller
    ) -> Message:
        """The ended transactions of a stream, as far as they are remembered."""
        info = request.stream_info
        ended = self._catalog.transactions_of(info.scope, info.stream)
        return messages.ListCompletedTxnResponse(
            response=[
                messages.TxnResponse(
                    txn=messages.TxnId(high=high, low=low),
                    status=int(found.state == ABORTED),
                )
                for (_, _, high, low), found in ended.items()
                if found.ended
            ],
        )

    # -- called when a stream ends ---------------------------------------------------

    def abort_all(self, scope: str, stream: str) -> None:
        """Abort the open transactions of a stream that is going to be sealed.

        Those that are committing are merged before; raises `Failed` if that can not be.
        """
        self._commits.finish(scope, stream)
        for key, found in self._catalog.transactions_of(scope, stream).items():
            if found.state == OPEN:
                self._abort(key, found)

    def forget_all(self, scope: str, stream: str) -> None:
        keys = self._catalog.transactions_of(scope, stream)
        for key in keys:
            _cancel(self._leases, key)
            _cancel(self._deletions, key)
        self._catalog.delete_segments(
            name for key in keys for name in staged_names(self._catalog, key)
        )
        self._catalog.drop_transactions(keys)

    def _find(
        self, request: messages.TxnRequest | messages.PingTxnRequest
    ) -> tuple[Key, Transaction | None]:
        info, txn = request.stream_info, request.txn
        key = info.scope, info.stream, txn.high, txn.low
        return key, self._catalog.transactions.get(key)

    def _missing(self, request: messages.TxnRequest) -> int:
        info = request.stream_info
        stream = self._catalog.stream(info.scope, info.stream)
        return _NO_STREAM if stream is None else _NO_TRANSACTION

    def _end(self, key: Key, found: Transaction, state: int) -> None:
        found.ended = self._catalog.container.now
        self._save(key, found, state)

    def _save(self, key: Key, found: Transaction, state: int) -> None:
        _cancel(self._leases, key)
        found.state = state
        self._catalog.save_transaction(key[0], key[1], found)

    def _abort(self, key: Key, found: Transaction) -> None:
        self._end(key, found, ABORTED)
        self._catalog.seal_segments(staged_names(self._catalog, key))
        self._deletions[key] = self._clock.callLater(
            _GRACE_SECONDS, self._delete_segments, key
        )

    def _delete_segments(self, key: Key) -> None:
        del self._deletions[key]
        self._catalog.delete_segments(staged_names(self._catalog, key))

    def _forget_ended(self) -> None:
        known = self._catalog.transactions
        now, over = self._catalog.container.now, len(known) - _MOST_ENDED
        gone: list[Key] = []
        for key, found in known.items():
            if not found.ended or key in self._deletions:
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
