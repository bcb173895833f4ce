"""Input that is read while its server takes none, so that the peer is not left unheard.

A connection whose server has paused it is read on, into memory.  So a sender can finish the
window that it is writing, whose deadline would pass otherwise.  Its end is seen also where
it stands in the stream (TLS's close_notify, WebSocket's Close).  What is read ahead is
delivered in order when the server goes on, and dropped with a peer that is gone.

It is bounded for each connection (`limits.read_ahead_bytes`), for each address and for
all together (`memory.Account.take_room`).  Room is taken before the read, so that ten
thousand connections that are read at once stay within it; one that gets none is left in
the kernel's hands.
"""

from __future__ import annotations

from gateway.net.memory import Account

STEP = 1 << 16
"""Bytes of one read ahead."""
_JOINED = 1 << 14
"""Pieces are joined up to so many bytes: tiny ones would cost more than they hold."""


class ReadAhead:
    """The input read ahead of one connection, and its room for the next read.

    Memory that is given back may call into this same connection, which goes on then
    (`interfaces.Journal.when_room`): so it is counted last, when all else is set.
    """

    __slots__ = ("_account", "_heard", "_limit", "_pieces", "_room", "size")

    def __init__(self, account: Account, limit: int) -> None:
        self.size = 0
        """Bytes."""
        self._heard = False
        """Something came since the last `rest`."""
        self._account = account
        self._limit = limit
        self._pieces: list[bytes] = []
        self._room = 0
        """Taken for the next read."""

    @property
    def has_room(self) -> bool:
        return self._room > 0

    def take_room(self) -> bool:
        """Take room for one more read; false: there is none at the moment."""
        if (
            not self._room
            and self.size + STEP <= self._limit
            and self._account.take_room(STEP)
        ):
            self._room = STEP
        return self.has_room

    def give_room_back(self) -> None:
        self._room = 0
        self._count()

    def rest(self) -> None:
        """There is nothing to read: give the room back if nothing came since the last call."""
        heard, self._heard = self._heard, False
        if not heard:
            self.give_room_back()

    def add(self, data: bytes) -> None:
        """Keep what was read; `take_room` again before the next read."""
        self._heard = True
        self._room = 0
        self.size += len(data)
        if self._pieces and len(self._pieces[-1]) + len(data) <= _JOINED:
            data = self._pieces.pop() + data
        self._pieces.append(data)
        self._count()

    def take(self) -> bytes:
        """The next bytes to deliver, no more than one read; empty if there are none."""
        if not self._pieces:
            return b""
        data = self._pieces.pop(0)
        self.size -= len(data)
        self._count()
        return data

    def drop(self) -> None:
        self._pieces.clear()
        self.size = self._room = 0
        self._count()

    def _count(self) -> None:
        self._account.read_ahead(self.size + self._room)
