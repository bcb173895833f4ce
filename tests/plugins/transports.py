"""A socket in memory, as connections of the gateway's network write to it."""

import os

from twisted.internet.testing import StringTransport

__all__ = ["MemoryTransport"]

_NOTHING = os.open(os.devnull, os.O_RDONLY)


class MemoryTransport(StringTransport):
    """What an `AcceptedConnection` writes to."""

    finished = False
    """FIN was asked for."""
    unsent_bytes = 0
    """What the kernel has not taken."""

    def loseWriteConnection(self) -> None:
        self.finished = True

    def fileno(self) -> int:
        return _NOTHING
