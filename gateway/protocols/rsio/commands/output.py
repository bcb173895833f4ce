"""Standard output that a reactor writes to without being held up by a slow reader."""

from __future__ import annotations

import os
import stat
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IWriteDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

#: What a pipe that is ready surely takes (PIPE_BUF).
_AT_ONCE = 4096


@implementer(IWriteDescriptor)
class Output:
    """Awaiting `write` is how its reader slows us down.

    The descriptor stays as it is: others may share it, a shell for one, and would not
    expect it to be non-blocking.
    """

    def __init__(self, reactor: Any, descriptor: int) -> None:
        self._reactor = reactor
        self._descriptor = descriptor
        mode = os.fstat(descriptor).st_mode
        self._waits = (
            stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
        )
        self._data = memoryview(b"")
        self._written: Deferred[None] | None = None

    async def write(self, data: bytes) -> None:
        """Returns when all is written.  Raises OSError, BrokenPipeError for one."""
        self._data = memoryview(data)
        if not self._waits:
            while self._data:
                self._write(len(self._data))
            return
        self._written = Deferred(self._cancelled)
        self._reactor.addWriter(self)
        await self._written

    def _write(self, most: int) -> None:
        self._data = self._data[os.write(self._descriptor, self._data[:most]) :]

    def _cancelled(self, _: Deferred[None]) -> None:
        self._reactor.removeWriter(self)

    def _end(self, why: Failure | None) -> None:
        self._reactor.removeWriter(self)
        written, self._written = self._written, None
        if written is not None and not written.called:
            if why is None:
                written.callback(None)
            else:
                written.errback(why)

    # What the reactor calls

    def fileno(self) -> int:
        return self._descriptor

    def logPrefix(self) -> str:
        return "stdout"

    def doWrite(self) -> None:
        try:
            self._write(_AT_ONCE)
        except OSError:
            self._end(Failure())
        else:
            if not self._data:
                self._end(None)

    def connectionLost(self, reason: Failure) -> None:
        """End with a broken pipe: standard output has no reader any more."""
        self._end(Failure(BrokenPipeError("nobody reads what we write")))
