"""The streams of one connection that become events: elements in, credit out.

A peer's publisher is asked for `options.window` elements at first, and for k more when
k more are durable.  So credit is the acknowledgement, and its publisher knows without
any other message that all but the last window of what was asked for is on disk.

The elements of one read, of whatever streams, are one batch.  If all are of a fixed size,
each stream has its own, because its elements are then rows in one piece.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from gateway.event import Batch, Stored
from gateway.interfaces import Connection, Journal
from gateway.protocols.rsio import events
from gateway.protocols.rsio.decoder import Run
from gateway.protocols.rsio.demand import Credit
from gateway.protocols.rsio.messages import Extension
from gateway.protocols.rsio.offsets import Claim, Key, Offsets
from gateway.protocols.rsio.session import Session
from gateway.protocols.rsio.streams import Consumed

__all__ = ["Ingest", "Terms"]

#: What a batch costs in memory beside its body; else tiny ones would count little.
_BATCH_BYTES = 512


class Terms(Protocol):
    """What the connections of a listener share."""

    journal: Journal
    clock: IReactorTime
    offsets: Offsets
    window: int
    content_type: str
    message_bytes: int


class _Intake:
    """A stream that becomes events."""

    __slots__ = ("claim", "credit", "stream")

    def __init__(self, stream: Consumed, window: int, claim: Claim | None) -> None:
        self.stream = stream
        self.credit = Credit(window)
        self.claim = claim

    @property
    def stored(self) -> int:
        """How many of the publisher's elements are durable."""
        return self.stream.offset + self.credit.durable


