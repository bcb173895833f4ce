"""One life of the gateway: storage, protocols and threads, from the start to the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from gateway.config import Listener
from gateway.daemon.protocols import Protocols
from gateway.event import Batch, Decode, Origin, Stored
from gateway.net import CannotListen
from gateway.plugins import Installed
from gateway.protocols import lumberjack, pomelo, pravega, rsio
from gateway.sdk.interfaces import Memory, NotStored, Rebuilding, Refusal, Retaining
from gateway.sdk.protocol import Context, Protocol, Unusable
from gateway.store.checkpoint import Unreadable
from gateway.store.finder import Finder
from gateway.store.journal import Loss
from gateway.store.node.orphans import publish_orphans
from gateway.store.storage import OpenedStorage, Settings, Storage, StorageCallbacks
from gateway.store.system.machine import Machine
from simulation.admin import AdminPort
from simulation.bounds import CountedJournal
from simulation.disk import Session
from simulation.files import previous_of, split
from simulation.judge import Broken
from simulation.listeners import Listeners, configured
from simulation.reactor import Reactor
from simulation.scheduler import Killed, Scheduler
from simulation.tls import ALLOWED

if TYPE_CHECKING:
    from simulation.world import World

__all__ = ["Ledger", "Life"]

PROTOCOLS: tuple[Protocol, ...] = (
    lumberjack.protocol, pomelo.protocol, pravega.protocol, rsio.protocol,
)  # fmt: skip
DECODERS: dict[str, Decode] = {
    "plain": split,
    **{each.name: each.decoder([]) for each in PROTOCOLS},
}
_SUPERSEDED = ("another connection writes", "E409 another", "E412 another instance")
"""What the newer connection of a sender, or a newer sender of its name, leads to."""
_EXPECTED = ("TLS handshake failed: ", "peer does not read what we send")
"""Of clients that show a wrong certificate, or stop reading."""


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
        if stored.batch.origin.protocol == "plain":
            self.known[stored.batch.body] = None

    def start(self) -> None:
        """Nothing to submit."""

    def stop(self) -> None:
        """Nothing to stop."""

    def snapshot(self) -> Deferred[bytes]:
        """See `Memory`."""
        return succeed(b"\n".join(self.known))


class Witness:
    """A protocol's memory, and who hears of what the journal gives back to it."""

    def __init__(self, memory: Memory, tell: Callable[[Stored], None]) -> None:
        self.restore, self.start, self.stop = memory.restore, memory.start, memory.stop
        self.snapshot = memory.snapshot
        if isinstance(memory, Retaining):
            self.needed = memory.needed
        if isinstance(memory, Rebuilding):
            self.rebuilt = memory.rebuilt
        self._replay, self._tell = memory.replay, tell

    def replay(self, stored: Stored) -> None:
        """See `Memory`."""
        self._tell(stored)
        self._replay(stored)


