"""The submission and the completion queue between the reactor and the journal's thread.

Each side wakes the other once for all that it has.  What the reactor's turn submits is
handed over when the turn ends, or when `commit_interval` is over, if that is earlier.
So it becomes one commit group, and a disk that is idle has it at once.  What comes while the
thread writes and syncs gathers for the next group by itself.  Groups that are durable
come back with one call in the reactor for all of them, and not too many in one turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from attrs import define
from msgspec import Struct

from gateway.event import Batch
from gateway.sdk.interfaces import Told
from gateway.store.journal.log import Synced
from gateway.store.system.threads import Threads

GROUP_BYTES = 4 * 2**20
GROUP_BATCHES = 512
"""Batches of one commit, so that those behind tiny ones need not wait for all of them."""
TOLD_AT_ONCE = 512
"""Batches that are acknowledged in one turn of the reactor."""
_ANSWERS = 8
"""Answers of a batch that count as one more of `TOLD_AT_ONCE`.

Its events count for nothing: what costs nothing to tell must never be told slower than it
comes."""


def telling(batch: Batch) -> int:
    """The part of `TOLD_AT_ONCE` that acknowledging a batch takes."""
    return 1 + batch.answers // _ANSWERS


class Submitted(Struct, eq=False):
    """A batch that was submitted, and who is told when it is durable."""

    batch: Batch
    done: Told
    lsn: int = 0
    number: int = 0
    """How many were submitted before it, and with it."""

    @property
    def last_lsn(self) -> int:
        """The lsn of its last event."""
        return self.lsn + self.batch.count - 1


@dataclass(slots=True)
class Durable:
    """A commit group that is on disk, or a part of it; its batches have their lsns."""

    batches: list[Submitted]
    synced: Synced | None
    """The synced part of the segment with it; None: more of the group follows."""


class Reactor(Protocol):
    """Twisted's, as far as it is needed."""

    def callFromThread(
        self, call: Callable[..., Any], /, *args: object, **kwargs: object
    ) -> object: ...

    def callLater(
        self, delay: float, call: Callable[..., object], /, *args: object
    ) -> object: ...


