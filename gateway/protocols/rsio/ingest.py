"""Ingest: subscribes to a peer's publishers and submits their elements to the journal.

A publisher is asked for `options.window` elements at first, and for k more when k more
are durable.  So demand is the acknowledgement: the publisher knows without any other
message that all but the last window of what was requested is on disk.  While the
journal is full no demand is given, which bounds what arrives: no connection is paused for
it.  A publisher that knows extension 2 still hears what is durable.

The elements of one read, of all streams, are one batch.  If all are of a fixed size,
each stream has a batch of its own, because its elements are then one block of rows.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.event import Batch, Stored
from gateway.protocols.rsio import events
from gateway.protocols.rsio.decoder import Run
from gateway.protocols.rsio.demand import Credit
from gateway.protocols.rsio.messages import FENCED, Extension
from gateway.protocols.rsio.offsets import Claim, Fenced, Key
from gateway.protocols.rsio.session import Session
from gateway.protocols.rsio.shared import Shared
from gateway.protocols.rsio.signals import Announced
from gateway.protocols.rsio.streams import Consumed
from gateway.sdk.interfaces import Connection, Refusal
from gateway.sdk.pressure import waits_no_more

#: A batch may take so many times what was sent, and so many bytes more.
_GROWTH, _GROWTH_BYTES = 4, 4096


class _Intake:
    """A stream whose elements become events."""

    __slots__ = ("claim", "credit", "stream")

    def __init__(self, stream: Consumed, window: int, claim: Claim | None) -> None:
        self.stream = stream
        self.credit = Credit(window)
        self.claim = claim


@define(eq=False)
class Ingest:
    """Submits the elements of one connection to the journal.

    *flush* writes what the session has queued.  *acknowledged* is called when a batch is
    durable and its demand was given, *lost* when one can not be stored.  *refuse* is called
    when another connection publishes under the name of this one.

    16 attributes: seven are given; the others are the batches under way, by stream.
    """

    _listener: Shared
    _session: Session
    _connection: Connection
    _flush: Callable[[], None]
    _acknowledged: Callable[[], None]
    _lost: Callable[[Failure], None]
    _refuse: Callable[[Refusal], None]
    _intakes: dict[Consumed, _Intake] = field(factory=dict, init=False)
    _claims: dict[Claim, Consumed | None] = field(factory=dict, init=False)
    _arrived: list[Run] = field(factory=list, init=False)
    _stopped: bool = field(default=False, init=False)
    _room: Deferred[None] | None = field(default=None, init=False)
    """Fires when the journal has some, which demand waits for; None: none does."""
    _submitted: dict[int, tuple[Batch, dict[_Intake, int]]] = field(
        factory=dict, init=False
    )
    """Batches that are not durable yet, by identity, in order, and whose they are."""
    unacknowledged: int = field(default=0, init=False)
    """The bytes that they hold."""
    growth: int = field(default=0, init=False)
    """Bytes that batches take beyond that; the user may reset it to 0."""
    _taken: int = field(default=0, init=False)
    """`Session.taken` when the last one was submitted."""

    @property
    def pending(self) -> int:
        """Batches that were submitted and are not durable yet."""
        return len(self._submitted)

    def subscribe(self, publisher: str, announced: Announced | None = None) -> None:
        """Subscribe to the peer's *publisher*, which it may have *announced*.

        A peer that has a name and knows extension 2 resumes behind what is stored of it.
        That is known only when none of its elements is on the way to the disk.  So what
        has arrived goes there first, as one read may end a stream and begin another.

        Raises `Refusal` if a later instance of the peer publishes it, or this one does.
        """
        self.submit()
        if self._stopped:  # it could not be stored
            return
        named = announced is not None
        if named and publisher in self._publishers:
            raise Refusal(f"announce of {publisher!r}, which is announced")
        key = Key.of(self._connection.origin, publisher, named=named)
        claim = None
        if key is not None and Extension.OFFSETS in self._session.extensions:
            offsets = self._listener.offsets
            forgotten = offsets.forgotten
            try:
                claim = offsets.claim(
                    key,
                    self._ready,
                    self._evicted,
                    instance=announced.instance if announced else b"",
                    resumed=announced is not None and announced.resumed,
                    named=named,
                    most=self._listener.most_names(key)[0],
                )
            except Fenced as why:
                raise Refusal(f"{FENCED} {why}") from None
            if offsets.forgotten > forgotten:
                self._listener.name_forgotten(key)
        if claim is None:
            self._begin(publisher, None, None)
        else:
            self._claims[claim] = None
            claim.begin()

    @property
    def _publishers(self) -> set[str]:
        waiting = {claim.key.publisher for claim in self._claims}
        return waiting | {stream.publisher for stream in self._intakes}

    def _ready(self, claim: Claim, stored: int) -> None:
        """Nothing is on its way to the disk: begin, when the journal knows of it."""
        record = claim.instance_record()
        if record is None:
            self._resume(claim, stored)
            return
        batch = Batch(self._connection.origin, self._now(), 0, record.packed(), 0)

        def began(_: Stored) -> None:
            claim.began(record)
            self._resume(claim, stored)

        def failed(why: Failure) -> None:
            claim.began(None)
            if claim in self._claims:
                self._lost(why)

        self._listener.journal.submit(batch).addCallbacks(began, failed)

    def _resume(self, claim: Claim, stored: int) -> None:
        if claim in self._claims:  # nobody else came meanwhile
            self._claims[claim] = self._begin(claim.key.publisher, stored, claim)
            self._flush()

    def _evicted(self, claim: Claim) -> None:
        stream = self._claims.pop(claim)
        if stream is not None:
            self._intakes.pop(stream, None)
        if claim.fenced:
            self._refuse(Refusal(f"{FENCED} another instance publishes {claim.key}"))
        elif stream is None:
            self._refuse(Refusal(f"E409 another connection publishes {claim.key}"))
        else:
            self._session.consumer.cancel(stream)
            self._flush()

    def _now(self) -> int:
        return int(self._listener.clock.seconds() * 1_000_000)

    def _begin(
        self, publisher: str, offset: int | None, claim: Claim | None
    ) -> Consumed:
        window = self._listener.options.window
        stream = self._session.consumer.subscribe(publisher, window, offset=offset)
        stream.context = self._intakes[stream] = _Intake(stream, window, claim)
        return stream

    def arrived(self, run: Run) -> None:
        """Elements arrived; `submit` stores them."""
        if not self._stopped:
            self._arrived.append(run)

    def submit(self) -> None:
        """Submit what has arrived to the journal."""
        if not self._arrived:
            return
        runs, self._arrived = self._arrived, []
        if not all(run.stream.size for run in runs):
            self._count_growth(self._submit(runs))
            return
        streams: dict[Consumed, list[Run]] = {}
        for run in runs:
            streams.setdefault(run.stream, []).append(run)
        size = 0
        for own in streams.values():
            if not self._stopped:  # a batch that can not be stored ends the connection
                size += self._submit(own)
        self._count_growth(size)

    def _submit(self, runs: list[Run]) -> int:
        """Submit one batch; returns the size of its body."""
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
        listener = self._listener
        body = events.pack(
            contributions,
            runs,
            message_bytes=listener.limits.declared_bytes,
            content_type=listener.options.content_type,
            compress=self._session.inflates,
        )
        batch = Batch(
            origin=self._connection.origin,
            received_at=self._now(),
            count=sum(found.values()),
            body=body,
            payload_bytes=octets,
            answers=len(found),
        )
        self._submitted[id(batch)] = batch, found
        self.unacknowledged += len(body) + listener.batch_bytes
        listener.journal.submit(batch).addCallbacks(
            self._stored,
            self._not_stored,
            callbackArgs=(found,),
            errbackArgs=(found, batch),
        )
        return len(body)

    def _count_growth(self, size: int) -> None:
        """Count what batches take beyond a small multiple of what was sent.

        Blocks may repeat what came in earlier ones, and batches may not.
        """
        taken = self._session.taken
        sent, self._taken = taken - self._taken, taken
        self.growth += max(size - _GROWTH * sent - _GROWTH_BYTES, 0)

    def _stored(self, stored: Stored, found: dict[_Intake, int]) -> None:
        self._connection.count(events=stored.batch.count)
        self._done(stored.batch)
        for intake, count in found.items():
            intake.credit.durable += count
            if intake.claim is not None:
                intake.claim.settled(count, stored=True)
            self._grant(intake)
        self._acknowledged()

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
        del self._submitted[id(batch)]
        self.unacknowledged -= len(batch.body) + self._listener.batch_bytes

    def _grant(self, intake: _Intake) -> None:
        """Tell what became durable, and request as much if the journal has room."""
        stream, credit = intake.stream, intake.credit
        if stream not in self._intakes:
            return
        consumer = self._session.consumer
        if credit.untold and Extension.OFFSETS in self._session.extensions:
            consumer.stored(stream, stream.offset + credit.tell())
        if not credit.due:
            return
        if not self._listener.journal.full:
            consumer.request(stream, credit.grant())
        elif self._room is None:
            self._room = self._listener.journal.when_room()
            self._room.addCallbacks(self._has_room, waits_no_more)

    def _has_room(self, _: None) -> None:
        """The journal has room again: give the demand that was held back."""
        self._room = None
        for intake in self._intakes.values():
            self._grant(intake)
        self._flush()

    def stop(self, stream: Consumed) -> None:
        """A stream is over; its elements that have arrived are stored all the same."""
        intake = self._intakes.pop(stream, None)
        if intake is not None and intake.claim is not None:
            del self._claims[intake.claim]
            intake.claim.release()

    def close(self) -> None:
        """The connection is over: take nothing, acknowledge nothing."""
        self._stopped = True
        self._arrived.clear()
        self._intakes.clear()
        claims, self._claims = self._claims, {}
        for claim in claims:
            claim.release()
        room, self._room = self._room, None
        if room is not None:
            room.cancel()

    def withdraw(self) -> None:
        """The peer is gone: withdraw what the journal has not begun to store.

        Whatever is withdrawn is behind all that is stored, so that what is stored of a
        named sender is known exactly, and it resumes there.
        """
        for batch, found in reversed(self._submitted.values()):
            if not self._listener.journal.withdraw(batch):
                return
            for intake, count in found.items():
                if intake.claim is not None:
                    intake.claim.withdrawn(count)

    def stop_taking(self) -> None:
        """Take no more elements, but still acknowledge those that were taken."""
        self._stopped = True
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
        resumed=0 if intake.claim is None else intake.claim.resumed,
        publisher=stream.publisher,
    )
