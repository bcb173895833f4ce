"""The names of files that were pushed: remembered through kills and power cuts."""

import errno
from pathlib import Path

import pytest

from gateway.protocols.pomelo.push.pushed import PushedNames
from gateway.sdk.disk import Disk
from gateway.store.system.disk import RealDisk
from gateway_testkit.crashes import crashes
from gateway_testkit.disk import Fault, RecordingDisk

PATH = Path("/outbox/.pushed")
DAY = 86_400.0


class Clock:
    """The wall's."""

    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def opened(disk: Disk, most: int = 100, clock: Clock | None = None) -> PushedNames:
    names = PushedNames(PATH, DAY, most, disk, clock or Clock())
    names.open()
    return names


@pytest.fixture
def disk() -> RecordingDisk:
    """One with an outbox."""
    found = RecordingDisk()
    found.make_directory(PATH.parent)
    return found


def test_power_cuts(disk):
    """Whatever one leaves, each name whose `add` had returned is remembered."""
    for life in range(2):
        names = opened(disk)
        for number in range(3):
            names.add(f"{life}-{number}")
            disk.mark(f"{life}-{number}")
        names.close()
    cuts = 0
    for moment in disk.moments:
        for story, left in crashes(moment):
            if not left.exists(PATH.parent):
                continue
            found = opened(left)
            for name in moment.marks:
                assert found.ago(str(name)) is not None, story
            assert len(found) <= len(moment.marks) + 1, story
            cuts += 1
    assert cuts > 20


def test_a_disk_that_fails(disk):
    """What could not be made durable is not remembered, and the next one can be."""
    names = opened(disk)
    names.add("a")
    for call in ("write", "sync"):
        disk.fault = Fault(1, calls=frozenset([call]))
        with pytest.raises(OSError, match="Errno"):
            names.add("b")
        assert names.ago("b") is None
        disk.fault = None
    names.add("c")
    found = opened(RecordingDisk.after_kill(disk.moments[-1]))
    assert found.ago("a") is not None
    assert found.ago("c") is not None
    assert found.ago("b") is None


@pytest.mark.parametrize("call", ["write", "sync"])
def test_what_is_not_noted_is_not_noted(disk, call):
    """Its file waits for the next try: a start must not believe that it was pushed."""
    names = opened(disk)
    names.add("a")
    disk.fault = Fault(1, calls=frozenset([call]))
    with pytest.raises(OSError, match="Errno"):
        names.add("b")
    found = opened(RecordingDisk.after_kill(disk.moments[-1]))
    assert found.ago("a") is not None
    assert found.ago("b") is None


def test_time_and_number_are_bounded(disk):
    """The oldest goes first; what is old goes, at the next start too."""
    clock = Clock()
    names = opened(disk, 3, clock)
    for name in "abcd":
        names.add(name)
        clock.now += 1
    assert [name for name in "abcd" if names.ago(name) is not None] == ["b", "c", "d"]
    clock.now += DAY - 2
    names.forget()
    assert len(names) == 1
    assert names.ago("d") is not None
    assert len(opened(disk, 3, clock)) == 1
    clock.now += 2
    assert names.ago("d") is None


@pytest.mark.parametrize("leap", [365 * DAY, -365 * DAY])
def test_a_start_with_a_wrong_clock_forgets_nothing(disk, leap):
    """Nor the next one, with one that is right again; and a name that was pushed by one that
    is ahead is remembered for no longer than others.
    """
    clock = Clock()
    opened(disk, clock=clock).add("a")
    clock.now += leap
    opened(disk, clock=clock).add("b")
    clock.now -= leap
    names = opened(disk, clock=clock)
    assert None not in (names.ago("a"), names.ago("b"))
    clock.now += DAY
    assert (names.ago("a"), names.ago("b")) == (None, None)


def test_the_file_does_not_grow_without_end(disk):
    """It is written anew when most of it is forgotten."""
    names = opened(disk, 2)
    sizes = []
    for number in range(2500):
        names.add(str(number))
        sizes.append(disk.size(PATH))
    assert max(sizes) < 1100 * 50
    assert len(opened(disk, 2)) == 2


def test_damage_costs_the_names_that_it_hits(disk):
    """… and no other; it is counted."""
    names = opened(disk)
    for name in ("alice", "bob", "carol"):
        names.add(name)
    content = disk.read(PATH).replace(b"bob", b"rob")
    disk.unlink(PATH)
    disk.create(PATH).write([content])
    found = opened(disk)
    assert (len(found), found.damaged) == (2, 1)
    assert found.ago("carol") is not None


class BadSector(RealDisk):
    """What is there begins with bytes that the disk does not give back."""

    def __init__(self, size: int) -> None:
        self.size_of_it = size

    def read(self, path: Path) -> bytes:
        raise OSError(errno.EIO, "the disk fails", str(path))

    def read_around(self, path: Path) -> bytes:
        return bytes(self.size_of_it) + path.read_bytes()[self.size_of_it :]


@pytest.mark.parametrize(("size", "left"), [(10, 2), (1000, 0)])
def test_what_can_not_be_read_is_forgotten_and_told(tmp_path, size, left):
    """The rest is remembered, and all is written anew where the disk takes it."""
    path = tmp_path / ".pushed"
    names = PushedNames(path, DAY, 100, RealDisk(), Clock())
    names.open()
    for name in "abc":
        names.add(name)
    names.close()
    found = PushedNames(path, DAY, 100, BadSector(size), Clock())
    found.open()
    found.close()
    assert (len(found), found.damaged) == (left, 1)
    again = PushedNames(path, DAY, 100, RealDisk(), Clock())
    again.open()
    again.close()
    assert (len(again), again.damaged) == (left, 0)
