"""The moment up to which a journal has told all: no event that comes later is as old."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.event import Batch, Origin, Stored
from gateway.store.journal import Journal, Log
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.lineage import Lineage
from gateway.store.node.through import EVERY_SECONDS, Through
from incarnations import A
from samples import some_of
from sections import journal_settings
from simulation.disk import Session, SimulatedDisk
from simulation.reactor import Reactor
from simulation.scheduler import Scheduler

_DIRECTORY = Path("/journal")


class Playing:
    """A journal whose thread, clocks and disk a test moves."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now, self.set = 0.0, 1_000_000.0
        disk = SimulatedDisk(self.chance, lambda: self.wall)
        disk.make_directory(_DIRECTORY)
        self.faults = disk.faults
        self.scheduler = Scheduler(lambda: self.now)
        self.reactor = Reactor(self.scheduler, self.chance)
        session = Session(
            disk, self.scheduler, lambda _: None, lambda _: None, lambda *_: None
        )
        catalog: Any = SimpleNamespace(put=lambda _: None)
        self.lineage = Lineage(Incarnation(A, 1, 0), catalog)
        self.began = {A: 1}
        log = Log(
            _DIRECTORY, session, 1, A, renew=self._renew,
            clock=lambda: self.now, wall_clock=lambda: self.wall,
        )  # fmt: skip
        self.stored: list[Stored] = []
        self.journal = Journal(
            log,
            reactor=self.reactor,
            **journal_settings(),
            on_sealed=lambda _: None,
            on_fatal=lambda _: None,
            on_durable=self.stored.extend,
            clock=lambda: self.now,
            wall_clock=lambda: self.wall,
            threads=self.scheduler,
        )
        self.said: set[tuple[str, Through]] = set()
        self.scheduler.thread("reactor", self.reactor.run).start()
        self.journal.start()
        self.note()

    @property
    def wall(self) -> float:
        return self.now + self.set

    def _renew(self, first: int) -> str:
        self.lineage.renew(first)
        made = f"{len(self.began):b>10}"
        self.lineage.now = msgspec.structs.replace(self.lineage.now, id=made)
        self.began[made] = first
        return made

    def note(self) -> None:
        """What a word would have."""
        own = self.lineage.at(self.journal.durable_lsn)
        said = self.lineage.of_this(own, self.journal.through)
        if said is not None:
            self.said.add((own.id, said))

    def submit(self, origin: Origin) -> None:
        batch = Batch(origin, 1, self.chance.randint(0, 2), b"x", 1)
        done = self.journal.submit(batch)
        done.addErrback(lambda _: None)
        if self.chance.random() < 0.1:
            self.journal.withdraw(batch)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.reactor.callFromThread(self.journal.check)

    def step(self, most: int) -> None:
        for _ in range(most):
            if not (ready := self.scheduler.ready()):
                return
            self.scheduler.step(self.chance.choice(ready))
            self.note()

    def of(self, lsn: int) -> str:
        """Of two that began with one lsn the later gave it: the earlier gave none."""
        return max(
            (one for one, since in reversed(self.began.items()) if since <= lsn),
            key=lambda one: self.began[one],
        )

    def broken(self) -> list[tuple[str, Through, Stored]]:
        """What was said, and an event that came behind it nevertheless."""
        return [
            (by, said, one)
            for by, said in self.said
            for one in self.stored
            if one.batch.count
            and self.of(one.lsn) == by
            and one.batch.received_at <= said.at
            and one.lsn > said.lsn
        ]


_STEPS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 1)),
    st.tuples(st.just("pass"), st.sampled_from((0.001, 0.5, EVERY_SECONDS))),
    st.tuples(st.just("set"), st.sampled_from((-3600.0, -0.9, 0.9, 3600.0))),
    st.tuples(st.just("fail"), st.just(0.0)),
    st.tuples(st.just("step"), st.integers(1, 40)),
)


@settings(max_examples=some_of(200, 60), deadline=None)
@given(seed=st.integers(0, 1 << 20), steps=st.lists(_STEPS, max_size=40))
@example(seed=0, steps=[("submit", 0), ("set", -3600.0), ("step", 23), ("submit", 1)])
@example(seed=0, steps=[("pass", EVERY_SECONDS), ("set", -0.9), ("submit", 1)])
def test_what_comes_later_is_younger(seed, steps):
    """Whatever waits for its sync, fails, and whichever way the clock is set; of one incarnation."""
    playing = Playing(seed)
    origins = [Origin("plain", "l", f"s-{at}", "[::1]:9") for at in range(2)]
    for what, how in steps:
        if what == "submit":
            origin = origins[int(how)]
            playing.reactor.callFromThread(playing.submit, origin)
        elif what == "pass":
            playing.pass_time(how)
        elif what == "set":
            playing.set += how
        elif what == "fail":
            faults = playing.faults
            faults.calls, faults.probability = frozenset(("sync", "write")), 1.0
            faults.until = playing.now + 0.5
        else:
            playing.step(int(how))
        playing.note()
    for _ in range(3):
        playing.pass_time(EVERY_SECONDS)
        playing.step(400)
    playing.scheduler.kill()
    assert not playing.broken()


def test_a_quiet_journal_says_it_too():
    """Every ten seconds, whether anything comes or not."""
    playing = Playing(1)
    assert playing.journal.through == Through(999_999_999_999, 0)
    playing.pass_time(EVERY_SECONDS - 1)
    playing.step(100)
    assert playing.journal.through.at == 999_999_999_999
    playing.pass_time(1)
    playing.step(100)
    assert playing.journal.through == Through(1_000_009_999_999, 0)
    playing.scheduler.kill()


def test_what_waits_for_the_disk_is_not_told():
    """As long as a batch that came before waits, nothing is said of the time since."""
    playing = Playing(1)
    origin = Origin("plain", "l", "s-1", "[::1]:9")
    playing.journal.submit(Batch(origin, 1, 1, b"x", 1))
    playing.now += EVERY_SECONDS
    playing.journal.check()
    assert playing.journal.through == Through(999_999_999_999, 0)
    playing.now += 5
    playing.step(100)
    playing.journal.check()
    assert playing.journal.through == Through(1_000_009_999_999, 1)
    playing.scheduler.kill()


def test_a_clock_that_is_set_back_is_another_incarnations():
    """What was said of the one before holds; the other one says how far it is by that clock."""
    playing = Playing(1)
    playing.pass_time(EVERY_SECONDS)
    playing.step(100)
    before = playing.journal.through
    playing.set -= 3600
    origin = Origin("plain", "l", "s-1", "[::1]:9")
    playing.reactor.callFromThread(playing.submit, origin)
    playing.reactor.callFromThread(playing.journal.submit, Batch(origin, 1, 1, b"x", 1))
    playing.step(400)
    playing.pass_time(EVERY_SECONDS)
    playing.step(400)
    assert len(playing.began) == 2
    assert playing.journal.through.at == before.at + int(10e6) - 3600 * 10**6
    assert (A, before) in playing.said
    playing.scheduler.kill()
