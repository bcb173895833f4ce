"""Sealed segments that wait for the spool's thread, in order of lsn; the journal's adds
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from gateway.store.journal.log import Segment
from gateway.store.system.room import Room
from gateway.store.system.threads import Threads

_UPCOMING = 16


class Backlog:
    """The backlog of one node.  Any thread may call.

    *file_bytes* says how large a file becomes, at most about, of a segment's size, that
    of its payloads, and their number; *room* is told.
    """

    def __init__(
        self, threads: Threads, file_bytes: Callable[[int, int, int], int], room: Room
    ) -> None:
        self._file_bytes = file_bytes
        self._room = room
        self._watching: list[Callable[[], None]] = []
        # All of the following, and what is told to the room, is under its lock.
        self._condition = threads.condition()
        self._work: deque[Segment] = deque()
        self._stopping = False
        self.bytes = 0
        """Sealed segments that are not published yet."""
        self.sealed_bytes = 0
        """All that ever came."""

    def watch(self, call: Callable[[], None]) -> None:
        """Call after each that is added, in whatever thread adds it."""
        self._watching.append(call)

    def add(self, sealed: Segment) -> None:
        """Add a segment, which counts towards `spool.max_bytes` from now on.

        Senders fill the journal faster than the thread looks, above all while it writes its first
        file.
        """
        with self._condition:
            self.bytes += sealed.bytes
            self._room.files_bytes += self._becomes(sealed)
            self.sealed_bytes += sealed.bytes
            self._work.append(sealed)
            self._condition.notify()
        for call in self._watching:
            call()

    def published(self, sealed: Segment) -> None:
        """Note that a segment waits no more."""
        with self._condition:
            self.bytes -= sealed.bytes
            self._room.files_bytes -= self._becomes(sealed)

    def _becomes(self, sealed: Segment) -> int:
        return self._file_bytes(sealed.bytes, sealed.payload_bytes, sealed.events)

    @property
    def taken(self) -> tuple[int, int]:
        """All bytes that ever came, and those that wait, at one moment."""
        with self._condition:
            return self.sealed_bytes, self.bytes

    def next(
        self, meanwhile: Callable[[], None], seconds: Callable[[], float]
    ) -> Segment | None:
        """The next segment to publish; None at the end.

        What there is to do *meanwhile* is done before each look, so many *seconds* after
        the last one if nothing has come.
        """
        while True:
            meanwhile()
            with self._condition:
                if not (self._work or self._stopping):
                    self._condition.wait(seconds())
                if self._work:
                    return self._work.popleft()
                if self._stopping:
                    return None

    def upcoming(self) -> list[Segment]:
        """The segments to be published after the one in hand, as far as known."""
        with self._condition:
            return list(islice(self._work, _UPCOMING))

    def stop(self) -> None:
        """Stop: each waiting segment is published once; what fails then waits for the
        next start.
        """
        with self._condition:
            self._stopping = True
            self._condition.notify()

    def stopping_after(self, seconds: float, clock: Callable[[], float]) -> bool:
        """Wait, unless it is stopping; whether it is."""
        until = clock() + seconds
        with self._condition:
            while not self._stopping and (left := until - clock()) > 0:
                self._condition.wait(left)
            return self._stopping
