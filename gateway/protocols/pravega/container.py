"""Segment container: the segments that all Pravega listeners of a daemon share.

It submits changes to the journal and learns when they are durable.  After each group
commit it caches the new data for readers at the tail, answers reads that wait for it,
and lets connections send the replies that waited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import islice
from typing import Protocol

from attrs import define, field
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.event import Batch, Origin, Stored
from gateway.protocols.pravega.cache import RECENT_BYTES, TailCache
from gateway.protocols.pravega.reads import (
    Answer,
    Fetch,
    Read,
    Truncated,
    answer_read,
    found,
    head,
)
from gateway.protocols.pravega.segment import Segment, Written
from gateway.protocols.pravega.segments import Change, Segments
from gateway.protocols.pravega.snapshot import SnapshotWriter, restore, save
from gateway.sdk.interfaces import Journal, NotStored, Refusal

PROTOCOL = "pravega"

_UNHURRIED = 64
"""Unhurried changes that are submitted in one turn."""
_LEAP_SECONDS = 3 * 86400.0
"""A start at which writers should have been forgotten so long ago may have a wrong clock."""


class Reader(Protocol):
    """Reads segments from the files of journal, spool and archive."""

    @property
    def first_lsn(self) -> int:
        """All events from this lsn on can be read."""

    def read(
        self, segment: str, offset: int, size: int, lsn: int, until: int
    ) -> Deferred[bytes | memoryview]:
        """Read *size* bytes of a segment from *offset* on, or less, but at least one.

        *lsn* is that of an event at or shortly before the offset.  From *until* on no file
        will be asked for what follows.
        """


class Submitter(Protocol):
    """A connection that submits changes."""

    def stored(self, change: Change, stored: Stored) -> None:
        """A change that it submitted is durable."""

    def flush(self) -> None:
        """A group commit is done: send the replies that are due now."""

    def lost(self, why: str) -> None:
        """A change was not stored: none that was submitted since will be."""


@define(eq=False)
class PendingRead:
    """A read in waiting: calls `respond(self, answer)` or, for a bad request, `refuse(why)`."""

    container: Container | None
    """None once it is answered or cancelled."""
    read: Read
    respond: Callable[[PendingRead, Answer], None]
    refuse: Callable[[Refusal], None]
    waited: bool = field(default=False, init=False)
    """Whether the first try found nothing to read."""
    fetched: Deferred[bytes | memoryview] | None = field(default=None, init=False)
    """The bytes that files have of it."""

    def cancel(self) -> None:
        """Never answer it."""
        container, self.container = self.container, None
        if container is not None:
            container.stop_waiting(self)
        if self.fetched is not None:
            self.fetched.cancel()


class Container:
    """All segments, with the journal, the tail cache and the pending reads."""

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
        self._synchronizers_are_rows = synchronizers_are_rows
        self.state.synchronizers_are_rows = synchronizers_are_rows
        self.recent = TailCache(recent_bytes)
        self.journal = journal
        self.clock = clock
        self.broken = ""
        """Why the journal did not store a change; then no more are taken.  Else empty."""
        self._reader = reader
        self._retention = writer_retention
        self._origin = Origin(PROTOCOL, PROTOCOL, PROTOCOL, PROTOCOL)
        self._assembly = Assembly()
        self._assembling: deque[tuple[Change, Submitter | None, Origin | None]]
        self._assembling = deque()
        """Changes that wait until a large body is put together, that of the first one."""
        self._unhurried: deque[Iterator[Change]] = deque()
        """Changes to submit a few at a time."""
        self._unflushed: dict[Submitter, None] = {}
        self._waiting: dict[str, dict[PendingRead, None]] = {}
        """Pending reads by segment."""
        self._changed: dict[str, None] = {}
        """Segments with durable changes since the last `_flush`."""
        self._flush_scheduled = False
        self._snapshots_asked: list[Deferred[bytes]] = []
        """Asked for, and not begun."""
        self._snapshot: SnapshotWriter | None = None
        self._snapshot_encoded = False
        """Whether the snapshot is encoded; it may still have changes that are not durable."""
        self._snapshot_waiters: list[Deferred[bytes]] = []
        """Asked for, and to be answered with `_snapshot`."""
        self._forgetting: IDelayedCall | None = None
        self._forget_after_snapshot = False
        """Writers are not forgotten while one is made."""

    # -- start and stop -------------------------------------------------------------

    def restore(self, data: bytes) -> None:
        """Take the state from a snapshot, before all else.  Raises whatever a broken one does."""
        self.state = restore(data)
        self.state.synchronizers_are_rows = self._synchronizers_are_rows

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
            reader=self._reader,
            recent_bytes=0,
            synchronizers_are_rows=self._synchronizers_are_rows,
        )
        if data is not None:
            other.restore(data)
        for stored in batches:
            other.replay(stored)
        return save(other.state, self._first_lsn)

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
        self._forget_after_snapshot = False
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None

    def snapshot(self) -> Deferred[bytes]:
        """A snapshot, once everything in it is durable; it may replace an older one.

        It is at least as new as the moment of this call.  Fails with `NotStored` if
        something in it will never be durable.
        """
        if self.broken:
            return fail(NotStored(self.broken))
        done: Deferred[bytes] = Deferred()
        self._snapshots_asked.append(done)
        self._begin_snapshot()
        return done

    def _begin_snapshot(self) -> None:
        if self._snapshots_asked and self._snapshot is None:
            self._snapshot_waiters, self._snapshots_asked = self._snapshots_asked, []
            self._snapshot = SnapshotWriter(self.state, self._first_lsn)
            self._snapshot_encoded = False
            self._encode_snapshot()

    def _encode_snapshot(self) -> None:
        """One step per reactor turn, so that connections are served in between."""
        if self._snapshot is None:
            return  # something in it will never be durable
        if self._snapshot.step():
            self.clock.callLater(0, self._encode_snapshot)
        else:
            self._snapshot_encoded = True
            self._schedule_flush()

    def _finish_snapshot(self) -> None:
        """Give out the snapshot if all in it is durable; begin the next one."""
        writer = self._snapshot
        if writer is None or not self._snapshot_encoded:
            return
        if self.state.durable < writer.number:
            return
        self._snapshot = None
        waiters, self._snapshot_waiters = self._snapshot_waiters, []
        data = writer.finish()
        if self._forget_after_snapshot:  # also where the next one is asked for already
            self._forget_after_snapshot = False
            self._forget()
        for done in waiters:
            done.callback(data)
        self._begin_snapshot()

    def _forget_later(self) -> None:
        due = self.state.writers_forgotten_at / 1000 + self._retention
        self._forgetting = self.clock.callLater(
            max(0.0, due - self.clock.seconds()), self._forget
        )

    def _forget(self) -> None:
        self._forgetting = None
        if self._snapshot is not None:  # it would have to encode all segments before
            self._forget_after_snapshot = True
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
        if not (change.pieces or self._assembling):
            self._submit(change, submitter, origin)
            return
        self._assembling.append((change, submitter, origin))
        if len(self._assembling) == 1:
            self.clock.callLater(0, self._assemble)

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

    def _assemble(self) -> None:
        """Put some more of a large body together; those behind it wait for it."""
        waiting = self._assembling
        while waiting:
            if not self._assembly.put_together(waiting[0][0]):
                self.clock.callLater(0, self._assemble)
                return
            self._submit(*waiting.popleft())

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
        for done in (*self._snapshot_waiters, *self._snapshots_asked):
            done.errback(NotStored(self.broken))
        self._snapshot_waiters, self._snapshots_asked, self._snapshot = [], [], None
        submitters, self._unflushed = self._unflushed, {}
        if submitter is not None:
            submitters[submitter] = None
        for _, waiting, _ in self._assembling:
            if waiting is not None:
                submitters[waiting] = None
        self._assembling.clear()
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
            for pending in list(self._waiting.get(name, ())):
                self._try(pending)
        self._finish_snapshot()

    def flush_after_commit(self, submitter: Submitter) -> None:
        """Call `flush` of *submitter* once, after the next group commit."""
        self._unflushed[submitter] = None
        if self.state.durable == self.state.number:
            self._schedule_flush()

    def forget_submitter(self, submitter: Submitter) -> None:
        """Tell a connection that is closed nothing any more."""
        self._unflushed.pop(submitter, None)

    # -- reads ------------------------------------------------------------------------

    def read(
        self,
        read: Read,
        respond: Callable[[PendingRead, Answer], None],
        refuse: Callable[[Refusal], None],
    ) -> PendingRead:
        """Answer a read now, or when there is data or the segment ends."""
        pending = PendingRead(self, read, respond, refuse)
        self._try(pending)
        return pending

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def stop_waiting(self, pending: PendingRead) -> None:
        name = pending.read.segment
        others = self._waiting.get(name)
        if others is not None:
            others.pop(pending, None)
            if not others:
                del self._waiting[name]

    def head(self, segment: Segment) -> int:
        """The first offset of a segment that can be read."""
        return head(segment, self.recent, self._first_lsn)

    @property
    def _first_lsn(self) -> int:
        return 0 if self._reader is None else self._reader.first_lsn

    def _try(self, pending: PendingRead) -> None:
        reader = self._reader
        try:
            answer = answer_read(
                self.state,
                self.recent,
                pending.read,
                waited=pending.waited,
                first_lsn=self._first_lsn,
            )
        except Refusal as why:
            pending.cancel()
            pending.refuse(why)
            return
        if answer is None:
            pending.waited = True
            self._waiting.setdefault(pending.read.segment, {})[pending] = None
        elif not isinstance(answer, Fetch):
            self._answer(pending, answer)
        elif reader is None:
            begin = self.recent.begin(answer.segment.name)
            start = answer.segment.readable if begin is None else begin
            self._answer(pending, Truncated(start))
        else:
            self.stop_waiting(pending)
            pending.fetched = reader.read(
                answer.segment.name,
                answer.offset,
                answer.size,
                answer.lsn,
                answer.until,
            )
            pending.fetched.addCallbacks(
                self._fetched,
                self._not_fetched,
                callbackArgs=(pending, answer.segment),
                errbackArgs=(pending, reader.first_lsn),
            )

    def _answer(self, pending: PendingRead, answer: Answer) -> None:
        if pending.container is not None:
            pending.cancel()
            pending.respond(pending, answer)

    def _fetched(
        self, data: bytes | memoryview, pending: PendingRead, segment: Segment
    ) -> None:
        self._answer(pending, found(segment, pending.read.offset, data))

    def _not_fetched(
        self, failure: Failure, pending: PendingRead, first_lsn: int
    ) -> None:
        if pending.container is None:
            return  # nobody waits for it
        read = pending.read
        if self._first_lsn > first_lsn:
            # Retention has deleted a file meanwhile.  Now the read is before the head,
            # or its data is in another file.
            self._try(pending)
            return
        self._log.error(
            "{segment} can not be read at {offset}: {why}",
            segment=read.segment,
            offset=read.offset,
            why=failure.getErrorMessage(),
        )
        pending.cancel()
        pending.refuse(Refusal(f"{read.segment} can not be read at {read.offset} now"))


STEP_BYTES = 1 << 22
"""Bytes that are copied in one step: some 2 ms."""


class Assembly:
    """The body that is being put together."""

    __slots__ = ("_at", "_body", "_piece")

    def __init__(self) -> None:
        self._body = BytesIO()
        self._piece = self._at = 0
        """The piece that comes next, and where in it."""

    def put_together(self, change: Change) -> bool:
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
