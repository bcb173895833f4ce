"""Machines of one node's name that are lost, rebuilt, copied, put back and resumed, a bucket that
others tidy up, or a hub that is put back and forgets, deletions, and a job.

The gateway's storage, the job's inbox, its sink and its cleaner are the real ones; a seed
chooses which of them takes the next step, what fails, and what is lost: a disk or parts of
it, objects, a machine that stands still meanwhile and wakes up with a file on its way.
Several machines may run under the name at once.

The judge counts what *senders heard*, not what a journal says:

    an event that was acknowledged is in the tables once; or the audit says that something
    is missing, and something was lost that no promise covers
    whoever reads "complete" has all of them, but what was acknowledged by an incarnation of
    which nothing is left: no row, no object, no word
    where nothing was lost that no promise covers, it says complete, and of no incarnation
    to which nothing has happened does it say that something is missing or not known
    what came before the moment through which the job says that its tables are complete is in
    them, at each step; and of a day that was said to be complete nothing comes untold
    what was deleted is gone, and stays so
"""

import contextlib
import copy
import io
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from gateway.audit import audit, sites
from gateway.audit.report import Report
from gateway.audit.sites import Site
from gateway.forward import hub
from gateway.sdk import backoff
from gateway.spark.bucket import endings
from gateway.spark.commit.ledger import Broken as BrokenSink
from gateway.spark.files import footers
from gateway.store.directories import Directories
from gateway.store.journal import log
from gateway.store.names import Life as Named
from gateway.store.names import SpoolFile, parse_file_name
from gateway.store.node import incarnation, lineage
from gateway.store.node.catalog import CATALOG
from gateway.store.node.incarnation import Incarnation
from gateway.store.readers import complete
from gateway.store.spool import failures
from gateway.store.spool.parts import derived_part
from gateway.store.system import disk as disk_module
from simulation.disk import SimulatedDisk
from simulation.judge import Broken
from simulation.rebuilt_job import Job
from simulation.rebuilt_lives import HUB, NODE, ROOT, Edge, Hub, Life, Objects

__all__ = ["Outcome", "rebuild"]

_EPOCH = 1_763_700_000.0
_DAY = 20
"""Seconds."""
_DRAIN_STEPS = 40_000
_MOST_MACHINES = 3
_SILENCE = 10 * 60
"""Seconds after the last fault: whoever lives has said so, and the others are silent."""


def _day_of(micros: int) -> int:
    """Days are short here."""
    return 719_163 + (micros - int(_EPOCH * 1e6)) // (_DAY * 10**6)


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
    alarms: Counter[str]
    """Unknown ends by their reason, and whether something of them is missing."""


