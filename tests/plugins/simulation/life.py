"""One life of the gateway: its storage and its threads, from the start to the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from gateway.event import Batch, Stored
from gateway.interfaces import NotStored
from gateway.store.checkpoint import Unreadable
from gateway.store.orphans import publish_orphans
from gateway.store.storage import Settings, Storage, StorageCallbacks
from simulation.disk import Session
from simulation.files import split
from simulation.scheduler import Reactor, Scheduler

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["Ledger", "Life"]

DECODERS = {"plain": split}


class Ledger:
    """A memory: the bodies of all batches that there were."""

    def __init__(self) -> None:
        self.known: dict[bytes, None] = {}

    def restore(self, data: bytes) -> None:
        """See `Memory`."""
        assert not self.known
        self.known = dict.fromkeys(data.split(b"\n") if data else ())

    def replay(self, stored: Stored) -> None:
        """See `Memory`."""
        self.known[stored.batch.body] = None

    def start(self) -> None:
        """Nothing to submit."""

    def stop(self) -> None:
        """Nothing to stop."""

    def snapshot(self) -> Deferred[bytes]:
        """See `Memory`."""
        return succeed(b"\n".join(self.known))


class Life:
    """Begins at once; takes batches once `ready`; `ended` says why it is over."""

    def __init__(self, world: World, number: int, node: str) -> None:
        self.number, self.node = number, node
        self.world = world
        self.ready = False
        self.stopping = False
        self.ended: str | None = None
        self.scheduler = Scheduler(world.clock)
        self.reactor = Reactor(self.scheduler, world.chance)
        self.disk = Session(world.disk, self.scheduler, self.tell, self._public)
        self.ledger = Ledger()
        self.storage: Storage | None = None
        self.scheduler.thread("reactor", self._run).start()

    def tell(self, text: str) -> None:
        """For the history."""
        task = self.scheduler.current
        self.world.tell(f"{self.number} {task}: {text}")

    def _public(self, path: Path) -> None:
        if path.parent == self.world.directories.spool:
            self.world.judge.becomes_public(path)

    # -- the reactor ----------------------------------------------------------

    def _run(self) -> None:
        try:
            self._start()
        except (OSError, Unreadable) as why:
            self.ended = f"can not start: {why}"
            return
        self.reactor.run()

    def _start(self) -> None:
        world, settings = self.world, self.world.settings
        self.storage = storage = Storage(
            Settings(
                node=self.node,
                directories=world.directories,
                journal=settings.journal,
                spool=settings.spool,
                acknowledge_when_published=settings.acknowledge_when_published,
                checkpoint_bytes=settings.checkpoint_bytes,
            ),
            self.disk,
            self.reactor,
            DECODERS,
            StorageCallbacks(fatal=self._fatal, durable=self._durable),
            remembering=settings.remembering,
            in_thread=self.reactor.in_thread,
            clock=world.wall_clock,
            monotonic=world.clock,
            threads=self.scheduler,
        )
        for orphan in publish_orphans(
            self.node,
            world.directories,
            self.disk,
            DECODERS,
            compression=settings.spool.compression,
        ):
            self.tell(f"orphan {orphan.node}: {orphan.events} events, {orphan.problem}")
        storage.recover({"ledger": self.ledger} if settings.remembering else {})
        storage.start()
        world.judge.starts(
            self.node,
            storage.journal.durable_lsn + 1,
            storage.losses,
            set(self.ledger.known) if settings.remembering else None,
        )
        self._check()
        self.ready = True
        self.tell(f"ready at {storage.journal.durable_lsn + 1}")

    def _check(self) -> None:
        assert self.storage is not None
        self.storage.journal.check()
        self.reactor.callLater(1.0, self._check)

    def _fatal(self, why: str) -> None:
        self.ended = f"fatal: {why}"

    def _durable(self, group: list[Stored]) -> None:
        for stored in group:
            self.tell(f"durable {stored.lsn}+{stored.batch.count}")
            self.ledger.replay(stored)
            self.world.judge.becomes_durable(self.node, stored)

    # -- what the world does ----------------------------------------------------

    def submit(self, batch: Batch, stored: Callable[[Stored], None]) -> None:
        """In a turn of the reactor."""
        assert self.storage is not None
        journal = self.storage.journal
        self.world.judge.submits(batch.origin.session, batch.body)
        done = journal.submit(batch)
        done.addCallback(self._acknowledged, stored)
        done.addErrback(self._not_stored)

    def _acknowledged(self, stored: Stored, tell: Callable[[Stored], None]) -> None:
        settings = self.world.settings
        self.world.judge.acknowledges(
            self.node, stored, published=settings.acknowledge_when_published
        )
        tell(stored)

    def _not_stored(self, why: Failure) -> None:
        why.trap(NotStored)
        self.tell("not stored")

    def stop(self) -> None:
        """As after SIGTERM; in a turn of the reactor."""
        assert self.storage is not None
        self.stopping = True
        done = Deferred.fromCoroutine(self.storage.stop())
        done.addCallback(lambda _: self._stopped())

    def _stopped(self) -> None:
        self.ended = "stopped"

    def kill(self) -> None:
        """As kill -9."""
        self.ready = False
        self.scheduler.kill()
