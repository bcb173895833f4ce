"""Gateways that run on machines which are lost, rebuilt, copied and put back, their bucket, and
the hub to which edges bring their files.
"""

import errno
import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from twisted.internet.defer import Deferred

from edges import Line
from gateway.config import model
from gateway.event import Batch, Origin, Rows, Stored
from gateway.forward import Forwarder
from gateway.protocols.forward.options import Options
from gateway.protocols.forward.server import ForwardListener
from gateway.protocols.forward.turns import Turns
from gateway.store.checkpoint import Unreadable
from gateway.store.directories import Directories
from gateway.store.node.incarnation import Incarnation
from gateway.store.objects.bucket import BucketError, StoredObject
from gateway.store.objects.node_record import NodeRecord
from gateway.store.storage import OpenedStorage, Settings, Storage, StorageCallbacks
from gateway.store.system.machine import Machine
from gateway_testkit.bucket import MemoryBucket
from gateway_testkit.settings import options_of, settings
from simulation.disk import Session, SimulatedDisk
from simulation.reactor import Reactor
from simulation.scheduler import Scheduler

__all__ = ["HUB", "NODE", "ROOT", "Edge", "Hub", "Life", "Objects"]

NODE, HUB = "gw", "hub"
ROOT = Path("/gw")
WORD = f".gateway-node-{NODE}_"


class Objects(MemoryBucket):
    """The bucket: a step for each request, and some of them fail."""

    def __init__(self, world: Any) -> None:
        super().__init__()
        self._world = world
        self._made: dict[str, float] = {}
        self.fault, self.after = self._before, self._behind
        self.trouble = 0.0
        """How often a request fails, or its answer is lost."""

    def _before(self, request: str, name: str) -> None:
        life = self._world.stepping
        if life is not None:
            life.scheduler.preempt()
        if self._world.chance.random() < self.trouble:
            raise BucketError(f"{request} {name}: 503 SlowDown")

    def _behind(self, request: str, name: str) -> None:
        self._world.tell(f"{request} {name}")
        self._made[name] = self._world.wall
        if request == "replace" and name.startswith(WORD):
            word = msgspec.json.decode(self.objects[name], type=NodeRecord)
            self._world.spoken[word.incarnation] = word.lsn
        if self._world.chance.random() < self.trouble:
            raise BucketError(f"{request} {name}: no answer")
        life = self._world.stepping
        if life is not None:
            life.scheduler.preempt()

    def read(self, name: str, first: int = 0) -> bytes:
        """See `Bucket`; what the job gets may be cut short."""
        data = super().read(name, first)
        world = self._world
        of_job = world.stepping is None and name.startswith("events-")
        if of_job and world.chance.random() < self.trouble / 2:
            world.tell(f"read {name}: cut short")
            return data[: world.chance.randrange(len(data))]
        return data

    def list(self, begin: str, after: str = "") -> Iterator[StoredObject]:
        """See `Bucket`."""
        for one in super().list(begin, after):
            yield StoredObject(one.name, one.bytes, self._made.get(one.name, 0.0))


