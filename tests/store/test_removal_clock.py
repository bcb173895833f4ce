"""The clock by which things are removed for their age, when the one on the wall leaps."""

import errno
from functools import partial
from pathlib import Path

import pytest

from gateway.store.node.catalog import Catalog
from gateway.store.node.removal_clock import RemovalClock, Seen
from gateway.store.system.disk import RealDisk

DAY = 86400.0
YEAR = 365 * DAY
NOW = 1_700_000_000.0


class World:
    """A clock on the wall, and what goes by it over restarts."""

    def __init__(self, folder: Path) -> None:
        self.wall, self.running, self.boot = NOW, 100.0, "a"
        self.told: list[str] = []
        self.first: float | None = None
        self.path = folder / "catalog"
        self.restart()

    def restart(self) -> None:
        catalog = Catalog(self.path.parent, RealDisk())
        self.clock = RemovalClock(
            partial(catalog.newest, Seen),
            catalog.put,
            self.told.append,
            lambda: self.first,
            lambda: self.wall,
            lambda: self.running,
            self.boot,
        )

    def reboot(self) -> None:
        self.boot += "a"
        self.running = 10.0
        self.restart()

    def look(self, after: float = 0.0) -> float:
        """By how much the time to go by has gone on since the beginning."""
        self.wall += after
        self.running += after
        return self.clock() - NOW

    def leap(self, by: float) -> float:
        """Likewise, when the clock on the wall leaps."""
        self.wall += by
        return self.look()


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


def test_it_is_the_time(world):
    """While nothing odd happens, also over a weekend's pause, and when it is set back."""
    assert world.look() == 0
    assert world.look(2.5 * DAY) == 2.5 * DAY
    world.restart()
    assert world.look(2.5 * DAY) == 5 * DAY
    assert world.leap(-DAY) == 4 * DAY
    assert (world.told, world.clock.ahead_seconds) == ([], 0)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_leap_counts_once_it_has_stood_for_a_day(world, restarted):
    """Until then time goes on as before, whoever starts meanwhile; and it is told once a
    start."""
    world.look(DAY)
    if restarted:
        world.restart()
    assert world.leap(YEAR) == DAY
    assert world.look(DAY / 2) == 1.5 * DAY
    assert world.clock.ahead_seconds == YEAR
    assert len(world.told) == 1
    assert "365 d more" in world.told[0]
    if restarted:
        world.restart()
    assert world.look(DAY / 4) == 1.75 * DAY
    assert len(world.told) == 1 + restarted
    assert world.look(DAY / 4) == YEAR + 2 * DAY
    assert world.clock.ahead_seconds == 0
    world.restart()
    assert world.look() == YEAR + 2 * DAY


def test_a_clock_that_is_set_right_leaves_nothing(world):
    """A time server is heard after some minutes: then it is the time again, and the next leap
    is a new one."""
    world.look()
    assert world.leap(YEAR) == 0
    world.look(600)
    assert world.leap(-YEAR) == 600
    world.restart()
    assert world.leap(2 * YEAR) == 600
    assert world.leap(-YEAR) == 600, "less wrong, and wrong still"
    assert world.look(DAY - 1) == 600 + DAY - 1
    assert world.look(1) == 600 + DAY + YEAR


def test_a_leap_is_no_time_that_it_stood(world):
    """A month ahead, a month back, right, and a month ahead again, all within minutes: what is
    shown then is a month more than what it leapt to before, and nothing has stood.  So it
    stands for a day by the clock that runs on, also over a restart.
    """
    month = 31 * DAY
    world.look()
    assert world.leap(month) == 0
    assert world.leap(-2 * month) == -month
    assert world.leap(month) == -month
    assert world.leap(month + DAY) == -month
    world.restart()
    assert world.leap(DAY) == -month
    assert world.look(DAY - 1) == DAY - 1 - month
    assert world.look(1) == month + 3 * DAY


def test_after_a_start_of_the_machine_only_the_wall_tells(world):
    """For how long it was off, nothing else knows."""
    world.look()
    assert world.leap(YEAR) == 0
    world.reboot()
    assert world.leap(DAY / 2) == DAY / 2
    world.reboot()
    assert world.leap(DAY / 2) == YEAR + DAY


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_leaps_twice_has_to_stand_as_well(world, restarted):
    """One without a battery shows another year at each start."""
    world.look()
    for _ in range(2):
        assert world.leap(YEAR) == 0
        if restarted:
            world.reboot()
    assert world.look(DAY - 1) == DAY - 1
    assert world.look(1) == 2 * YEAR + DAY


def test_jobs_that_run_once_a_week_come_on(world):
    """Each second one goes by the clock."""
    seen = []
    for _ in range(4):
        world.restart()
        seen.append(world.look(7 * DAY) / DAY)
    assert seen == [7, 7, 21, 21]


def test_the_first_start_goes_by_what_was_written_last(world):
    """By an earlier version, which kept no such file; where nothing was, the clock is
    believed."""
    world.wall, world.first = NOW + YEAR, NOW
    assert world.look() == 0
    assert world.leap(-YEAR) == 0
    world.path.unlink()
    world.restart()
    world.first = None
    assert world.leap(YEAR) == YEAR


def fails(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no room")


def test_a_file_that_can_not_be_read_or_written(world):
    """A damaged line is as none; a disk that is full stops nothing."""
    world.look()
    world.path.write_bytes(b"{\n")
    world.restart()
    assert world.leap(YEAR) == YEAR
    world.clock._keep = fails
    world.clock._kept = fails
    assert world.look() == YEAR
    assert world.leap(YEAR) == YEAR
    assert world.look(DAY) == 2 * YEAR + DAY


def test_a_second_costs_no_write(world):
    """It is asked each second; its file is an hour old at most."""
    world.look()
    before = world.path.read_bytes()
    for _ in range(3):
        world.look(1000)
    assert world.path.read_bytes() == before
    world.look(1000)
    assert world.path.read_bytes() != before
