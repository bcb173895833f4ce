"""One seed's world: every step is chosen by its random numbers, and by nothing else."""

import contextlib
import gc
import hashlib
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from twisted.internet.task import Clock

from gateway.net import bind, transport, writing
from gateway.protocols.pravega import server as pravega_server
from gateway.protocols.pravega.controller import catalog
from gateway.protocols.rsio.client import outbox
from gateway.sdk import backoff as backoff_module
from gateway.store.directories import Directories
from gateway.store.journal import log
from gateway.store.node import incarnation, mark
from gateway.store.spool import parquet, selection
from gateway.store.system import disk as disk_module
from gateway.store.system import statefile
from simulation.admin import AdminJudge
from simulation.bounds import Bounds
from simulation.chain import Chain, audit_chain
from simulation.changing import ChangingFiles
from simulation.clients import KINDS, ClientSender
from simulation.disk import SimulatedDisk
from simulation.errors import Errors
from simulation.files import count_lines, select_lines, write_lines
from simulation.judge import Broken, Judge
from simulation.life import DECODERS, Life
from simulation.listeners import STALL_SECONDS
from simulation.network import Network
from simulation.senders import PlainSender
from simulation.settings import Settings
from simulation.spark import Spark
from simulation.ways import Way

__all__ = ["Outcome", "World", "simulate"]

_EPOCH = 1_763_700_000.0
_CALLS = (
    "create", "write", "sync", "rename", "unlink", "sync_directory", "truncate",
    "set_times", "read", "names",
)  # fmt: skip
_DRAIN_SECONDS = 900.0
_SMALL_DISK = (4 << 20) + 600_000
"""What the spool leaves free, and room for state files twice and a few batches."""
_DRAIN_STEPS = 60_000


@dataclass(slots=True)
class Outcome:
    """What became of a seed."""

    seed: int
    steps: int
    lives: int
    events: int
    files: int
    digest: str
    """Of the whole history: equal for equal histories."""
    history: list[str]
    """All of it, or its last lines."""
    broken: str | None
    """The promise that was broken."""


