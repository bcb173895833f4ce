"""Machines of one node's name that are lost, rebuilt, copied and put back, a bucket that
others tidy up, and a job.

The gateway's storage, the job's inbox, its sink and its cleaner are the real ones; a seed
chooses which of them takes the next step, what fails, and what is lost: a disk or parts of
it, objects, a machine that stands still meanwhile and wakes up with a file on its way.
Several machines may run under the name at once.

The judge counts what *senders heard*, not what a journal says:

    an event that was acknowledged is in the tables once; or the audit says that something
    is missing, and something was lost that no promise covers
    whoever reads "complete" has all of them, but what was acknowledged by an incarnation of
    which nothing is left: no row, no object, no word
    where nothing was lost that no promise covers, it says complete
"""

from __future__ import annotations

import contextlib
import copy
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.audit import audit, sites
from gateway.audit.report import Report
from gateway.config import model
from gateway.event import LOST, Batch, Origin, Rows, Stored
from gateway.spark.bucket import endings
from gateway.spark.bucket.inbox import Inbox
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken as BrokenSink
from gateway.spark.commit.parquet import ParquetSink
from gateway.spark.commit.sink import Plan
from gateway.spark.files import footers
from gateway.spark.files.cleaner import Cleaner
from gateway.spark.files.overlaps import Overlap, Overlaps
from gateway.spark.files.poison import Poison, make_readable
from gateway.spark.run.checkpoint import Checkpoint
from gateway.store.checkpoint import Unreadable
from gateway.store.directories import Directories
from gateway.store.journal import log
from gateway.store.names import SpoolFile, parse_file_name
from gateway.store.node import incarnation
from gateway.store.node.catalog import CATALOG
from gateway.store.objects.bucket import BucketError, StoredObject
from gateway.store.objects.node_record import NodeRecord
from gateway.store.storage import OpenedStorage, Settings, Storage, StorageCallbacks
from gateway.store.system import disk as disk_module
from gateway.store.system.machine import Machine
from gateway_testkit.bucket import MemoryBucket
from gateway_testkit.settings import options_of
from played_spark import PowerCut, SparkLogs
from simulation.disk import Session, SimulatedDisk
from simulation.judge import Broken
from simulation.reactor import Reactor
from simulation.scheduler import Scheduler

__all__ = ["Outcome", "rebuild"]

NODE = "gw"
_ROOT = Path("/gw")
_EPOCH = 1_763_700_000.0
_DRAIN_STEPS = 6_000
_WORD = f".gateway-node-{NODE}_"
_MOST_MACHINES = 3
_SILENCE = 10 * 60
"""Seconds after the last fault: whoever lives has said so, and the others are silent."""


@dataclass(slots=True)
class Outcome:
    """What became of a seed."""

    seed: int
    heard: int
    """Events that were acknowledged."""
    lost: int
    """Of those, how many are in no table."""
    rebuilt: int
    """How often the machine was."""
    history: list[str]
    broken: str | None
    report: Report | None


class _Objects(MemoryBucket):
    """The bucket: a step for each request, and some of them fail."""

    def __init__(self, world: _World) -> None:
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
        if request == "replace" and name.startswith(_WORD):
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