class Life:
    """Begins at once; takes batches once `ready`; `ended` says why it is over."""

    def __init__(self, world: World, number: int, node: str) -> None:
        self.number, self.node = number, node
        self.world = world
        self.ready = False
        self.stopping = self.refuses = self.unusable = False
        self.strands = False
        """What another node left can not be published, which the operator hears."""
        self.ended: str | None = None
        self.scheduler = Scheduler(world.clock)
        self.reactor = Reactor(self.scheduler, world.chance)
        self.disk = Session(
            world.disk, self.scheduler, self.tell, self._public, self._looks
        )
        self.ledger = Ledger()
        self.storage: Storage | None = None
        self.journal: CountedJournal
        """Once there is a storage."""
        self.net: Listeners | None = None
        """Once they are bound."""
        self.admin = AdminPort(self)
        by_name = {each.name: each for each in PROTOCOLS}
        self._listeners = {
            way: configured(world, by_name[way.protocol], way) for way in world.ways
        }
        self.protocols = Protocols(
            Installed(by_name, {}),
            self._listeners.values(),
            self.admin.metrics.protocol_failed,
        )
        self.scheduler.thread("reactor", self._run).start()

    def tell(self, text: str) -> None:
        """For the history."""
        task = self.scheduler.current
        self.world.tell(f"{self.number} {task}: {text}")

    def _public(self, path: Path) -> None:
        world = self.world
        if path.parent == world.directories.spool:
            world.judge.becomes_public(path)
            content = world.disk.read(path)
            note = world.disk.notes.get(world.disk.find(path))
            previous = previous_of(content, note)
            world.chain.grows(path.name, content, previous, rotten=world.judge.rotten)

    def _looks(self, directory: Path, took: float) -> None:
        if directory == self.world.directories.archive:
            self.world.bounds.lists_archive(took)

    def _measure(self, measure: Callable[[], None]) -> None:
        """What the spool does first whenever it looks after the archive."""
        if self.scheduler.current == "spool" and self.storage is not None:
            unfinished = bool(self.storage.spool._expiry._due)  # its time ran out
            troubled = unfinished or self.disk.in_trouble()
            self.world.bounds.looks_after_archive(troubled=troubled)
        measure()

    def look(self) -> None:
        """At every step."""
        if self.ready and self.storage is not None:
            if not self.stopping:
                self.world.bounds.look(self.journal, self.storage)
            self.world.admin.look(self)

    # -- the reactor ----------------------------------------------------------

    def _run(self) -> None:
        try:
            self._start()
        except (CannotListen, OSError, Unreadable, Unusable) as why:
            folder = str(self.world.files.folder)
            self.ended = f"can not start: {str(why).replace(folder, '…')}"
            self.refuses = isinstance(why, Unreadable)
            self.unusable = isinstance(why, CannotListen | Unusable)
            return
        self.reactor.run()

    def _start(self) -> None:
        world, settings = self.world, self.world.settings
        # Its ledger lies on the real disk, which is not the simulation's.
        opened = OpenedStorage(
            settings=Settings(
                node=self.node,
                directories=world.directories,
                journal=settings.journal,
                spool=settings.spool,
                acknowledge_when_published=settings.acknowledge_when_published,
                checkpoint_bytes=settings.checkpoint_bytes,
            ),
            machine=Machine(self.disk, world.wall_clock, world.clock, self.scheduler),
            reactor=self.reactor,
            decoders=DECODERS,
            callbacks=StorageCallbacks(
                fatal=self._fatal,
                durable=self._durable,
                damaged=self._damaged,
                committed=self.admin.committed,
                published=self.admin.published,
            ),
            remembering=settings.remembering,
            in_thread=self.reactor.in_thread,
        )
        for orphan in publish_orphans(
            self.node,
            world.directories,
            self.disk,
            DECODERS,
            compression=settings.spool.compression,
        ):
            self.tell(f"orphan {orphan.node}: {orphan.events} events, {orphan.problem}")
            self.strands = self.strands or orphan.problem is not None
            self._tell_of(orphan.node, orphan.losses, orphan.repairs)
        self.journal = CountedJournal(opened.journal, world.bounds)
        self.arrivals = opened.arrivals
        memories: dict[str, Memory] = {}
        if settings.remembering:
            memories["ledger"] = self.ledger
        for name, memory in self.protocols.open((), self._lend).items():
            memories[name] = Witness(memory, self._recovered)
        self.storage = storage = opened.recover(memories)
        levels = storage.spool.levels
        # As an attribute of its own, in place of the method.
        vars(levels)["measure"] = partial(self._measure, levels.measure)
        self.disk.keeping = bool(storage.retained.needed)
        self.started_at = storage.journal.durable_lsn
        world.judge.starts(self.node, self.started_at + 1)
        if settings.remembering:
            world.judge.remembers(self.node, set(self.ledger.known))
        self.net = Listeners(self, self._listeners)
        storage.start()
        for memory in memories.values():
            memory.start()
        self.protocols.start()
        self._check()
        storage.ready.addCallback(lambda _: self._take_senders(storage))

    def _take_senders(self, storage: Storage) -> None:
        if not self.stopping:
            self.ready = True
            assert self.net is not None
            self.net.start()
            self.tell(f"ready at {storage.journal.durable_lsn + 1}")

    def _lend(self, protocol: str, listeners: list[Listener]) -> Context:
        directories = self.world.directories
        return Context(
            node=self.node,
            listeners=listeners,
            journal=self.journal,
            reactor=self.reactor,
            decode=DECODERS[protocol],
            feeds={},
            data_dir=directories.root,
            disk=self.disk,
            files=Finder(directories, self.node, retained=True),
            address=lambda _: "127.0.0.1:1",
            arrivals=self.arrivals,
        )

    def _recovered(self, stored: Stored) -> None:
        self.world.judge.recovers(self.node, stored)

    def _check(self) -> None:
        assert self.storage is not None
        self.storage.journal.check()
        self.reactor.callLater(1.0, self._check)

    def _damaged(self, losses: Sequence[Loss], repairs: Sequence[str]) -> None:
        self._tell_of(self.node, losses, repairs)

    def _tell_of(
        self, node: str, losses: Sequence[Loss], repairs: Sequence[str]
    ) -> None:
        for one in (*losses, *repairs):
            self.tell(f"{node}: {one}")
        self.world.judge.tells(node, losses)

    def _fatal(self, why: str) -> None:
        self.ended = f"fatal: {why}"

    def refused(self, why: Refusal) -> None:
        """By a server; no client of ours gives a reason, but to be slow or large.

        What was read of its last connection may be stored when the next one is set up.
        """
        expected = why.rule.startswith((*_SUPERSEDED, *_EXPECTED))
        if why.key is None and not (expected or self.stopping):
            raise Broken(f"refused: {why}")

    def _durable(self, group: list[Stored]) -> None:
        self.admin.durable(group)
        for stored in group:
            self.tell(f"durable {stored.lsn}+{stored.batch.count}")
            self._check_who(stored.batch.origin)
            self.ledger.replay(stored)
            self.world.judge.becomes_durable(self.node, stored)

    def _check_who(self, origin: Origin) -> None:
        """Where clients show certificates, one may send; elsewhere nobody is known."""
        certified = {way.name for way in self.world.ways if way.certified}
        known = f"CN={ALLOWED}" if origin.listener in certified else None
        if origin.principal != known:
            raise Broken(f"{origin.listener} stores what {origin.principal} has sent")

    # -- what the world does ----------------------------------------------------

    def submit(self, batch: Batch, stored: Callable[[Stored], None]) -> None:
        """In a turn of the reactor."""
        self.journal.submit(batch).addCallbacks(stored, self._not_stored)

    def _not_stored(self, why: Failure) -> None:
        why.trap(NotStored)
        self.tell("not stored")

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Call after what the reactor does now."""
        self.reactor.callFromThread(call, *args)

    def stop(self) -> None:
        """As after SIGTERM; in a turn of the reactor."""
        self.stopping = True
        stopped = Deferred.fromCoroutine(self._stop())
        stopped.addErrback(lambda why: why.trap(Killed))

    async def _stop(self) -> None:
        assert self.storage is not None
        assert self.net is not None
        await self.net.stop()
        self.protocols.close()
        await self.storage.stop()
        self.ended = "stopped"

    def kill(self) -> None:
        """As kill -9."""
        self.ready = False
        self.scheduler.kill()
