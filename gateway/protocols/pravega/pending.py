"""Segment reads: each is answered at once, or when there is data or the segment ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.protocols.pravega.cache import TailCache
from gateway.protocols.pravega.reads import (
    Answer,
    Fetch,
    Read,
    Truncated,
    answer_read,
    found,
    head,
)
from gateway.protocols.pravega.segment import Segment
from gateway.protocols.pravega.segments import Segments
from gateway.sdk.interfaces import Refusal


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


@define(eq=False)
class PendingRead:
    """A read in waiting: calls `respond(self, answer)` or, for a bad request, `refuse(why)`."""

    reads: PendingReads | None
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
        reads, self.reads = self.reads, None
        if reads is not None:
            reads.stop_waiting(self)
        if self.fetched is not None:
            self.fetched.cancel()


@define(eq=False, slots=False)
class PendingReads:
    """The reads of all connections, from the tail cache and from files."""

    _log = Logger()

    state: Segments
    recent: TailCache
    reader: Reader | None

    def __attrs_post_init__(self) -> None:
        self._waiting: dict[str, dict[PendingRead, None]] = {}
        """Reads in waiting, by segment."""

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

    def changed(self, segment: str) -> None:
        """A segment has durable changes: try the reads that wait for it."""
        for pending in list(self._waiting.get(segment, ())):
            self._try(pending)

    def stop_waiting(self, pending: PendingRead) -> None:
        name = pending.read.segment
        others = self._waiting.get(name)
        if others is not None:
            others.pop(pending, None)
            if not others:
                del self._waiting[name]

    def head(self, segment: Segment) -> int:
        """The first offset of a segment that can be read."""
        return head(segment, self.recent, self.first_lsn)

    @property
    def first_lsn(self) -> int:
        return 0 if self.reader is None else self.reader.first_lsn

    def _try(self, pending: PendingRead) -> None:
        reader = self.reader
        try:
            answer = answer_read(
                self.state,
                self.recent,
                pending.read,
                waited=pending.waited,
                first_lsn=self.first_lsn,
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
        if pending.reads is not None:
            pending.cancel()
            pending.respond(pending, answer)

    def _fetched(
        self, data: bytes | memoryview, pending: PendingRead, segment: Segment
    ) -> None:
        self._answer(pending, found(segment, pending.read.offset, data))

    def _not_fetched(
        self, failure: Failure, pending: PendingRead, first_lsn: int
    ) -> None:
        if pending.reads is None:
            return  # nobody waits for it
        read = pending.read
        if self.first_lsn > first_lsn:
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