class Ingest:
    """Feeds the journal from one connection."""

    __slots__ = ("_claims", "_connection", "_deaf", "_flush", "_intakes", "_lost",
                 "_pile", "_session", "_settled", "_terms", "pending",
                 "unacknowledged")  # fmt: skip

    def __init__(
        self,
        terms: Terms,
        session: Session,
        connection: Connection,
        flush: Callable[[], None],
        settled: Callable[[], None],
        lost: Callable[[Failure], None],
    ) -> None:
        """*flush* writes what the session has to say; *settled* is called after a
        batch became durable and was acknowledged, *lost* when one can not be stored.
        """
        self._flush = flush
        self._terms = terms
        self._session = session
        self._connection = connection
        self._settled = settled
        self._lost = lost
        self._intakes: dict[Consumed, _Intake] = {}
        self._claims: dict[Claim, Consumed | None] = {}
        self._pile: list[Run] = []
        self._deaf = False
        self.pending = 0
        """Batches that are on their way to the disk."""
        self.unacknowledged = 0
        """… and what they hold, in bytes."""

    @property
    def flowing(self) -> bool:
        """There is a publisher that may send."""
        return bool(self._intakes)

    def subscribe(self, publisher: str) -> None:
        """Ask the peer for the elements of *publisher*.

        One that has a name and knows extension 2 goes on where it was; until nothing
        of it is on its way to the disk any more, we wait.
        """
        key = Key.of(self._connection.origin, publisher)
        claim = None
        if key is not None and Extension.OFFSETS in self._session.extensions:
            claim = self._terms.offsets.claim(key, self._ready, self._evicted)
        if claim is None:
            self._begin(publisher, None, None)
        else:
            self._claims[claim] = None
            claim.begin()

    def _ready(self, claim: Claim, stored: int) -> None:
        self._claims[claim] = self._begin(claim.key.publisher, stored, claim)
        self._flush()

    def _evicted(self, claim: Claim) -> None:
        stream = self._claims.pop(claim)
        if stream is not None:
            self._intakes.pop(stream, None)
            self._session.consumer.cancel(stream)
            self._flush()

    def _begin(
        self, publisher: str, offset: int | None, claim: Claim | None
    ) -> Consumed:
        window = self._terms.window
        stream = self._session.consumer.subscribe(publisher, window, offset=offset)
        stream.context = self._intakes[stream] = _Intake(stream, window, claim)
        return stream

    def arrived(self, run: Run) -> None:
        """Elements; they are stored by `settle`."""
        if not self._deaf:
            self._pile.append(run)

    def settle(self) -> None:
        """Submit what has arrived."""
        if not self._pile:
            return
        runs, self._pile = self._pile, []
        if not all(run.stream.size for run in runs):
            self._submit(runs)
            return
        streams: dict[Consumed, list[Run]] = {}
        for run in runs:
            streams.setdefault(run.stream, []).append(run)
        for own in streams.values():
            if not self._deaf:  # one that can not be stored ends all
                self._submit(own)

    def _submit(self, runs: list[Run]) -> None:
        found: dict[_Intake, int] = {}
        octets = 0
        for run in runs:
            intake = run.stream.context
            assert isinstance(intake, _Intake), "we subscribe to nothing else"
            found[intake] = found.get(intake, 0) + run.count
            octets += run.octets
        contributions = [_part(intake, count) for intake, count in found.items()]
        for intake, count in found.items():
            intake.credit.arrived += count
            if intake.claim is not None:
                intake.claim.submitted(count)
        terms = self._terms
        body = events.pack(
            contributions,
            runs,
            message_bytes=terms.message_bytes,
            content_type=terms.content_type,
        )
        batch = Batch(
            origin=self._connection.origin,
            received_at=int(terms.clock.seconds() * 1_000_000),
            count=sum(found.values()),
            body=body,
            payload_bytes=octets,
        )
        self.pending += 1
        self.unacknowledged += len(body) + _BATCH_BYTES
        terms.journal.submit(batch).addCallbacks(
            self._stored,
            self._not_stored,
            callbackArgs=(found,),
            errbackArgs=(found, batch),
        )

    def _stored(self, stored: Stored, found: dict[_Intake, int]) -> None:
        self._connection.count(events=stored.batch.count)
        self._done(stored.batch)
        for intake, count in found.items():
            intake.credit.durable += count
            if intake.claim is not None:
                intake.claim.settled(count, stored=True)
            self._grant(intake)
        self._settled()

    def _not_stored(
        self, failure: Failure, found: dict[_Intake, int], batch: Batch
    ) -> None:
        self._done(batch)
        for intake, count in found.items():
            if intake.claim is not None:
                intake.claim.settled(count, stored=False)
            self.stop(intake.stream)
        self._lost(failure)

    def _done(self, batch: Batch) -> None:
        self.pending -= 1
        self.unacknowledged -= len(batch.body) + _BATCH_BYTES

    def _grant(self, intake: _Intake) -> None:
        """Acknowledge, unless the stream is over; new demand needs room for it."""
        if intake.stream not in self._intakes or not intake.credit.due:
            return
        if intake.claim is not None:
            self._session.consumer.stored(intake.stream, intake.stored)
        if not self._terms.journal.full:
            self._session.consumer.request(intake.stream, intake.credit.grant())

    def has_room(self) -> None:
        """The journal takes more again: so may we."""
        for intake in self._intakes.values():
            self._grant(intake)

    def stop(self, stream: Consumed) -> None:
        """A stream is over; what it brought is stored."""
        intake = self._intakes.pop(stream, None)
        if intake is not None and intake.claim is not None:
            del self._claims[intake.claim]
            intake.claim.release()

    def close(self) -> None:
        """Take no more of any stream."""
        self._deaf = True
        self._pile.clear()
        self._intakes.clear()
        claims, self._claims = self._claims, {}
        for claim in claims:
            claim.release()

    def deafen(self) -> None:
        """Take no more, but go on to acknowledge what was taken."""
        self._deaf = True
        for claim, stream in list(self._claims.items()):
            if stream is None:
                del self._claims[claim]
                claim.release()


def _part(intake: _Intake, count: int) -> events.Part:
    stream = intake.stream
    return events.Part(
        id=stream.id,
        size=stream.size,
        first=stream.offset + intake.credit.arrived + 1,
        count=count,
        resumed=int(intake.claim is not None),
        publisher=stream.publisher,
    )
