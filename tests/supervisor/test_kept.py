"""A process that is kept running, in memory: when it is started again, and when not."""

import errno
import signal
from typing import Any

import pytest
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from gateway.supervisor import child, kept
from gateway.supervisor.kept import Kept, State


class Pipe:
    """What a process has written and nobody has read."""

    def __init__(self, life: Any, number: int, *unread: bytes) -> None:
        self._life, self._number, self._unread = life, number, [*unread]

    def doRead(self) -> Exception | None:
        if self._unread:
            self._life.childDataReceived(self._number, self._unread.pop(0))
        return None


class Child:
    """One life of the process, as its transport."""

    pid = 4711

    def __init__(self, life: Any) -> None:
        self._life = life
        self.pipes: dict[int, Pipe] = {}
        self.signals: list[str] = []
        self.closed = False
        life.makeConnection(self)

    def signalProcess(self, name: str) -> None:
        self.signals.append(name)

    def loseConnection(self) -> None:
        self.closed = True

    def says(self, descriptor: int, data: bytes) -> None:
        self._life.childDataReceived(descriptor, data)

    def ends(self, status: int | None = None, by: signal.Signals | None = None) -> None:
        why: Exception = ProcessDone(0)
        if status or by:
            why = ProcessTerminated(status, by, 0)
        self._life.processExited(Failure(why))


class World(Clock):
    """A reactor that starts children of ours, and who keeps one."""

    def __init__(self, *, vital: bool = False) -> None:
        super().__init__()
        self.children: list[Child] = []
        self.lines: list[tuple[int, str]] = []
        self.sentences: list[str] = []
        self.ended: list[Kept] = []
        self.full = False
        self.kept = Kept(
            "spark",
            "the job",
            ["job"],
            {},
            self,
            self,
            vital=vital,
            most_silent_looks=60,
        )
        self.kept.start()

    def spawnProcess(self, life: Any, *words: Any, **more: Any) -> Child:
        if self.full:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        self.children.append(Child(life))
        return self.children[-1]

    def line(self, kept: Kept, descriptor: int, text: str) -> None:
        self.lines.append((descriptor, text))

    def told(self, text: str) -> None:
        self.sentences.append(text)

    def over(self, kept: Kept) -> None:
        self.ended.append(kept)


@pytest.fixture(autouse=True)
def groups(monkeypatch) -> list[tuple[int, int]]:
    """Groups of processes that were sent a signal; there are none, in truth."""
    found: list[tuple[int, int]] = []

    def kill(group: int, number: int) -> None:
        found.append((group, number))
        raise ProcessLookupError

    monkeypatch.setattr(kept.os, "killpg", kill)
    return found


@pytest.fixture
def world() -> World:
    return World()


def test_each_pause_is_longer_and_none_longer_than_a_minute(world):
    """A sentence each time says how it ended, and when it is started again."""
    for wanted in (1, 2, 4, 8, 16, 32, 60, 60):
        count = len(world.children)
        world.children[-1].says(2, b"no room\n\tat some line\n")
        world.children[-1].ends(status=1)
        assert world.kept.state is State.WAITING
        assert world.sentences.pop() == (
            f"the job ended (exit status 1: no room); it is started again in {wanted} s"
        )
        world.advance(wanted - 0.1)
        assert len(world.children) == count
        world.advance(0.1)
        assert len(world.children) == count + 1
    assert not world.ended


def test_who_was_up_for_a_minute_begins_anew(world):
    """One that dies once a day does not wait a minute for its next start."""
    world.children[-1].ends(status=1)
    world.advance(1)
    world.kept.up()
    world.advance(59)
    world.children[-1].ends(by=signal.SIGKILL)
    assert world.sentences[-1].endswith(
        "(killed by SIGKILL); it is started again in 2 s"
    )
    world.advance(2)
    world.kept.up()
    world.advance(60)
    world.children[-1].ends(by=signal.SIGKILL)
    assert world.sentences[-1].endswith("started again in 1 s")


def test_one_that_ends_as_if_all_were_done(world):
    """Nobody here asked it to: it is started again."""
    world.kept.up()
    world.children[-1].ends()
    assert "exit status 0, though nobody here asked" in world.sentences[-1]
    world.advance(1)
    assert len(world.children) == 2


@pytest.mark.parametrize(
    ("up", "status", "by", "over"),
    [
        (False, 1, None, True),
        (False, None, signal.SIGKILL, False),
        (True, 1, None, False),
    ],
)
def test_a_vital_one(up, status, by, over):
    """If it says itself that it can not begin, no other try helps; once it was up, or was
    killed, it is started again."""
    world = World(vital=True)
    if up:
        world.kept.up()
    world.children[-1].ends(status, by)
    assert bool(world.ended) is over
    assert world.kept.failed is over
    assert (world.kept.state is State.OVER) is over


