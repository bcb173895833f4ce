"""Where all Pravega connections of a gateway meet: the segments, the journal, readers.

One per daemon, whatever the number of listeners.  It submits changes, learns when they
are durable, keeps the newest data for readers at the tail, wakes those who wait, and
lets every connection settle once per group commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.event import Batch, Origin, Stored
from gateway.interfaces import Journal, NotStored, Refusal
from gateway.protocols.pravega.cache import TailCache
from gateway.protocols.pravega.reads import (
    Answer,
    Fetch,
    Read,
    Truncated,
    found,
    head,
    look,
)
from gateway.protocols.pravega.segment import Segment
from gateway.protocols.pravega.segments import Change, Segments, Written
from gateway.protocols.pravega.snapshot import SnapshotWriter, restore

__all__ = ["PROTOCOL", "Container", "Owner", "PendingRead", "Reader"]

PROTOCOL = "pravega"


class Reader(Protocol):
    """Reads back what is in the journal, the spool or the archive."""

    @property
    def first_lsn(self) -> int:
        """Everything from here on can be read."""

    def read(self, segment: str, offset: int, size: int, lsn: int) -> Deferred[bytes]:
        """At most *size* bytes of a segment from *offset* on, and at least one.

        *lsn* is that of an event at or before the offset, and not long before.
        """


class Owner(Protocol):
    """A connection, as the container sees it."""

    def stored(self, change: Change, stored: Stored) -> None:
        """What it submitted is durable."""

    def settle(self) -> None:
        """A group is durable: say what may be said."""

    def lost(self, why: str) -> None:
        """Nothing more becomes durable."""


class PendingRead:
    """A read that was not answered yet."""

    __slots__ = ("container", "read", "refuse", "respond", "waited")

    def __init__(
        self,
        container: Container,
        read: Read,
        respond: Callable[[PendingRead, Answer], None],
        refuse: Callable[[Refusal], None],
    ) -> None:
        self.container: Container | None = container
        self.read = read
        self.respond = respond
        self.refuse = refuse
        self.waited = False

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        container, self.container = self.container, None
        if container is not None:
            container.forget(self)


class Container:
    """The segments and everybody's access to them."""

    _log = Logger()

    def __init__(
        self,
        journal: Journal,
        clock: IReactorTime,
        *,
        reader: Reader | None = None,
        recent_bytes: int = 128 << 20,
        writer_retention: float = 7 * 86400.0,
        state: Segments | None = None,
    ) -> None:
        """*state* is what a snapshot held; `replay` the journal on top of it.

        A writer that does nothing for *writer_retention* seconds is forgotten, within
        as much time again.
        """
        self.state = state or Segments()
        self.recent = TailCache(recent_bytes)
        self.journal = journal
        self.clock = clock
        self.broken = ""
        """Why nothing is taken any more: the journal did not store a change."""
        self._reader = reader
        self._retention = writer_retention
        self._origin = Origin(PROTOCOL, PROTOCOL, PROTOCOL, PROTOCOL)
        self._owners: dict[Owner, None] = {}
        self._waiting: dict[str, dict[PendingRead, None]] = {}
        self._touched: dict[str, None] = {}
        self._settling = False
        self._wanted: list[Deferred[bytes]] = []
        """Snapshots that are not begun."""
        self._saving: SnapshotWriter | None = None
        self._written = False
        """It lacks nothing but the disk's word."""
        self._savers: list[Deferred[bytes]] = []
        self._forgetting: IDelayedCall | None = None
        self._let_go_lsn = 0

    # -- start and stop -------------------------------------------------------------

    def restore(self, data: bytes) -> None:
        """Be what a snapshot says; before all else.  Raises whatever is wrong with it."""
        self.state = restore(data)

    def replay(self, stored: Stored) -> None:
        """A batch that the journal still has; in order, before `start`."""
        batch = stored.batch
        if batch.origin.protocol == PROTOCOL:
            for what in self.state.replay(
                batch.body, stored.lsn, batch.received_at // 1000
            ):
                if isinstance(what, Written):
                    self.recent.add(what.segment.name, what.offset, what.data)

    def start(self) -> None:
        """Clear away what no connection can finish; begin to forget idle writers."""
        for name in self.state.transients():
            self.submit(self.state.delete(name, self.now))
        if not self.state.forgotten:
            self.state.forgotten = self.now
        self._forget_later()

    def stop(self) -> None:
        """Forget nobody any more."""
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None

    def snapshot(self) -> Deferred[bytes]:
        """The state, once everything in it is durable; it may replace an older one.

        It is that of now, or of a later moment if another one is being made.  It fails
        with `NotStored` if something in it is not durable and never will be.
        """
        if self.broken:
            return fail(NotStored(self.broken))
        done: Deferred[bytes] = Deferred()
        self._wanted.append(done)
        self._save()
        return done

    def _save(self) -> None:
        if self._wanted and self._saving is None:
            self._savers, self._wanted = self._wanted, []
            self._let_go()
            self._saving, self._written = SnapshotWriter(self.state), False
            self._save_on()

    def _let_go(self) -> None:
        """Of what retention took, so that what is saved does not grow for ever."""
        first_lsn = self._first_lsn
        if first_lsn > self._let_go_lsn:
            self._let_go_lsn = first_lsn
            for segment in self.state.segments.values():
                segment.let_go(first_lsn)

    def _save_on(self) -> None:
        """A little at a time: connections do not wait for it."""
        if self._saving is None:
            return  # something in it will never be durable
        if self._saving.step():
            self.clock.callLater(0, self._save_on)
        else:
            self._written = True
            self._settle_soon()

    def _saved(self) -> None:
        """Give a snapshot away if it is whole and durable; begin the next one."""
        saving = self._saving
        if saving is None or not self._written:
            return
        if self.state.durable < saving.number:
            return
        savers, self._savers, self._saving = self._savers, [], None
        data = saving.finish()
        for done in savers:
            done.callback(data)
        self._save()

    def _forget_later(self) -> None:
        due = self.state.forgotten / 1000 + self._retention
        self._forgetting = self.clock.callLater(
            max(0.0, due - self.clock.seconds()), self._forget
        )

    def _forget(self) -> None:
        self.submit(self.state.forget(self.now))
        self._forget_later()

    # -- changes ----------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Milliseconds since the epoch."""
        return int(self.clock.seconds() * 1000)

    def submit(
        self, change: Change, owner: Owner | None = None, origin: Origin | None = None
    ) -> None:
        """Make a change durable; its *owner* hears of it."""
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
            callbackArgs=(change, owner),
            errbackArgs=(owner,),
        )

    def _stored(self, stored: Stored, change: Change, owner: Owner | None) -> None:
        if self.broken:
            return
        for what in self.state.stored(stored.batch.body, stored.lsn):
            if isinstance(what, Written):
                self.recent.add(what.segment.name, what.offset, what.data)
            else:
                self._touched[what] = None
                if what not in self.state.segments:
                    self.recent.drop(what)
        if owner is not None:
            owner.stored(change, stored)
        self._settle_soon()

    def _lost(self, failure: Failure, owner: Owner | None) -> None:
        """What was decided on top of it is void as well: take nothing any more."""
        if not self.broken:
            self.broken = failure.getErrorMessage()
            self._log.warn("Pravega takes no more: {why}", why=self.broken)
        for done in (*self._savers, *self._wanted):
            done.errback(NotStored(self.broken))
        self._savers, self._wanted, self._saving = [], [], None
        owners, self._owners = self._owners, {}
        if owner is not None:
            owners[owner] = None
        for each in owners:
            each.lost(self.broken)

    def _settle_soon(self) -> None:
        if not self._settling:
            self._settling = True
            # Behind the callbacks of all that this commit has made durable.
            self.clock.callLater(0, self._settle)

    def _settle(self) -> None:
        self._settling = False
        owners, self._owners = self._owners, {}
        for owner in owners:
            owner.settle()
        touched, self._touched = self._touched, {}
        for name in touched:
            for waiting in list(self._waiting.get(name, ())):
                self._try(waiting)
        self._saved()

    def watch(self, owner: Owner) -> None:
        """Let *owner* settle after the next commit."""
        self._owners[owner] = None
        if self.state.durable == self.state.number:
            self._settle_soon()

    def unwatch(self, owner: Owner) -> None:
        """It is gone."""
        self._owners.pop(owner, None)

    # -- reads ------------------------------------------------------------------------

    def read(
        self,
        read: Read,
        respond: Callable[[PendingRead, Answer], None],
        refuse: Callable[[Refusal], None],
    ) -> PendingRead:
        """Answer now, or when there is something to answer, unless cancelled."""
        waiting = PendingRead(self, read, respond, refuse)
        self._try(waiting)
        return waiting

    @property
    def waiting(self) -> int:
        """How many reads wait for data."""
        return sum(map(len, self._waiting.values()))

    def forget(self, waiting: PendingRead) -> None:
        """It waits no more."""
        name = waiting.read.segment
        others = self._waiting.get(name)
        if others is not None:
            others.pop(waiting, None)
            if not others:
                del self._waiting[name]

    def head(self, segment: Segment) -> int:
        """Where what can be read of a segment begins."""
        return head(segment, self.recent, self._first_lsn)

    @property
    def _first_lsn(self) -> int:
        return 0 if self._reader is None else self._reader.first_lsn

    def _try(self, waiting: PendingRead) -> None:
        reader = self._reader
        try:
            answer = look(
                self.state,
                self.recent,
                waiting.read,
                waited=waiting.waited,
                first_lsn=self._first_lsn,
            )
        except Refusal as why:
            waiting.cancel()
            waiting.refuse(why)
            return
        if answer is None:
            waiting.waited = True
            self._waiting.setdefault(waiting.read.segment, {})[waiting] = None
        elif not isinstance(answer, Fetch):
            self._answer(waiting, answer)
        elif reader is None:
            begin = self.recent.begin(answer.segment.name)
            start = answer.segment.readable if begin is None else begin
            self._answer(waiting, Truncated(start))
        else:
            self.forget(waiting)
            fetched = reader.read(
                answer.segment.name, answer.offset, answer.size, answer.lsn
            )
            fetched.addCallbacks(
                self._fetched,
                self._not_fetched,
                callbackArgs=(waiting, answer.segment),
                errbackArgs=(waiting, reader.first_lsn),
            )

    def _answer(self, waiting: PendingRead, answer: Answer) -> None:
        if waiting.container is not None:
            waiting.cancel()
            waiting.respond(waiting, answer)

    def _fetched(self, data: bytes, waiting: PendingRead, segment: Segment) -> None:
        self._answer(waiting, found(segment, waiting.read.offset, data))

    def _not_fetched(
        self, failure: Failure, waiting: PendingRead, first_lsn: int
    ) -> None:
        read = waiting.read
        if self._first_lsn > first_lsn:
            # Retention was quicker: it is truncated, or lies in another file by now.
            if waiting.container is not None:
                self._try(waiting)
            return
        self._log.error(
            "{segment} can not be read at {offset}: {why}",
            segment=read.segment,
            offset=read.offset,
            why=failure.getErrorMessage(),
        )
        if waiting.container is not None:
            waiting.cancel()
            waiting.refuse(
                Refusal(f"{read.segment} can not be read at {read.offset} now")
            )