class _Life:
    """A gateway's process on a disk."""

    def __init__(self, world: _World, number: int, machine: SimulatedDisk) -> None:
        self.world, self.number, self.machine = world, number, machine
        self.scheduler = Scheduler(lambda: world.now)
        self.reactor = Reactor(self.scheduler, world.chance)
        self.disk = Session(
            machine, self.scheduler, self.tell, lambda _: None, lambda *_: None
        )
        self.storage: Storage | None = None
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
        directories = Directories.under(_ROOT)
        opened = OpenedStorage(
            settings=Settings(
                node=NODE,
                directories=directories,
                journal=options_of(model.Journal, segment_bytes=world.segment_bytes),
                spool=options_of(model.Spool, roll_interval=0.5, retention=60.0),
                acknowledge_when_published=world.ack == "spool",
            ),
            machine=Machine(
                self.disk, lambda: world.wall, lambda: world.now, self.scheduler
            ),
            reactor=self.reactor,
            decoders={"plain": lambda body: Rows([body])},
            callbacks=StorageCallbacks(
                fatal=self._fatal,
                damaged=lambda losses, repairs: self._told(*map(str, losses), *repairs),
                noticed=self._told,
            ),
            remembering=False,
            bucket=world.bucket,
            in_thread=self.reactor.in_thread,
        )
        self.storage = storage = opened.recover({})
        uploads = storage.spool.uploads
        assert uploads is not None
        uploads._random = world.chance.random
        storage.start()
        self._check()
        storage.ready.addCallback(self._take_senders)

    def _take_senders(self, _: object) -> None:
        self.ready = True
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
        self.tell(f"acknowledged {payload.decode()} as {stored.lsn}")

    def kill(self) -> None:
        """As kill -9."""
        self.ready = False
        self.scheduler.kill()


