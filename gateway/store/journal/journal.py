"""The journal's thread, and its interface in the reactor: group commit.

Nothing is acknowledged before it is durable: the submitter of a batch is told after the
`fdatasync` that covers it, and nothing else makes an acknowledgement.

One thread owns the `Log`.  It takes all that was submitted since its last commit as one
group, so that many share the price of a sync.  The busier the gateway, the larger the groups
(`queues`).  A disk that is idle is not kept waiting.  It gets what came in one turn of the
reactor, or in `commit_interval` of a longer one.

When a commit fails, no batch of it is acknowledged, the group stays where it is, and reading
stops (`full`).  The commit is tried again every second, so that a disk that has room again
heals all.  Two syncs that fail in a row, for any reason but want of room, are not followed by
a third: `on_fatal` ends the daemon.  The senders still hold what was not acknowledged.

A disk that does not answer fails nothing.  So `check`, due every second, looks how long
the oldest batch has waited: after `stall_after` the journal says so (`why_full`).
"""

from __future__ import annotations

import math
import struct
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway import spoken
from gateway.config import model
from gateway.event import BATCH_BYTES, Batch, Origin, Stored
from gateway.sdk.interfaces import NotStored, Told
from gateway.store.journal.held_back import HoldingLog
from gateway.store.journal.lead import Lead
from gateway.store.journal.log import Log, Segment, SyncFailed
from gateway.store.journal.queues import (
    TOLD_AT_ONCE,
    Durable,
    Queues,
    Reactor,
    Submitted,
    telling,
)
from gateway.store.journal.shares import Shares
from gateway.store.node.through import EVERY_SECONDS, Through
from gateway.store.system.disk import NO_ROOM
from gateway.store.system.shared import SharedDict
from gateway.store.system.threads import RealThreads, Threads

_RETRY_SECONDS = 1.0
_LONGEST_PACE_SECONDS = 0.1
_T = TypeVar("_T")
_log = Logger()
_numbers = struct.Struct("<IQ").pack
"""The numbers of a record that a batch brings, packed as `segment` has them."""


def _check(batch: Batch) -> None:
    """Raise ValueError for what the thread could not write: its end is the daemon's."""
    if not isinstance(batch.body, bytes):
        raise TypeError(f"the body of a batch is no bytes: {batch.body!r}"[:200])
    try:
        _numbers(batch.count, batch.payload_bytes)
    except struct.error:
        said = f"{batch.count!r} events with {batch.payload_bytes!r} bytes of payload"
        raise ValueError(f"no batch can have {said}") from None


def _tell(told: Callable[[_T], object], what: _T) -> None:
    """Tell who waits for a batch; the others are told, whatever that raises."""
    try:
        told(what)
    except Exception:
        _log.failure("who was told of a batch raised")


