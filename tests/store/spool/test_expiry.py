"""The archive keeps files for so long, whatever is done to the wall clock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.store.disk import RealDisk
from gateway.store.spool.expiry import Expiry
from gateway.store.spool.names import file_name

HOUR = 3600.0


class World:
    """An archive, and its clocks: `set_clock` moves one of them only."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self.monotonic, self.wall = 50.0, 1_700_000_000.0
        self.told = 0
        self.expiry = Expiry(
            archive,
            RealDisk(),
            HOUR,
            self._expired,
            clock=lambda: self.monotonic,
            wall_clock=lambda: self.wall,
        )

    def _expired(self) -> None:
        self.told += 1

    def add(self, lsn: int) -> None:
        path = self.archive / file_name("gw", lsn, lsn)
        path.write_bytes(b"")
        os.utime(path, (self.wall, self.wall))

    def pass_time(self, seconds: float) -> list[int]:
        """Look every minute; returns the lsns that are left."""
        end = self.monotonic + seconds
        while self.monotonic < end:
            self.monotonic += 60
            self.wall += 60
            self.expiry.run()
        return sorted(int(path.stem.split("-")[-1]) for path in self.archive.iterdir())

    def set_clock(self, by: float) -> None:
        self.wall += by


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_file_stays_for_its_time(world: World) -> None:
    """Then it goes, and whoever reads the archive is told."""
    world.add(1)
    assert world.pass_time(HOUR) == [1]
    assert world.told == 0
    assert world.pass_time(120) == []
    assert world.told == 1


def test_an_hour_forward_expires_nothing(world: World) -> None:
    """What is old by the clock only stays; what comes after goes in its own time."""
    world.add(1)
    assert world.pass_time(600) == [1]
    world.set_clock(HOUR)
    world.add(2)
    assert world.pass_time(HOUR - 660) == [1, 2]
    assert world.pass_time(180) == [2]
    assert world.pass_time(HOUR) == []


def test_an_hour_back_stops_nothing(world: World) -> None:
    """The archive is looked at all the same; nothing goes before its time."""
    world.add(1)
    world.pass_time(600)
    world.set_clock(-HOUR)
    world.add(2)
    assert world.pass_time(HOUR) == [1, 2]
    assert world.pass_time(120) == [1]
    assert world.pass_time(HOUR) == []
