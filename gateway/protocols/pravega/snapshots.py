"""The making of snapshots between the turns of the reactor, for those who asked for one."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from gateway.protocols.pravega.snapshot import SnapshotWriter
from gateway.sdk.interfaces import NotStored


@define(eq=False, slots=False)
class Snapshots:
    """Makes snapshots, one at a time, each for all who asked before it began.

    *tell_encoded* has `finish` called, now or after the next group commit.
    """

    _clock: IReactorTime
    _new: Callable[[], SnapshotWriter]
    _tell_encoded: Callable[[], object]

    def __attrs_post_init__(self) -> None:
        self.between: Callable[[], object] | None = None
        """Called once, as soon as no snapshot is being made."""
        self._asked: list[Deferred[bytes]] = []
        """Asked for, and not begun."""
        self._waiters: list[Deferred[bytes]] = []
        """Asked for, and to be answered with `_writer`."""
        self._writer: SnapshotWriter | None = None
        self._encoded = False
        """Whether it is encoded; it may still have changes that are not durable."""

    @property
    def busy(self) -> bool:
        return self._writer is not None

    def ask(self) -> Deferred[bytes]:
        done: Deferred[bytes] = Deferred()
        self._asked.append(done)
        self._begin()
        return done

    def fail(self, why: str) -> None:
        """Something in it will never be durable."""
        for done in (*self._waiters, *self._asked):
            done.errback(NotStored(why))
        self._waiters, self._asked, self._writer = [], [], None

    def finish(self, durable: int) -> None:
        """Give out the one that is encoded, if all in it is durable; begin the next one."""
        writer = self._writer
        if writer is None or not self._encoded or durable < writer.number:
            return
        self._writer = None
        waiters, self._waiters = self._waiters, []
        data = writer.finish()
        between, self.between = self.between, None
        if between is not None:  # also where the next one is asked for already
            between()
        for done in waiters:
            done.callback(data)
        self._begin()

    def _begin(self) -> None:
        if self._asked and self._writer is None:
            self._waiters, self._asked = self._asked, []
            self._writer = self._new()
            self._encoded = False
            self._encode()

    def _encode(self) -> None:
        """One step per reactor turn, so that connections are served in between."""
        if self._writer is None:
            return  # it failed
        if self._writer.step():
            self._clock.callLater(0, self._encode)
        else:
            self._encoded = True
            self._tell_encoded()
