"""What a start makes of the journal that it finds."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

from gateway.event import Batch
from gateway.store.disk import RealDisk
from gateway.store.journal import Log, Recovered, segment
from gateway.store.journal.recovery import examine


def test_nothing_is_a_journal_too(directory: Path) -> None:
    """The very first start finds an empty directory, and begins with lsn 1."""
    assert examine(directory, RealDisk()).settle() == Recovered([], 1, [])


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
    assert [loss.first_lsn for loss in examine(directory, disk).settle().losses] == [2]
    assert examine(directory, disk, given=2).settle().losses == []


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
    assert [s.last_lsn for s in examine(directory, disk).settle().segments] == [1, 2]
    (directory / segment.name(2)).unlink()
    again = examine(directory, disk).settle()
    assert [s.last_lsn for s in again.segments] == [1]
    assert again.segments[0].bytes == disk.size(again.segments[0].path)


def test_metadata_alone_is_kept(directory: Path, make: Callable[..., Batch]) -> None:
    """Segments without any event stay, in their order, and give no lsn away."""
    disk = RealDisk()
    log = Log(directory, disk, 5)
    for body in (b"1", b"2"):
        log.commit([make(body, 0)])
        log.seal()
    log.commit([make(b"3", 0)])
    found = examine(directory, disk, given=4).settle()
    assert [s.path.name for s in found.segments] == [
        segment.name(5),
        segment.name(5, 1),
        segment.name(5, 2),
    ]
    assert [(s.first_lsn, s.events) for s in found.segments] == [(5, 0)] * 3
    assert (found.next_lsn, found.losses) == (5, [])
    found.segments[0].path.unlink()
    again = Log(directory, disk, found.next_lsn)
    again.commit([make(b"4", 0), make(b"d")])
    bodies = [
        stored.batch.body
        for left in examine(directory, disk).settle().segments
        for stored in segment.Scan(left.path.read_bytes())
    ]
    assert bodies == [b"2", b"3", b"4", b"d"]


def test_attempts_never_go_back(directory: Path, make: Callable[..., Batch]) -> None:
    """A segment that is gone does not give its place in the order to a later one."""
    disk = RealDisk()
    log = Log(directory, disk, 1)
    paths = []
    for body in (b"1", b"2", b"3"):
        log.commit([make(body, 0)])
        sealed = log.seal()
        assert sealed is not None
        if body != b"2":
            sealed.path.unlink()
        paths.append(sealed.path.name)
    assert paths == [segment.name(1), segment.name(1, 1), segment.name(1, 2)]


def test_a_segment_that_can_not_be_read_keeps_its_numbers_for_good(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """It is set aside, reported once, and no start gives its lsns out again."""
    disk = RealDisk()
    log = Log(directory, disk, 5)
    log.commit([make(b"x", 3)])
    path = directory / segment.name(5)
    path.write_bytes(bytes(64) + path.read_bytes()[64:])
    first = examine(directory, disk, given=4).settle()
    assert [loss.first_lsn for loss in first.losses] == [5]
    assert (directory / f"{path.name}.damaged").exists()
    assert first.next_lsn >= 8
    assert examine(directory, disk, given=4).settle() == Recovered(
        [], first.next_lsn, []
    )


def test_a_flipped_bit_in_a_header_costs_nothing(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """It is mended on the disk, and told once."""
    disk = RealDisk()
    log = Log(directory, disk, 1)
    log.commit([make(b"x", 3)])
    path = directory / segment.name(1)
    whole = path.read_bytes()
    for bit in range(segment.HEADER_BYTES * 8):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        found = examine(directory, disk).settle()
        assert [(one.events, one.why[-10:]) for one in found.losses] == [
            (0, "was mended")
        ]
        assert (found.segments[0].events, found.next_lsn) == (3, 4)
        again = examine(directory, disk).settle()
        assert (again.losses, again.segments) == ([], found.segments)


def test_the_next_segment_bounds_what_a_damaged_one_held(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """Its name says how many events are lost; their lsns are not given again."""
    disk = RealDisk()
    log = Log(directory, disk, 1)
    log.commit([make(b"x" * 5000, 3)])
    log.seal()
    log.commit([make(b"y", 2)])
    path = directory / segment.name(1)
    path.write_bytes(bytes(64) + path.read_bytes()[64:])
    found = examine(directory, disk).settle()
    assert [(one.first_lsn, one.events) for one in found.losses] == [(1, 3)]
    assert found.next_lsn == 6
    assert examine(directory, disk).settle().losses == []


def test_a_missing_oldest_segment_is_reported(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """What was published ends before it; nobody else can have its events."""
    disk = RealDisk()
    log = Log(directory, disk, 4)
    log.commit([make(b"x", 3)])
    log.seal()
    log.commit([make(b"y", 2)])
    (directory / segment.name(4)).unlink()
    found = examine(directory, disk, given=3).settle()
    assert [(one.first_lsn, one.events) for one in found.losses] == [(4, 3)]


def test_a_start_holds_one_segment_at_a_time(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """However many were not closed in good order: after a power cut that may be all."""
    disk = RealDisk()
    for lsn in range(1, 7):
        Log(directory, disk, lsn).commit([make(bytes(1_000_000))])
    before = {path: path.read_bytes() for path in directory.iterdir()}
    tracemalloc.start()
    try:
        found = examine(directory, disk).settle()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [s.first_lsn for s in found.segments] == [1, 2, 3, 4, 5, 6]
    assert most < 3_000_000
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


def sealed_segments(
    directory: Path, make: Callable[..., Batch], *counts: int
) -> list[Path]:
    log = Log(directory, RealDisk(), 1)
    paths = []
    for count in counts:
        log.commit([make(b"x", count)])
        sealed = log.seal()
        assert sealed is not None
        paths.append(sealed.path)
    return paths


def test_missing_segments_get_a_place(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """Their lsns are published as lost; until then each start tells them."""
    paths = sealed_segments(directory, make, 2, 3, 4, 1)
    for path in paths[1:3]:
        path.unlink()
    for _ in range(2):
        found = examine(directory, RealDisk()).settle()
        assert [(one.first_lsn, one.events) for one in found.losses] == [(3, 7)]
        assert [(s.first_lsn, s.last_lsn, s.lost) for s in found.segments] == [
            (1, 2, 0),
            (3, 9, 7),
            (10, 10, 0),
        ]
        assert found.next_lsn == 11


def test_one_that_is_put_back_takes_its_place_back(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """Before anything was published."""
    paths = sealed_segments(directory, make, 2, 3, 4, 1)
    whole = paths[2].read_bytes()
    for path in paths[1:3]:
        path.unlink()
    examine(directory, RealDisk()).settle()
    paths[2].write_bytes(whole)
    found = examine(directory, RealDisk()).settle()
    assert [(one.first_lsn, one.events) for one in found.losses] == [(3, 3)]
    assert [(s.first_lsn, s.last_lsn, s.lost) for s in found.segments] == [
        (1, 2, 0),
        (3, 5, 3),
        (6, 9, 0),
        (10, 10, 0),
    ]


def test_a_place_that_is_published_is_told_no_more(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """Though a checkpoint has yet to remove it."""
    paths = sealed_segments(directory, make, 2, 3, 4)
    paths[1].unlink()
    examine(directory, RealDisk()).settle()
    assert examine(directory, RealDisk(), given=5).settle().losses == []


def test_a_damaged_segment_beside_a_missing_one_keeps_its_lsns(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """It is set aside, and somebody may put it back."""
    paths = sealed_segments(directory, make, 2, 3, 4, 1)
    paths[1].unlink()
    paths[2].write_bytes(bytes(64) + paths[2].read_bytes()[64:])
    found = examine(directory, RealDisk()).settle()
    told = sorted((one.first_lsn, one.events) for one in found.losses)
    assert told == [(3, 3), (6, 4)]
    assert [(s.first_lsn, s.last_lsn) for s in found.segments] == [
        (1, 2),
        (3, 5),
        (10, 10),
    ]


def test_one_set_aside_behind_them_hides_no_missing_one(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """What lies there may be years old, and say nothing of those before it."""
    paths = sealed_segments(directory, make, 2, 3, 4, 1, 2)
    paths[1].unlink()
    paths[3].rename(paths[3].with_name(f"{paths[3].name}.damaged"))
    for _ in range(2):
        found = examine(directory, RealDisk()).settle()
        assert [(one.first_lsn, one.events) for one in found.losses] == [(3, 3)]
        assert [(s.first_lsn, s.last_lsn, s.lost) for s in found.segments] == [
            (1, 2, 0),
            (3, 5, 3),
            (6, 9, 0),
            (11, 12, 0),
        ]
        (directory / segment.name(3)).unlink()


def test_a_name_that_nobody_gave_makes_no_endless_file(
    directory: Path, make: Callable[..., Batch]
) -> None:
    """It is told, and no more."""
    sealed_segments(directory, make, 2)
    Log(directory, RealDisk(), 10**12).commit([make()])
    found = examine(directory, RealDisk()).settle()
    assert [(one.first_lsn, one.events) for one in found.losses] == [(3, 10**12 - 3)]
    assert [s.first_lsn for s in found.segments] == [1, 10**12]
