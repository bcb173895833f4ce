"""Serves the connections of a segment store listener.

The first frame decides the protocol version: a connection that begins with Hello speaks
wire version 17, any other the 2016 draft.  The sessions of both decide what is sent and
hold replies back until they are durable; this module connects them with the network and
with the container.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TypeAlias
from uuid import uuid4

from gateway.event import Stored
from gateway.protocols.pravega.container import Container
from gateway.protocols.pravega.draft_session import DraftSession
from gateway.protocols.pravega.limits import Limits
from gateway.protocols.pravega.options import Options
from gateway.protocols.pravega.origins import Origins
from gateway.protocols.pravega.pending import PendingRead
from gateway.protocols.pravega.reads import Answer, Found, Read
from gateway.protocols.pravega.segments import Change
from gateway.protocols.pravega.session import Session, Step
from gateway.protocols.pravega.tokens import TokenCheck
from gateway.sdk.closing import Closing
from gateway.sdk.costs import BYTE, ControlBudget, Turn
from gateway.sdk.interfaces import Connection, Refusal, Yielding
from gateway.sdk.limits import limits_of
from gateway.sdk.pressure import Valve, batch_bytes
from gateway.sdk.protocol import Settings

_HELLO = struct.pack(">i", -127)

#: Memory that a change takes beside its body.
_CHANGE_BYTES = 512

_MESSAGE = 8.0
"""The cost of any message for a turn."""
_CHANGE = 20.0
"""The cost of a change for a turn, beside its message and its bytes."""
_EVENT = 0.125
"""The cost of an event: with `MOST_EVENTS` in a change, no turn has more than 64 Ki."""
_READ = 20.0
"""The cost of a read for a turn, beside its message and its bytes."""

_CHANGE_EARNS = 4
"""Messages that a change allows, beside one for each event: a block takes up to four."""
_RECORD_BYTES = 64
"""Bytes of a change in the journal beside its body."""
_GROWTH, _GROWTH_KIB = 4, 64
"""An append may take so many times its size on disk; and all, at once, so many KiB more."""

_FULL_BYTES = 1 << 16
"""While the journal is full a connection may submit changes of so many bytes that bring
no events: creating, sealing, deleting segments, attributes, small tables."""


TokenChecks: TypeAlias = Callable[[str | None, Callable[[str], object]], TokenCheck]
"""Gives the check of a client, by the name that its certificate proves; it tells of the
names that tokens prove.
"""


_Session: TypeAlias = Session | DraftSession


class PravegaListener:
    """A listener's limits, container and token check.  Implements `interfaces.Accept`."""

    def __init__(
        self,
        settings: Settings[Options],
        container: Container,
        checks: TokenChecks,
    ) -> None:
        """*checks* gives the check of a client by the name that its certificate proves."""
        limits = settings.limits
        self.limits = limits_of(Limits, settings)
        self.unacknowledged_bytes = limits.unacknowledged_bytes
        self.change_bytes = batch_bytes(limits.unacknowledged_bytes)
        self.control_messages = limits.control_messages
        self.container = container
        self._checks = checks

    def __call__(self, connection: Connection) -> PravegaServer:
        return PravegaServer(self, connection)

    def session(
        self, first: bytes, principal: str | None, proved: Callable[[str], object]
    ) -> _Session:
        """The session for the *first* four bytes; *proved* hears each command's name."""
        state, check = self.container.state, self._checks(principal, proved)
        if first != _HELLO:
            return DraftSession(state, self.limits, check)
        return Session(
            state,
            self.limits,
            lambda: uuid4().hex,
            check,
            self.container.reads.head,
        )


