"""The log's lines about connections: one when it opens (debug), one when it ends (info).

Peers decide how many connections there are, so there are at most `logging.connections`
lines of each kind in a second.  The number of lines left out is told a minute later, by
listener and reason.  No line has what a peer sent, or a name that it could not prove.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from gateway.event import Origin

_TELL_SECONDS = 60.0
_ENDED = (
    "{listener}: {peer} ended: {reason}; {seconds} s, {events} events, {bytes} bytes"
)
_ENDED_KNOWN = f"{_ENDED}, {{principal}}"


@dataclass(frozen=True, slots=True)
class Seen:
    """A snapshot of one connection: who it is, and what it did."""

    listener: str
    session: str
    peer: str
    principal: str | None
    seconds: float
    """Seconds since it was accepted."""
    bytes: int
    """Received."""
    events: int
    """Made durable."""
    unacknowledged: int
    """Bytes that wait to be acknowledged."""
    paused: bool
    """Whether its server takes nothing at the moment."""
    last_error: str | None
    """The last fault that did not end it."""


class ConnectionLog:
    """The log of connections of all listeners of a daemon."""

    _log = Logger()

    def __init__(
        self, clock: IReactorTime, *, lines: int = 0, opened: bool = False
    ) -> None:
        """Log nothing without *lines*, as for `configure`."""
        self._clock = clock
        self._left_out: Counter[tuple[str, str]] = Counter()
        """Counts by listener, and by why they ended."""
        self._second = [0, 0]
        self._written = [0, 0]
        """Lines of each kind in that second: openings, endings."""
        self._scheduled = False
        self.configure(lines=lines, opened=opened)

    def configure(self, *, lines: int, opened: bool) -> None:
        """Set the limit of lines of a kind in a second, 0: none; *opened*: openings, too.

        A log that drops debug lines needs `opened=False`: a line that is dropped later
        costs as much as one that is written.
        """
        self._lines = lines
        self._tell_opened = opened and lines > 0

    def opened(self, origin: Origin) -> None:
        if self._tell_opened and self._has_room(0):
            self._log.debug(
                "{listener}: {peer} connected",
                listener=origin.listener,
                protocol=origin.protocol,
                session=origin.session,
                peer=origin.peer,
            )

    def closed(self, origin: Origin, why: str, seen: Callable[[], Seen]) -> None:
        """Log the end of a connection.

        *why* is one of the few reasons of docs/operations.md; *seen* says what it did, and is only
        called for a line.
        """
        if not self._lines:
            return
        if not self._has_room(1):
            self._left_out[origin.listener, why] += 1
            if not self._scheduled:
                self._scheduled = True
                self._clock.callLater(_TELL_SECONDS, self._tell_left_out)
            return
        did = seen()
        self._log.info(
            _ENDED if origin.principal is None else _ENDED_KNOWN,
            listener=origin.listener,
            protocol=origin.protocol,
            session=origin.session,
            peer=origin.peer,
            principal=origin.principal,
            seconds=round(did.seconds, 3),
            reason=why,
            events=did.events,
            bytes=did.bytes,
        )

    def _has_room(self, kind: int) -> bool:
        second = int(self._clock.seconds())
        if second != self._second[kind]:
            self._second[kind], self._written[kind] = second, 0
        self._written[kind] += 1
        return self._written[kind] <= self._lines

    def _tell_left_out(self) -> None:
        self._scheduled = False
        left_out, self._left_out = self._left_out, Counter()
        for (listener, why), count in left_out.items():
            self._log.info(
                "{listener}: {count} more connections ended in the last minute: {reason}",
                listener=listener,
                count=count,
                reason=why,
            )