@dataclass(eq=False)
class _Machine:
    """One of those that have the node's name."""

    disk: SimulatedDisk
    life: Life | None = None
    frozen: bool = False
    """It stands still."""
    image: SimulatedDisk | None = None
    """A copy of its disk, as it was once, …"""
    ran: Life | None = None
    """… and who ran then."""
    ids: set[str] = field(default_factory=set)
    """Incarnations that its disk has had, …"""
    then: set[str] = field(default_factory=set)
    """… and those that the copy has."""
    lost: bool = False
    """A part of it was lost: whoever goes on there accounts for what was given before."""
    resumes: Incarnation | None = None
    """The incarnation as which its first process goes on."""

    def over(self) -> None:
        """Its process ends at once."""
        self.resumes = None
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
        self.stepping: Life | None = None
        self.bucket = Objects(self)
        self.heard: dict[bytes, tuple[str, int]] = {}
        self.came: dict[bytes, int] = {}
        """When each of these came, as its batch says."""
        self.spoken: dict[str, int] = {}
        """The last lsn of each incarnation that had a word in the bucket, by that word."""
        self.set_back: set[str] = set()
        """Incarnations that ran when the disk was as it was again later: what they gave
        behind their last word, and no file tells of, nobody can tell from nothing."""
        self.calm = False
        """Faults have ceased: lines to the hub hold."""
        self.unpromised: set[str] = set()
        """What was lost that no promise covers, in words."""
        self.harmed: dict[str, set[str]] = {}
        """The same, by incarnation: of nobody else may anything be missing, or unknown."""
        self.twice: set[str] = set()
        """Incarnations that two machines were at a time: whose events they are is not known."""
        self.alarms: Counter[str] = Counter()
        """Unknown ends by their reason, and whether something of them is missing."""
        self._sent = self._lives = self._disks = self.rebuilt = 0
        self._machines = [_Machine(self._new_disk())]
        self.hub = None if chance.random() < 0.6 else _Machine(self._new_disk())
        """The machine of the hub to which the others are edges; None: each has a bucket."""
        if self.hub is not None:
            self.ack = "journal"
        self.report: Report | None = None
        self.job = Job(self, root)
        self.tell(
            f"seed {seed}: ack {self.ack}, archived {self.archived},"
            f" elsewhere {self.elsewhere}, {'a hub' if self.hub else 'a bucket'}"
        )

    def bucket_of(self, node: str) -> Objects | None:
        """The bucket to which the files of a node go from its own machine."""
        return self.bucket if self.hub is None or node == HUB else None

    def _all(self) -> list[_Machine]:
        return [*self._machines, *([] if self.hub is None else [self.hub])]

    @property
    def wall(self) -> float:
        return _EPOCH + self.now + self._set

    def tell(self, text: str) -> None:
        self.history.append(f"{self.now:10.3f} {text}")
        if self._keep is not None and len(self.history) > 2 * self._keep:
            del self.history[: -self._keep]

    def _new_disk(self) -> SimulatedDisk:
        made = SimulatedDisk(self.chance, lambda: self.wall)
        made.make_directory(ROOT)
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
                    for machine in self._all():
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
            self.alarms,
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
            stack.enter_context(patch.object(complete, "day_of", _day_of))
            for place in (backoff, failures):
                stack.enter_context(patch.object(place, "random", self.chance))
            stack.enter_context(patch.object(Path, "open", self._opened(Path.open)))
            stack.enter_context(
                patch.object(lineage, "begin", self._begun(lineage.begin))
            )
            stack.enter_context(patch.object(hub, "derived_part", self._derived))
            born = self._born(incarnation.new_id)
            stack.enter_context(patch.object(incarnation, "new_id", born))
            for name in ("os.fsync", "os.fdatasync"):
                stack.enter_context(patch(name, lambda _: None))
            yield

    def _opened(self, really: Callable[..., Any]) -> Callable[..., Any]:
        """Files of a machine are on its own disk."""

        def opened(path: Path, *words: Any, **named: Any) -> Any:
            if self.stepping is not None and path.is_relative_to(ROOT):
                return io.BytesIO(self.stepping.disk.read(path))
            return really(path, *words, **named)

        return opened

    def _derived(self, path: Path, file: SpoolFile) -> tuple[SpoolFile, bytes]:
        assert self.stepping is not None
        return derived_part(pa.BufferReader(self.stepping.disk.read(path)), file)

    def _begun(self, really: Callable[..., Any]) -> Callable[..., Any]:
        """A machine that is resumed from a snapshot of its memory has started already."""

        def begun(*words: Any, **named: Any) -> Any:
            life = self.stepping
            if life is not None and life.resumed is not None:
                return life.resumed, None
            return really(*words, **named)

        return begun

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
            self._resume_a_machine: 0.1,
            self.job.delete: 0.1,
            **self._rates_of_hub(),
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

    def acknowledged(self) -> Iterator[tuple[str, int, int]]:
        """Incarnation and lsn of what senders heard, and when it came; not of machines that
        were copied, or lost, or whose word was.
        """
        for payload, (by, lsn) in self.heard.items():
            if by not in self.harmed and by not in self.twice:
                yield by, lsn, self.came[payload]

    def _see_that_it_is_complete(self) -> None:
        """Through the moment of which the job says it."""
        found = self.job.sink.through
        if found is None or found.through is None:
            return
        committed = self.job.sink.ledger.committed
        unheard = self._unheard()
        for by, lsn, came in self.acknowledged():
            its = committed.of_life(Named(NODE, by))
            if came <= found.through and by not in unheard and not its.covers(lsn, lsn):
                raise Broken(
                    f"complete through {found.through}, and {lsn} of {by} came at {came}"
                )

    def _unheard(self) -> set[str]:
        """Incarnations of directories of which nobody has heard: a new one, whose hub was away
        or not told further, and a copy of one that was heard.
        """
        _, words = self.job.inbox.endings.heard
        said = [one.record for one in words if one.record is not None]
        heard = {each for one in said for each in (*one.earlier, one.incarnation)}
        unheard: set[str] = set()
        for machine in self._machines:
            ids = machine.ids | (set() if machine.life is None else machine.life.ids)
            before = ids & heard
            others = any(
                before & {*one.earlier} and one.incarnation not in ids for one in said
            )
            if others or not (before or self.hub is None):
                unheard |= ids - heard
        return unheard

    def _born(self, really: Callable[[], str]) -> Callable[[], str]:
        """Whose disk has which incarnations."""

        def born() -> str:
            made, life = really(), self.stepping
            if life is not None:
                life.ids.add(made)
                if any(one.lost for one in self._all() if one.life is life):
                    self._harm("a part of its disk was lost", [made])
            return made

        return born

    def _rates_of_hub(self) -> dict[Callable[[], None], float]:
        if self.hub is None:
            return {}
        return {
            self._kill_the_hub: 0.1,
            self._remove_arrivals: 0.1,
            self._take_an_image_of_the_hub: 0.1,
            self._put_the_hub_back: 0.05,
        }

    def _step(self, rates: dict[Callable[[], None], float]) -> None:
        machine = self.chance.choice(self._all())
        if machine.life is None:
            self._lives += 1
            self.tell(f"life {self._lives} on disk {machine.disk.generation}")
            kind = Hub if machine is self.hub else Life if self.hub is None else Edge
            machine.life = kind(self, self._lives, machine.disk, machine.resumes)
        ready = [] if machine.frozen else machine.life.scheduler.ready()
        if ready and self.chance.random() < 0.85:
            self._let(machine, ready)
            return
        [do] = self.chance.choices(list(rates), list(rates.values()))
        do()
        if do == self.job.look:
            self._see_that_it_is_complete()

    def _let(self, machine: _Machine, ready: list[Any]) -> None:
        """One of its tasks takes a step."""
        task = self.chance.choice(ready)
        self.stepping = life = machine.life
        assert life is not None
        life.ids = machine.ids
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
        lives = [one.life for one in self._all() if one.life and not one.frozen]
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
        life.reactor.callFromThread(life.stop)

    def _lose_the_machine(self) -> None:
        """Disk and all; it is rebuilt under its name."""
        machine = self._some()
        machine.over()
        self._note_loss()
        self._harm("its disk was lost", machine.ids)
        self.rebuilt += 1
        gone = machine.disk.generation
        machine.disk, machine.ids = self._new_disk(), set()
        self.tell(f"disk {gone} is lost, and rebuilt as {machine.disk.generation}")

    def _take_an_image(self) -> None:
        """Of a running machine's disk, or of one that has ended."""
        machine = self._some()
        machine.image, machine.ran = self._image_of(machine.disk), machine.life
        machine.then = {*machine.ids}
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
        self._harm("an older copy took its place", machine.ids)
        gone, machine.disk = machine.disk.generation, machine.image
        machine.image, machine.ids = None, {*machine.then}
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
        source = self._some()
        image, made = source.image, _Machine(self._new_disk())
        if image is not None:
            made.disk, made.ids = self._image_of(image), {*source.then}
            self._harm("it was copied", made.ids)
        self._machines.append(made)
        disk = made.disk
        self.tell(f"one more machine, with disk {disk.generation}")

    def _resume_a_machine(self) -> None:
        """From a snapshot of its memory, beside the one that it was taken of, which goes on:
        both are one incarnation, until the clocks of the other one part.
        """
        machine = self._some()
        life = machine.life
        if len(self._machines) == _MOST_MACHINES or machine.frozen:
            return
        if life is None or not life.ready or life.storage is None:
            return
        if life.storage.journal.oldest_wait_seconds:
            return  # what is on its way is in its memory alone
        made = _Machine(self._image_of(machine.disk), ids={*machine.ids})
        made.disk.generation = machine.disk.generation  # its block device was copied
        made.resumes = life.storage.lineage.now
        self.twice.add(life.incarnation)
        self.unpromised.add("whose an lsn is, where two machines were one incarnation")
        self._harm("its machine was resumed beside it", machine.ids)
        self._machines.append(made)
        self.tell(
            f"disk {machine.disk.generation}: the machine is resumed as "
            f"{life.incarnation} on a copy of it, too"
        )

    # -- the hub --------------------------------------------------------------------

    def _kill_the_hub(self) -> None:
        assert self.hub is not None
        self.hub.over()
        if cut := self.chance.random() < 0.5:
            self.hub.disk.power_cut()
        self.tell(f"the hub: {'power cut' if cut else 'kill -9'}")

    def _remove_arrivals(self) -> None:
        """It forgets what it has; nothing of that is lost."""
        assert self.hub is not None
        self.hub.over()
        if names := self.hub.disk.names.get(str(ROOT / "arrivals")):
            names.clear()
            self.hub.disk.sync_directory(ROOT / "arrivals")
        self.tell("the hub: arrivals/ is removed")

    def _take_an_image_of_the_hub(self) -> None:
        assert self.hub is not None
        self.hub.image, self.hub.then = self._image_of(self.hub.disk), {*self.hub.ids}
        self.tell("the hub: its disk is copied")

    def _put_the_hub_back(self) -> None:
        """It lacks what has come since; edges bring what their archives still have."""
        hub = self.hub
        assert hub is not None
        if hub.image is None:
            return
        hub.over()
        waiting = [
            name
            for name in hub.disk.names.get(str(ROOT / "spool"), ())
            if parse_file_name(name) and name not in self.bucket.objects
        ]
        self.unpromised.add("the hub was put back")
        self._harm("the hub was put back", hub.ids)
        if waiting:
            lost = {
                file.incarnation for name in waiting if (file := parse_file_name(name))
            }
            self._harm("the hub was put back", lost)
        hub.disk, hub.image, hub.ids = hub.image, None, {*hub.then}
        self.tell("the hub: what was copied once is put back")

    def _harm(self, why: str, incarnations: Iterable[str]) -> None:
        for one in incarnations:
            self.harmed.setdefault(one, set()).add(why)

    def _note_loss(self) -> None:
        if self.ack == "journal":
            self.unpromised.add("a disk with what was acknowledged")

    def _lose_a_part(self) -> None:
        """One of its directories is emptied."""
        machine = self._some()
        machine.over()
        part = self.chance.choice(("journal/gw", "state/gw", "archive", "spool"))
        folder = str(ROOT / part)
        if machine.disk.names.get(folder):
            self._note_loss()
            self._harm("a part of its disk was lost", machine.ids)
            machine.lost = True
            if self.ack == "spool" and part in ("journal/gw", "spool"):
                self.unpromised.add("files on their way")
            machine.disk.names[folder].clear()
            machine.disk.sync_directory(Path(folder))
            self.tell(f"{part} of disk {machine.disk.generation} is lost")

    def accept_lost_journal(self, machine: SimulatedDisk) -> None:
        """The operator makes the empty file that a start asks for."""
        self.unpromised.add("a journal")
        for one in self._all():
            if one.disk is machine:
                self._harm("its journal was lost", one.ids)
        path = ROOT / "journal" / NODE / CATALOG[0]
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
            file = parse_file_name(name)
            assert file is not None
            self._harm("an object that nobody had read went", [file.incarnation])
        del self.bucket.objects[name]
        self.tell(f"somebody removes {name}")

    def _empty_the_bucket(self) -> None:
        """Somebody removes all that the tables have, and what was known of the node."""
        self.tell("somebody empties the bucket")
        self.unpromised.add("the node's word")
        self._harm("its word went", self.spoken)
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
        self.calm, self.job.cut = True, None
        calm = {
            self._pass_a_moment: 4.0,
            self._pass_time: 0.2,
            self.job.look: 1.0,
            self.job.batch: 1.0,
            self.job.clean: 1.0,
        }
        for machine in self._all():
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
            self.now += 30.0 if self.hub is None else 3.0
            for machine in self._all():
                for _ in range(200):
                    if not (machine.life and (ready := machine.life.scheduler.ready())):
                        break
                    self._let(machine, ready)
            if self.hub is None or self.chance.random() < 0.1:
                self.job.look()
                self.job.batch()
                self.job.clean()
        if why := self._waits():
            raise Broken(f"{why} at the end")

    def _waits(self) -> str:
        for _ in range(self.job.deletes):
            self.job.delete()
        if self.job.deletes:
            return "a deletion has not ended"
        for machine in self._all():
            life = machine.life
            if life is None or not life.ready or life.storage is None:
                return f"disk {machine.disk.generation} does not run"
            storage = life.storage
            if storage.journal.oldest_wait_seconds:
                return f"batches of life {life.number} wait for the disk"
            uploaded, durable = life.handed_over, storage.journal.durable_lsn
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
        deleted = self.job.deleted()
        gone = {
            payload
            for payload, (by, lsn) in self.heard.items()
            if deleted.covers(SpoolFile(NODE, by, lsn, lsn))
        }
        clear = gone & self.job.archived()
        if back := [one for one in gone if found[one] or one in clear]:
            raise Broken(f"{back[:5]} were deleted, and are there")
        missing = [one for one in self.heard if not found[one] and one not in gone]
        self.report = self._audit()
        self._judge_alarms({self.heard[one][0] for one in missing})
        if self.report.complete and any(self._left_traces(one) for one in missing):
            raise Broken(f"{missing[:5]} were acknowledged, and the audit is content")
        if missing and not self.unpromised:
            raise Broken(f"{missing[:5]} were acknowledged, and are in no table")
        found = self.job.sink.through
        through = 0 if found is None else (found.through or 0)
        copied = any("cop" in why for each in self.harmed.values() for why in each)
        slow = through < (self.wall - _SILENCE / 2) * 1e6
        if slow and not (self.unpromised or copied):
            raise Broken(f"nothing is lost, and complete through {through} only")
        if not self.report.complete and not self.unpromised:
            raise Broken(f"nothing is lost, and the audit says {self.report}")

    def _judge_alarms(self, missing: Collection[str]) -> None:
        """Of whom nothing was lost, nothing is unknown or missing."""
        assert self.report is not None
        unknown = {one.incarnation: one.why.name for one in self.report.unknown}
        for node in self.report.nodes:
            for life in node.lives:
                if len(life.holes):
                    unknown.setdefault(life.incarnation, "holes")
                if life.has("unverified"):
                    unknown.setdefault(life.incarnation, "unverified")
        ledger = self.job.sink.ledger
        of = {life.incarnation: one.of for life, one in ledger.records.items()}
        for by, why in unknown.items():
            root = of.get(by) or by
            lost = "something is missing" if root in missing else "nothing is missing"
            self.alarms[f"{why}: {lost}"] += 1
            # Who goes on accounts for what nobody is known to have given before it.
            behind = why == "holes" and any(
                root in one.ids and one.ids & self.harmed.keys() for one in self._all()
            )
            if root not in self.harmed and not behind:
                raise Broken(f"nothing happened to {by}, and the audit says {why}")

    def _left_traces(self, payload: bytes) -> bool:
        """Whether anything is left of who acknowledged it; else nobody can miss it."""
        by, lsn = self.heard[payload]
        if by in self.twice:
            return False
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
        place = Site(Directories.under(self.job.data), bucket=self.bucket)
        return audit(place, pause=lambda _: None)


def rebuild(
    seed: int, root: Path, *, steps: int = 1500, keep: int | None = 200
) -> Outcome:
    """Run one seed, below *root*."""
    Broken.raised.clear()
    root.mkdir(parents=True, exist_ok=True)
    return _World(seed, root, steps, keep).run()