@dataclass
class _Job:
    """The Spark job, of whose parts only Spark itself is played."""

    world: _World
    root: Path
    queries: int = 0
    cut: str | None = None
    logs: SparkLogs = field(init=False)

    def __post_init__(self) -> None:
        self.data = self.root / "job"
        self.logs = SparkLogs(self.data / "checkpoint" / "events")
        self._begin_query()
        self.restart()

    def _begin_query(self) -> None:
        shutil.rmtree(self.logs.path, ignore_errors=True)
        self.queries += 1
        self.logs.query = f"0badcafe-0000-4000-8000-{self.queries:012d}"
        self.logs.begin()
        self.entry = -1

    def restart(self) -> None:
        """As after a kill."""
        self.cut = None
        disk, lake, inbox = Lake(), self.data / "lake", self.data / "inbox"
        checkpoint = Checkpoint(self.logs.path, disk)
        self.sink = ParquetSink(
            lake, inbox, checkpoint, disk, write=self._write, point=self._point
        )
        self.sink.recover()
        self.inbox = Inbox(
            self.world.bucket,
            inbox,
            disk,
            lambda: self.sink.ledger,
            archived=self.world.archived,
            most_bytes=1 << 20,
            clock=lambda: self.world.now,
            at_once=map,
            whole=not self.world.elsewhere,
        )
        self.inbox._footer_bytes = 64  # files are small here
        self.poison = Poison(inbox, self.data / "poison", disk, self.sink)
        self.inbox.copies.recover()
        self.overlaps = Overlaps(
            lake, inbox, self.data / "archive", disk, self.sink, self.poison,
            self.world.bucket, self.inbox,
        )  # fmt: skip
        self._new_cleaner()
        self.clean()
        self.sink.learn((), self.inbox.ends)

    def _new_cleaner(self) -> None:
        disk = Lake()
        self.cleaner = Cleaner(
            self.data / "inbox",
            None,
            Checkpoint(self.logs.path, disk),
            self.sink.has_all,
            disk,
            doubtful=self._is_doubtful,
        )

    def _is_doubtful(self, file: SpoolFile) -> bool:
        again = file.name in self.inbox.again
        return again and not self.sink.is_compared(file)

    def _point(self, name: str) -> None:
        if name == self.cut:
            raise PowerCut

    def _write(self, rows: Any, folder: Path, plan: Plan) -> None:
        """What Spark makes of the files of a batch: their rows with whole names."""
        place = folder / "table=events/protocol=plain/date=2026-03-01"
        place.mkdir(parents=True)
        for number, file in enumerate(plan.files):
            found = pq.ParquetFile(self._content(file.name)).read(
                columns=["node", "lsn", "received_at", "payload", "flaw"]
            )
            lsns = found["lsn"].to_pylist()
            kept = [
                not plan.without.covers(
                    SpoolFile(file.node, file.incarnation, lsn, lsn)
                )
                for lsn in lsns
            ]
            by = pa.array([file.incarnation or None] * len(lsns), pa.string())
            found = found.append_column("incarnation", by).filter(pa.array(kept))
            pq.write_table(found, place / f"part-{number}.parquet")

    def _content(self, name: str) -> Path | pa.BufferReader:
        """What a task reads; a cluster's looks for what is as large as the driver says."""
        path = self.data / "inbox" / name
        if not self.world.elsewhere:
            return path
        there = self.world.bucket.objects.get(name, b"")
        if len(there) != path.stat().st_size:
            raise OSError(f"{name} is not what it was")
        return pa.BufferReader(there)

    def look(self) -> None:
        """At the bucket."""
        with contextlib.suppress(BucketError):
            self.inbox.look()
            self.sink.learn((), self.inbox.ends)

    def batch(self) -> None:
        """Some of the files that Spark has not taken, in any order."""
        checkpoint = Checkpoint(self.logs.path, Lake())
        taken = checkpoint.names()
        new = [
            path.name
            for path in sorted((self.data / "inbox").glob("events-*"))
            if path.name not in taken
        ]
        if not new:
            return
        chance = self.world.chance
        chance.shuffle(new)
        some = new[: chance.randint(1, 4)]
        if turns := [name for name in new if name in self.overlaps.in_turns]:
            some = turns[:1]
        number = checkpoint.committed + 1
        self.entry += 1
        self.logs.source(self.entry, some)
        self.logs.offset(number, self.entry)
        self.world.tell(f"job: batch {number}: {some}")
        try:
            self._take(number)
        except Overlap as why:
            self.world.tell(f"job: {why}")
            with contextlib.suppress(BucketError):
                self.overlaps.settle(why.files)
            self._begin_query()
            self.sink.recover()
            self._new_cleaner()
        except OSError as why:
            self.world.tell(f"job: {why}")
            with contextlib.suppress(BucketError):
                make_readable(self.sink.batch_files, self.inbox, self.poison.examine)
            self.renew()
        else:
            self.logs.commit(number)

    def _take(self, number: int) -> None:
        try:
            self.sink(None, number)
        except PowerCut:
            self.world.tell(f"job: killed at {self.cut}")
            self.restart()
            self.sink(None, number)  # Spark repeats it

    def clean(self) -> None:
        """Take out what is done; begin anew where a name was given again."""
        self.cleaner.run()
        if self.cleaner.overlooked:
            self.world.tell(f"job: overlooks {self.cleaner.overlooked}")
            self.renew()

    def renew(self) -> None:
        """The checkpoint is lost, or thrown away."""
        self._begin_query()
        self.restart()

    def rows(self) -> Counter[bytes]:
        """How often each payload is in the table; not what only holds the place of one."""
        found: Counter[bytes] = Counter()
        for path in (self.data / "lake" / "events").rglob("*.parquet"):
            for row in pq.ParquetFile(path).read(["payload", "flaw"]).to_pylist():
                found.update([row["payload"]] * (row["flaw"] != LOST))
        return found


@dataclass(eq=False)
class _Machine:
    """One of those that have the node's name."""

    disk: SimulatedDisk
    life: _Life | None = None
    frozen: bool = False
    """It stands still."""
    image: SimulatedDisk | None = None
    """A copy of its disk, as it was once, …"""
    ran: _Life | None = None
    """… and who ran then."""

    def over(self) -> None:
        """Its process ends at once."""
        if self.life is not None:
            self.life.kill()
        self.life, self.frozen = None, False


