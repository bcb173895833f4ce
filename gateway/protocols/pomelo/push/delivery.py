"""Writes a push to its clients in short slices, so that others have their turns between.

A push to everyone is a write for each client: 10,000 of them take a quarter of a second.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import deferLater

from gateway.protocols.pomelo.registry import Delivery

_SECONDS = 0.005
"""Seconds of one slice."""
_AT_ONCE = 256
"""Messages of one slice, or rows looked at, however little time they take."""
_WRITES = 32
"""Messages between two looks at the clock."""


class Slices:
    """A slice of work after another, with a turn of the reactor in between."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._began, self._done = reactor.seconds(), 0

    async def count(self, done: int) -> None:
        """Count what is done; return in the next slice if this one is over."""
        self._done += done
        reactor = self._reactor
        if self._done >= _AT_ONCE or reactor.seconds() - self._began >= _SECONDS:
            await deferLater(reactor, 0)
            self._began, self._done = reactor.seconds(), 0

    async def deliver(self, delivery: Delivery) -> None:
        while written := delivery.send(_WRITES):
            await self.count(written)
