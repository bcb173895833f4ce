"""Doubles for tests of protocol servers: a connection and a journal.

The connection has no network, and the journal stores when the test says so.  They keep the
promises of `gateway.sdk.interfaces` that servers rely on.  A paused or closed connection
delivers nothing, a `Refusal` is caught and answered, the journal stores in the order of
submission.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import cast

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from gateway.event import Batch, Origin, Stored, address_of
from gateway.net.detect import Expected, detect, mismatch, undecided
from gateway.net.memory import MemoryBudget
from gateway.sdk.interfaces import NotStored, Refusal, Server, Told, Yielding

__all__ = ["FakeConnection", "ManualJournal"]


class FakeConnection:
    """An `interfaces.Connection` in memory that remembers what was done to it.

    Give it a server with `serve(accept(connection))`, then `deliver()` bytes to it
    and look at `sent`; or ignore both and call the server yourself.

    30 methods: `interfaces.Connection` has 19 of them.
    """

    def __init__(
        self,
        origin: Origin | None = None,
        *,
        protocol: str = "lumberjack",
        memory: MemoryBudget | None = None,
        prefixes: Sequence[bytes] | None = None,
    ) -> None:
        """*memory* is what it shares with others: `ManualJournal.memory`.

        *prefixes* are `Port.prefixes` of a port that looks at a connection's beginning, as
        the daemon's do; None: it is not looked at.
        """
        self.origin = origin or Origin(protocol, "test", "session-1", "192.0.2.1:4000")
        self.written: list[bytes] = []
        """One entry per `write`: over WebSocket, one message each."""
        self.refused: Refusal | None = None
        self.reported: list[Refusal] = []
        """Refusals that `report` was called with."""
        self.penalty = 0.0
        """Seconds that `report` returns for wrong credentials: what a test says."""
        self.closed = False
        """`close` or `refuse` was called: FIN is on its way, nothing is delivered."""
        self.aborted = False
        self.failure: Exception | None = None
        """An exception of the server other than a `Refusal`: the network would log it."""
        self.paused = False
        self.takes_no_more = False
        """The server ends: it answers what it has."""
        self.waiting = False
        """The last argument of `busy`."""
        self.framed = False
        """Each `write` is a message: what a WebSocket would say."""
        self.unsent_bytes = 0
        """The peer does not read: what a test says."""
        self.counted = 0
        """Sum of the events counted."""
        self.unread_input = False
        """The peer has sent more than was read: what a test says."""
        self.has_room = True
        """The answer to a server that asks whether all connections leave room for more."""
        self.stepwise = False
        """Turns are taken by `take_turn` only; otherwise at once, until none is due."""
        self.turn_due = False
        """The server asked for another turn."""
        self.turns = 0
        """Turns taken, beyond those that bytes began."""
        self.held_bytes = 0
        """Input bytes as `hold` was told last, until the connection is lost."""
        self.held_output = 0
        """Output bytes as `hold` was told last."""
        memory = memory or MemoryBudget(lambda _: True)
        self._account = memory.account(self, self.origin.peer)
        self._server: Server | None = None
        self._held: list[bytes] = []
        self._flushing = False
        self._prefixes = None if prefixes is None else tuple(prefixes)
        self._beginning: bytes | None = None if prefixes is None else b""
        """Bytes that do not say yet which protocol is spoken; None: it is known."""

    @property
    def server(self) -> Server | None:
        """The server that `deliver` and `lose` talk to; None before `serve`."""
        return self._server

    @property
    def sent(self) -> bytes:
        """Everything written, joined."""
        return b"".join(self.written)

    def clear(self) -> None:
        self.written.clear()

    # What the network does

    def serve(self, server: Server) -> None:
        """Make *server* the one that `deliver` and `lose` talk to."""
        self._server = server

    def deliver(self, data: bytes) -> None:
        """Bytes arrive.  Held back while paused, dropped once closed."""
        self._held.append(data)
        self._flush()

    def lose(self) -> None:
        """The peer goes away."""
        self.closed = True
        self._held.clear()
        if self._server is not None:
            self._server.closed()
        self.hold(0)

    def let_go(self, why: Refusal) -> None:
        """All connections hold too much, and this one more than others."""
        if isinstance(self._server, Yielding):
            self._server.give_up(why)
        else:
            self.refuse(why)

    def drain(self) -> None:
        """The daemon stops."""
        if self._server is not None and not (self.closed or self.aborted):
            self._server.drain()

    def _flush(self) -> None:
        if self._flushing:
            return
        self._flushing = True
        try:
            self._deliver_held()
        finally:
            self._flushing = False

    def _deliver_held(self) -> None:
        while not (self.paused or self.closed or self.aborted):
            if self.turn_due:
                if self.stepwise:
                    return
                self.take_turn()
            elif self._held:
                self._detect(self._held.pop(0))
            else:
                return

    def _detect(self, data: bytes) -> None:
        """Detect the protocol as a port does without TLS and WebSocket."""
        if self._beginning is not None and self._prefixes is not None:
            data, self._beginning = self._beginning + data, None
            if undecided(data, self._prefixes):
                self._beginning = data
                return
            found = detect(data, self._prefixes)
            if found is not None:
                expected = Expected(self.origin.protocol, False, False, False)
                self.refuse(mismatch(found, data, expected))
                return
        self._receive(data)

    def take_turn(self) -> None:
        """Give this connection its turn."""
        assert self.turn_due
        self.turn_due = False
        self.turns += 1
        self._receive(b"")

    def _receive(self, data: bytes) -> None:
        assert self._server is not None, "call serve() first"
        try:
            self._server.received(data)
        except Refusal as why:
            self.refuse(why)
        except Exception as why:
            self.failure = why
            self.abort()

    # What the server does

    def write(self, data: bytes) -> None:
        """Remember *data*, unless the connection is over."""
        if not (self.closed or self.aborted):
            self.written.append(bytes(data))

    def write_each(self, messages: Sequence[bytes | memoryview]) -> None:
        for message in messages if self.framed else (b"".join(messages),):
            self.write(bytes(message))

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def pause(self) -> None:
        self.paused = True

    def take_no_more(self) -> None:
        self.paused = self.takes_no_more = True

    @property
    def waits_for_room(self) -> bool:
        return not self.has_room

    def may_begin(self) -> bool:
        self.turn_due = self.turn_due or not self.has_room
        return self.has_room

    def again(self) -> None:
        if not (self.closed or self.aborted):
            self.turn_due = True
            self._flush()

    def resume(self) -> None:
        """Deliver what was held back, unless that pauses again."""
        self.paused = False
        self._flush()

    def report(self, why: Refusal) -> float:
        self.reported.append(why)
        return self.penalty if why.wrong_credentials else 0.0

    def refuse(self, why: Refusal) -> None:
        """Remember the first refusal, send its reply, close."""
        if self.refused is None:
            self.refused = why
            if why.reply:
                self.write(why.reply)
        self.close()

    def hold(self, size: int, unsent: int = 0) -> None:
        self.held_bytes, self.held_output = size, unsent
        self._account.hold(size + unsent)

    def busy(self, waiting: bool) -> None:  # noqa: FBT001 - as the interface
        self.waiting = waiting

    def introduced(self) -> None: ...

    def count(self, *, events: int) -> None:
        self.counted += events


class ManualJournal:
    """An `interfaces.Journal`: batches become durable when the test says so."""

    def __init__(self, *, first_lsn: int = 1) -> None:
        self.submitted: list[Batch] = []
        """Every batch ever submitted, in order."""
        self.stored: list[Stored] = []
        self.withdrawn: list[Batch] = []
        self.durable_lsn = first_lsn - 1
        self._waiting: deque[tuple[Batch, Deferred[Stored]]] = deque()
        self._full = False
        self.why_full: str | None = None
        """The reason that the test gives for `Journal.why_full`, beside `full`."""
        self._wants_room: list[Deferred[None]] = []
        self.over: set[str] = set()
        """Addresses that have more in the queue than their share; `share` ends it."""
        self._want_share: list[tuple[str, Deferred[None]]] = []
        self.errors: list[Exception] = []
        """Exceptions of servers when told that a batch is durable, or is not."""
        self.reserved = 0
        """Bytes that connections hold for batches still arriving."""
        self.reservable: float = float("inf")
        """How many of those are too many."""
        self.memory = MemoryBudget(self.reserve)
        """The memory that all connections share: to be given to each `FakeConnection`."""

    def reserve(self, change: int) -> bool:
        self.reserved += change
        return self.reserved <= self.reservable

    @property
    def pending(self) -> list[Batch]:
        """Submitted, and neither stored nor refused."""
        return [batch for batch, _ in self._waiting]

    @property
    def full(self) -> bool:
        """Set it to true to push back; to false to let everyone go on."""
        return self._full

    @full.setter
    def full(self, full: bool) -> None:
        self._full = full
        if not full:
            wants, self._wants_room = self._wants_room, []
            for room in wants:
                room.callback(None)

    def when_room(self) -> Deferred[None]:
        """Fires when the test sets `full` to false."""
        if not self._full:
            return succeed(None)
        room: Deferred[None] = Deferred()
        self._wants_room.append(room)
        return room

    def over_share(self, origin: Origin) -> bool:
        """Whether the test has put its address into `over`, whatever it has there itself."""
        return address_of(origin.peer) in self.over

    def when_share(self, origin: Origin) -> Deferred[None]:
        """Fires when the test calls `share`."""
        waiter: Deferred[None] = Deferred()
        self._want_share.append((address_of(origin.peer), waiter))
        return waiter

    def share(self, address: str) -> None:
        """Let the queue have room for that address: it is taken out of `over`."""
        self.over.discard(address)
        wanted, self._want_share = self._want_share, []
        for who, waiter in wanted:
            if who == address:
                waiter.callback(None)
            else:
                self._want_share.append((who, waiter))

    def submit(self, batch: Batch) -> Deferred[Stored]:
        done: Deferred[Stored] = Deferred()
        self.submitted.append(batch)
        self._waiting.append((batch, done))
        return done

    def submit_for(self, told: Told, batch: Batch) -> None:
        self.submit(batch).addCallbacks(told.callback, told.errback)

    def withdraw(self, batch: Batch) -> bool:
        """Withdraw as `interfaces.Journal` does, what `take` left."""
        for waiting in self._waiting:
            if waiting[0] is batch and not batch.taken:
                self._waiting.remove(waiting)
                self.withdrawn.append(batch)
                batch.withdrawn = True
                return True
        return False

    def take(self) -> None:
        """The oldest pending batch is in a commit group now."""
        self._waiting[0][0].taken = True

    def store(self) -> Stored:
        """The oldest pending batch is durable now; IndexError if there is none."""
        batch, done = self._waiting.popleft()
        stored = Stored(batch, self.durable_lsn + 1)
        self.durable_lsn += batch.count
        self.stored.append(stored)
        done.callback(stored)
        done.addErrback(self._failed)
        return stored

    def store_all(self) -> None:
        """Store what is pending, and what is submitted because of that."""
        while self._waiting:
            self.store()

    def refuse(self, why: str = "disk full") -> None:
        """The oldest pending batch can not be stored; IndexError if there is none."""
        _, done = self._waiting.popleft()
        done.errback(NotStored(why))
        done.addErrback(self._failed)

    def _failed(self, why: Failure) -> Failure | None:
        if why.check(NotStored):
            return why  # the server has not seen it yet: `submit` did not return
        self.errors.append(cast(Exception, why.value))
        return None
