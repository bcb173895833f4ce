"""Time goes on evenly for the daemon, whatever is done to the wall clock."""

from collections.abc import Iterator

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.task import LoopingCall

from gateway.daemon.clock import make_monotonic


class World:
    """A reactor that runs nothing by itself, a wall clock that can be set."""

    def __init__(self) -> None:
        self.monotonic, self.wall = 77.0, 1_700_000_000.0
        self.reactor = EPollReactor()
        make_monotonic(
            self.reactor,
            monotonic=lambda: self.monotonic,
            wall_clock=lambda: self.wall,
        )

    def pass_time(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds
        self.reactor.runUntilCurrent()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    for call in world.reactor.getDelayedCalls():
        call.cancel()
    world.reactor.removeAll()


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_timers_do_not_follow_the_wall_clock(world, step):
    """Neither is called an hour early, nor an hour late, nor twice."""
    calls: list[str] = []
    world.reactor.callLater(10, calls.append, "once")
    loop = LoopingCall(calls.append, "loop")
    loop.clock = world.reactor
    loop.start(4, now=False)
    world.wall += step
    world.pass_time(3)
    assert calls == []
    world.pass_time(1)
    world.pass_time(4)
    assert calls == ["loop", "loop"]
    world.wall -= step
    world.pass_time(2)
    assert calls == ["loop", "loop", "once"]
    assert world.reactor.timeout() == 2
    loop.stop()


def test_time_begins_with_the_wall_clock(world):
    """So that a point in time that was kept over a restart means the same."""
    assert world.reactor.seconds() == 1_700_000_000.0
    world.pass_time(2.5)
    world.wall -= 3600
    assert world.reactor.seconds() == 1_700_000_002.5
