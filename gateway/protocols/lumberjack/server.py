"""Lumberjack connections on Twisted: windows go to the journal, acknowledgements back.

A window is acknowledged once it is durable, and never before an earlier one.  A v2
writer that waits gets a keepalive, `2A 00000000`, every `options.keepalive_interval`,
whether its window is in the journal's hands, half taken, or not looked at yet.
A v1 writer would take that for its acknowledgement, so it gets none.  After
`options.stall_timeout` without progress the connection is closed, and what the journal
has not taken of it is withdrawn, so that its writer tries another reader.  No connection
is closed so while the journal says why it takes nothing (`Journal.why_full`).

A window may have less than it was announced with, and its writer may send it frame by frame,
as events occur.  So part of it is stored `options.window_pause` after its first frame, if
its writer pauses: if no frame was incomplete here for half of that time.  A window that
fills a slow line has half a frame here most of the time, and is not cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted.internet.interfaces import IReactorTime

from gateway.event import Stored
from gateway.protocols.lumberjack import wire
from gateway.protocols.lumberjack.frames import Limits
from gateway.protocols.lumberjack.options import Options
from gateway.protocols.lumberjack.session import Figures, Session
from gateway.sdk.batches import BatchListener, BatchServer, Ready
from gateway.sdk.deadlines import Deadlines
from gateway.sdk.interfaces import Connection, Journal, Refusal
from gateway.sdk.limits import limits_of
from gateway.sdk.protocol import Settings

_V2 = b"2"[0]
_KEEPALIVE = wire.ack(_V2, 0)
_SILENT = 0.5
"""The fraction of `options.window_pause` without a byte of a frame that counts as a pause."""


class Lumberjack(BatchListener):
    """A listener's limits, timers and journal.  Implements `interfaces.Accept`."""

    def __init__(
        self,
        settings: Settings[Options],
        journal: Journal,
        clock: IReactorTime,
        figures: Figures | None = None,
    ) -> None:
        """*figures* count what all listeners' connections do."""
        limits, options = limits_of(Limits, settings), settings.options
        super().__init__(settings, journal, clock, lambda *_: Session(limits, figures))
        self.stall_timeout = options.stall_timeout
        self.waiting: Deadlines[LumberjackServer] = Deadlines(
            clock,
            min(options.keepalive_interval, options.stall_timeout),
            LumberjackServer.remind,
        )
        self.window_pause = options.window_pause
        self.pauses: Deadlines[LumberjackServer] = Deadlines(
            clock, options.window_pause, LumberjackServer.waited
        )

    def __call__(self, connection: Connection) -> LumberjackServer:
        return LumberjackServer(self, connection)


class LumberjackServer(BatchServer):
    """One connection, whose writer is kept waiting as its version allows."""

    __slots__ = ("_due", "_part", "_pauses", "_progress", "_silence", "_silent_since",
                 "_version")  # fmt: skip

    _listener: Lumberjack
    _session: Session | None

    def __init__(self, listener: Lumberjack, connection: Connection) -> None:
        self._progress = 0.0
        self._version: int | None = None
        """The version in the connection's first byte, for windows that were not parsed yet."""
        self._part = 0
        """`Session.part` of what waits to be stored; 0: nothing does."""
        self._silence = 0.0
        """Seconds between frames since the part began, while none was incomplete."""
        self._silent_since: float | None = None
        """The time since which no frame is incomplete; None: one is."""
        self._due = False
        """Whether the part is to be stored, once no frame is incomplete."""
        self._pauses = False
        """Whether it is to be stored in the next turn."""
        super().__init__(listener, connection)

    def received(self, data: bytes) -> None:
        if self._version is None and data:
            self._version = data[0]
        if self._pauses:
            self._pauses = False
            if self._session is not None and not (data or self._unread):
                self._batches = self._session.pause()
        super().received(data)
        if self._batches is not None:
            if not self._valve.paused:  # we are at work
                self._progress = self._listener.clock.seconds()
        elif self._part or (self._session is not None and self._session.may_pause):
            self._watch_part()

    def _watch_part(self) -> None:
        """Notice how the frames of a window come that is not complete."""
        session, listener = self._session, self._listener
        part = 0 if session is None else session.part
        now = listener.clock.seconds()
        if part != self._part:
            self._part, self._silence, self._due = part, 0.0, False
            if part:
                listener.pauses.watch(self)
            else:
                listener.pauses.forget(self)
        elif self._silent_since is not None:
            self._silence += now - self._silent_since
        between = session is not None and session.may_pause
        self._silent_since = now if between else None
        if self._due:
            self._store_part()

    def waited(self) -> None:
        """Part of a window is here for `window_pause`, or for that long once more."""
        listener = self._listener
        now = listener.clock.seconds()
        if self._silent_since is not None:
            self._silence += now - self._silent_since
            self._silent_since = now
        self._due = self._due or self._silence >= _SILENT * listener.window_pause
        self._silence = 0.0
        listener.pauses.watch(self)
        if self._due:
            self._store_part()

    def _store_part(self) -> None:
        """Unless a frame has begun, or we have not looked at what its writer sent."""
        looked = not (self._unread or self._not_read or self._connection.unread_input)
        if looked and self._silent_since is not None:
            self._pauses = True
            self._connection.again()

    def remind(self) -> None:
        """The peer still waits: send it a keepalive, or give it up as stalled."""
        listener = self._listener
        now = listener.clock.seconds()
        versions = self._waiting_versions()
        if not versions or listener.journal.why_full is not None:
            self._progress = now
        stalled = now - max(self._progress, self._busy_since or 0.0)
        if stalled >= listener.stall_timeout:
            rule = f"closed, nothing became durable for {stalled:.0f} s"
            self._connection.report(Refusal(rule, key="options.stall_timeout"))
            self._hang_up()
            return
        if versions == {_V2}:
            self._connection.write(_KEEPALIVE)
        self._settle()  # nobody says that there is room again
        if self._busy_since is not None:
            listener.waiting.watch(self)

    def _waiting_versions(self) -> set[int | None]:
        """The versions of the windows that the peer waits for; empty if it does not wait."""
        found: set[int | None] = {
            pending.ack[0] if pending.ack else None for pending in self._pending or ()
        }
        if self._unread or self._connection.unread_input:
            found.add(self._version)
        session = self._session
        if session is not None and session.arriving and self._not_read:
            found.add(session.arriving)
        return found

    def stored(self, stored: Stored) -> None:
        self._progress = self._listener.clock.seconds()
        super().stored(stored)

    def _drop_session(self) -> None:
        if self._session is not None:
            self._session.end()
        super()._drop_session()
        if self._part:
            self._watch_part()

    def _whole(self, session: Session) -> Iterator[Ready]:
        return session.stop()

    def _is_between(self, session: Session | None) -> bool:
        return session is None or session.between
