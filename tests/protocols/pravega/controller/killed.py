"""A controller in fast motion that is killed and started again, for models of its users."""

from __future__ import annotations

from random import Random
from typing import Any

from twisted.internet.task import Clock

from gateway.event import Stored
from gateway.protocols.pravega import snapshot
from gateway.testing import ManualJournal
from making import Make


class Killed:
    """Runs of one gateway, each from the last checkpoint and what is in the journal."""

    def __init__(self, seed: int, make_service: Make) -> None:
        self.random = Random(seed)
        self.make = make_service
        self.clock = Clock()
        self.clock.advance(1_700_000_000)
        self.all: list[Stored] = []
        self.saved: bytes | None = None
        """The last checkpoint."""
        self.kills = 0

    def begin(self, **more: Any) -> None:
        self.service = self.make(
            clock=self.clock,
            journal=ManualJournal(first_lsn=1 + sum(s.batch.count for s in self.all)),
            state=None if self.saved is None else snapshot.restore(self.saved),
            replayed=self.all,
            **more,
        )
        self.known = 0
        self.peer = self.service.peer()
        self.store()

    def kill(self) -> None:
        """Some of what is on its way becomes durable, the rest is lost."""
        journal = self.service.journal
        for _ in range(self.random.randint(0, len(journal.pending))):
            journal.store()
        self.note()
        self.clock.calls.clear()
        self.kills += 1
        self.begin()

    def store(self) -> list[Stored]:
        self.service.store()
        return self.note()

    def note(self) -> list[Stored]:
        """What has become durable since the last look."""
        found: list[Stored] = self.service.journal.stored[self.known :]
        self.known += len(found)
        self.all += found
        return found

    def save(self) -> None:
        self.saved = snapshot.save(self.state)

    @property
    def state(self) -> Any:
        return self.service.container.state
