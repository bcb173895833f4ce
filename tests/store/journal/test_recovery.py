"""What a start makes of the journal that it finds."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.event import Batch
from gateway.store.journal import Log, Recovered, segment
from gateway.store.journal.segment import OtherFormat
from gateway.store.system.disk import RealDisk
from incarnations import A, examine, segment_name
from losses import damage, losses, places

Make = Callable[..., Batch]
Begin = Callable[[int], Log]
Start = Callable[..., Recovered]


@pytest.fixture
def begin(directory) -> Begin:
    """A log whose first event has this lsn."""
    return lambda lsn: Log(directory, RealDisk(), lsn, A)


@pytest.fixture
def start(directory) -> Start:
    """Where events up to lsn *given* were published."""
    return lambda given=0: examine(directory, RealDisk(), given=given).settle().clear()


@pytest.fixture
def three(directory, begin, make) -> Callable[[int], Path]:
    """An open segment of three events, the first of which has this lsn; its path."""

    def three(lsn: int) -> Path:
        begin(lsn).commit([make(b"x", 3)])
        return directory / segment_name(lsn)

    return three


@pytest.fixture
def seal(begin, make) -> Callable[..., list[Path]]:
    """Closed segments of so many events each; their paths."""

    def seal(*counts: int) -> list[Path]:
        log, paths = begin(1), []
        for count in counts:
            log.commit([make(b"x", count)])
            sealed = log.seal()
            assert sealed is not None
            paths.append(sealed.path)
        return paths

    return seal


def test_a_segment_of_the_old_form_is_refused(tmp_path):
    """Its name does not say who gave its lsns: begun anew, they would be given again."""
    (tmp_path / f"{1:020d}.journal").write_bytes(b"x")
    with pytest.raises(OtherFormat, match="an earlier version wrote it"):
        examine(tmp_path, RealDisk())


def test_nothing_is_a_journal_too(start):
    """The very first start finds an empty directory, and begins with lsn 1."""
    assert start() == Recovered([], 1, [])


def test_a_published_segment_is_no_loss(begin, start, directory, make):
    """An older segment that came back does not make those after it look lost."""
    log = begin(1)
    for _ in range(3):
        log.commit([make()])
        log.seal()
    (directory / segment_name(2)).unlink()
    assert [loss.first_lsn for loss in start().losses] == [2]
    assert start(given=2).losses == []


def test_what_was_written_again_elsewhere_is_gone_after_the_start(
    begin, start, directory, make
):
    """A tail that a later segment took over can not come back when that one is gone."""
    log = begin(1)
    log.commit([make(b"synced")])
    log.commit([make(b"failed", 3)])
    later = begin(2)
    later.commit([make(b"again")])
    assert [s.last_lsn for s in start().segments] == [1, 2]
    (directory / segment_name(2)).unlink()
    again = start()
    assert [s.last_lsn for s in again.segments] == [1]
    assert again.segments[0].bytes == again.segments[0].path.stat().st_size


def test_metadata_alone_is_kept(begin, start, make):
    """Segments without any event stay, in their order, and give no lsn away."""
    log = begin(5)
    for body in (b"1", b"2"):
        log.commit([make(body, 0)])
        log.seal()
    log.commit([make(b"3", 0)])
    found = start(given=4)
    assert [s.path.name for s in found.segments] == [
        segment_name(5),
        segment_name(5, 1),
        segment_name(5, 2),
    ]
    assert [(s.first_lsn, s.events) for s in found.segments] == [(5, 0)] * 3
    assert (found.next_lsn, found.losses) == (5, [])
    found.segments[0].path.unlink()
    again = begin(found.next_lsn)
    again.commit([make(b"4", 0), make(b"d")])
    bodies = [
        stored.batch.body
        for left in start().segments
        for stored in segment.Scan(left.path.read_bytes())
    ]
    assert bodies == [b"2", b"3", b"4", b"d"]


def test_attempts_never_go_back(begin, make):
    """A segment that is gone does not give its place in the order to a later one."""
    log = begin(1)
    paths = []
    for body in (b"1", b"2", b"3"):
        log.commit([make(body, 0)])
        sealed = log.seal()
        assert sealed is not None
        if body != b"2":
            sealed.path.unlink()
        paths.append(sealed.path.name)
    assert paths == [segment_name(1), segment_name(1, 1), segment_name(1, 2)]


def test_a_segment_that_can_not_be_read_keeps_its_numbers_for_good(three, start):
    """It is set aside, reported once, and no start gives its lsns out again."""
    path = three(5)
    damage(path)
    first = start(given=4)
    assert [loss.first_lsn for loss in first.losses] == [5]
    assert path.with_name(f"{path.name}.damaged").exists()
    assert first.next_lsn >= 8
    assert start(given=4) == Recovered([], first.next_lsn, [])


def test_a_flipped_bit_in_a_header_costs_nothing(three, start):
    """It is mended on the disk, and told once."""
    path = three(1)
    whole = path.read_bytes()
    for bit in range(segment.HEADER_BYTES * 8):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        found = start()
        assert [(one.events, one.why[-10:]) for one in found.losses] == [
            (0, "was mended")
        ]
        assert (found.segments[0].events, found.next_lsn) == (3, 4)
        again = start()
        assert (again.losses, again.segments) == ([], found.segments)


def test_the_next_segment_bounds_what_a_damaged_one_held(begin, start, directory, make):
    """Its name says how many events are lost; their lsns are not given again."""
    log = begin(1)
    log.commit([make(b"x" * 5000, 3)])
    log.seal()
    log.commit([make(b"y", 2)])
    path = directory / segment_name(1)
    damage(path)
    found = start()
    assert losses(found) == [(1, 3)]
    assert found.next_lsn == 6
    assert start().losses == []


def test_a_missing_oldest_segment_is_reported(begin, start, directory, make):
    """What was published ends before it; nobody else can have its events."""
    log = begin(4)
    log.commit([make(b"x", 3)])
    log.seal()
    log.commit([make(b"y", 2)])
    (directory / segment_name(4)).unlink()
    assert losses(start(given=3)) == [(4, 3)]


def test_a_start_holds_one_segment_at_a_time(begin, start, directory, make):
    """However many were not closed in good order: after a power cut that may be all."""
    for lsn in range(1, 7):
        begin(lsn).commit([make(bytes(1_000_000))])
    before = {path: path.read_bytes() for path in directory.iterdir()}
    tracemalloc.start()
    try:
        found = start()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [s.first_lsn for s in found.segments] == [1, 2, 3, 4, 5, 6]
    assert most < 3_000_000
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


def test_missing_segments_get_a_place(start, seal):
    """Their lsns are published as lost; until then each start tells them."""
    paths = seal(2, 3, 4, 1)
    for path in paths[1:3]:
        path.unlink()
    for _ in range(2):
        found = start()
        assert losses(found) == [(3, 7)]
        assert places(found) == [(1, 2, 0), (3, 9, 7), (10, 10, 0)]
        assert found.next_lsn == 11


def test_one_that_is_put_back_takes_its_place_back(start, seal):
    """Before anything was published."""
    paths = seal(2, 3, 4, 1)
    whole = paths[2].read_bytes()
    for path in paths[1:3]:
        path.unlink()
    start()
    paths[2].write_bytes(whole)
    found = start()
    assert losses(found) == [(3, 3)]
    assert places(found) == [(1, 2, 0), (3, 5, 3), (6, 9, 0), (10, 10, 0)]


def test_a_place_that_is_published_is_told_no_more(start, seal):
    """Though a checkpoint has yet to remove it."""
    paths = seal(2, 3, 4)
    paths[1].unlink()
    start()
    assert start(given=5).losses == []


def test_a_damaged_segment_beside_a_missing_one_keeps_its_lsns(start, seal):
    """It is set aside, and somebody may put it back."""
    paths = seal(2, 3, 4, 1)
    paths[1].unlink()
    damage(paths[2])
    found = start()
    assert sorted(losses(found)) == [(3, 3), (6, 4)]
    assert [(s.first_lsn, s.last_lsn) for s in found.segments] == [
        (1, 2),
        (3, 5),
        (10, 10),
    ]


def test_one_set_aside_behind_them_hides_no_missing_one(start, seal, directory):
    """What lies there may be years old, and say nothing of those before it."""
    paths = seal(2, 3, 4, 1, 2)
    paths[1].unlink()
    paths[3].rename(paths[3].with_name(f"{paths[3].name}.damaged"))
    for _ in range(2):
        found = start()
        assert losses(found) == [(3, 3)]
        assert places(found) == [(1, 2, 0), (3, 5, 3), (6, 9, 0), (11, 12, 0)]
        (directory / segment_name(3)).unlink()


def test_a_name_that_nobody_gave_makes_no_endless_file(begin, start, seal, make):
    """It is told, and no more."""
    seal(2)
    begin(10**12).commit([make()])
    found = start()
    assert losses(found) == [(3, 10**12 - 3)]
    assert [s.first_lsn for s in found.segments] == [1, 10**12]
