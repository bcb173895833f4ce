"""The interfaces between network, protocols and journal.

A protocol is handed a `Connection` and a `Journal` and knows nothing else of the
daemon; the network and the journal know no protocol.  `typing.Protocol`s all: a
test passes its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.event import Batch, Origin, Stored
from gateway.sdk.refusal import Refusal

__all__ = [
    "Accept",
    "Aging",
    "Connection",
    "Journal",
    "Memory",
    "NotStored",
    "Publishing",
    "Rebuilding",
    "Refusal",
    "Retaining",
    "Server",
    "Told",
    "Yielding",
]


class NotStored(Exception):
    """The journal can not store this batch: it must not be acknowledged."""


class Journal(Protocol):
    """Where batches become durable."""

    @property
    def full(self) -> bool:
        """Whether servers are to take no more of their connections for now."""

    @property
    def why_full(self) -> str | None:
        """The reason for operators; None while batches are stored as usual.

        While there is one, waiting is not the server's fault, and another reader would not be
        quicker.
        """

    def when_room(self) -> Deferred[None]:
        """Fires when `full` is no longer true (at once if it is not).

        One who waits no more, as its connection is gone, cancels it: a journal may be full for
        days, and holds what its waiters hold.
        """

    def over_share(self, origin: Origin) -> bool:
        """Whether a connection is to bring no more, as its address fills the queue for the disk.

        The address of *origin* has so much there that others would wait for it, and the connection
        has some of that itself.
        """

    def when_share(self, origin: Origin) -> Deferred[None]:
        """Fires when `over_share(origin)`, which is true, is so no longer; for one
        connection of an address after the other.  As `when_room`, it can be cancelled.
        """

    def reserve(self, change: int) -> bool:
        """Count *change* bytes that are held beside batches by something without a connection.

        `Connection.hold` counts what connections hold.  False if all of that together is over its
        share of `journal.memory_bytes`.  Some of it must be let go, or all could wait for memory
        that only their end would free.
        """

    def submit(self, batch: Batch) -> Deferred[Stored]:
        """Fires once every event of the batch is durable: the moment to acknowledge.

        Fires in submission order.  Fails with `NotStored`; then the batch is
        nowhere, and its sender must be left to send it again.  Raises TypeError or
        ValueError for what can be no batch: a body that is no bytes, a count below 0.
        """

    def submit_for(self, told: Told, batch: Batch) -> None:
        """Submit one of many small batches: *told* costs less than a Deferred."""

    def withdraw(self, batch: Batch) -> bool:
        """Forget a submitted batch, because its sender is gone and will send it again.

        False if it is in a commit group already: it is stored in any case.  A withdrawn batch is
        reported to no one, and its body is empty.
        """


class Told(Protocol):
    """The callbacks for one batch, called once, as a Deferred's are.

    An exception of theirs is logged, and keeps no other from being told.
    """

    def callback(self, stored: Stored, /) -> object:
        """The batch is durable."""

    def errback(self, why: Failure, /) -> object:
        """The batch is nowhere, for this `NotStored`."""


class Memory(Protocol):
    """The memory of a protocol beside its events: state that outlives connections.

    It is changed by batches in the journal, with events or without (`count` 0), and is
    rebuilt from a snapshot and the batches that came since (`gateway.store.checkpoint`).
    """

    def restore(self, data: bytes) -> None:
        """Be what *data*, a `snapshot` of an earlier run, says; called first, if at all.

        Raises whatever says why that can not be.
        """

    def replay(self, stored: Stored) -> None:
        """Replay a batch that the journal still has, of any protocol; in order, before `start`.

        The state may have it already, and of those that it has, any may be missing.  By its own
        number or position it must tell that it has one, and change nothing.
        """

    def start(self) -> None:
        """All is replayed; batches may be submitted."""

    def stop(self) -> None:
        """Submit nothing more of your own accord; the journal will stop.

        `snapshot` goes on: the last one is asked for when all else has stopped.
        """

    def snapshot(self) -> Deferred[bytes]:
        """The state as it is now; fires when all in it is durable.

        It has at least the effect of every batch that was reported durable.
        """


@runtime_checkable
class Rebuilding(Memory, Protocol):
    """A memory that has changes before they are durable, so that a snapshot waits.

    On a full disk that may be for ever: only a snapshot lets go of the segments that fill
    it.
    """

    def rebuilt(self, data: bytes | None, batches: Iterable[Stored]) -> bytes:
        """The `snapshot` of another memory that knows only *data*, if any, and then *batches*.

        *data* is as for `restore`, *batches* are as for `replay`.  Called in another thread, while
        this memory goes on.
        """


@runtime_checkable
class Retaining(Memory, Protocol):
    """A memory whose protocol has readers that come back for what was stored.

    Events that it needs stay readable: when their file leaves the archive, they are kept
    below `retained/` (`gateway.store.spool.retained`).
    """

    def needed(self, channel: str) -> int | None:
        """The lsn from which on this channel's events are needed; None: none of them.

        Called in another thread.  What is not needed once may go, and must not be needed
        again: a change that lets go of events counts when it is durable.
        """


class Connection(Protocol):
    """An ordered byte stream to one peer, whatever carries it (tcp, tls, websocket).

    The peer is known for sure when a protocol gets this: PROXY header read, TLS
    handshake done, WebSocket upgraded.
    """

    origin: Origin
    """The origin, of which `protocol`, `listener`, `session`, `peer`, `principal` and the
    network's attributes (`tls`: version) are filled in; a protocol may add attributes before
    its first batch."""

    @property
    def framed(self) -> bool:
        """Each `write` becomes a message of its own (WebSocket)."""

    @property
    def unsent_bytes(self) -> int:
        """Written and still here, because the peer does not read it."""

    def write(self, data: bytes) -> None:
        """Send; over WebSocket one call is one binary message.

        A peer that does not read is cut off when its unread output passes a cap.
        """

    def write_each(self, messages: Sequence[bytes | memoryview]) -> None:
        """Write one after another, in one go.

        Many small messages cost less so, and large ones are sent from where they lie.
        """

    def close(self) -> None:
        """Send what is written, then FIN."""

    def abort(self) -> None:
        """Drop at once."""

    def pause(self) -> None:
        """Deliver nothing more until `resume`; nested calls do not count up.

        Within some seconds the network reads on into memory, within its limits.
        """

    def resume(self) -> None:
        """Deliver again."""

    def take_no_more(self) -> None:
        """Deliver nothing more, ever, and drop what waits: the server only answers what
        it has, then closes.
        """

    def again(self) -> None:
        """There is input left that this turn was too short for: `received(b"")` is called
        when it is this connection's turn again, and nothing is read before that.
        """

    def may_begin(self) -> bool:
        """Whether a message may be begun; to be asked before that.

        False: all connections hold so much that others go first; `received(b"")` is called when
        there is room.
        """

    @property
    def waits_for_room(self) -> bool:
        """Whether it is not read, as all connections hold so much that others go first.

        If that lasts, `received(b"")` is called every few seconds, so that the server can say so.
        """

    def hold(self, size: int, unsent: int = 0) -> None:
        """The server keeps *size* bytes of input that it can not use yet, and *unsent*
        bytes of output that it has not written.

        To be called whenever that changes, except at the end of the connection.  When
        all connections of the daemon hold too much, the peer that holds most is told to
        let go (`Yielding.give_up`), be it this one or another.  A message that has
        begun must make progress (`limits.minimum_rate`).
        """

    @property
    def unread_input(self) -> bool:
        """The peer has sent what is not delivered: it is in its socket, or read ahead."""

    def refuse(self, why: Refusal) -> None:
        """Log once (peer, rule, limit, key), send the reply, close."""

    def report(self, why: Refusal) -> float:
        """Log something of the peer's that does not end its connection.

        Lines of one peer, listener and rule are rate-limited, as those of `refuse`:
        whatever a peer can cause is to be logged through here.

        Returns how many seconds the answer is to wait: 0.0 if *why* is not about
        `wrong_credentials`.  The connection may be over by then.
        """

    def busy(self, waiting: bool) -> None:  # noqa: FBT001 - a state, not a mode
        """While true the idle timer rests: the peer waits for us, not we for it."""

    def introduced(self) -> None:
        """Tell that the peer has sent a whole introduction, which a stranger can not.

        It is no stranger to `limits.connections_per_peer` then; `count` says that, too.
        """

    def count(self, *, events: int) -> None:
        """Count events that became durable on this connection's listener."""