@define(eq=False, slots=False)
class Journal:
    """Implements `gateway.sdk.interfaces.Journal`; call it from the reactor's thread.

    *rolls* has `roll_*`, which say when a segment is sealed.  With `ack: spool`, which is
    *acknowledge_when_published*, no submitter is told before the batch's Parquet file is there.
    *on_sealed* and *on_commit* are called in the journal's own thread; the latter is told
    how many seconds, events and bytes a group commit took.  *on_failure* is told what the
    disk failed in, `write` or `sync`; that it is full is no failure.

    43 attributes and 46 methods: the reactor's side and the thread's are both here, as what
    senders are told (`full`, `why_full`) depends on what either did last.
    """

    _log: Log
    _settings: model.Journal
    _rolls: model.Spool
    _reactor: Reactor
    _on_sealed: Callable[[Segment], None]
    _on_fatal: Callable[[str], None]
    _on_durable: Callable[[list[Stored]], None] = lambda _: None
    _on_commit: Callable[[float, int, int], None] = lambda *_: None
    _on_failure: Callable[[str], None] = lambda _: None
    _clock: Callable[[], float] = time.monotonic
    _wall_clock: Callable[[], float] = time.time
    _acknowledge_when_published: bool = field(default=False, kw_only=True)
    _before_batches: bool = field(default=False, kw_only=True)
    """Whether a job on this machine takes the files, which should be there when it looks."""
    _threads: Threads = field(factory=RealThreads, kw_only=True)
    copies: SharedDict[int, Batch] = field(factory=SharedDict, kw_only=True)
    """Batches that wait for their file, by lsn: a disk that does not give them back loses
    none.  Shared with the thread."""

    def __attrs_post_init__(self) -> None:
        self.durable_lsn = self._log.next_lsn - 1
        """The last event that was acknowledged, or may be."""
        self.synced = self._log.synced
        """The durable part of the newest segment; its events are up to `durable_lsn`."""
        self.roll_factor = 1.0
        """Grows with Spark's backlog: how many times `roll_interval` to wait."""
        self.pace = math.inf
        """The most bytes a second, as long as no sender stands for long."""
        self._held = 0
        self._reserved = 0
        self._holds: dict[str, str] = {}
        self._crowded_since: float | None = None
        """The time since which memory is full, as `check` has seen it; None: it is not."""
        self._holding_log = HoldingLog(self._clock, self._wall_clock)
        self._measure()
        self._room: OrderedDict[Deferred[None], None] = OrderedDict()
        """Senders that wait for room."""
        self._shares = Shares()
        self._making_room = self._waking = False
        self._unpublished: deque[Submitted] = deque()
        self._published = self.durable_lsn
        self._telling = False
        """More of what is published is told in the next turn."""
        self._told = 0
        """Batches that were told to be durable, ever."""
        self._asked: deque[tuple[int, int, Callable[[], None]]] = deque()
        """Callbacks that wait until so many batches are told, and published up to an lsn."""
        self._lead = Lead()
        self._stopped: Deferred[None] | None = None
        self._queues = Queues(
            self._reactor,
            self._threads,
            self._clock,
            self._settings.commit_interval,
            self._durable,
        )
        self.end_turn = self._queues.end_turn
        """Hands the thread what was submitted, before other work takes the reactor's time."""
        # Shared with the thread.
        self._busy_since: float | None = None
        self._failed_syncs = 0
        self._thread = self._threads.thread("journal", self._run)
        self._incarnation = self._log.incarnation
        """The incarnation of the newest durable batch, as far as was told."""
        self._submitted = 0
        """How many batches ever were."""
        self._since = self._wall_micros()
        """The least `received_at` of a batch to come, or `through` would be wrong."""
        self.through = Through(self._since - 1, self.durable_lsn)
        """How far all was told that came, as of the last seconds; any thread may ask."""
        self._next_through: tuple[int, int] | None = None
        """The `at` of the next one, once so many batches are told; None: it is to be chosen."""
        self._through_at = self._clock()

    def _measure(self) -> None:
        """Keep what every read asks for, as a section is slow to give it."""
        self._memory_bytes = self._settings.memory_bytes
        self._segment_bytes = self._settings.segment_bytes
        # Half at most, so that what is reserved alone never makes the journal full.
        self.reservable_bytes = self._memory_bytes // 2 - self._reserved
        """Bytes that may be reserved yet; less than 0: it is too much already."""
        self._waiting_bytes: float = math.inf
        """Bytes that may wait in memory for the file that the open segment becomes."""
        if self._acknowledge_when_published:  # do not wait until there is none left
            self._waiting_bytes = self._memory_bytes // 4

    # -- the reactor's side ---------------------------------------------------

    def configure(self, settings: model.Journal, rolls: model.Spool) -> None:
        """Go on with other limits and intervals; not with another directory."""
        self._settings, self._rolls = settings, rolls
        self._measure()
        self._queues.configure(settings.commit_interval)
        self._make_room()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> Deferred[None]:
        """Commit what was submitted, seal, end the thread.

        What waits to be published goes on waiting: the spool stops later.
        """
        self._stopped = Deferred()
        self._queues.stop()
        return self._stopped

    @property
    def open_bytes(self) -> int:
        """Size of the segment that is being written."""
        return self._log.bytes

    @property
    def held_bytes(self) -> int:
        """Bytes in memory that wait to be acknowledged: for the disk, or for a file.

        Many connections, each with as many tiny batches as it may have, would hold more
        in objects than in bodies: `BATCH_BYTES` counts those.
        """
        return self._held

    @property
    def taken_bytes(self) -> int:
        """Bytes that `memory_bytes` limits: those held, and those reserved (`reserve`)."""
        return self._held + self._reserved

    @property
    def _crowded(self) -> bool:
        return self.taken_bytes >= self._memory_bytes

    @property
    def oldest_wait_seconds(self) -> float:
        """How long the oldest batch has waited for its acknowledgement; 0: none waits."""
        return max(self.disk_wait_seconds, self._waited_for_file)

    @property
    def disk_wait_seconds(self) -> float:
        """How long the oldest batch has waited to be synced; 0: none waits."""
        oldest = self._queues.oldest
        return 0.0 if oldest is None else self._clock() - oldest.submitted_at

    @property
    def _waited_for_file(self) -> float:
        if not self._unpublished:
            return 0.0
        return self._clock() - self._unpublished[0].batch.submitted_at

    @property
    def full(self) -> bool:
        # Every read asks: in one expression, as a property's property is slow.
        return bool(self._holds) or self._held + self._reserved >= self._memory_bytes

    @property
    def why_full(self) -> str | None:
        """Why nothing is taken, or nothing acknowledged, for `/readyz`; None: all is well."""
        return next(iter(self.reasons.values()), None)

    @property
    def reasons(self) -> dict[str, str]:
        """The holders of the journal (`disk`, `spool`, `commit`, `memory`, `stall`), and why."""
        if self._holds:  # what is slow is slow because of these
            return dict(self._holds)
        if crowded := self._why_crowded():
            return {"memory": crowded}
        if stalled := self._why_stalled():
            return {"stall": stalled}
        return {}

    def _why_crowded(self) -> str | None:
        if not self._crowded:
            return None
        now, settings = self._clock(), self._settings
        limit = f"limit {spoken.size(settings.memory_bytes)} (journal.memory_bytes)"
        busy, crowded = self._busy_since, self._crowded_since
        if busy is not None and now - busy > _RETRY_SECONDS:
            return (
                f"the disk has not answered for {spoken.duration(now - busy)} and "
                f"{spoken.size(self._held)} wait, {limit}"
            )
        if crowded is not None and now - crowded >= settings.stall_after:
            return f"{spoken.size(self.taken_bytes)} wait in memory, {limit}"
        return None

    def _why_stalled(self) -> str | None:
        patience = self._settings.stall_after
        limit = f"limit {patience:g} s (journal.stall_after)"
        waited = self.disk_wait_seconds
        if waited >= patience:
            return f"a batch has waited {spoken.duration(waited)} for the disk, {limit}"
        waited = self._waited_for_file - self._rolls.roll_interval * self.roll_factor
        if waited >= patience:
            return f"a spool file is late by {spoken.duration(waited)}, {limit}"
        return None

    def check(self) -> None:
        """Look whether senders are held back, and tell the log; due every second."""
        if self._crowded and self._crowded_since is None:
            self._crowded_since = self._clock()
        self._holding_log.update(self.reasons)
        if self._clock() - self._through_at >= EVERY_SECONDS:
            self.look_through()

    def look_through(self) -> None:
        """Tell how far all was told, as soon as all is that came until now."""
        if self._next_through is None:
            self._since = max(self._since, self._wall_micros())
            self._next_through = self._since - 1, self._submitted
        at, number = self._next_through
        first = self._queues.first_untold
        if first is None or first.number > number:
            self.through, self._next_through = Through(at, self.durable_lsn), None
            self._through_at = self._clock()

    def _wall_micros(self) -> int:
        return int(self._wall_clock() * 1_000_000)

    def hold(self, who: str, why: str | None) -> None:
        """Take no more while *why* is not None (spool at its limit, disk full, …)."""
        if why is None:
            self._holds.pop(who, None)
            self._make_room()
        else:
            self._holds[who] = why
            self._wake()
        self._holding_log.update(self._holds)

    def when_room(self) -> Deferred[None]:
        waiter: Deferred[None] = Deferred(self._forget)
        self._room[waiter] = None
        self._make_room()
        return waiter

    def over_share(self, origin: Origin) -> bool:
        # What holds the journal holds its queue: then `full` says who is read.
        return not self._holds and self._shares.over(origin)

    def when_share(self, origin: Origin) -> Deferred[None]:
        return self._shares.when_less(origin)

    def _forget(self, waiter: Deferred[None]) -> None:
        self._room.pop(waiter, None)

    def reserve(self, change: int) -> bool:
        self._reserved += change
        self.reservable_bytes -= change
        if change < 0:
            self._make_room()
        return self.reservable_bytes >= 0

    def submit(self, batch: Batch) -> Deferred[Stored]:
        done: Deferred[Stored] = Deferred()
        self.submit_for(done, batch)
        return done

    def submit_for(self, told: Told, batch: Batch) -> None:
        _check(batch)
        if self._queues.stopping:
            _tell(told.errback, Failure(NotStored("the gateway is stopping")))
            return
        size, origin = len(batch.body), batch.origin
        self._held += size + BATCH_BYTES
        origin.unacknowledged += size
        batch.submitted_at = self._clock()
        now = max(self._wall_micros(), self._since)
        batch.received_at = origin.latest = max(now, origin.latest)
        self._shares.add(batch)
        self._submitted += 1
        self._queues.submit(Submitted(batch, told, number=self._submitted))

    def withdraw(self, batch: Batch) -> bool:
        if not self._queues.withdraw(batch):
            return False
        self._shares.remove((batch,))
        self._let_go((batch,))
        batch.body = b""
        if "commit" in self._holds and self._queues.nothing_waits:
            self.hold("commit", None)  # else nothing would ever be tried again
        self._make_room()
        return True

    def published(self, last_lsn: int) -> None:
        """Events up to *last_lsn* are in the spool (matters to `ack: spool`)."""
        self._published = max(self._published, last_lsn)
        self._lead.published(last_lsn, self._clock())
        self._tell_published()

    def _tell_published(self) -> None:
        """Acknowledge what is in the spool: as much as fits into this turn."""
        if self._telling:
            return
        waiting = self._unpublished
        left = math.inf if self._queues.stopping else TOLD_AT_ONCE
        while waiting and waiting[0].last_lsn <= self._published and left > 0:
            head = waiting.popleft()
            left -= telling(head.batch)
            self.copies.pop(head.lsn, None)
            self._let_go((head.batch,))
            _tell(head.done.callback, Stored(head.batch, head.lsn))
        if left <= 0:
            self._telling = True
            self._reactor.callLater(0, self._tell_more)
        self._make_room()
        self._tell_asked()

    def _tell_more(self) -> None:
        self._telling = False
        self._tell_published()

    def when_told(self, last_lsn: int, call: Callable[[], None]) -> None:
        """Call once all who submitted batches of a sealed segment are told of them.

        *last_lsn* is that of its last event.  A busy reactor is told of batches later than
        their file is written, as it takes so many a turn; with `ack: spool` and a bucket,
        when that has the file.
        """
        self._asked.append((self._queues.durable, last_lsn, call))
        self._tell_asked()

    def _tell_asked(self) -> None:
        asked = self._asked
        while asked:
            durable, last_lsn, call = asked[0]
            if self._told < durable:
                return
            if self._unpublished and self._unpublished[0].last_lsn <= last_lsn:
                return
            asked.popleft()
            call()

    def _durable(self, done: Durable) -> None:
        group = done.batches
        last = group[-1]
        self.durable_lsn = last.lsn + last.batch.count - 1
        if self._log.incarnation != self._incarnation:  # the clock may be set back
            self._incarnation = self._log.incarnation
            self._since, self._next_through = 0, None
        if done.synced is not None:
            self.synced = done.synced  # behind it: another thread may ask for both
        if "commit" in self._holds:
            self.hold("commit", None)
        self._told += len(group)
        batches: list[Batch] = []
        stored: list[Stored] = []
        for waiting in group:
            batches.append(waiting.batch)
            stored.append(Stored(waiting.batch, waiting.lsn))
        self._shares.remove(batches)
        if self._acknowledge_when_published:
            self._unpublished.extend(group)
            # Of metadata nothing is published; behind what is, it need not wait.
            self._tell_published()
        else:
            self._let_go(batches)
            for waiting, what in zip(group, stored, strict=True):
                try:  # the others are told, whatever that raises
                    waiting.done.callback(what)
                except Exception:
                    _log.failure("who was told of a batch raised")
        self._on_durable(stored)
        self._make_room()
        self._tell_asked()

    def _let_go(self, batches: Sequence[Batch]) -> None:
        """Count batches no more that are acknowledged or gone."""
        for batch in batches:
            size = len(batch.body)
            self._held -= size + BATCH_BYTES
            batch.origin.unacknowledged -= size

    def _make_room(self) -> None:
        if not self._crowded:
            self._crowded_since = None
        if self._making_room:
            return  # called by a waiter, which gave memory back: the first call goes on
        self._making_room = True
        try:
            while self._room and not self.full:
                waiter, _ = self._room.popitem(last=False)
                waiter.callback(None)
        finally:
            self._making_room = False
        self._wake()  # who is woken may make room, and then the loop above goes on

    def _wake(self) -> None:
        """Let those go on whose addresses have less in the queue: some, and soon more."""
        if self._waking:
            return
        self._waking = True
        if self._shares.wake(all_of_them=bool(self._holds)):
            self._reactor.callLater(0, self._wake_more)
        else:
            self._waking = False

    def _wake_more(self) -> None:
        self._waking = False
        self._wake()

    def _failed(self, why: OSError) -> None:
        if why.errno not in NO_ROOM:
            self._on_failure("sync" if isinstance(why, SyncFailed) else "write")
        if self._queues.nothing_waits:
            return  # the next batch finds out whether the disk still fails
        self.hold("commit", f"the journal can not be written: {why}")

    def _ended(self, left: list[Submitted]) -> None:
        self._queues.tell_all()
        for waiting in left:
            if not waiting.batch.withdrawn:  # since the thread has ended
                why = NotStored("the gateway stopped before it was stored")
                _tell(waiting.done.errback, Failure(why))
        if self._stopped is not None:
            self._stopped.callback(None)

    # -- the thread's side ----------------------------------------------------

    def _run(self) -> None:
        try:
            self._commit_until_stopped()
        except BaseException as why:  # a daemon without its journal must not live on
            self._reactor.callFromThread(self._on_fatal, f"{type(why).__name__}: {why}")
            raise

    def _commit_until_stopped(self) -> None:
        queues = self._queues
        failures, earliest, due = 0, -math.inf, self._until_due()
        while queues.wait(earliest, due):
            begun = self._clock()
            group = queues.take(one=failures > 0)
            size = 0
            if group:
                for waiting in group:
                    size += len(waiting.batch.body)
                failures = failures + 1 if not self._commit(group) else 0
                if failures and queues.stopping:
                    break
            earliest = begun + self._pause(failures, size)
            due = self._until_due()
            if due == 0.0:
                self._seal()
                self._log.begin()
                due = None
        self._seal()
        self._reactor.callFromThread(self._ended, queues.close())

    def _pause(self, failures: int, size: int) -> float:
        """Seconds from one group, of *size* bytes, to the next."""
        if failures:
            return _RETRY_SECONDS
        paced = size / self.pace if self.pace else math.inf
        # Above that `hold` does the rest: nobody is to stand for long.
        return min(paced, _LONGEST_PACE_SECONDS)

    def _commit(self, group: list[Submitted]) -> bool:
        begun = self._busy_since = self._clock()
        log = self._log
        before = log.growing
        size = before.bytes if before else 0
        try:
            lsn = first = log.commit([waiting.batch for waiting in group])
        except OSError as why:
            self._queues.give_back(group)
            self._pass_on_abandoned()
            self._reactor.callFromThread(self._failed, why)
            if isinstance(why, SyncFailed) and why.errno not in NO_ROOM:
                self._failed_syncs += 1
                if self._failed_syncs > 1:
                    self._reactor.callFromThread(self._on_fatal, str(why))
            return False
        finally:
            self._busy_since = None
        self._failed_syncs = 0
        for waiting in group:
            waiting.lsn = lsn
            lsn += waiting.batch.count
            if self._acknowledge_when_published and waiting.batch.count:
                self.copies[waiting.lsn] = waiting.batch
        self._queues.complete(Durable(group, log.synced))
        growing = log.growing
        assert growing is not None, "the group is in it"
        size = growing.bytes - (size if growing is before else 0)
        self._on_commit(self._clock() - begun, lsn - first, size)
        return True

    def _until_due(self) -> float | None:
        """Seconds until the segment is sealed; None: it has nothing that is published."""
        segment, rolls = self._log.growing, self._rolls
        if segment is None:
            return None
        size = segment.bytes
        if size >= self._segment_bytes:
            return 0.0
        if size + BATCH_BYTES * segment.batches >= self._waiting_bytes:
            return 0.0
        # Metadata alone makes no file: its segment stays open and is added to, unless it
        # has the last room.  Only what is sealed can go.
        if not segment.events:
            return 0.0 if self._log.short and segment.batches else None
        if segment.events >= rolls.roll_events:
            return 0.0
        if segment.payload_bytes >= rolls.roll_bytes:
            return 0.0
        interval = rolls.roll_interval * self.roll_factor
        if self._acknowledge_when_published:
            interval -= self._lead.of(interval)
        age = self._log.age
        left = interval - age
        if self._before_batches:
            now = self._wall_clock()
            left = min(left, self._lead.before_batch(now - age, interval) - now)
        return 0.0 if left <= 0.0 else max(left, 0.001)

    def _seal(self) -> None:
        self._pass_on_abandoned()
        sealed = self._log.seal()
        if sealed is not None:
            if sealed.events:
                self._lead.sealed(sealed.last_lsn, self._clock())
            self._on_sealed(sealed)

    def _pass_on_abandoned(self) -> None:
        for left in self._log.abandoned():
            self._on_sealed(left)
