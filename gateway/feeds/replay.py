"""The publisher `events`: every event from a given lsn on, from files and then live.

    archive, spool, journal ──read as wanted──► chunks ──┐
                                                         ├─► elements, each lsn once
    what becomes durable meanwhile ──► ring ─────────────┘

A stream that is nearly up to date begins to follow the ring, reads the files up to
where that begins, and goes on with the ring itself.  Lsns have no holes, so that seam
is a comparison of two numbers.  Who then is too slow for the ring goes back to the
files, and loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.event import client_of
from gateway.feeds.files import EventFiles
from gateway.feeds.live import Live
from gateway.feeds.query import JSON, Query, parse
from gateway.feeds.reading import Reader
from gateway.feeds.ring import Chunk, Follower, Lagged
from gateway.feeds.shares import Shares
from gateway.sdk.files import Gone
from gateway.sdk.publisher import Elements, Fault, Finished, Request
from gateway.store.directories import Directories

_READERS, _OF_CLIENT = 64, 16
_READS = 2  # at a time: threads are few, and checkpoints are written in them
_NEARLY = 20_000  # events behind


class Replay:
    """`events?node=…&incarnation=…&from=LSN&to=LSN&protocol=…&…&format=json|arrow`.

    From the oldest event there is, unless *from* is an lsn or `latest`; for ever,
    unless *to* is one.  *incarnation* is who gave the lsn before *from*, which the
    subscriber has: events of others under the same lsns are not what it goes on with.
    """

    def __init__(
        self,
        live: Live,
        directories: Directories,
        *,
        in_thread: Callable[..., Deferred[Any]],
    ) -> None:
        self.live = live
        self.files = EventFiles(
            live.node, directories, live.decoders, live.given_by, live.holes
        )
        self._in_thread = in_thread
        self._reads = DeferredSemaphore(_READS)
        self._sources: dict[ReplaySource, str] = {}
        self._shares = Shares(_READERS, _OF_CLIENT, "subscriptions to events at a time")

    def subscribe(self, request: Request, wake: Callable[[], None]) -> ReplaySource:
        given, live = request.query, self.live
        query = parse(given, "node", "incarnation", "from", "to")
        if given.get("node", live.node) != live.node:
            raise Fault(
                404, f"no node {given['node'][:80]!r} here; this is {live.node}"
            )
        first = self._first(given.get("from", "earliest"))
        if request.offset:
            if query.conditions or query.format != JSON:
                what = "offsets count all events, as json; say from=LSN instead"
                raise Fault(416, what)
            begin, first = max(first, 1), max(first, 1) + request.offset
            if live.holes().touches(begin, first - 1):
                what = (
                    "the disk lost some before, so offsets do not count; say from=LSN"
                )
                raise Fault(416, what)
        if "incarnation" in given:
            self._check_position(given["incarnation"], first)
        last = _number("to", given["to"]) if "to" in given else None
        if first > live.durable_lsn + 1 and (last is None or last >= first):
            raise Fault(
                416, f"lsn {first} is still to come; {live.durable_lsn} is last"
            )
        client = client_of(request.origin)
        self._shares.take(client)
        source = ReplaySource(self, query, first, last, wake, client)
        self._sources[source] = client
        return source

    @property
    def subscribers(self) -> int:
        """The number of sources that read, or follow."""
        return len(self._sources)

    def read(self, source: ReplaySource, reader: Reader, end: int) -> Deferred[Chunk]:
        """The next events before lsn *end*, when it is the turn of *source*."""

        def begin() -> Deferred[Chunk]:
            if source not in self._sources:
                return succeed(Chunk(end, end, [], []))
            return self._in_thread(reader.read, source.lsn, end)

        return self._reads.run(begin)

    def closed(self, source: ReplaySource) -> None:
        """Give back the share of a source that has ended."""
        client = self._sources.pop(source, None)
        if client is not None:
            self._shares.give_back(client)
        if not self._sources:
            self.files.forget()

    def _check_position(self, incarnation: str, first: int) -> None:
        """Raise `Fault` unless the lsn before *first*, as that one gave it, is ours."""
        lineage, last = self.live.lineage, first - 1
        if last < 0:
            raise Fault(
                400, "incarnation=… says whose lsn is before from=LSN; say both"
            )
        if lineage is None:
            return
        own = lineage.now
        began = {**own.began, own.id: own.since}
        here = f"node {self.live.node}, incarnation {own.id} since lsn {own.since}"
        oldest = min(lsn for lsn in began.values() if lsn)
        if incarnation not in began:
            raise Fault(
                409,
                f"incarnation {incarnation[:40]} is not known to {here}: what it gave up to"
                f" lsn {last} are other events than ours; from={oldest} gives all of these",
            )
        ids = [*began]
        later = [began[each] for each in ids[ids.index(incarnation) + 1 :]]
        end = min((lsn for lsn in later if lsn), default=0)
        if (end and last >= end) or 0 < last < began[incarnation] - 1:
            span = f"from {began[incarnation] or 'some lsn'} on"
            span += f", and up to {end - 1}" if end else ""
            raise Fault(
                409,
                f"lsn {last} of incarnation {incarnation[:40]} is no event of {here}: that"
                f" one gave lsns here {span}; from={end or began[incarnation]} goes on"
                " behind it",
            )

    def _first(self, text: str) -> int:
        if text == "latest":
            return self.live.durable_lsn + 1
        return 0 if text == "earliest" else _number("from", text)


def _number(key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:20]) < 2**63):
        raise Fault(400, f"{key}={text[:40]}: an lsn is a number from 1 on")
    return int(text[:20])


class ReplaySource:
    """The source of one subscriber.  Implements `gateway.sdk.publisher.Source`."""

    size = 0
    _log = Logger()

    def __init__(
        self,
        replay: Replay,
        query: Query,
        first: int,
        last: int | None,
        wake: Callable[[], None],
        client: str = "",
    ) -> None:
        self._client = client
        self._replay = replay
        self._live = replay.live
        self._query = query
        self.lsn = first
        """The lsn of the next event to look at; 0: the oldest."""
        self._last = last
        self._wake = wake
        self._reader = Reader(replay.files, query)
        self._reading = self._closed = False
        self._chunk: Chunk | None = None
        self._index = 0
        self._follower: Follower | None = None
        self._fault: Fault | None = None

    def take(self, most: int) -> Elements | None:
        if self._live.stopped:
            raise Fault(503, "stopping")
        if self._fault is not None:
            raise self._fault
        if self._last is not None and self.lsn > self._last:
            raise Finished
        if self._reading or not most:
            return None
        if self._chunk is not None:
            return self._from_files(self._chunk, most)
        if self._may_follow():
            return self._from_ring(most)
        self._read()
        if self._fault is not None:  # it can not follow: nobody would tell it of more
            raise self._fault
        return None

    def close(self) -> None:
        self._closed = True
        self._chunk = None
        self._unfollow()
        if not self._reading:
            self._reader.close()
        self._replay.closed(self)

    # -- the ring ---------------------------------------------------------------------

    def _may_follow(self) -> bool:
        """Whether the ring goes on exactly where we are."""
        follower = self._follower
        if follower is None:
            return False
        try:
            hole = follower.gap(self.lsn) is not None
        except Lagged:
            hole = True
        # The ring does not know of our last event.
        ends = self._last is not None and self._live.durable_lsn >= self.lsn
        if hole or ends:
            self._unfollow()
            return False
        return self.lsn >= follower.lsn

    def _from_ring(self, most: int) -> Elements | None:
        follower = self._follower
        assert follower is not None
        found = follower.take(most, self.lsn)
        self.lsn = max(self.lsn, follower.lsn)
        return found

    def _follow(self) -> None:
        try:
            self._follower = self._live.follow(self._query, self._wake, self._client)
        except Fault as why:  # too many queries: it could not be told of new events
            self._fault = why

    def _unfollow(self) -> None:
        if self._follower is not None:
            self._live.leave(self._follower)
            self._follower = None

    # -- the files --------------------------------------------------------------------

    def _from_files(self, chunk: Chunk, most: int) -> Elements:
        begin = self._index
        end = self._index = min(begin + most, len(chunk.elements))
        if end == len(chunk.elements):
            self._chunk, self._index = None, 0
            self.lsn = chunk.end
        return Elements(chunk.elements[begin:end])

    def _read(self) -> None:
        """Read more, unless there is no more."""
        end = self._live.durable_lsn + 1
        if self._follower is None and end - self.lsn <= _NEARLY:
            self._follow()
        if self._follower is not None and self._follower.lsn > self.lsn:
            end = min(end, self._follower.lsn)
        if self._last is not None:
            end = min(end, self._last + 1)
        if self.lsn < end and self._fault is None:
            self._reading = True
            done = self._replay.read(self, self._reader, end)
            done.addCallbacks(self._there, self._failed)
            done.addBoth(self._turn)

    def _there(self, chunk: Chunk) -> None:
        if chunk.elements and not self._closed:
            self._chunk = chunk
            self.lsn = chunk.first
        else:
            self.lsn = chunk.end

    def _failed(self, why: Failure) -> None:
        if isinstance(why.value, Gone):
            self._fault = Fault(410, str(why.value))
            return
        self._log.failure("events from lsn {lsn} on", why, lsn=self.lsn)
        self._fault = Fault(500, "the events can not be read")

    def _turn(self, _: object) -> None:
        self._reading = False
        if self._closed:
            self._reader.close()
        else:
            self._wake()
