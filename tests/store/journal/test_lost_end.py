"""The end of the open segment is damaged, cut or gone, and the mark knows how far it went."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.event import Batch
from gateway.store.journal import Log, Recovered, Synced, segment
from gateway.store.system.disk import RealDisk
from gateway_testkit.disk import Fault, RecordingDisk
from incarnations import A, examine, segment_name, settled
from losses import losses

Make = Callable[..., Batch]


def write(directory: Path, make: Make) -> Path:
    """An open segment with lsns 1 to 6 in two groups, of which the last has three
    batches; its path."""
    log = Log(directory, RealDisk(), 1, A)
    log.commit([make(b"a" * 30, 2)])
    log.commit([make(b"b" * 30), make(b"c" * 30, 2), make(b"d" * 30)])
    return directory / segment_name(1)


def lost(found: Recovered) -> list[int]:
    return [one.first_lsn + n for one in found.losses for n in range(one.events)]


def served(found: Recovered) -> list[int]:
    """The lsns that a file made of the segments has bytes of."""
    return [
        stored.lsn + n
        for one in found.segments
        for stored in segment.Scan(
            one.path.read_bytes(), before=one.last_lsn + 1, durable=one.last_lsn
        )
        for n in range(stored.batch.count)
    ]


def flip(path: Path, needle: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(needle)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("needle", "gone"), [(b"b", [3]), (b"c", [4, 5]), (b"d", [6]), (b"a", [1, 2])]
)
def test_a_flipped_bit_costs_the_batch_that_it_is_in(directory, make, needle, gone):
    """In the last group too, whose records no later one calls synced; the others are
    served, and a second start needs no mark to know."""
    path = write(directory, make)
    flip(path, needle * 30)
    whole = path.read_bytes()
    for durable in (6, 0):
        found = settled(directory, RealDisk(), durable=durable)
        assert lost(found) == gone
        assert served(found) == [lsn for lsn in range(1, 7) if lsn not in gone]
        assert [(s.first_lsn, s.last_lsn) for s in found.segments] == [(1, 6)]
        assert found.next_lsn == 7
        assert path.read_bytes().startswith(whole), "evidence is destroyed"


@pytest.mark.parametrize("durable", [0, 2, 7])
@pytest.mark.parametrize(("needle", "gone"), [(b"b", [3]), (b"c", [4, 5]), (b"d", [6])])
def test_a_segment_behind_it_proves_what_was_acknowledged(
    directory, make, needle, gone, durable
):
    """Though the mark is late: a torn group that nobody was told of is followed by
    nothing."""
    path = write(directory, make)
    Log(directory, RealDisk(), 7, A).commit([make(b"e" * 30)])
    flip(path, needle * 30)
    whole = path.read_bytes()
    for _ in range(2):
        found = settled(directory, RealDisk(), durable=durable)
        assert lost(found) == gone
        assert served(found) == [lsn for lsn in range(1, 8) if lsn not in gone]
        assert [(s.first_lsn, s.last_lsn) for s in found.segments] == [(1, 6), (7, 7)]
        assert path.read_bytes().startswith(whole), "evidence is destroyed"


def test_lsns_that_were_left_out_are_no_lost_end(directory, make):
    """A damaged segment stood there, and has been removed since: what it had is missing,
    and nothing of the one before it."""
    path = write(directory, make)
    whole = path.read_bytes()
    Log(directory, RealDisk(), 1000, A).commit([make()])
    found = settled(directory, RealDisk(), durable=2)
    assert [one.why for one in found.losses] == ["missing before it"]
    assert [(s.first_lsn, s.last_lsn, s.lost) for s in found.segments] == [
        (1, 6, 0),
        (7, 999, 993),
        (1000, 1000, 0),
    ]
    assert path.read_bytes() == whole


def test_what_is_known_to_be_left_out_gets_no_place(directory, make):
    """Nobody was given these lsns: only what is missing before them is published as
    lost, also where the newest segment is the one that is gone."""
    path = write(directory, make)
    whole = path.read_bytes()
    Log(directory, RealDisk(), 1000, A).commit([make(count=2)])
    left_out = [range(10, 1000)]
    for durable in (2, 9, 1001):
        found = settled(directory, RealDisk(), durable=durable, left_out=left_out)
        assert [(s.first_lsn, s.last_lsn, s.lost) for s in found.segments] == [
            (1, 6, 0),
            (7, 9, 3),
            (1000, 1001, 0),
        ]
    (directory / segment_name(1000)).unlink()
    path.write_bytes(whole[:-1])
    (directory / segment_name(7)).unlink()
    for _ in range(2):
        found = settled(directory, RealDisk(), durable=1001, left_out=left_out)
        assert [(s.first_lsn, s.last_lsn, s.lost) for s in found.segments] == [
            (1, 9, 4),
            (1000, 1001, 2),
        ]
        assert found.next_lsn == 1002


def test_cut_short_anywhere_it_tells_what_is_gone(directory, make):
    """Down to an empty file, and to none; what is left is served, nothing given twice."""
    path = write(directory, make)
    whole = path.read_bytes()
    disk = RealDisk()
    for size in [*range(len(whole)), None]:
        for each in directory.iterdir():
            each.unlink()
        if size is not None:
            path.write_bytes(whole[:size])
        found = settled(directory, disk, durable=6)
        told = lost(found)
        assert sorted(told + served(found)) == [1, 2, 3, 4, 5, 6], size
        assert found.next_lsn == 7
        [left] = found.segments
        assert (left.first_lsn, left.last_lsn) == (1, 6)
        assert left.bytes == disk.size(left.path)
        again = settled(directory, disk)
        assert lost(again) == told
        assert again.segments == found.segments


def test_behind_a_sealed_segment_the_lost_one_gets_a_place(directory, make):
    """Its lsns are published as lost, and not given again."""
    disk = RealDisk()
    log = Log(directory, disk, 1, A)
    log.commit([make(count=2)])
    log.seal()
    log.commit([make(count=3)])
    (directory / segment_name(3)).unlink()
    for durable in (5, 0):
        found = settled(directory, disk, durable=durable)
        assert lost(found) == [3, 4, 5]
        assert [(s.first_lsn, s.last_lsn) for s in found.segments] == [(1, 2), (3, 5)]
        assert found.next_lsn == 6


def test_the_mark_makes_no_loss_of_what_was_published(directory, make):
    """It is behind what the catalog has as often as before it."""
    write(directory, make)
    found = settled(directory, RealDisk(), given=6, durable=6)
    assert (found.losses, found.next_lsn) == ([], 7)
    for each in directory.iterdir():
        each.unlink()
    assert settled(directory, RealDisk(), given=6, durable=6) == Recovered([], 7)


def test_a_torn_group_that_nobody_was_told_of_is_cut(directory, make):
    """The mark is behind it: it was not acknowledged, as far as anybody knows."""
    path = write(directory, make)
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    found = settled(directory, RealDisk(), durable=2)
    assert found.losses == []
    assert served(found) == [1, 2, 3, 4, 5]
    assert path.stat().st_size < len(data) - 5


def test_nothing_is_changed_before_it_is_told(make):
    """Whoever examines has all losses in hand, and the disk as it was."""
    directory = Path("/gw/journal")
    disk = RecordingDisk()
    disk.make_directory(directory)
    log = Log(directory, disk, 1, A)
    for _ in range(3):
        log.commit([make(count=2), make(b"y" * 50)])
        log.seal()
    disk.unlink(directory / segment_name(4))
    file = disk.open(directory / segment_name(7))
    file.truncate(70)
    steps = len(disk.moments)
    found = examine(directory, disk, durable=9)
    assert lost(found) == [4, 5, 6, 7, 8, 9]
    assert len(disk.moments) == steps
    found.settle()
    assert len(disk.moments) > steps


def test_a_full_disk_prevents_no_start(directory):
    """What can not be written of a loss is told at the next start again."""
    directory = Path("/gw/journal")
    disk = RecordingDisk()
    disk.make_directory(directory)
    for _ in range(2):
        disk.fault = Fault(1, 28, times=1 << 30, calls=frozenset({"write"}))
        found = settled(directory, disk, durable=3)
        assert lost(found) == [1, 2, 3]
        assert (found.segments, found.next_lsn) == ([], 4)
        assert disk.names(directory) == []
    disk.fault = None
    assert [s.events for s in settled(directory, disk, durable=3).segments] == [3]


def test_a_seal_that_is_not_written_does_not_count(make):
    """The mark says how many bytes there are: with a seal that found no room, the next
    start would miss it."""
    directory = Path("/gw/journal")
    disk = RecordingDisk()
    disk.make_directory(directory)
    log = Log(directory, disk, 1, A)
    log.commit([make(b"a" * 30, 2)])
    path = directory / segment_name(1)
    disk.fault = Fault(1, errno.ENOSPC, times=1 << 30, calls=frozenset({"write"}))
    [left] = settled(directory, disk, durable=4).segments
    assert (left.lost, left.bytes) == (2, disk.size(path))
    disk.fault = None
    size = left.bytes
    [left] = settled(directory, disk, durable=4).segments
    assert (left.lost, left.bytes) == (2, disk.size(path))
    assert left.bytes > size


class BadSector(RealDisk):
    """The end of each file can not be read."""

    def read(self, path: Path) -> bytes:
        raise OSError(errno.EIO, "bad", str(path))

    def read_around(self, path: Path) -> bytes:
        data = path.read_bytes()
        return data[:-20] + bytes(20)


def test_nor_does_one_of_a_segment_that_can_not_be_read(directory, make, monkeypatch):
    """Nothing is written to it; read again one day, it lacks nothing."""
    monkeypatch.setattr("gateway.store.system.disk._PAUSE_SECONDS", 0)
    path = write(directory, make)
    size = path.stat().st_size
    found = settled(directory, BadSector(), durable=6)
    assert lost(found) == [6]
    [left] = found.segments
    assert (left.bytes, path.stat().st_size) == (size, size)
    found = settled(
        directory, RealDisk(), durable=6, synced=Synced(path.name, left.bytes)
    )
    assert found.losses == []


def remembering(directory: Path, make: Make) -> tuple[Log, Path]:
    """An open segment with lsns 1 and 2, and three batches of metadata behind them."""
    log = Log(directory, RealDisk(), 1, A)
    log.commit([make(b"a" * 30, 2)])
    log.commit([make(b"m" * 30, 0), make(b"n" * 30, 0), make(b"o" * 30, 0)])
    return log, directory / segment_name(1)


def bodies(found: Recovered) -> bytes:
    """The first bytes of all batches that are left."""
    return b"".join(
        stored.batch.body[:1]
        for one in found.segments
        for stored in segment.Scan(one.path.read_bytes(), durable=one.last_lsn)
    )


@pytest.mark.parametrize(
    ("needle", "left"), [(b"m", b"ano"), (b"n", b"amo"), (b"o", b"amn")]
)
@pytest.mark.parametrize("where", ["body", "head"])
def test_flipped_metadata_at_the_end_is_told(directory, make, needle, left, where):
    """No lsn tells of it; the mark says how many bytes were synced.  A second start needs
    no mark to know."""
    log, path = remembering(directory, make)
    data = bytearray(path.read_bytes())
    at = data.index(needle * 30)
    data[at if where == "body" else at - 60] ^= 1
    path.write_bytes(data)
    for synced in (log.synced, None):
        found = settled(directory, RealDisk(), durable=2, synced=synced)
        assert losses(found) == [(3, 0)]
        assert bodies(found) == left
        assert found.next_lsn == 3
        assert path.read_bytes().startswith(data), "evidence is destroyed"


def test_metadata_that_is_cut_off_is_told_wherever_the_cut_is(directory, make):
    """Down to an empty file, and to none; what is left is given back."""
    log, path = remembering(directory, make)
    whole = path.read_bytes()
    assert log.synced.bytes == len(whole)
    for size in [*range(len(whole)), None]:
        for each in directory.iterdir():
            each.unlink()
        if size is not None:
            path.write_bytes(whole[:size])
        found = settled(directory, RealDisk(), durable=2, synced=log.synced)
        assert found.losses, size
        assert sorted(lost(found) + served(found)) == [1, 2], size
        assert b"amno".startswith(bodies(found))
        again = settled(directory, RealDisk())
        assert again.losses, size
        assert again.segments == found.segments


def test_the_segment_behind_it_tells_of_metadata_that_was_cut_off(directory, make):
    """No lsn tells of it, its seal is gone with it, and the mark names a later one."""
    log, path = remembering(directory, make)
    log.seal()
    sealed = path.read_bytes()
    metadata_only = log.synced.bytes
    log.commit([make(b"p" * 30, 0)])
    log.seal()
    log.commit([make(b"q" * 30)])
    for size in range(segment.HEADER_BYTES, len(sealed) + 1):
        path.write_bytes(sealed[:size])
        found = examine(directory, RealDisk(), durable=3, synced=log.synced)
        assert bool(found.losses) == (size < metadata_only), size
        assert sorted(lost(found) + served(found)) == [1, 2, 3], size
        assert bodies(found).endswith(b"pq")


@pytest.mark.parametrize("size", [None, 0, 20, segment.HEADER_BYTES, 150])
def test_a_segment_of_metadata_alone_that_is_gone_is_told(directory, make, size):
    """It has no lsn that anybody would miss."""
    log = Log(directory, RealDisk(), 5, A)
    log.commit([make(b"m" * 30, 0)])
    path = directory / segment_name(5)
    whole = path.read_bytes()
    path.unlink()
    if size is not None:
        path.write_bytes(whole[:size])
    found = settled(directory, RealDisk(), given=4, durable=4, synced=log.synced)
    assert [(one.path, one.first_lsn, one.events) for one in found.losses] == [
        (path, 5, 0)
    ]
    assert found.next_lsn == 5


def test_what_lies_behind_the_synced_bytes_may_be_torn(directory, make):
    """The mark is late: nobody was told of more, as far as it knows."""
    log, path = remembering(directory, make)
    late = log.synced
    log.commit([make(b"p" * 30, 0)])
    assert log.synced.bytes > late.bytes
    path.write_bytes(path.read_bytes()[:-5])
    found = settled(directory, RealDisk(), durable=2, synced=late)
    assert (found.losses, bodies(found)) == ([], b"amno")
    assert path.stat().st_size == late.bytes


def test_a_published_segment_that_is_gone_is_no_loss(directory, make):
    """The mark named it, and it was published since."""
    log, path = remembering(directory, make)
    path.unlink()
    found = settled(directory, RealDisk(), given=2, durable=2, synced=log.synced)
    assert found == Recovered([], 3)


def test_a_copy_of_the_marked_segment_makes_no_loss(directory, make):
    log, path = remembering(directory, make)
    (directory / segment_name(1, 1)).write_bytes(path.read_bytes())
    found = settled(directory, RealDisk(), durable=2, synced=log.synced)
    assert found.losses == []