class _World:
    """See the module's text."""

    def __init__(self, seed: int, root: Path, steps: int, keep: int | None) -> None:
        self.seed = seed
        self.chance = chance = random.Random(f"rebuilt {seed}")
        self.now, self._set = 0.0, 0.0
        self.history: list[str] = []
        self._keep = keep
        self._steps = steps
        self.ack = chance.choice(("journal", "spool"))
        self.archived = chance.random() < 0.6
        self.elsewhere = chance.random() < 0.5
        """Whether tasks read the bucket, and the job has footers alone."""
        self.segment_bytes = chance.choice((2_000, 1 << 20))
        self.stepping: _Life | None = None
        self.bucket = _Objects(self)
        self.heard: dict[bytes, tuple[str, int]] = {}
        self.spoken: dict[str, int] = {}
        """The last lsn of each incarnation that had a word in the bucket, by that word."""
        self.set_back: set[str] = set()
        """Incarnations that ran when the disk was as it was again later: what they gave
        behind their last word, and no file tells of, nobody can tell from nothing."""
        self.unpromised: set[str] = set()
        """What was lost that no promise covers, in words."""
        self._sent = self._lives = self._disks = self.rebuilt = 0
        self._machines = [_Machine(self._new_disk())]
        self.report: Report | None = None
        self.job = _Job(self, root)
        self.tell(
            f"seed {seed}: ack {self.ack}, archived {self.archived},"
            f" elsewhere {self.elsewhere}"
        )

    @property
    def wall(self) -> float:
        return _EPOCH + self.now + self._set

    def tell(self, text: str) -> None:
        self.history.append(f"{self.now:10.3f} {text}")
        if self._keep is not None and len(self.history) > 2 * self._keep:
            del self.history[: -self._keep]

    def _new_disk(self) -> SimulatedDisk:
        made = SimulatedDisk(self.chance, lambda: self.wall)
        made.make_directory(_ROOT)
        self._disks += 1
        made.generation = self._disks
        return made

    def _image_of(self, disk: SimulatedDisk) -> SimulatedDisk:
        """A copy of it as it is now, file by file: another file system has it."""
        self._disks += 1
        memo = {id(self.chance): self.chance, id(disk.wall_clock): disk.wall_clock}
        made = copy.deepcopy(disk, memo)
        made.generation = self._disks
        return made

    # -- the run --------------------------------------------------------------------

    def run(self) -> Outcome:
        broken = None
        try:
            with self._patched():
                try:
                    for _ in range(self._steps):
                        self._step(self._rates())
                    self._drain()
                    self._judge()
                finally:
                    for machine in self._machines:
                        machine.over()
        except (Broken, BrokenSink) as why:
            broken = str(why)
        found = self.job.rows()
        return Outcome(
            self.seed,
            len(self.heard),
            sum(not found[payload] for payload in self.heard),
            self.rebuilt,
            self.history,
            broken,
            self.report,
        )

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        """What has no seam of its own."""
        salts = SimpleNamespace(
            randbits=self.chance.getrandbits,
            token_hex=lambda size: self.chance.randbytes(size).hex(),
        )

        def pause(seconds: float) -> None:
            if self.stepping is not None:
                self.stepping.scheduler.pause(seconds)

        with contextlib.ExitStack() as stack:
            for module in (log, incarnation, disk_module):
                if hasattr(module, "secrets"):
                    stack.enter_context(patch.object(module, "secrets", salts))
            pauses = SimpleNamespace(sleep=pause)
            stack.enter_context(patch.object(disk_module, "time", pauses))
            times = SimpleNamespace(time=lambda: self.wall)
            for place in (sites, endings):
                stack.enter_context(patch.object(place, "time", times))
            for name in ("os.fsync", "os.fdatasync"):
                stack.enter_context(patch(name, lambda _: None))
            yield

    def _rates(self) -> dict[Callable[[], None], float]:
        return {
            self._send: 10.0,
            self._pass_a_moment: 6.0,
            self._pass_time: 0.8,
            self.job.look: 1.0,
            self.job.batch: 1.0,
            self.job.clean: 1.0,
            self._kill: 0.1,
            self._cut_power: 0.1,
            self._lose_the_machine: 0.15,
            self._lose_a_part: 0.05,
            self._take_an_image: 0.2,
            self._put_an_image_back: 0.05,
            self._set_a_disk_back: 0.03,
            self._add_a_machine: 0.1,
            self._freeze: 0.15,
            self._thaw: 0.3,
            self._stop: 0.1,
            self._tidy_the_bucket: 0.1,
            self._empty_the_bucket: 0.03,
            self._trouble: 0.1,
            self._kill_the_job: 0.2,
            self._lose_the_checkpoint: 0.05,
        }

    def _step(self, rates: dict[Callable[[], None], float]) -> None:
        machine = self.chance.choice(self._machines)
        if machine.life is None:
            self._lives += 1
            self.tell(f"life {self._lives} on disk {machine.disk.generation}")
            machine.life = _Life(self, self._lives, machine.disk)
        ready = [] if machine.frozen else machine.life.scheduler.ready()
        if ready and self.chance.random() < 0.85:
            self._let(machine, ready)
            return
        [do] = self.chance.choices(list(rates), list(rates.values()))
        do()

    def _let(self, machine: _Machine, ready: list[Any]) -> None:
        """One of its tasks takes a step."""
        task = self.chance.choice(ready)
        self.stepping = life = machine.life
        assert life is not None
        life.scheduler.step(task)
        self.stepping = None
        if (why := task.failed) is not None:
            raise Broken(f"{task.name} died of {why!r}") from why
        if life.ended is not None:
            self.tell(f"life {life.number} ended: {life.ended}")
            machine.over()
            self.now += 1.0

    # -- what may happen ------------------------------------------------------------

    def _some(self) -> _Machine:
        return self.chance.choice(self._machines)

    def _send(self) -> None:
        machine = self._some()
        life = machine.life
        if life is not None and life.ready and not machine.frozen:
            self._sent += 1
            life.reactor.callFromThread(life.send, f"e{self._sent}".encode())

    def _pass_a_moment(self) -> None:
        later = self.now + self.chance.choice((0.001, 0.05, 0.3))
        lives = [one.life for one in self._machines if one.life and not one.frozen]
        wakes = [wake for life in lives if (wake := life.scheduler.wake_at())]
        wake = min((one for one in wakes if one > self.now), default=0.0)
        self.now = wake if self.now < wake < self.now + 4.0 else later

    def _pass_time(self) -> None:
        self.now += self.chance.choice((1.0, 5.0, 30.0))

    def _kill(self) -> None:
        self.tell("kill -9")
        self._some().over()

    def _cut_power(self) -> None:
        machine = self._some()
        self.tell(f"power cut of disk {machine.disk.generation}")
        machine.over()
        machine.disk.power_cut()

    def _stop(self) -> None:
        machine = self._some()
        life = machine.life
        if life is None or machine.frozen or not life.ready or life.storage is None:
            return
        self.tell(f"stop of life {life.number}")
        life.ready = False
        life.reactor.callFromThread(self._begin_to_stop, life)

    def _begin_to_stop(self, life: _Life) -> None:
        from twisted.internet.defer import Deferred

        assert life.storage is not None
        done = Deferred.fromCoroutine(life.storage.stop())

        def ended(_: object) -> None:
            life.ended = "stopped"

        done.addCallbacks(ended, lambda _: None)

    def _lose_the_machine(self) -> None:
        """Disk and all; it is rebuilt under its name."""
        machine = self._some()
        machine.over()
        self._note_loss()
        self.rebuilt += 1
        gone = machine.disk.generation
        machine.disk = self._new_disk()
        self.tell(f"disk {gone} is lost, and rebuilt as {machine.disk.generation}")

    def _take_an_image(self) -> None:
        """Of a running machine's disk, or of one that has ended."""
        machine = self._some()
        machine.image, machine.ran = self._image_of(machine.disk), machine.life
        made, now = machine.disk.generation, machine.image.generation
        self.tell(f"disk {made} is copied as {now}")

    def _put_an_image_back(self) -> None:
        """Its disk was lost, and what was copied once takes its place."""
        machine = self._some()
        if machine.image is None:
            return
        machine.over()
        self._note_loss()
        if self.ack == "spool":
            self.unpromised.add("files on their way")
        gone, machine.disk = machine.disk.generation, machine.image
        machine.image = None
        self.rebuilt += 1
        self.tell(f"disk {gone} is lost, and {machine.disk.generation} put back")

    def _set_a_disk_back(self) -> None:
        """As a snapshot of a block device does it: nothing on it tells."""
        machine = self._some()
        if machine.image is not None:
            machine.image.generation = machine.disk.generation
            if machine.ran is not None and machine.ran.storage is not None:
                self.set_back.add(machine.ran.incarnation)
            self._put_an_image_back()

    def _add_a_machine(self) -> None:
        """Under the name of the others: with a disk of its own, or with a copy of one."""
        if len(self._machines) == _MOST_MACHINES:
            return
        image = self._some().image
        disk = self._new_disk() if image is None else self._image_of(image)
        self._machines.append(_Machine(disk))
        self.tell(f"one more machine, with disk {disk.generation}")

    def _note_loss(self) -> None:
        if self.ack == "journal":
            self.unpromised.add("a disk with what was acknowledged")

    def _lose_a_part(self) -> None:
        """One of its directories is emptied."""
        machine = self._some()
        machine.over()
        part = self.chance.choice(("journal/gw", "state/gw", "archive", "spool"))
        folder = str(_ROOT / part)
        if machine.disk.names.get(folder):
            self._note_loss()
            if self.ack == "spool" and part in ("journal/gw", "spool"):
                self.unpromised.add("files on their way")
            machine.disk.names[folder].clear()
            machine.disk.sync_directory(Path(folder))
            self.tell(f"{part} of disk {machine.disk.generation} is lost")

    def accept_lost_journal(self, machine: SimulatedDisk) -> None:
        """The operator makes the empty file that a start asks for."""
        self.unpromised.add("a journal")
        path = _ROOT / "journal" / NODE / CATALOG[0]
        from gateway_testkit.disk import NameChange

        if path.name not in machine.names[str(path.parent)]:
            machine.change_names(
                str(path.parent), NameChange(path.name, machine.create())
            )
            machine.sync_directory(path.parent)

    def _freeze(self) -> None:
        machine = self._some()
        machine.frozen = True
        self.tell(f"disk {machine.disk.generation}: the machine stands still")

    def _thaw(self) -> None:
        """As if nothing had happened."""
        self._some().frozen = False

    def _tidy_the_bucket(self) -> None:
        """A lifecycle rule, or somebody: an object goes; most often the newest."""
        names = [one for one in self.bucket.objects if "events-" in one]
        if not names:
            return
        waiting = sorted(name for name in names if name.startswith("events-"))
        archived = [name for name in names if not name.startswith("events-")]
        name = self.chance.choice([*waiting[-1:] * 3, *names])
        if self.chance.random() < 0.2 and archived:
            for each in archived:
                del self.bucket.objects[each]
            self.tell("somebody empties the archive")
        if name not in self.bucket.objects:
            return
        if name.startswith("events-") and not self._is_in_tables(name):
            self.unpromised.add("an object that nobody had read")
        del self.bucket.objects[name]
        self.tell(f"somebody removes {name}")

    def _empty_the_bucket(self) -> None:
        """Somebody removes all that the tables have, and what was known of the node."""
        self.tell("somebody empties the bucket")
        self.unpromised.add("the node's word")
        for name in list(self.bucket.objects):
            if not name.startswith("events-") or self._is_in_tables(name):
                del self.bucket.objects[name]

    def _is_in_tables(self, name: str) -> bool:
        file = parse_file_name(name)
        assert file is not None
        here = self.job.data / "inbox" / name
        copied = here.exists() and not footers.is_alone(here)
        return self.job.sink.ledger.committed.covers(file) or copied

    def _trouble(self) -> None:
        self.bucket.trouble = self.chance.choice((0.0, 0.0, 0.1, 0.5))
        self.tell(f"bucket: {self.bucket.trouble:.0%} of requests fail")

    def _kill_the_job(self) -> None:
        self.job.cut = self.chance.choice(
            ("written", "staged", "decided", "named", "in ledger", "done")
        )

    def _lose_the_checkpoint(self) -> None:
        self.tell("job: the checkpoint is lost")
        self.job.renew()

    # -- the end --------------------------------------------------------------------

    def _drain(self) -> None:
        """Faults cease; what is on its way arrives."""
        self.tell("faults cease")
        self.bucket.trouble = 0.0
        self.job.cut = None
        calm = {
            self._pass_a_moment: 4.0,
            self._pass_time: 0.2,
            self.job.look: 1.0,
            self.job.batch: 1.0,
            self.job.clean: 1.0,
        }
        for machine in self._machines:
            machine.frozen = False
        for _ in range(_DRAIN_STEPS):
            if not (why := self._waits()):
                break
            self._step(calm)
        else:
            raise Broken(f"it does not drain: {why}")
        for _ in range(10):
            self._send()
        end = self.now + _SILENCE
        while self.now < end:
            self.now += 30.0
            for machine in self._machines:
                for _ in range(200):
                    if machine.life and (ready := machine.life.scheduler.ready()):
                        self._let(machine, ready)
            self.job.look()
            self.job.batch()
            self.job.clean()
        if why := self._waits():
            raise Broken(f"{why} at the end")

    def _waits(self) -> str:
        for machine in self._machines:
            life = machine.life
            if life is None or not life.ready or life.storage is None:
                return f"disk {machine.disk.generation} does not run"
            storage = life.storage
            if storage.journal.oldest_wait_seconds:
                return f"batches of life {life.number} wait for the disk"
            uploaded, durable = storage.spool.published_lsn, storage.journal.durable_lsn
            if uploaded < durable:
                return f"life {life.number} has published up to {uploaded} only"
        if any((self.job.data / "inbox").glob("events-*")):
            return "files wait in the inbox"
        committed = self.job.sink.ledger.committed
        for name in self.bucket.objects:
            file = parse_file_name(name)
            if file is not None and not committed.covers(file):
                return f"{name} waits in the bucket"
        return ""

    def _judge(self) -> None:
        found = self.job.rows()
        if doubled := [payload for payload, count in found.items() if count > 1]:
            raise Broken(f"{doubled[:5]} are there more than once")
        missing = [payload for payload in self.heard if not found[payload]]
        self.report = self._audit()
        if self.report.complete and any(self._left_traces(one) for one in missing):
            raise Broken(f"{missing[:5]} were acknowledged, and the audit is content")
        if missing and not self.unpromised:
            raise Broken(f"{missing[:5]} were acknowledged, and are in no table")
        if not self.report.complete and not self.unpromised:
            raise Broken(f"nothing is lost, and the audit says {self.report}")

    def _left_traces(self, payload: bytes) -> bool:
        """Whether anything is left of who acknowledged it; else nobody can miss it."""
        by, lsn = self.heard[payload]
        removed = "an object that nobody had read" in self.unpromised
        untold = lsn > self.spoken.get(by, 0)
        if untold and (by in self.set_back or (self.ack == "spool" and removed)):
            return False
        if "the node's word" not in self.unpromised and by in self.spoken:
            return True
        ledger = self.job.sink.ledger
        return by in {
            life.incarnation for life in (*ledger.committed.lives(), *ledger.ends)
        }

    def _audit(self) -> Report:
        return audit(
            Directories.under(self.job.data),
            bucket=self.bucket,
            pause=lambda _: None,
        )


def rebuild(
    seed: int, root: Path, *, steps: int = 1500, keep: int | None = 200
) -> Outcome:
    """Run one seed, below *root*."""
    Broken.raised.clear()
    root.mkdir(parents=True, exist_ok=True)
    return _World(seed, root, steps, keep).run()
