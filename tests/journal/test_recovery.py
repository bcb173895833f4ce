"""What a start makes of the journal that it finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gateway.disk import RealDisk
from gateway.event import Batch
from gateway.journal import Log, Recovered, recover, segment


def test_nothing_is_a_journal_too(directory: Path) -> None:
    """The very first start finds an empty directory, and begins with lsn 1."""
    assert recover(directory, RealDisk()) == Recovered([], 1, [])


def test_a_published_segment_is_no_loss(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """An older segment that came back does not make those after it look lost."""
    disk = RealDisk()
    log = Log(directory, disk, 1)
    for _ in range(3):
        log.commit([make()])
        log.seal()
    (directory / segment.name(2)).unlink()
    assert [loss.first_lsn for loss in recover(directory, disk).losses] == [2]
    published = recover(directory, disk, unpublished=lambda lsn: 3 if lsn == 2 else lsn)
    assert published.losses == []


def test_what_was_written_again_elsewhere_is_gone_after_the_start(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """A tail that a later segment took over can not come back when that one is gone."""
    disk = RealDisk()
    log = Log(directory, disk, 1)
    log.commit([make(b"synced")])
    log.commit([make(b"failed", 3)])
    later = Log(directory, disk, 2)
    later.commit([make(b"again")])
    assert [s.last_lsn for s in recover(directory, disk).segments] == [1, 2]
    (directory / segment.name(2)).unlink()
    again = recover(directory, disk)
    assert [s.last_lsn for s in again.segments] == [1]
    assert again.segments[0].bytes == disk.size(again.segments[0].path)


def test_a_segment_that_can_not_be_read_keeps_its_numbers_for_good(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """It is set aside, reported once, and no start gives its lsns out again."""
    disk = RealDisk()
    log = Log(directory, disk, 5)
    log.commit([make(b"x", 3)])
    path = directory / segment.name(5)
    path.write_bytes(b"?" + path.read_bytes()[1:])
    first = recover(directory, disk)
    assert [loss.first_lsn for loss in first.losses] == [5]
    assert (directory / f"{path.name}.damaged").exists()
    assert first.next_lsn >= 8
    assert recover(directory, disk) == Recovered([], first.next_lsn, [])