@define(eq=False, slots=False)
class Queues:
    """One journal's.  Batches leave in the order in which they came.

    *interval* is `journal.commit_interval`; *durable* is called in the reactor.
    """

    _reactor: Reactor
    _threads: Threads
    _clock: Callable[[], float]
    _interval: float
    _durable: Callable[[Durable], None]

    def __attrs_post_init__(self) -> None:
        self._gathered: list[Submitted] = []
        """Batches of this turn; the reactor's own."""
        self._since = 0.0
        """The time since which batches are gathered."""
        self._ends = False
        """The end of the turn is waited for."""
        # Shared with the thread, under the condition's lock.
        self._condition = self._threads.condition()
        self._submitted: deque[Submitted] = deque()
        self._withdrawn = 0
        """How many of these are."""
        self._completed: deque[Durable] = deque()
        self._told = False
        """The reactor knows that there are some, and will look for more."""
        self.durable = 0
        """Batches that became durable, ever."""
        self.stopping = False
        """Nothing more is submitted."""

    # -- the reactor's side ---------------------------------------------------

    def configure(self, interval: float) -> None:
        """Another interval; the thread looks again what is due."""
        self._interval = interval
        with self._condition:
            self._condition.notify()

    def submit(self, waiting: Submitted) -> None:
        """Let it be part of a group; its batch says since when it waits."""
        now = waiting.batch.submitted_at
        if not self._gathered:
            self._since = now
        self._gathered.append(waiting)
        if now - self._since >= self._interval:
            self.end_turn()
        elif not self._ends:
            self._ends = True
            self._reactor.callLater(0, self._turn_ended)

    def _turn_ended(self) -> None:
        self._ends = False
        self.end_turn()

    def end_turn(self) -> None:
        """Hand over what there is."""
        if self._gathered:
            with self._condition:
                self._add_gathered()

    def _add_gathered(self) -> None:
        """Hand over what was gathered; call it with the lock."""
        if not self._submitted:
            self._condition.notify()
        self._submitted.extend(self._gathered)
        self._gathered.clear()

    def withdraw(self, batch: Batch) -> bool:
        """False if it was taken, or withdrawn before."""
        with self._condition:
            self._add_gathered()
            if batch.taken or batch.withdrawn:
                return False
            batch.withdrawn = True
            self._withdrawn += 1
        return True

    @property
    def nothing_waits(self) -> bool:
        """No batch is left for the disk: all that were submitted are stored or gone."""
        with self._condition:
            return not self._gathered and len(self._submitted) == self._withdrawn

    @property
    def first_untold(self) -> Submitted | None:
        """The first batch that the reactor was not told of: it may be durable, or withdrawn."""
        with self._condition:
            if self._completed:
                return self._completed[0].batches[0]
            waiting = self._submitted or self._gathered
            return waiting[0] if waiting else None

    @property
    def oldest(self) -> Batch | None:
        """The batch handed over that has waited longest for the disk."""
        with self._condition:
            for waiting in self._submitted:
                if not waiting.batch.withdrawn:
                    return waiting.batch
        return None

    def stop(self) -> None:
        """Let the thread commit what was submitted, and end."""
        with self._condition:
            self._add_gathered()
            self.stopping = True
            self._condition.notify()

    def _tell(self) -> None:
        """Tell of what is durable: what there is, or as much as fits into this turn."""
        left, more = TOLD_AT_ONCE, bool(self._completed)
        try:
            while more and left > 0:
                part, left, more = self._next_part(left)
                self._durable(part)
        finally:
            if more:
                self._reactor.callLater(0, self._tell)

    def tell_all(self) -> None:
        """Tell of all that is durable, however much; the thread has ended."""
        while self._completed:
            self._durable(self._completed.popleft())

    def _next_part(self, most: int) -> tuple[Durable, int, bool]:
        """The first group, or what of it this turn has time for; what is left of *most*;
        and whether there are more.
        """
        with self._condition:
            group = self._completed[0]
            batches = group.batches
            for at, waiting in enumerate(batches, 1):
                most -= telling(waiting.batch)
                if most <= 0 and at < len(batches):
                    group.batches = batches[at:]
                    return Durable(batches[:at], None), most, True
            self._completed.popleft()
            self._told = bool(self._completed)
            return group, most, self._told

    # -- the thread's side ----------------------------------------------------

    def wait(self, earliest: float, due: float | None) -> bool:
        """Wait until a batch waits and it is *earliest*, or other work may be due.

        That is *due* in so many seconds, or what says so has changed; None: never.  False
        when all is done.
        """
        with self._condition:
            if not (self._submitted or self.stopping):
                self._condition.wait(due)
            while self._submitted and not self.stopping:
                left = earliest - self._clock()
                if left <= 0:
                    return True
                self._condition.wait(left)
            return bool(self._submitted) or not self.stopping

    def take(self, *, one: bool) -> list[Submitted]:
        """The next group, or *one* batch of it."""
        group: list[Submitted] = []
        size, most = 0, 1 if one else GROUP_BATCHES
        with self._condition:
            if self._withdrawn:
                self._drop_withdrawn()
            for waiting in self._submitted:
                if len(group) >= most or size >= GROUP_BYTES:
                    break
                size += len(waiting.batch.body)
                waiting.batch.taken = True
                group.append(waiting)
        return group

    def _drop_withdrawn(self) -> None:
        """Drop withdrawn batches; call it with the lock."""
        self._withdrawn = 0
        self._submitted = deque(
            waiting for waiting in self._submitted if not waiting.batch.withdrawn
        )

    def give_back(self, group: list[Submitted]) -> None:
        """Give back a group that is nowhere: it stays first, and may be withdrawn again."""
        with self._condition:
            for waiting in group:
                waiting.batch.taken = False

    def complete(self, done: Durable) -> None:
        """The group that was taken last is durable."""
        with self._condition:
            for _ in done.batches:
                self._submitted.popleft()
            self._completed.append(done)
            self.durable += len(done.batches)
            told, self._told = self._told, True
        if not told:
            self._reactor.callFromThread(self._tell)

    def close(self) -> list[Submitted]:
        """Close the queue; return the batches that are left when the thread ends."""
        with self._condition:
            self._drop_withdrawn()
            left = list(self._submitted)
            self._submitted.clear()
        return left