class PravegaServer(Closing, Yielding):
    """One connection.  Implements `interfaces.Server` and `container.Submitter`.

    17 attributes: its input, its reads and its replies each wait for another thing.
    """

    __slots__ = ("_appended", "_container", "_control", "_ending", "_first", "_growth",
                 "_input", "_listener", "_origin", "_origins", "_reads", "_session", "_steps",
                 "_submitted_full", "_valve", "unacknowledged_bytes")  # fmt: skip

    def __init__(self, listener: PravegaListener, connection: Connection) -> None:
        super().__init__(connection)
        self._listener = listener
        self._container = listener.container
        self._origin = connection.origin
        """The origin of the command that is taken."""
        self._origins = Origins(connection.origin)
        self._session: _Session | None = None
        self._first = b""
        self._steps: Iterator[Step] | None = None
        """The rest of what the session makes of the bytes that it was given."""
        self._input: list[bytes] = []
        """Bytes that the session was not given yet."""
        self._reads: dict[PendingRead, None] = {}
        self._control = ControlBudget(
            listener.container.clock.seconds, listener.control_messages
        )
        self._appended = 0
        """Bytes of append commands since the last change."""
        self._growth: ControlBudget | None = None
        """None: no append took much more than it brought."""
        self.unacknowledged_bytes = 0
        """Memory of the changes that are not durable yet."""
        self._submitted_full = 0
        self._valve = Valve(
            connection,
            listener.container.journal,
            listener.unacknowledged_bytes,
            self._regulate,
        )
        self._ending = False
        self._regulate()

    @property
    def held_bytes(self) -> int:
        if self._session is None:
            return 0
        return self._session.held_bytes + sum(map(len, self._input))

    # -- called by the network -------------------------------------------------------

    def received(self, data: bytes) -> None:
        if self._ending or self._closed:
            return
        session = self._session
        if session is None:
            data = self._first = self._first + data
            if len(data) < len(_HELLO):
                return
            principal = self._connection.origin.principal
            first = data[: len(_HELLO)]
            session = self._listener.session(first, principal, self._proved)
            self._session = session
            self._first = b""
        try:
            if self._container.broken:
                raise Refusal("nothing can be stored any more")
            if data:
                self._input.append(data)
            self._take_turn(session)
        except Refusal as why:
            self.give_up(why)
        if self._ending or self._closed:
            return
        self._connection.hold(self.held_bytes)
        self.flush()
        if self._unread and not (self._valve.paused or self._closed):
            self._connection.again()

    def _take_turn(self, session: _Session) -> None:
        """Take steps, as far as this turn and the limits allow."""
        turn = Turn()
        while not (turn.over or self._valve.paused or self._ending or self._closed):
            if self._steps is None:
                if not self._input:
                    return
                self._steps = session.received(self._input.pop(0), self._container.now)
            step = next(self._steps, None)
            if step is None:
                self._steps = None
                continue
            turn.charge(_MESSAGE + session.cost)
            session.cost = 0.0
            self._take(step, turn)
            while session.reports:
                self._connection.report(session.reports.pop())
            self._check_control(step, session)

    def _check_control(self, step: Step, session: _Session) -> None:
        """Raises `Refusal`: the peer sends messages without end, and nothing else.

        Changes allow more messages, and so do data and entries that it reads.
        """
        control, session.control = session.control, 0
        moved, session.moved = session.moved, 0
        self._appended += session.appended
        session.appended = 0
        if isinstance(step, Change):
            self._control.earn(_CHANGE_EARNS + step.count + moved)
            why = self._check_growth(step)
        else:
            self._control.earn(moved)
            why = self._control.spend(1 + control)
        if why is not None:
            raise why

    def _check_growth(self, change: Change) -> Refusal | None:
        """Why a writer is refused whose appends take much more than they bring.

        Each of them has the name of its segment in the journal.
        """
        sent, self._appended = self._appended, 0
        size = change.size + _RECORD_BYTES - _GROWTH * sent
        if not sent or size <= 0:
            return None  # no append, or one that brings enough
        if self._growth is None:
            self._growth = ControlBudget(
                self._container.clock.seconds,
                _GROWTH_KIB,
                "small appends to a segment with a long name, in KiB on disk",
                None,
            )
        return self._growth.spend(size / 1024)

    def _proved(self, name: str) -> None:
        """Give the command that is taken to the principal of this name; empty: to none."""
        if name != self._origin.principal:
            self._origin = self._origins.of(name)

    @property
    def _unread(self) -> bool:
        """There is input left for another turn."""
        return self._steps is not None or bool(self._input)

    def drain(self) -> None:
        if self._ending or self._closed:
            return
        for pending in list(self._reads):
            pending.cancel()
            self._respond(pending, Found(b"", at_tail=True))
        self._end()

    def _take(self, step: Step, turn: Turn) -> None:
        if isinstance(step, Change):
            turn.charge(_CHANGE + BYTE * step.size + _EVENT * step.count)
            self.unacknowledged_bytes += step.size + self._listener.change_bytes
            if self._container.journal.full:
                held = step.size + _CHANGE_BYTES
                self._submitted_full += max(held, _FULL_BYTES if step.count else 0)
            self._container.submit(step, self, self._origin)
            self._regulate()
        elif isinstance(step, Read):
            turn.charge(_READ + BYTE * step.bytes)
            self._read(step)
        elif step:
            self._connection.write(step)

    # -- reads -----------------------------------------------------------------------

    def _read(self, read: Read) -> None:
        limits = self._listener.limits
        if len(self._reads) >= limits.reads:
            raise limits.over("reads", f"{len(self._reads)} reads wait and one more")
        self._connection.introduced()
        pending = self._container.reads.read(read, self._respond, self.give_up)
        if pending.reads is not None and not self._closed:
            self._reads[pending] = None

    def _respond(self, pending: PendingRead, answer: Answer) -> None:
        self._reads.pop(pending, None)
        if self._session is not None and not self._closed:
            if isinstance(answer, Found) and answer.data:
                self._control.earn(1 + len(answer.data) // 64)
            self._connection.write_each(self._session.answer(pending.read, answer))
            self._update_busy()

    # -- called by the container -----------------------------------------------------

    def stored(self, change: Change, stored: Stored) -> None:
        self.unacknowledged_bytes -= change.size + self._listener.change_bytes
        self._connection.count(events=stored.batch.count)

    def flush(self) -> None:
        session = self._session
        if self._closed or session is None:
            return
        due = session.due()
        if due:
            self._connection.write(due)
        if self._closed:
            return
        if session.replies_pending or self.unacknowledged_bytes:
            self._container.flush_after_commit(self)
        elif self._ending:
            self._hang_up()
            return
        self._update_busy()
        self._regulate()

    def lost(self, why: str) -> None:
        """Close, and acknowledge nothing more."""
        self._not_stored_because(why)

    def _update_busy(self) -> None:
        replying = self._session is not None and self._session.replies_pending
        self._connection.busy(bool(replying or self._reads))

    # -- back pressure ---------------------------------------------------------------

    def _regulate(self) -> None:
        """Pause or resume reading, by the journal and by what is not durable yet.

        While the journal is full a connection is read until it appends: readers,
        metadata and new connections are answered all the while.
        """
        if self._ending or self._closed:
            return
        feeding = self._submitted_full >= _FULL_BYTES
        if feeding and not self._container.journal.full:
            self._submitted_full = 0
        if (
            self._valve.regulate(self.unacknowledged_bytes, feeding=feeding)
            and self._unread
        ):
            self._connection.again()

    # -- the end ---------------------------------------------------------------------

    def give_up(self, why: Refusal) -> None:
        """Take no more; send the replies that are pending, then the refusal, and close."""
        if not (self._ending or self._closed):
            self._refusal = why
            self._end()

    def begun(self) -> str:
        return "" if self._session is None else self._session.begun

    def _end(self) -> None:
        """Take no more; close as soon as no reply is pending."""
        self._ending = True
        self._steps, self._input = None, []
        self._connection.hold(0)
        if self._session is None:
            self._hang_up()
            return
        self._session.discard()
        self._connection.take_no_more()
        self.flush()

    def _forget(self) -> None:
        self._valve.close()
        self._connection.hold(0)
        self._container.forget_submitter(self)
        for pending in list(self._reads):
            pending.cancel()
        self._reads.clear()
        self._steps, self._input = None, []
        # What was submitted is not withdrawn: it is part of the container's state, which
        # later changes of others build upon.  Who sends it again is told that it is there.
        session, self._session = self._session, None
        if session is not None:
            self._container.submit_unhurried(session.closed(self._container.now))
        self._connection.busy(False)