@pytest.mark.parametrize("up", [False, True])
def test_stopped_cleanly(up):
    """By one SIGTERM, however it takes that; nothing is pending after it."""
    for end in ({}, {"by": signal.SIGTERM}):
        world = World()
        if up:
            world.kept.up()
        world.kept.stop()
        world.kept.stop()
        assert world.children[-1].signals == ["TERM"]
        assert not world.ended
        world.children[-1].ends(**end)  # type: ignore[arg-type]
        assert world.ended == [world.kept]
        assert not world.kept.failed
        assert not world.getDelayedCalls()


@pytest.mark.parametrize("vital", [False, True])
def test_no_memory_for_another_process(vital):
    """What killed it may keep the next one from being made: that is tried again, too, and
    who stops meanwhile waits for nobody."""
    world = World(vital=vital)
    world.kept.up()
    world.children[-1].ends(by=signal.SIGKILL)
    world.full = True
    world.advance(1)
    assert world.kept.state is State.WAITING
    assert world.sentences[-1] == (
        "the job ended (it could not be started: Cannot allocate memory);"
        " it is started again in 2 s"
    )
    world.full = False
    world.advance(2)
    assert len(world.children) == 2
    world.full = True
    world.children[-1].ends(by=signal.SIGKILL)
    world.advance(4)
    world.kept.stop()
    assert world.ended == [world.kept]


def test_stopped_while_it_waits(world):
    """It is not started any more."""
    world.children[-1].ends(status=1)
    world.kept.stop()
    assert world.ended == [world.kept]
    world.advance(100)
    assert len(world.children) == 1


@pytest.mark.parametrize("up", [False, True])
def test_one_that_hangs(up, world):
    """Who was heard, and is not for 60 looks, is killed once, which is said, and started
    again; who has not been heard yet in this life may take its time."""
    for life in (1, 2):
        for _ in range(100):
            world.kept.look()
        if up:
            world.kept.up()
        world.kept.heard()
        for _ in range(59):
            world.kept.look()
        world.kept.heard()
        for _ in range(59):
            world.kept.look()
        assert world.children[-1].signals == []
        for _ in range(3):
            world.kept.look()
        assert world.children[-1].signals == ["KILL"]
        assert world.sentences.pop() == (
            "the job hangs: it has given no sign of life for 60 s, and is killed; what was"
            " acknowledged stays"
        )
        world.children[-1].ends(by=signal.SIGKILL)
        assert "killed by SIGKILL" in world.sentences.pop()
        world.kept.look()
        world.advance(2)
        assert len(world.children) == life + 1


def test_what_hangs_goes_with_all_that_it_has_started(groups, world):
    """The Java of a job that hangs may be what does, and would keep the next one waiting."""
    world.kept.heard()
    for _ in range(59):
        world.kept.look()
    assert groups == []
    world.kept.look()
    assert groups == [(Child.pid, signal.SIGKILL)]
    assert world.children[-1].signals == ["KILL"]  # and if it leads no group yet


def test_one_that_is_stopping_has_its_own_time(world):
    """It may be silent while it publishes what it took."""
    world.kept.heard()
    world.kept.stop()
    for _ in range(100):
        world.kept.look()
    assert world.children[-1].signals == ["TERM"]


def test_one_that_does_not_stop(world):
    """It is killed after a while, which is said, and counts as a failure."""
    world.kept.stop()
    world.advance(kept.STOP_SECONDS)
    assert world.children[-1].signals == ["TERM", "KILL"]
    assert "is killed" in world.sentences[-1]
    world.children[-1].ends(by=signal.SIGKILL)
    assert world.ended == [world.kept]
    assert world.kept.failed


def test_killed_at_once(world):
    """Whoever is in a hurry waits for nothing."""
    world.kept.stop()
    world.kept.kill()
    assert world.children[-1].signals == ["TERM", "KILL"]
    world.children[-1].ends(by=signal.SIGKILL)
    assert not world.getDelayedCalls()


def test_its_last_words(world):
    """What it wrote before it ended is read, though what it started holds its pipes open;
    a line without an end counts, and one without any end is cut."""
    child = world.children[-1]
    child.says(1, b"one\ntw")
    child.says(1, b"o\n" + b"x" * (kept._MOST_LINE_BYTES + 1))
    life = child._life
    child.pipes = {1: Pipe(life, 1), 2: Pipe(life, 2, b"a\nb", b"c: why")}
    child.ends(status=1)
    assert [(number, text[:9]) for number, text in world.lines] == [
        (1, "one"), (1, "two"), (1, "xxxxxxxxx"), (2, "a"), (2, "bc: why"),
    ]  # fmt: skip
    assert "(exit status 1: bc: why)" in world.sentences[-1]
    assert child.closed


def test_nobody_else_ends_one_that_hangs_when_its_parent_is_killed(monkeypatch):
    """Killed in the seconds in which it was to stop: it ends itself by then, and its Java."""
    parents, killed, pauses = iter([7, 7, 1]), list[Any](), list[float]()
    monkeypatch.setattr(child.os, "getppid", lambda: next(parents))
    monkeypatch.setattr(child.os, "killpg", lambda *one: killed.append(one))
    child.outlive(7, pauses.append)
    assert pauses == [1.0, 1.0, child.STOP_SECONDS]
    assert killed == [(0, signal.SIGKILL)]
