"""The Twisted end of Pravega: a connection, the container, and what is owed.

The first frame decides which dialect the connection speaks: Hello is today's wire,
anything else the seed's.  Nothing is said before it is durable; both dialects' sessions
see to that, and this module only carries bytes between them and the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol
from uuid import uuid4

from twisted.logger import Logger

from gateway.event import Stored
from gateway.interfaces import Connection, Refusal
from gateway.protocol import Settings
from gateway.protocols.pravega.container import Container, PendingRead
from gateway.protocols.pravega.draft_session import DraftSession
from gateway.protocols.pravega.limits import Limits
from gateway.protocols.pravega.options import Options
from gateway.protocols.pravega.reads import Answer, Found, Read
from gateway.protocols.pravega.segments import Change
from gateway.protocols.pravega.session import Session, Step
from gateway.protocols.pravega.tokens import TokenCheck, allow_all
from gateway.protocols.pressure import Unfinished, Valve

__all__ = ["Pravega", "PravegaServer", "accept"]

_HELLO = struct.pack(">i", -127)

#: What a change costs in memory beside its body.
_CHANGE_BYTES = 512


class _Dialect(Protocol):
    @property
    def held_bytes(self) -> int: ...
    @property
    def replies_pending(self) -> bool: ...
    def received(self, data: bytes, now: int) -> Iterator[Step]: ...
    def due(self) -> bytes: ...
    def answer(self, read: Read, answer: Answer) -> bytes: ...
    def closed(self, now: int) -> Iterator[Change]: ...


class Pravega:
    """What the connections of one listener share."""

    def __init__(
        self,
        settings: Settings[Options],
        container: Container,
        check: TokenCheck = allow_all,
    ) -> None:
        """*check* is asked about the token of each request."""
        limits, options = settings.limits, settings.options
        self.limits = Limits(
            message_bytes=limits.message_bytes,
            segments=options.segments,
            transaction_bytes=options.transaction_bytes,
            table_bytes=options.table_bytes,
            numbers=options.numbers,
            writers=options.writers,
            reads=options.reads,
        )
        self.unacknowledged_bytes = limits.unacknowledged_bytes
        self.container = container
        self._check = check
        self.unfinished = Unfinished(container.journal, "an unfinished message")

    def __call__(self, connection: Connection) -> PravegaServer:
        """The server of a new connection."""
        return PravegaServer(self, connection)

    def session(self, first: bytes) -> _Dialect:
        """The session of a connection whose first frame has this type."""
        state = self.container.state
        if first != _HELLO:
            return DraftSession(state, self.limits, self._check)
        return Session(
            state,
            self.limits,
            lambda: uuid4().hex,
            self._check,
            self.container.head,
        )


class PravegaServer:
    """One connection.  Implements `interfaces.Server` and `container.Submitter`."""

    __slots__ = ("_closed", "_connection", "_container", "_ending", "_first",
                 "_listener", "_reads", "_refusal", "_session", "_unstored",
                 "_valve")  # fmt: skip

    _log = Logger()

    def __init__(self, listener: Pravega, connection: Connection) -> None:
        self._listener = listener
        self._container = listener.container
        self._connection = connection
        self._session: _Dialect | None = None
        self._first = b""
        self._reads: dict[PendingRead, None] = {}
        self._unstored = 0
        self._valve = Valve(
            connection,
            listener.container.journal,
            listener.unacknowledged_bytes,
            self._regulate,
        )
        self._ending = self._closed = False
        self._refusal: Refusal | None = None
        self._regulate()

    @property
    def unacknowledged_bytes(self) -> int:
        """Held by changes that wait to become durable."""
        return self._unstored

    @property
    def held_bytes(self) -> int:
        """Buffered for what is still arriving."""
        return 0 if self._session is None else self._session.held_bytes

    # What the network tells

    def received(self, data: bytes) -> None:
        """See `interfaces.Server`."""
        if self._ending or self._closed:
            return
        session = self._session
        if session is None:
            data = self._first = self._first + data
            if len(data) < len(_HELLO):
                return
            session = self._session = self._listener.session(data[: len(_HELLO)])
            self._first = b""
        try:
            if self._container.broken:
                raise Refusal("nothing can be stored any more")
            for step in session.received(data, self._container.now):
                self._take(step)
                if self._closed:
                    return
        except Refusal as why:
            self.give_up(why)
        else:
            self._listener.unfinished.hold(self, session.held_bytes)
            self.flush()

    def closed(self) -> None:
        """See `interfaces.Server`."""
        self._forget()

    def drain(self) -> None:
        """See `interfaces.Server`."""
        if self._ending or self._closed:
            return
        for waiting in list(self._reads):
            waiting.cancel()
            self._respond(waiting, Found(b"", at_tail=True))
        self._end()

    def _take(self, step: Step) -> None:
        if isinstance(step, Change):
            self._unstored += len(step.body) + _CHANGE_BYTES
            self._container.submit(step, self, self._connection.origin)
        elif isinstance(step, Read):
            self._read(step)
        else:
            self._connection.write(step)

    # Reads

    def _read(self, read: Read) -> None:
        limit = self._listener.limits.reads
        if len(self._reads) >= limit:
            raise Refusal(
                f"{len(self._reads)} reads wait and one more",
                limit=limit,
                key="options.reads",
            )
        waiting = self._container.read(read, self._respond, self.give_up)
        if waiting.container is not None and not self._closed:
            self._reads[waiting] = None

    def _respond(self, waiting: PendingRead, answer: Answer) -> None:
        self._reads.pop(waiting, None)
        if self._session is not None and not self._closed:
            self._connection.write(self._session.answer(waiting.read, answer))
            self._tell_busy()

    # What the container tells

    def stored(self, change: Change, stored: Stored) -> None:
        """See `container.Submitter`."""
        self._unstored -= len(change.body) + _CHANGE_BYTES
        self._connection.count(events=stored.batch.count)

    def flush(self) -> None:
        """See `container.Submitter`."""
        session = self._session
        if self._closed or session is None:
            return
        due = session.due()
        if due:
            self._connection.write(due)
        if self._closed:
            return
        if session.replies_pending or self._unstored:
            self._container.flush_after_commit(self)
        elif self._ending:
            self._hang_up()
            return
        self._tell_busy()
        self._regulate()

    def lost(self, why: str) -> None:
        """See `container.Submitter`: nothing that was sent may be acknowledged."""
        if self._closed:
            return
        self._log.warn(
            "{peer}: closed, what it sent can not be stored: {why}",
            peer=self._connection.origin.peer,
            why=why,
        )
        self._hang_up()

    def _tell_busy(self) -> None:
        owes = self._session is not None and self._session.replies_pending
        self._connection.busy(bool(owes or self._reads))

    # Flow

    def _regulate(self) -> None:
        """Read, or do not, as the journal and our own debt allow."""
        if self._ending or self._closed:
            return
        self._valve.regulate(self._unstored)

    # The end

    def give_up(self, why: Refusal) -> None:
        """Say what is due, then tell the peer why no more is taken."""
        if not (self._ending or self._closed):
            self._refusal = why
            self._end()

    def _end(self) -> None:
        """Take no more; hang up as soon as nothing is owed."""
        self._ending = True
        self._listener.unfinished.hold(self, 0)
        if self._session is None:
            self._hang_up()
            return
        self._connection.pause()
        self.flush()

    def _hang_up(self) -> None:
        if self._closed:
            return
        refusal, self._refusal = self._refusal, None
        self._forget()
        if refusal is None:
            self._connection.close()
        else:
            self._connection.refuse(refusal)

    def _forget(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._listener.unfinished.hold(self, 0)
        self._container.forget_submitter(self)
        for waiting in list(self._reads):
            waiting.cancel()
        self._reads.clear()
        session, self._session = self._session, None
        if session is not None and not self._container.broken:
            for change in session.closed(self._container.now):
                self._container.submit(change)
        self._connection.busy(False)


def accept(
    settings: Settings[Options], container: Container, check: TokenCheck = allow_all
) -> Pravega:
    """What a listener calls with each connection: an `interfaces.Accept`."""
    return Pravega(settings, container, check)