class World:
    """See the module's text."""

    def __init__(self, seed: int, *, steps: int, keep: int | None) -> None:
        """*keep*: so many lines of history; None: all."""
        self.seed = seed
        self.chance = chance = random.Random(seed)
        self.now = 0.0
        self._wall = _EPOCH
        self.history: list[str] = []
        self._keep = keep
        self._digest = hashlib.sha256()
        self.steps = 0
        self._most_steps = steps
        self.directories = Directories.under(Path("/gw"))
        self.settings = Settings.drawn(chance, random.Random(f"{seed} limits"))
        self.also = random.Random(f"{seed} network")
        """What is drawn of it changes nothing of what else a seed brings."""
        self.disk = SimulatedDisk(chance, self.wall_clock)
        self.disk.capacity = chance.choice((1 << 30, 1 << 30, _SMALL_DISK))
        self.disk.make_directory(self.directories.root)
        settings = self.settings
        self.judge = Judge(
            self.disk,
            self.directories,
            DECODERS,
            remembering=settings.remembering,
            acknowledge_when_published=settings.acknowledge_when_published,
        )
        self.bounds, self.chain = Bounds(self), Chain()
        self.admin = AdminJudge(self)
        self.outside = Clock()
        """The clients' time; it passes with ours."""
        self.network = Network(self)
        self.files = ChangingFiles(self.tell)
        self.errors = Errors()
        self._sessions = 0
        self.senders: list[PlainSender | ClientSender] = []
        self.spark = Spark(self, archives=chance.random() < 0.7)
        self.judge.was_read = self.spark.read.__contains__
        self.life: Life | None = None
        self.lives = 0
        self._start_at = 0.0
        self._left: list[weakref.ref[Any]] = []
        """Connections that are lost."""
        self._node = "gw"
        # Who resumes needs what the journal, or an old name, may have lost.
        self._resumed = bool({"pravega", "rsio"} & {*settings.protocols})
        self.twins = random.Random(f"{seed} twins").random() < 0.5
        """RS.io's senders have one name: the one that began last may publish."""
        self._one_rots = False
        self._renames = chance.choice((0.0, 0.0, 0.2)) if not self._resumed else 0.0
        """How often a start has another name for the node."""
        self._rates = self._draw_rates()
        self.tell(f"seed {seed}: {settings}")

    # -- time and history -------------------------------------------------------

    def clock(self) -> float:
        """Monotonic."""
        return self.now

    def wall_clock(self) -> float:
        """Somebody may set it."""
        return self._wall + self.now

    @property
    def ways(self) -> list[Way]:
        """That senders have; a listener for each."""
        ways = (one.way for one in self.senders if isinstance(one, ClientSender))
        return list(dict.fromkeys(ways))

    def next_session(self) -> str:
        """A name for a connection that no other has."""
        self._sessions += 1
        return f"s{self._sessions}"

    def tell(self, text: str) -> None:
        """One line of history."""
        line = f"{self.steps:6} {self.now:10.4f} {text}"
        self._digest.update(line.encode() + b"\n")
        self.history.append(line)
        if self._keep is not None and len(self.history) > 2 * self._keep:
            del self.history[: -self._keep]

    # -- the run ----------------------------------------------------------------

    def run(self) -> Outcome:
        """All of it."""
        broken = None
        try:
            with self._patched():
                self._make_senders()
                try:
                    while self.steps < self._most_steps:
                        self._step(self._rates)
                    self._drain()
                finally:
                    if self.life is not None:
                        self.life.kill()
                self._end()
        except Broken as why:
            broken = str(why)
            self.tell(f"BROKEN: {why}")
        return Outcome(
            self.seed,
            self.steps,
            self.lives,
            len(self.judge.rows),
            len(self.judge.files),
            self._digest.hexdigest(),
            self.history,
            broken,
        )

    def _make_senders(self) -> None:
        chance, protocols = self.chance, self.settings.protocols
        kinds = [kind for kind, (name, _) in KINDS.items() if name in protocols]
        for n in range(chance.randint(1, 5)):
            kind = chance.choice(["p", *kinds])
            name = f"{kind}{n}"
            plain = kind == "p"
            self.senders.append((PlainSender if plain else ClientSender)(self, name))

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        """What has no seam of its own: salts, the pause of patient reads, files."""
        salts = SimpleNamespace(
            randbits=self.chance.getrandbits,
            token_hex=lambda size: self.chance.randbytes(size).hex(),
        )
        pauses = SimpleNamespace(sleep=self._sleep)
        with contextlib.ExitStack() as stack:
            stack.enter_context(patch.object(log, "secrets", salts))
            stack.enter_context(patch.object(incarnation, "secrets", salts))
            stack.enter_context(patch.object(transport, "select", self.network.kernel))
            stack.enter_context(patch.object(transport, "fcntl", self.network.kernel))
            stack.enter_context(patch.object(bind, "_tune", lambda _: None))
            stall = patch.object(writing, "STALL_SECONDS", STALL_SECONDS)
            stack.enter_context(stall)
            stack.enter_context(patch.object(disk_module, "time", pauses))
            stack.enter_context(patch.object(backoff_module, "random", self.chance))
            numbers = SimpleNamespace(urandom=self.chance.randbytes)
            stack.enter_context(patch.object(catalog, "os", numbers))
            instances = random.Random(f"{self.seed} instances")
            lives = SimpleNamespace(urandom=instances.randbytes)
            stack.enter_context(patch.object(outbox, "os", lives))
            names = SimpleNamespace(hex="0" * 32)
            stack.enter_context(patch.object(pravega_server, "uuid4", lambda: names))
            if not self.settings.real_files:
                stack.enter_context(patch.object(parquet, "write", write_lines))
                stack.enter_context(patch.object(selection, "count", count_lines))
                stack.enter_context(patch.object(selection, "select", select_lines))
            stack.enter_context(self.errors.watched())
            yield

    def _sleep(self, seconds: float) -> None:
        assert self.life is not None
        self.life.scheduler.pause(seconds)

    # -- one step ---------------------------------------------------------------

    def _draw_rates(self) -> dict[Callable[[], None], float]:
        """How often what happens; each seed leaves some of it out."""
        chance = self.chance

        def maybe(rate: float) -> float:
            return rate * chance.choice((0.0, 0.3, 1.0, 3.0))

        return {
            self._send: 10.0,
            self._carry: 12.0,
            self._disconnect: maybe(0.1),
            self._cut: maybe(0.1),
            self._half_close: maybe(0.2),
            self._change_files: maybe(0.05),
            self._pass_a_moment: 3.0,
            self._pass_time: maybe(0.6) + 0.05,
            self._spark_looks: maybe(0.7) + 0.02,
            self._spark_cleans: maybe(0.5) + 0.02,
            self._fail: maybe(0.05),
            self._hang: maybe(0.1),
            self._fill: maybe(0.05),
            self._use_all_memory: maybe(0.05),
            self._set_clock: maybe(0.1),
            self._rot: 0.0 if self._resumed else maybe(0.1),
            self._kill: maybe(0.05),
            self._cut_power: maybe(0.1),
            self._stop: maybe(0.05),
        }

    def _step(self, rates: dict[Callable[[], None], float]) -> None:
        self.steps += 1
        life = self.life
        if life is None:
            if self.now >= self._start_at:
                self._begin()
            else:
                self._advance(self._start_at)
            return
        ready = life.scheduler.ready()
        if ready and self.chance.random() < 0.8:
            task = self.chance.choice(ready)
            life.scheduler.step(task)
            if (why := task.failed) is not None:
                if isinstance(why, Broken):
                    raise why
                raise Broken(f"{task.name} died of {why!r}") from why
            self._look()
            if life.net is not None and task.name == "reactor":
                life.net.look()
            return
        [do] = self.chance.choices(list(rates), list(rates.values()))
        do()
        self._look()

    def _look(self) -> None:
        """At what must hold at every moment."""
        self.look_at_errors()
        life = self.life
        if life is not None:
            life.look()
        if life is not None and life.ended is not None:
            self.tell(f"{life.number} ended: {life.ended}")
            if life.refuses:
                self._put_back()
            if life.unusable:
                if self.files.usable:
                    raise Broken(f"{life.ended}")
                self.files.mend()
            self._over()

    def _put_back(self) -> None:
        assert self.life is not None
        if not self.judge.rotten:
            raise Broken(f"nothing has rotted: {self.life.ended}")
        self.tell("the operator puts copies back")
        self.disk.put_back()

    def look_at_errors(self) -> None:
        """Whatever went wrong by itself."""
        if self.errors.logged:
            raise Broken(f"logged: {self.errors.logged[0]}")
        if Broken.raised:
            raise Broken(Broken.raised[0])

    def _begin(self) -> None:
        if self.chance.random() < self._renames:
            self._node = "gw-2" if self._node == "gw" else "gw"
        self.lives += 1
        self.tell(f"life {self.lives} of {self._node}")
        self.bounds.starts()
        self.life = Life(self, self.lives, self._node)

    def _over(self) -> None:
        if self.life is not None:
            self.life.kill()
            if self.life.strands and self.judge.rotten:
                self._put_back()
            self.network.kernel.end_process()
        self.life = None
        self._start_at = self.now + self.chance.choice((0.0, 0.1, 2.0))

    # -- what may happen ----------------------------------------------------------

    def _send(self) -> None:
        self._act(fresh=True)

    def _act(self, *, fresh: bool) -> None:
        self.chance.choice(self.senders).act(fresh=fresh)

    def _disconnect(self) -> None:
        sender = self.chance.choice(self.senders)
        if isinstance(sender, PlainSender):
            sender.disconnect()

    def _carry(self) -> None:
        self.network.carry()

    def _cut(self) -> None:
        self.network.cut()

    def _half_close(self) -> None:
        self.network.half_close()

    def _change_files(self) -> None:
        self.files.change(self.chance)

    def _advance(self, to: float) -> None:
        self.now = to
        self.outside.advance(to - self.outside.seconds())

    def _pass_a_moment(self) -> None:
        """To when the next one wakes, or a few milliseconds."""
        life = self.life
        later = self.now + self.chance.choice((0.0005, 0.005, 0.05))
        wake = life.scheduler.wake_at() if life is not None else None
        if wake is not None and self.now < wake < self.now + 2.0:
            later = wake
        self._advance(later)

    def _pass_time(self) -> None:
        self._advance(self.now + self.chance.choice((0.3, 1.0, 5.0, 30.0)))

    def _pass_a_second(self) -> None:
        self._advance(self.now + 1.0)

    def _spark_looks(self) -> None:
        self.spark.look()

    def _spark_cleans(self) -> None:
        self.spark.clean()

    def _fail(self) -> None:
        faults, chance = self.disk.faults, self.chance
        faults.calls = frozenset(chance.sample(_CALLS, chance.randint(1, 4)))
        faults.probability = chance.choice((0.1, 0.5, 1.0))
        faults.until = self.now + chance.choice((0.01, 0.5, 10.0))
        self.tell(
            f"disk: {sorted(faults.calls)} fail, {faults.probability:.0%}, until "
            f"{faults.until:.3f}"
        )

    def _hang(self) -> None:
        self.disk.faults.hang = self.chance.choice((0.05, 2.0, 20.0))
        self.tell(f"disk: hangs for {self.disk.faults.hang} s")

    def _fill(self) -> None:
        faults = self.disk.faults
        free = max(0, self.disk.capacity - self.disk.used)
        left = self.chance.choice((0, 100, 5_000, 100_000, 5_000_000, free))
        faults.taken = max(0, free - left)
        self.tell(f"disk: {free - faults.taken} bytes are free")

    def _use_all_memory(self) -> None:
        self.disk.faults.no_memory = True
        self.tell("no memory is left")

    def _set_clock(self) -> None:
        by = self.chance.choice((-7200.0, -60.0, -1.0, 1.0, 60.0, 7200.0))
        self._wall += by
        self.tell(f"clock: {by:+} s")

    def _rot(self) -> None:
        """Somewhere, but in the newest segment only below what the mark says: what it
        lacks behind that may be a torn tail.
        """
        journal, state = (
            self.directories.journal_of(self._node), self.directories.state_of(self._node)
        )  # fmt: skip
        names = sorted(self.disk.names.get(str(journal), {}))
        segments = [name for name in names if name.endswith(".journal")]
        paths = [journal / name for name in segments[:-1]]
        below: dict[Path, int] = {}
        # Either of them may be lost, and the other knows; not both.
        others = [journal / "catalog", state / "mark"]
        if not self._one_rots:
            marked = self._marked(state / "mark")
            if marked.segment in segments[-1:]:
                below = {journal / marked.segment: marked.synced}
            paths += below
            paths += [
                path
                for path in others
                if path.name in self.disk.names.get(str(path.parent), {})
            ]
        if paths:
            path = self.chance.choice(paths)
            self.judge.rotten = True
            self._one_rots = self._one_rots or path in (*others, *below)
            self.tell(f"{path.name}: {self.disk.rot(path, below.get(path))}")

    def _marked(self, path: Path) -> mark.Mark:
        """What a power cut would leave of the mark."""
        if str(path.parent) not in self.disk.directories:
            return mark.Mark()
        data = self.disk.durable(path)
        return statefile.decode(path, data, mark.Mark) or mark.Mark()

    def _kill(self) -> None:
        self.tell("kill -9")
        self._over()

    def _cut_power(self) -> None:
        self._over()
        self.tell(f"power cut: {self.disk.power_cut()} changes at risk")

    def _stop(self) -> None:
        life = self.life
        if life is not None and life.ready and not life.stopping:
            self.tell("stop")
            life.stopping = True
            life.reactor.callFromThread(life.stop)

    # -- the end ------------------------------------------------------------------

    def _drain(self) -> None:
        """Faults cease: everything must be acknowledged and published, soon."""
        if self._rates[self._set_clock]:
            self._set_clock()  # with events in the open segment, perhaps
        self.tell("faults cease")
        self.disk.faults.end()
        self.network.calm = True
        self.files.mend()
        calm = {
            self._ask_again: 5.0,
            self._carry: 20.0,
            self._pass_a_moment: 2.0,
            self._pass_a_second: 0.1,
            self._spark_looks: 1.0,
            self._spark_cleans: 1.0,
        }
        self._renames = 0.0
        self._until_drained(calm)
        self._let_go(calm)
        self._stop()  # what another node left is published by a start without faults
        self._step(calm)
        self._until_drained(calm)
        if self.life is not None and self.life.strands:
            self._stop()
            self._step(calm)
            self._until_drained(calm)
        assert self.life is not None
        assert self.life.storage is not None
        rotten = self.judge.rotten
        self.chain.shows(self.life.node, self.life.storage.link, rotten=rotten)
        if self.settings.real_files and not rotten:
            audit_chain(self)
        known = set(self.life.ledger.known)
        self.judge.ends({self.life.node: known} if self.settings.remembering else {})
        if self.spark.archives:
            self.judge.keeps(self.life.node)

    def _let_go(self, calm: dict[Callable[[], None], float]) -> None:
        """All peers leave: nothing of them may be kept."""
        assert self.life is not None
        net = self.life.net
        assert net is not None
        self.network.all_leave()
        begun, most = self.now, self.steps + _DRAIN_STEPS
        while self.network.links or net.connections or [*net.left()]:
            self._step(calm)
            if self.now - begun > _DRAIN_SECONDS or self.steps > most:
                raise Broken(f"peers have left, and {[*net.left()]} is there")
        self._left = [one for port in net.ports.values() for one in port.accepted]

    def _end(self) -> None:
        """Nobody has a step left; what nobody handled, or let go of, shows."""
        self.errors.collect()
        self.look_at_errors()
        if kept := [one for each in self._left if (one := each())]:
            raise Broken(f"{len(kept)} connections are lost, and kept in memory")

    def _until_drained(self, calm: dict[Callable[[], None], float]) -> None:
        begun, most = self.now, self.steps + _DRAIN_STEPS
        while not self._drained:
            self._step(calm)
            if self.now - begun > _DRAIN_SECONDS or self.steps > most:
                raise Broken(f"it does not drain: {self._why_not_drained()}")

    def _ask_again(self) -> None:
        self._act(fresh=False)

    @property
    def _drained(self) -> bool:
        return not self._why_not_drained()

    def _why_not_drained(self) -> str:
        life = self.life
        if life is None or not life.ready or life.storage is None or life.stopping:
            return "it does not run"
        if waiting := [one.name for one in self.senders if not one.idle]:
            return f"{waiting} wait; journal: {life.storage.journal.why_full}"
        storage = life.storage
        if storage.journal.oldest_wait_seconds:
            return "batches wait for the disk"
        if storage.spool.published_lsn < storage.journal.durable_lsn:
            return f"published up to {storage.spool.published_lsn} only"
        if storage.spool.backlog_bytes:
            return "sealed segments are not published"
        return ""


def simulate(seed: int, *, steps: int = 2000, keep: int | None = 200) -> Outcome:
    """Run one seed.

    Garbage is collected at its end only: what is logged of it belongs to no step.  What
    was there before is not looked at, which takes most of the time of a collection.
    """
    Broken.raised.clear()
    gc.disable()
    gc.freeze()
    try:
        return World(seed, steps=steps, keep=keep).run()
    finally:
        gc.collect()
        gc.unfreeze()
        gc.enable()
