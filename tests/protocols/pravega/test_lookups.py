"""Whom the threads that look into files serve first."""

import random
import weakref
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from gateway.protocols.pravega import lookups
from gateway.protocols.pravega.lookups import Lookups


class Reactor:
    """Calls from threads come at once."""

    def callFromThread(self, call: Callable[..., Any], *args: Any) -> None:
        call(*args)


class Place:
    """A thread that takes a step when it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[Callable[[], object]] = []
        pool = SimpleNamespace(callInThread=self.steps.append)
        monkeypatch.setattr(lookups, "ThreadPool", lambda *_: pool)
        self.lookups = Lookups(Reactor(), 1)  # type: ignore[arg-type]
        self.served: list[object] = []

    def ask(self, lsn: int, name: object) -> Deferred[Any]:
        return self.lookups.read(lsn, lambda: self.served.append(name))

    def step(self) -> None:
        self.steps.pop(0)()

    def all_served(self) -> list[object]:
        """In that order."""
        while self.steps:
            self.step()
        return self.served


@pytest.fixture
def place(monkeypatch) -> Place:
    return Place(monkeypatch)


def test_who_is_behind_goes_first(place):
    """And of those that are in one place who came first."""
    for name, lsn in enumerate([30, 10, 20, 10]):
        place.ask(lsn, name)
    assert place.all_served() == [1, 3, 2, 0]


@pytest.mark.parametrize("waiting", [0, 1, 100])
def test_nobody_waits_for_ever(place, waiting):
    """However many come that are behind."""
    for name in range(waiting):
        place.ask(100, name)
    place.ask(200, "ahead")
    while "ahead" not in place.served:
        place.ask(1, "behind")
        place.step()
    assert len(place.served) == 2 * waiting + 8 + 1


def test_who_came_earlier_is_not_overtaken_longer(place):
    """One that came when many waited, and one that came when few did: both are served in
    time, the first of them first."""
    for name in range(100):
        place.ask(1, name)
    place.ask(200, "early")
    while len(place.served) < 99:
        place.step()
    place.ask(300, "late")
    place.ask(1, "behind")
    while "late" not in place.served:
        place.ask(1, "behind")
        place.step()
    assert place.served.index("late") <= 99 + 2 * 3 + 8 + 1


def test_many_whose_turn_comes_at_once(place):
    """Those that came while fewer and fewer waited are served in time, the last one, too."""
    late: list[tuple[int, int, int]] = []

    def came(waiting: int, served: int) -> None:
        place.served.append("late")
        late.append((waiting, served, len(place.served) - 1))

    for _ in range(300):
        place.ask(1, "first")
    for at in range(140):
        came_now = partial(came, len(place.steps), len(place.served))
        place.lookups.read(1000 + at, came_now)
        place.step()
        place.step()
    while len(late) < 140:
        place.ask(1, "behind")
        place.step()
    over = [now - then - 3 * waiting - 8 for waiting, then, now in late]
    assert max(over) <= 0
    assert max(now - then - 2 * waiting - 8 for waiting, then, now in late) > 0


def test_one_that_nobody_wants_any_more(place):
    """It costs nothing, and those who wait are served in their order."""
    lsns = random.Random(1).sample(range(200), 200)
    reads = [place.ask(lsn, lsn) for lsn in lsns]
    told: list[Any] = []
    for read in reads[:150]:
        read.addErrback(told.append)
        read.cancel()
    assert len(told) == 150
    assert all(why.check(CancelledError) for why in told)
    assert place.all_served() == sorted(lsns[150:])


def test_what_nobody_wants_is_forgotten(place):
    """Though no thread has come to it: peers may come and go while a disk hangs."""
    there = []
    for lsn in range(200):
        read = place.ask(lsn, lsn).addErrback(lambda _: None)
        read.cancel()
        there.append(weakref.ref(read))
    del read
    assert sum(ref() is not None for ref in there) < 100


def test_cancelled_while_it_is_served(place):
    """What comes of it is told to nobody."""
    told: list[Any] = []

    def slow() -> str:
        read.cancel()
        return "found"

    read = place.lookups.read(1, slow)
    read.addBoth(told.append)
    place.step()
    assert [type(each.value) for each in told] == [CancelledError]


def test_what_a_read_raises_is_told(place):
    """And the thread serves on."""
    told: list[Any] = []
    place.lookups.read(1, lambda: 1 // 0).addErrback(told.append)
    place.ask(2, "next")
    assert place.all_served() == ["next"]
    assert told[0].check(ZeroDivisionError)


def test_ahead_when_nobody_waits(place):
    """What comes next is made ready once all are served, and only the newest of it."""

    def read(name: str) -> None:
        place.served.append(name)
        place.lookups.ahead(lambda: place.served.append(f"behind {name}"))

    for name in ("a", "b", "c"):
        place.lookups.read(1, partial(read, name))
    assert place.all_served() == ["a", "b", "c", "behind c"]


def test_what_was_found_is_not_kept(place):
    """An answer may keep much in memory: it is gone while the thread looks ahead."""

    class Found:
        pass

    kept: list[object] = []

    def read() -> Found:
        found = Found()
        there = weakref.ref(found)
        place.lookups.ahead(lambda: kept.append(there()))
        return found

    place.lookups.read(1, read).addCallback(lambda _: None)
    place.step()
    assert kept == [None]


def test_what_can_not_be_made_ready(place):
    """Is told to whoever reads it, and to nobody before."""
    place.lookups.read(1, lambda: place.lookups.ahead(lambda: 1 // 0))
    place.step()
    place.ask(2, "a")
    assert place.all_served() == ["a"]


def test_one_thread_is_always_for_readers(place):
    """While one makes something ready, no other one does; it goes on when that is done."""

    def look() -> None:
        place.lookups.read(1, lambda: place.lookups.ahead(look_further))
        place.step()  # the other thread's
        place.served.append("first")

    def look_further() -> None:
        place.served.append("then")

    place.lookups.read(1, lambda: place.lookups.ahead(look))
    assert place.all_served() == ["first", "then"]
