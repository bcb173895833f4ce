"""Senders that hand batches to the journal themselves, and send again what was lost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.event import Batch, Origin, Stored
from simulation.life import Life

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["PlainSender"]

_WINDOW = 4
_COUNTS = (0, 1, 1, 1, 2, 3, 5)


@dataclass(slots=True, eq=False)
class _Unacknowledged:
    body: bytes
    count: int
    number: int
    batch: Batch | None = None
    """As it was sent on this connection; None: it was not yet."""
    copies: int = 0
    """How often it was sent."""


class PlainSender:
    """Keeps a few batches unacknowledged, on one connection after the other."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self._number = 0
        self._connections = 0
        self._life: Life | None = None
        self._origin: Origin | None = None
        self._waiting: deque[_Unacknowledged] = deque()

    @property
    def idle(self) -> bool:
        """Everything is acknowledged."""
        return not self._waiting

    def act(self, *, fresh: bool) -> None:
        """In a turn of the reactor."""
        life = self._world.life
        if life is not None and life.ready and not life.stopping:
            life.reactor.callFromThread(self._act, life, fresh)

    def _act(self, life: Life, fresh: bool) -> None:
        """Send, on a new connection if the old one's gateway is gone; *fresh* events?"""
        if life.stopping:
            return
        if life is not self._life:
            self._connect(life)
        if life.journal.full:
            return
        for one in self._waiting:
            if one.batch is None:
                self._send(life, one)
                return
        if fresh and len(self._waiting) < _WINDOW:
            self._waiting.append(self._make())
            self._send(life, self._waiting[-1])

    def disconnect(self) -> None:
        """The connection breaks; what the journal has not taken is withdrawn."""
        life = self._world.life
        if life is not None and life.ready:
            life.reactor.callFromThread(self._disconnect, life)

    def _disconnect(self, life: Life) -> None:
        if life is self._life:
            self._life = None
            for one in self._waiting:
                if one.batch is not None and life.journal.withdraw(one.batch):
                    life.tell(f"{self.name} withdraws {one.body[:12]!r}")

    def _connect(self, life: Life) -> None:
        self._life = life
        self._connections += 1
        session = f"{self.name}-{self._connections}"
        self._origin = Origin("plain", "l", session, "[::1]:9")
        for one in self._waiting:
            one.batch = None

    def _make(self) -> _Unacknowledged:
        self._number += 1
        chance = self._world.chance
        count = chance.choice(_COUNTS)
        size = chance.choice((1, 20, 20, 200, 3000))
        body = b",".join(
            b"%b/%d/%d/%d/%b"
            % (self.name.encode(), self._number, n, count, b"x" * size)
            for n in range(max(count, 1))
        )
        return _Unacknowledged(body, count, self._number)

    def _send(self, life: Life, one: _Unacknowledged) -> None:
        assert self._origin is not None
        one.batch = batch = Batch(self._origin, 0, one.count, one.body, len(one.body))
        life.tell(f"{self._origin.session} sends {one.body[:12]!r} of {one.count}")

        one.copies += 1

        def stored(_: Stored) -> None:
            if one.batch is batch and one in self._waiting:
                self._waiting.remove(one)
                life.soon(self._hears, one)

        life.submit(batch, stored)

    def _hears(self, one: _Unacknowledged) -> None:
        self._world.judge.hears(self.name, one.number, one.count, one.copies)