class Server(Protocol):
    """One connection's protocol: made by an `Accept`, fed by the network.

    Whatever its methods raise ends its connection and no other: a `Refusal` is answered,
    anything else is logged and counted as a failure.  What it may do beyond these it says
    by its bases, `Publishing` and `Yielding`: methods of their names alone mean nothing.
    """

    def received(self, data: bytes) -> None:
        """Take any slicing of the stream; empty after `Connection.again`.

        A turn of the event loop is bounded (`gateway.sdk.costs`): what is too much
        for one stays with the server, which asks for another.  May raise `Refusal`.
        """

    def closed(self) -> None:
        """The peer is gone; nothing can be written any more."""

    def drain(self) -> None:
        """The daemon stops: take no more, answer what is pending, then close.

        What was here of the peer by then was delivered, and used, before this is called;
        unless it is a while that the server takes nothing.
        """


class Publishing:
    """Base of a server that sends of its own accord, and can stop.

    One that is none is not read while its peer does not read, so that it has nothing to
    answer.  One that is: what the peer says is heard all the while.
    """

    __slots__ = ()

    def writable(self, ready: bool) -> None:  # noqa: FBT001 - a state, not a mode
        """Whether the transport takes more; true at first."""
        raise NotImplementedError


class Yielding:
    """Base of a server that can let go of what it holds.

    The connection of any other is refused at once, whatever is not answered yet.
    """

    __slots__ = ()

    def give_up(self, why: Refusal) -> None:
        """Drop unfinished input, answer what is complete, then `Connection.refuse`."""
        raise NotImplementedError

    def begun(self) -> str:
        """The message that has begun and not ended, for the log, in the protocol's words.

        `block of writer 17: 100 bytes announced, 60 came`; empty: only the number of bytes is
        known.
        """
        return ""


class Aging:
    """Base of a server that can end its connection so that its peer only connects again, and
    nothing is doubled or lost by it: `Protocol.ages` says that all are.
    """

    __slots__ = ()

    def aged(self) -> None:
        """The connection is `limits.connection_age` old: answer what is due and close, at
        the next moment at which that is no more than a pause.
        """
        raise NotImplementedError


class Accept(Protocol):
    """Makes the server of one connection: what a protocol gives to a listener."""

    def __call__(self, connection: Connection) -> Server:
        """Make the server of a connection, which greets only if the protocol speaks first."""