class Life:
    """A gateway's process on a disk; one that is *resumed* goes on as an incarnation that
    runs elsewhere, too.
    """

    node = NODE

    def __init__(
        self,
        world: Any,
        number: int,
        machine: SimulatedDisk,
        resumed: Incarnation | None = None,
    ) -> None:
        self.world, self.number, self.machine = world, number, machine
        self.resumed = resumed
        self.ahead = 0.0
        """Of its wall clock, in seconds."""
        self.scheduler = Scheduler(lambda: world.now)
        self.reactor = Reactor(self.scheduler, world.chance)
        self.disk = Session(
            machine, self.scheduler, self.tell, lambda _: None, lambda *_: None
        )
        self.storage: Storage | None = None
        self.ids: set[str] = set()
        """Incarnations that its disk has had."""
        self.ready = False
        self.ended: str | None = None
        self.scheduler.thread("reactor", self._run).start()

    def tell(self, text: str) -> None:
        self.world.tell(f"{self.number} {self.scheduler.current}: {text}")

    @property
    def incarnation(self) -> str:
        assert self.storage is not None
        return self.storage.lineage.now.id

    def _run(self) -> None:
        try:
            self._start()
        except (OSError, Unreadable, BucketError) as why:
            self.ended = f"can not start: {why}"
            if "make an empty file" in str(why):
                self.world.accept_lost_journal(self.machine)
            return
        self.reactor.run()

    def _start(self) -> None:
        world = self.world
        directories = Directories.under(ROOT)
        forwards = world.bucket_of(self.node) is None
        more = {"after": "forward"} if forwards else {}
        opened = OpenedStorage(
            settings=Settings(
                node=self.node,
                directories=directories,
                journal=options_of(model.Journal, segment_bytes=world.segment_bytes),
                spool=options_of(
                    model.Spool, roll_interval=0.5, retention=60.0, **more
                ),
                acknowledge_when_published=world.ack == "spool",
            ),
            machine=Machine(self.disk, self._wall, lambda: world.now, self.scheduler),
            reactor=self.reactor,
            decoders={"plain": lambda body: Rows([body])},
            callbacks=StorageCallbacks(
                fatal=self._fatal,
                damaged=lambda losses, repairs: self._told(*map(str, losses), *repairs),
                noticed=self._told,
                published=self._published,
            ),
            remembering=False,
            bucket=world.bucket_of(self.node),
            in_thread=self.reactor.in_thread,
        )
        self.storage = storage = opened.recover({})
        self._bring(opened)
        storage.start()
        self._started()
        self._check()
        storage.ready.addCallback(self._take_senders)

    def _wall(self) -> float:
        return float(self.world.wall + self.ahead)

    def _bring(self, opened: OpenedStorage) -> None:
        """Have the files taken to the bucket."""
        assert self.storage is not None
        assert self.storage.spool.uploads is not None
        self.uploads = self.storage.spool.uploads

    def _started(self) -> None:
        """The storage runs."""

    def _published(self, file: Any) -> None:
        """One is in the spool."""

    @property
    def handed_over(self) -> int:
        """The lsn up to which all has left it."""
        assert self.storage is not None
        return self.storage.spool.published_lsn

    def _take_senders(self, _: object) -> None:
        self.ready = True
        if self.resumed is not None:
            self.ahead = self.world.chance.choice((0.0, 5.0))
        self.tell(f"ready, incarnation {self.incarnation}")

    def _check(self) -> None:
        assert self.storage is not None
        self.storage.journal.check()
        self.reactor.callLater(1.0, self._check)

    def _told(self, *lines: str) -> None:
        for line in lines:
            self.tell(line)

    def _fatal(self, why: str) -> None:
        self.ended = f"fatal: {why}"

    def send(self, payload: bytes) -> None:
        """In a turn of the reactor."""
        assert self.storage is not None
        origin = Origin("plain", "l", f"s-{self.number}", "[::1]:9")
        done = self.storage.journal.submit(Batch(origin, 1, 1, payload, len(payload)))
        done.addCallbacks(lambda stored: self._heard(stored, payload), lambda _: None)

    def _heard(self, stored: Stored, payload: bytes) -> None:
        self.world.heard[payload] = (self.incarnation, stored.lsn)
        self.world.came[payload] = stored.batch.received_at
        self.tell(f"acknowledged {payload.decode()} as {stored.lsn}")

    def stop(self) -> None:
        """As by SIGTERM, in a turn of the reactor."""
        assert self.storage is not None
        done = Deferred.fromCoroutine(self.storage.stop())

        def ended(_: object) -> None:
            self.ended = "stopped"

        done.addCallbacks(ended, lambda _: None)

    def kill(self) -> None:
        """As kill -9."""
        self.ready = False
        self.scheduler.kill()


class Hub(Life):
    """The gateway to which edges bring their files; its own spool is in the bucket."""

    node = HUB

    def _bring(self, opened: OpenedStorage) -> None:
        super()._bring(opened)
        opened.arrivals._reader = lambda path: io.BytesIO(self.disk.read(path))
        opened.arrivals.find_parts()
        self.lines: list[Line] = []
        self.listener = ForwardListener(
            settings(Options), opened.arrivals, self.reactor, set(), int,
            Turns(self.reactor.in_thread),
        )  # fmt: skip
        self.listener.wall_clock = self._wall

    def kill(self) -> None:
        """As kill -9: nobody's line is there any more."""
        super().kill()
        for line in getattr(self, "lines", []):
            line.cut()


class Edge(Life):
    """A gateway that has no bucket, and brings its files to the hub."""

    def _bring(self, opened: OpenedStorage) -> None:
        assert self.storage is not None
        storage = self.storage
        self.lines: list[Line] = []
        self.forwarder = forwarder = Forwarder(
            options_of(model.Forward, to="http://hub:7410"),
            self.node,
            storage.lineage,
            storage.directories,
            self.disk,
            storage.spool.is_ours,
            lambda: storage.node_records(
                lambda: forwarder.arrived_lsn, forwarder.uploads.waiting_of
            ),
            self._connect,  # type: ignore[arg-type]
            lambda: self.world.now,
            self._wall,
            self.scheduler,
        )
        storage.spool.forwarded_to(forwarder)
        opened.arrivals.onward = forwarder.uploads
        self.uploads = forwarder.uploads

    def _connect(self, *_: object) -> Line:
        world, hub = self.world, self.world.hub.life
        refused = world.chance.random() < 0.1 and not world.calm
        if hub is None or not hub.ready or refused:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        clock = SimpleNamespace(seconds=lambda: self.world.now)
        pair: Any = SimpleNamespace(clock=clock, threads=self.scheduler, slow=None)
        cut = world.chance.choice((float("inf"), world.chance.random() * 20_000))
        bytes_left = [float("inf") if world.calm else cut] * 2
        line = Line(pair, hub, *bytes_left)
        self.lines.append(line)
        hub.lines.append(line)
        return line

    def _started(self) -> None:
        assert self.storage is not None
        self.forwarder.start(self.storage.spool.published_lsn)

    def _published(self, file: Any) -> None:
        self.forwarder.uploads.add(file.path.name)

    def stop(self) -> None:
        """As by SIGTERM."""
        self.forwarder.stop()
        super().stop()

    @property
    def handed_over(self) -> int:
        """The lsn up to which the hub has all."""
        return min(super().handed_over, self.forwarder.arrived_lsn)

    def kill(self) -> None:
        """As kill -9."""
        super().kill()
        for line in getattr(self, "lines", []):
            line.cut()
