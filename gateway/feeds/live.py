"""The publisher `tap`: a live view of events as they become durable.

    journal ─ durable ─► pending ─ in a thread ─► ring per query ─► its followers
                         (bounded)  decode once    (bounded)         (own pace)
                                    encode once a query

Without subscribers it costs an `if`.  No subscriber can slow the journal down: what is
too much for this process, or for one follower, is skipped, and the follower is told.
Elements are made only while a follower takes them, so skipped events cost little.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.event import Decode, Stored, client_of
from gateway.feeds import encoding
from gateway.feeds.encoding import Encoded
from gateway.feeds.query import Query, parse
from gateway.feeds.ring import Chunk, Follower, Lagged, Ring
from gateway.feeds.shares import Shares
from gateway.sdk.publisher import Elements, Fault, Request
from gateway.store.lsns import Lsns
from gateway.store.node.holes import all_of
from gateway.store.node.lineage import Lineage
from gateway.store.spool.decoding import Decoder

_MiB = 2**20
_QUERIES, _OF_CLIENT = 64, 16
_AHEAD = 8  # a ring may take an 8th of what all may, until a reader takes of it
_JOB_BYTES = 2 * _MiB
_EVENT_BYTES = 512  # what an element has beside its payload, roughly, …
_BATCH_BYTES = 512  # … and a batch
_PAUSE_SECONDS = 0.01  # small commits are shown together
_CHUNK_BYTES = 1 << 17
_CHUNK_ELEMENTS = 512

_Made: TypeAlias = dict[Query, list[Chunk]]


@define(eq=False, slots=False)
class Live:
    """Makes elements of what becomes durable, once for all who want the same.

    Everything is called in the reactor's thread but what *in_thread* calls.

    *ring_bytes* is for the elements of all queries together, *pending_bytes* for
    events that are durable and not decoded yet.

    17 attributes: the rings, what is not decoded yet, and the bounds of both, which change together.
    """

    _log = Logger()

    node: str
    decoders: Mapping[str, Decode]
    _durable_lsn: Callable[[], int]
    _in_thread: Callable[..., Deferred[Any]]
    _clock: IReactorTime
    _ring_bytes: int = 16 * _MiB
    _pending_bytes: int = 16 * _MiB
    lineage: Lineage | None = None
    """The incarnations that give and gave lsns, if known."""

    def __attrs_post_init__(self) -> None:
        self.skipped = 0
        """Lsns that a tap was too slow for, counted each time that happens.

        It may count events that the tap's query does not want: they were never looked at."""
        self.stopped = False
        self._rings: dict[Query, Ring] = {}
        self._shares = Shares(_QUERIES, _OF_CLIENT, "different queries at a time")
        self._firsts: dict[Query, str] = {}
        """The client that came with a query first, and whose share it is of."""
        self._pending: deque[Stored] = deque()
        self._size = 0
        self._busy = self._full = False

    @property
    def durable_lsn(self) -> int:
        """The last event that is acknowledged."""
        return self._durable_lsn()

    @property
    def subscribers(self) -> int:
        return sum(len(ring.followers) for ring in self._rings.values())

    @property
    def held_bytes(self) -> int:
        """Memory that slow followers cost, about."""
        return self._size + sum(ring.bytes for ring in self._rings.values())

    def given_by(self, lsn: int) -> str:
        """The incarnation that gave an lsn; empty if that is not known."""
        return "" if self.lineage is None else self.lineage.now.of_lsn(lsn)

    def holes(self) -> Lsns:
        """The lsns of this directory that no file has, as its disk did not give them back."""
        if self.lineage is None:
            return Lsns()
        return all_of(self.lineage.holes)

    def durable(self, group: list[Stored]) -> None:
        """Take batches that follow all earlier ones."""
        if not self._rings:
            return
        for stored in group:
            if stored.batch.count:
                self._pending.append(stored)
                self._size += _held(stored)
        if self._size > self._pending_bytes and len(self._pending) > 1:
            # Too much for us: one large gap is better than many small ones.
            while len(self._pending) > 1 and self._size > self._pending_bytes // 2:
                self._size -= _held(self._pending.popleft())
            for ring in self._rings.values():
                if not ring.hungry:
                    ring.sleep(self._pending[0].lsn)
        if not self._busy:
            self._work()

    def follow(
        self, query: Query, wake: Callable[[], None], client: str = ""
    ) -> Follower:
        """Follow what becomes durable from now on.  Raises `Fault`.

        *wake* is called in a turn of its own when there is more; a query that is new
        is one of the *client*'s share.
        """
        if self.stopped:
            raise Fault(503, "stopping")
        ring = self._rings.get(query)
        if ring is None:
            self._shares.take(client)
            self._firsts[query] = client
            ring = self._rings[query] = Ring(
                query, self._next_lsn, self._ring_bytes // _AHEAD, self._more
            )
        return Follower(ring, wake)

    def leave(self, follower: Follower) -> None:
        follower.leave()
        for query, ring in list(self._rings.items()):
            if not ring.followers:
                del self._rings[query]
                self._shares.give_back(self._firsts.pop(query))
        if not self._rings:
            self._pending.clear()
            self._size = 0

    def stop(self) -> None:
        """Let every stream end."""
        self.stopped = True
        self._wake()

    @property
    def _next_lsn(self) -> int:
        """The lsn of the first event that no job has begun with."""
        return self._pending[0].lsn if self._pending else self.durable_lsn + 1

    @property
    def _job_bytes(self) -> int:
        """The size of one job.

        Its elements for all queries, with a copy each, have room: a quick follower would
        lose them otherwise before it could take them.
        """
        return min(_JOB_BYTES, self._ring_bytes // (4 * max(len(self._rings), 1)))

    # -- making elements ------------------------------------------------------------

    def _more(self) -> None:
        """Go on in a turn of its own, as a follower takes elements."""
        if self._pending and not self._busy:
            self._busy = True
            self._clock.callLater(0, self._work)

    def _work(self) -> None:
        """Begin with what is pending, if a follower takes it."""
        self._busy = False
        if not any(ring.hungry for ring in self._rings.values()):
            return
        job: list[Stored] = []
        size, most = 0, self._job_bytes
        while self._pending and (not job or size < most):
            stored = self._pending.popleft()
            job.append(stored)
            size += _held(stored) + _EVENT_BYTES * stored.batch.count
            self._size -= _held(stored)
        self._full = size >= most
        self._busy = bool(job)
        if job:
            done = self._in_thread(self._make, job, self._takers(_end(job)))
            done.addCallbacks(self._made, self._failed)
            done.addBoth(self._continue)

    def _takers(self, end: int) -> list[Query]:
        """The queries to make elements for, up to lsn *end*; the other rings leave them out."""
        room = sum(ring.bytes for ring in self._rings.values()) < self._ring_bytes
        found: list[Query] = []
        for query, ring in self._rings.items():
            if ring.hungry or (room and not ring.asleep):
                found.append(query)
            else:
                ring.sleep(end)
        return found

    def _make(self, job: list[Stored], queries: list[Query]) -> _Made:
        """Decode once, encode once for each query; runs in a thread."""
        try:
            return self._encode(job, queries, Decoder(self.decoders))
        except Exception:  # rows that can not be elements: find out whose they are
            return self._encode(job, queries, Decoder(self.decoders, careful=True))

    def _encode(
        self, job: list[Stored], queries: list[Query], decoder: Decoder
    ) -> _Made:
        batches = [
            (stored, decoder.rows(stored))
            for stored in job
            if any(query.admits(stored.batch.origin) for query in queries)
        ]
        found: _Made = {}
        for query in queries:
            encoded = encoding.of_batches(self.node, batches, query, self.given_by)
            found[query] = _chunks(job[0].lsn, _end(job), encoded)
        return found

    def _made(self, made: _Made) -> None:
        for query, chunks in made.items():
            ring = self._rings.get(query)
            if ring is not None:
                for chunk in chunks:
                    ring.add(chunk)
        while sum(ring.bytes for ring in self._rings.values()) > self._ring_bytes:
            max(self._rings.values(), key=lambda ring: ring.bytes).drop()
        self._wake()

    def _continue(self, _: object) -> None:
        pause = 0 if self._full else _PAUSE_SECONDS
        self._clock.callLater(pause, self._work)

    def _failed(self, why: Failure) -> None:
        self._log.failure("events could not be shown to taps", why)

    def _wake(self) -> None:
        for ring in list(self._rings.values()):
            for follower in list(ring.followers):
                follower.wake()


def _held(stored: Stored) -> int:
    batch = stored.batch
    return max(batch.payload_bytes, len(batch.body)) + _BATCH_BYTES


def _end(job: Sequence[Stored]) -> int:
    return job[-1].lsn + job[-1].batch.count


def _chunks(first: int, end: int, encoded: Encoded) -> list[Chunk]:
    """Chunks of moderate size: a follower takes one at once."""
    elements, lasts = encoded
    found: list[Chunk] = []
    totals = list(accumulate(map(len, elements)))
    begin = before = 0
    while True:
        stop = bisect_right(totals, before + _CHUNK_BYTES)
        at = min(max(stop, begin + 1), begin + _CHUNK_ELEMENTS)
        if at >= len(elements):
            found.append(Chunk(first, end, elements[begin:], lasts[begin:]))
            return found
        behind = lasts[at - 1] + 1
        found.append(Chunk(first, behind, elements[begin:at], lasts[begin:at]))
        first, begin, before = behind, at, totals[at - 1]


class TapSource:
    """The source of a tap's subscriber.  Implements `gateway.sdk.publisher.Source`."""

    size = 0

    def __init__(
        self, live: Live, query: Query, wake: Callable[[], None], client: str = ""
    ) -> None:
        self._live = live
        self._query = query
        self._begin = live.durable_lsn + 1
        self._follower = live.follow(query, wake, client)

    def take(self, most: int) -> Elements | None:
        """Take elements, as `Source` says.  After a gap it goes on with what is new."""
        if self._live.stopped:
            raise Fault(503, "stopping")
        if not most:
            return None
        follower = self._follower
        try:
            first = follower.gap(self._begin)
        except Lagged:
            return self.skip() or follower.take(most, self._begin)
        missed = None
        if first is not None:
            missed = self._gap(follower.lsn, first - 1)
            follower.lsn = first
        return missed or follower.take(most, self._begin)

    def skip(self) -> Elements | None:
        """Leave out what there is; the element that says so, None if nothing was."""
        return self._gap(*self._follower.skip())

    def close(self) -> None:
        self._live.leave(self._follower)

    def _gap(self, first: int, last: int) -> Elements | None:
        first = max(first, self._begin)
        if first > last:
            return None
        self._live.skipped += last - first + 1
        return Elements([encoding.gap(self._query, first, last)])


class Tap:
    """`tap?protocol=…&listener=…&channel=…&kind=…&format=json|arrow`.

    A live view: it begins now, and a subscriber that is too slow loses events, which a
    gap tells it: `{"gap":{"from":LSN,"to":LSN}}`.  `events` has all.
    """

    def __init__(self, live: Live) -> None:
        self._live = live

    def subscribe(self, request: Request, wake: Callable[[], None]) -> TapSource:
        query = parse(request.query)
        if request.offset:
            raise Fault(416, "a tap begins now; events?from=LSN begins where you say")
        return TapSource(self._live, query, wake, client_of(request.origin))
