"""Input that is read while its server takes none, so that the peer is not left unheard.

A connection whose server paused it for some seconds is read on, into memory: a sender can
finish the window that it is writing, whose deadline would pass otherwise, and its end is
seen also where it stands in the stream (TLS's close_notify, WebSocket's Close).  What is
read ahead is delivered in order when the server goes on, and dropped with a peer that is
gone.

It is bounded for each connection (`limits.read_ahead_bytes`) and for all together
(`memory.MemoryBudget`).  Room is taken before the read, so that ten thousand connections
that are read at once stay within it; one that gets none is left in the kernel's hands.
"""

from __future__ import annotations

from gateway.net.memory import MemoryBudget

__all__ = ["STEP", "ReadAhead"]

STEP = 1 << 16
"""Bytes of one read ahead."""
_JOINED = 1 << 14
"""Pieces are joined up to so many bytes: tiny ones would cost more than they hold."""


class ReadAhead:
    """What was read ahead of one connection."""

    __slots__ = ("_budget", "_heard", "_limit", "_pieces", "_room", "size")

    def __init__(self, budget: MemoryBudget, limit: int) -> None:
        self.size = 0
        """Bytes."""
        self._heard = False
        """Something came since the last `rest`."""
        self._budget = budget
        self._limit = limit
        self._pieces: list[bytes] = []
        self._room = 0
        """Taken for the next read."""

    @property
    def reading(self) -> bool:
        """There is room for the next read."""
        return self._room > 0

    def read_on(self) -> bool:
        """Take room for one more read; false: there is none at the moment."""
        if not self._room and self.size + STEP <= self._limit:
            self._room = STEP if self._budget.read_ahead(self.size, STEP) else 0
        return self.reading

    def rest(self) -> None:
        """There is nothing to read: give the room back if nothing came since the last
        call.
        """
        if not self._heard:
            self.stop()
        self._heard = False

    def stop(self) -> None:
        """Give the room for the next read back."""
        self._budget.free_ahead(self._room)
        self._room = 0

    def add(self, data: bytes) -> None:
        """Keep what was read; `read_on` again before the next read."""
        self._heard = True
        self._budget.free_ahead(self._room - len(data))
        self._room = 0
        self.size += len(data)
        if self._pieces and len(self._pieces[-1]) + len(data) <= _JOINED:
            data = self._pieces.pop() + data
        self._pieces.append(data)

    def take(self) -> bytes:
        """The next bytes to deliver, no more than one read; empty if there are none."""
        if not self._pieces:
            return b""
        data = self._pieces.pop(0)
        self.size -= len(data)
        self._budget.free_ahead(len(data))
        return data

    def drop(self) -> None:
        """Forget all of it."""
        self._pieces.clear()
        self._budget.free_ahead(self.size + self._room)
        self.size = self._room = 0
