"""The memory that one connection holds, and whether it comes any further.

That is the input that its server can not use yet, the output that the server has not
written, and the output that the peer does not take.  It counts in `memory`, for all
connections together.  A message that has begun must make progress: `limits.minimum_rate`.
"""

from __future__ import annotations

from attrs import define

from gateway.net.memory import Account

PROGRESS_SECONDS = 30.0
"""Seconds over which `limits.minimum_rate` is measured."""
_STANDS_SECONDS = 5.0
"""The least seconds over which it is looked whether a connection stands."""


@define(eq=False, weakref_slot=False)
class Holding:
    """The memory of a connection that held something once, or waited to."""

    account: Account
    """The connection's part of the daemon's memory."""
    unfinished: int = 0
    """Bytes of input that its server holds, as that says."""
    behind_windows: int = 0
    """Bytes of output that are written, and wait for the peer's windows in HTTP/2."""
    _kept: int = 0
    """Bytes of output that its server holds and has not written."""
    _output: int = 0
    """Bytes of output that the peer has not taken, as of late."""
    _lost: bool = False
    _progress: tuple[float, int] | None = None
    """When its unfinished input was looked at, and how much had been received then."""

    @property
    def mostly_output(self) -> bool:
        """More of it is output than input."""
        return self._output + self._kept > self.unfinished

    def hold(self, unfinished: int, kept: int) -> None:
        """The server holds so much input, and output."""
        if unfinished != self.unfinished or kept != self._kept:
            self.unfinished, self._kept = unfinished, kept
            if not unfinished:
                self._progress = None
                self.account.stands = False
            self._count()

    def unsent(self, size: int) -> None:
        """The peer has not taken so much."""
        if size != self._output:
            self._output = size
            self._count()

    def release(self) -> None:
        """The connection is lost: it holds nothing, whatever its server says yet."""
        self._lost = True
        self._count()

    def _count(self) -> None:
        if self._lost:
            self.account.hold(0)
        else:
            held = self.unfinished + self._output + self._kept
            self.account.hold(held, self.unfinished)

    def rests(self) -> None:
        """Note that the peer need not make progress at the moment."""
        self._progress = None

    def too_slow(self, now: float, received: int, minimum_rate: int) -> bool:
        """Whether a message that has begun comes no further, with *received* bytes so far."""
        if self._progress is None:
            self._progress = now, received
            return False
        since, before = self._progress
        if now - since < PROGRESS_SECONDS:
            return False
        self._progress = now, received
        return received - before < minimum_rate * (now - since)

    def look(
        self, now: float, received: int, stalled_since: float | None, *, paused: bool
    ) -> None:
        """Say whether what it holds would not be done with in `PROGRESS_SECONDS`, as it
        goes: `Account.stands`.
        """
        if stalled_since is not None:
            self.account.stands = now - stalled_since >= _STANDS_SECONDS
        elif self._progress is None or paused:
            self.account.stands = False
        else:
            since, before = self._progress
            seconds = now - since
            if seconds >= _STANDS_SECONDS:
                comes = (received - before) * PROGRESS_SECONDS
                self.account.stands = comes < self.unfinished * seconds
