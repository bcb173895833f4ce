"""Segment container: the segments that all Pravega listeners of a daemon share.

It submits changes to the journal and learns when they are durable.  After each group
commit it caches the new data for readers at the tail, has the reads that wait for it
answered, and lets connections send the replies that waited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import islice
from typing import Protocol

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.event import Batch, Origin, Stored
from gateway.protocols.pravega.cache import RECENT_BYTES, TailCache
from gateway.protocols.pravega.pending import PendingReads, Reader
from gateway.protocols.pravega.segment import Written
from gateway.protocols.pravega.segments import Change, Segments
from gateway.protocols.pravega.snapshot import SnapshotWriter, restore, save
from gateway.protocols.pravega.snapshots import Snapshots
from gateway.sdk.interfaces import Journal, NotStored

PROTOCOL = "pravega"

_UNHURRIED = 64
"""Unhurried changes that are submitted in one turn."""
_LEAP_SECONDS = 3 * 86400.0
"""A start at which writers should have been forgotten so long ago may have a wrong clock."""


class Submitter(Protocol):
    """A connection that submits changes."""

    def stored(self, change: Change, stored: Stored) -> None:
        """A change that it submitted is durable."""

    def flush(self) -> None:
        """A group commit is done: send the replies that are due now."""

    def lost(self, why: str) -> None:
        """A change was not stored: none that was submitted since will be."""


class Container:
    """All segments, with what changes them, reads them and keeps them."""

    _log = Logger()

    def __init__(
        self,
        journal: Journal,
        clock: IReactorTime,
        *,
        reader: Reader | None = None,
        recent_bytes: int = RECENT_BYTES,
        writer_retention: float = 7 * 86400.0,
        synchronizers_are_rows: bool = False,
    ) -> None:
        """*recent_bytes* is the size of the tail cache.

        A writer that writes nothing for *writer_retention* seconds is forgotten, at the
        latest after as much time again.  Both count anew where a start finds the clock far
        ahead, or behind: what a forgotten one sends again is there twice.
        """
        self.state = Segments()
        self.state.synchronizers_are_rows = synchronizers_are_rows
        self.recent = TailCache(recent_bytes)
        self.journal = journal
        self.clock = clock
        self.broken = ""
        """Why the journal did not store a change; then no more are taken.  Else empty."""
        self.reads = PendingReads(self.state, self.recent, reader)
        self._retention = writer_retention
        self._origin = Origin(PROTOCOL, PROTOCOL, PROTOCOL, PROTOCOL)
        self._assembly = Assembly(clock, self._submit)
        self._unhurried: deque[Iterator[Change]] = deque()
        """Changes to submit a few at a time."""
        self._unflushed: dict[Submitter, None] = {}
        self._changed: dict[str, None] = {}
        """Segments with durable changes since the last `_flush`."""
        self._flush_scheduled = False
        self._snapshots = Snapshots(clock, self._new_snapshot, self._schedule_flush)
        self._forgetting: IDelayedCall | None = None

    # -- start and stop -------------------------------------------------------------

    def restore(self, data: bytes) -> None:
        """Take the state from a snapshot, before all else.  Raises whatever a broken one does."""
        before, self.state = self.state, restore(data)
        self.state.synchronizers_are_rows = before.synchronizers_are_rows
        self.reads.state = self.state

    def replay(self, stored: Stored) -> None:
        """Apply a batch of the journal; in order of lsn, before `start`."""
        batch = stored.batch
        if batch.origin.protocol == PROTOCOL:
            for item in self.state.replay(
                batch.body, stored.lsn, batch.received_at // 1000
            ):
                if isinstance(item, Written):
                    self.recent.add(item.segment.name, item.offset, item.data)

    def rebuilt(self, data: bytes | None, batches: Iterable[Stored]) -> bytes:
        other = Container(
            self.journal,
            self.clock,
            reader=self.reads.reader,
            recent_bytes=0,
            synchronizers_are_rows=self.state.synchronizers_are_rows,
        )
        if data is not None:
            other.restore(data)
        for stored in batches:
            other.replay(stored)
        return save(other.state, self.reads.first_lsn)

    def needed(self, channel: str) -> int | None:
        return self.state.needed(channel)

    def start(self) -> None:
        """Delete transient segments, whose connections are gone; forget idle writers."""
        self.submit_unhurried(
            self.state.delete(name, self.now)
            for name in self.state.transients()
            if name in self.state.segments
        )
        last = self.state.writers_forgotten_at
        ago = self.clock.seconds() - last / 1000
        if not (last and 0 <= ago <= self._retention + _LEAP_SECONDS):
            self.state.writers_forgotten_at = self.now
        self._forget_later()

    def stop(self) -> None:
        """Submit nothing more: what else is to be deleted the next start deletes."""
        self._unhurried.clear()
        self._snapshots.between = None
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None

    def snapshot(self) -> Deferred[bytes]:
        """A snapshot, once everything in it is durable; it may replace an older one.

        It is at least as new as the moment of this call.  Fails with `NotStored` if
        something in it will never be durable.
        """
        return fail(NotStored(self.broken)) if self.broken else self._snapshots.ask()

    def _new_snapshot(self) -> SnapshotWriter:
        return SnapshotWriter(self.state, self.reads.first_lsn)

    def _forget_later(self) -> None:
        due = self.state.writers_forgotten_at / 1000 + self._retention
        self._forgetting = self.clock.callLater(
            max(0.0, due - self.clock.seconds()), self._forget
        )

    def _forget(self) -> None:
        self._forgetting = None
        if self._snapshots.busy:  # it would have to encode all segments before
            self._snapshots.between = self._forget
            return
        self.submit(self.state.forget_idle_writers(self.now))
        self._forget_later()

    # -- changes ----------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Milliseconds since the epoch."""
        return int(self.clock.seconds() * 1000)

    def submit(
        self,
        change: Change,
        submitter: Submitter | None = None,
        origin: Origin | None = None,
    ) -> None:
        """Make a change durable; *submitter* is told of it, *origin* is that of its rows."""
        if change.pieces or self._assembly.waiting:
            self._assembly.add(change, submitter, origin)
        else:
            self._submit(change, submitter, origin)

    def submit_unhurried(self, changes: Iterator[Change]) -> None:
        """Make changes durable that no peer waits for, however many, in many turns."""
        if not self.broken:
            self._unhurried.append(changes)
            if len(self._unhurried) == 1:
                self._submit_some()

    def _submit_some(self) -> None:
        left, waiting = _UNHURRIED, self._unhurried
        while waiting:
            for change in islice(waiting[0], left):
                self.submit(change)
                left -= 1
            if not left:
                self.clock.callLater(0, self._submit_some)
                return
            if waiting:  # else what was submitted last was lost
                waiting.popleft()

    def _submit(
        self, change: Change, submitter: Submitter | None, origin: Origin | None
    ) -> None:
        batch = Batch(
            origin=origin or self._origin,
            received_at=int(self.clock.seconds() * 1_000_000),
            count=change.count,
            body=change.body,
            payload_bytes=change.payload_bytes,
        )
        done = self.journal.submit(batch)
        done.addCallbacks(
            self._stored,
            self._lost,
            callbackArgs=(change, submitter),
            errbackArgs=(submitter,),
        )

    def _stored(
        self, stored: Stored, change: Change, submitter: Submitter | None
    ) -> None:
        if self.broken:
            return
        for item in self.state.stored(stored.batch.body, stored.lsn):
            if isinstance(item, Written):
                self.recent.add(item.segment.name, item.offset, item.data)
            else:
                self._changed[item] = None
                if item not in self.state.segments:
                    self.recent.drop(item)
        if submitter is not None:
            submitter.stored(change, stored)
        self._schedule_flush()

    def _lost(self, failure: Failure, submitter: Submitter | None) -> None:
        """Take no more changes: the state in memory has one that is not stored."""
        if not self.broken:
            self.broken = failure.getErrorMessage()
            self._log.warn("Pravega takes no more: {why}", why=self.broken)
        self._snapshots.fail(self.broken)
        submitters, self._unflushed = self._unflushed, {}
        if submitter is not None:
            submitters[submitter] = None
        for _, waiting, _ in self._assembly.waiting:
            if waiting is not None:
                submitters[waiting] = None
        self._assembly.waiting.clear()
        self._unhurried.clear()
        for each in submitters:
            each.lost(self.broken)

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            # Later than the callbacks of all changes in this group commit.
            self.clock.callLater(0, self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        submitters, self._unflushed = self._unflushed, {}
        for submitter in submitters:
            submitter.flush()
        changed, self._changed = self._changed, {}
        for name in changed:
            self.reads.changed(name)
        self._snapshots.finish(self.state.durable)

    def flush_after_commit(self, submitter: Submitter) -> None:
        """Call `flush` of *submitter* once, after the next group commit."""
        self._unflushed[submitter] = None
        if self.state.durable == self.state.number:
            self._schedule_flush()

    def forget_submitter(self, submitter: Submitter) -> None:
        """Tell a connection that is closed nothing any more."""
        self._unflushed.pop(submitter, None)


STEP_BYTES = 1 << 22
"""Bytes that are copied in one step: some 2 ms."""


class Assembly:
    """Changes that wait until a large body is put together, that of the first one."""

    def __init__(
        self,
        clock: IReactorTime,
        submit: Callable[[Change, Submitter | None, Origin | None], None],
    ) -> None:
        self.waiting: deque[tuple[Change, Submitter | None, Origin | None]] = deque()
        self._clock = clock
        self._submit = submit
        self._body = BytesIO()
        self._piece = self._at = 0
        """The piece that comes next, and where in it."""

    def add(
        self, change: Change, submitter: Submitter | None, origin: Origin | None
    ) -> None:
        self.waiting.append((change, submitter, origin))
        if len(self.waiting) == 1:
            self._clock.callLater(0, self._go_on)

    def _go_on(self) -> None:
        while self.waiting:
            if not self._put_together(self.waiting[0][0]):
                self._clock.callLater(0, self._go_on)
                return
            self._submit(*self.waiting.popleft())

    def _put_together(self, change: Change) -> bool:
        """Go on with the pieces of *change*; true: it has its body now, and none left."""
        left = STEP_BYTES
        while self._piece < len(change.pieces):
            piece = memoryview(change.pieces[self._piece])[self._at : self._at + left]
            self._body.write(piece)
            left -= len(piece)
            self._at += len(piece)
            if self._at < len(change.pieces[self._piece]):
                return False
            self._piece, self._at = self._piece + 1, 0
        if change.pieces:
            change.body, change.pieces = self._body.getvalue(), ()
            self._body, self._piece = BytesIO(), 0
        return True
