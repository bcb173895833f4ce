"""New segments are written over the files of published ones, and nobody is the wiser."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.event import Batch
from gateway.store.finder import segment_files
from gateway.store.journal import Log, Segment, segment
from gateway.store.journal.spares import Spares
from gateway.store.system.disk import RealDisk
from gateway_testkit.disk import Fault, RecordingDisk
from incarnations import A, examine


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


@pytest.fixture
def spares(disk) -> Spares:
    return Spares(disk)


@pytest.fixture
def log(directory, disk, spares) -> Log:
    return Log(directory, disk, 1, A, spares=spares)


Recorded = tuple[RecordingDisk, Spares, Log]


@pytest.fixture
def recorded(directory) -> Recorded:
    """On a disk that fails on command."""
    disk = RecordingDisk()
    disk.make_directory(directory)
    spares = Spares(disk)
    return disk, spares, Log(directory, disk, 1, A, spares=spares)


def rolled(log: Log, *batches: Batch) -> Segment:
    """A segment with these."""
    log.commit(batches)
    sealed = log.seal()
    assert sealed is not None
    return sealed


def bodies(data: bytes) -> list[bytes]:
    scan = segment.Scan(data)
    found = [stored.batch.body for stored in scan]
    assert scan.damage == []
    return found


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_file_of_a_published_segment_is_the_next_ones(directory, log, spares, make):
    """Under a new name, cut to what it has in the end."""
    first = rolled(log, make(b"long" * 1000))
    inode = first.path.stat().st_ino
    spares.keep(first.path)
    assert not first.path.exists()
    second = rolled(log, make(b"short"))
    assert second.path.stat().st_ino == inode
    seal = segment.seal(segment.Header(1, 0, 0), 1, 0)
    assert second.path.stat().st_size == second.bytes + len(seal)
    assert bodies(second.path.read_bytes()) == [b"short"]
    assert names(directory) == [second.path.name]


def test_what_is_behind_the_open_segment_is_none_of_it(
    directory, log, spares, disk, make
):
    """A crash leaves it there; a start cuts it off."""
    old = rolled(log, *[make(b"old" * 100) for _ in range(9)])
    old_bytes = old.path.stat().st_size
    spares.keep(old.path)
    log.commit([make(b"new"), make(b"newer")])
    (open_one,) = segment_files(directory)
    assert open_one.path.stat().st_size == old_bytes
    assert [one.batch.body for one in open_one.scan()] == [b"new", b"newer"]
    found = examine(directory, disk, given=old.last_lsn).settle().clear()
    (left,) = found.segments
    assert left.path.stat().st_size == left.bytes < old_bytes
    assert bodies(left.path.read_bytes()) == [b"new", b"newer"]
    assert found.losses == []
    assert found.next_lsn == log.next_lsn


def test_longer_segments_grow(log, spares, make):
    spares.keep(rolled(log, make(b"short")).path)
    log.commit([make(b"a")])
    log.commit([make(b"b" * 5000)])
    sealed = log.seal()
    assert sealed is not None
    assert bodies(sealed.path.read_bytes()) == [b"a", b"b" * 5000]


def test_a_write_that_fails_cuts_off_the_old_ones_too(recorded, make):
    """A scan of the segment ends with what is durable; the next one has what comes then."""
    disk, spares, log = recorded
    spares.keep(rolled(log, make(b"old" * 1000)).path)
    log.commit([make(b"a")])
    disk.fault = Fault(1, calls=frozenset({"write"}), short=True)
    with pytest.raises(OSError, match="Input/output"):
        log.commit([make(b"lost" * 100)])
    log.commit([make(b"b")])
    (left,), sealed = log.abandoned(), log.seal()
    assert sealed is not None
    assert bodies(disk.read(left.path)) == [b"a"]
    assert bodies(disk.read(sealed.path)) == [b"b"]


def test_one_whose_sync_failed_is_not_sound(directory, recorded, make):
    """Nor is one of an earlier run, of which nobody knows."""
    disk, _, log = recorded
    log.commit([make()])
    disk.fault = Fault(1, calls=frozenset({"sync"}))
    with pytest.raises(OSError, match="Input/output"):
        log.commit([make()])
    (left,) = log.abandoned()
    assert not left.sound
    assert rolled(log, make()).sound
    assert not any(one.sound for one in examine(directory, disk).segments)


def test_not_too_many_are_kept(directory, log, spares, make, monkeypatch):
    """By their size; others are removed, and all of them when there is need."""
    monkeypatch.setattr("gateway.store.journal.spares._MOST_BYTES", 1000)
    sealed = [rolled(log, make(b"x" * 10)) for _ in range(9)]
    large = rolled(log, make(b"x" * 1000))
    for one in sealed:
        spares.keep(one.path)
        spares.keep(one.path)  # as after a failure in between
    assert 2 <= len(list(directory.glob("*.spare"))) < len(sealed)
    spares.keep(large.path)
    assert spares.give_room()
    assert names(directory) == []
    assert not spares.give_room()
    huge = rolled(log, make(b"x" * 1000))
    spares.keep(huge.path)
    assert names(directory) == [huge.path.with_suffix(".spare").name]


def test_one_that_can_not_be_opened_is_removed(
    directory, log, spares, disk, make, monkeypatch
):
    """As where there are too many descriptors."""

    def fail(_: Path) -> None:
        raise OSError(errno.EMFILE, "too many")

    spares.keep(rolled(log, make()).path)
    monkeypatch.setattr(disk, "overwrite", fail)
    assert bodies(rolled(log, make(b"stored")).path.read_bytes()) == [b"stored"]
    assert not list(directory.glob("*.spare"))


def test_they_give_way_when_the_disk_is_full(
    directory, log, spares, disk, make, monkeypatch
):
    """What they take is room for what has to be stored."""
    spares.keep(rolled(log, make()).path)
    monkeypatch.setattr(disk, "free", lambda _: 0 if names(directory) else 1 << 40)
    log.commit([make(b"stored")])
    sealed = log.seal()
    assert sealed is not None
    assert bodies(sealed.path.read_bytes()) == [b"stored"]


def test_they_give_way_to_a_quota(directory, recorded, make):
    """Of which only a write that fails tells."""
    disk, spares, log = recorded
    published = [rolled(log, make()) for _ in range(2)]
    log.commit([make()])
    for sealed in published:
        spares.keep(sealed.path)
    assert len(disk.names(directory)) == 3
    disk.fault = Fault(1, errno.EDQUOT, calls=frozenset({"write"}))
    with pytest.raises(OSError, match="quota"):
        log.commit([make()])
    assert len(disk.names(directory)) == 1


def test_one_that_is_gone_is_not_missed(log, spares, directory, make):
    """Somebody has tidied up."""
    spares.keep(rolled(log, make()).path)
    for path in directory.iterdir():
        path.unlink()
    assert bodies(rolled(log, make(b"stored")).path.read_bytes()) == [b"stored"]


def test_a_start_removes_them(directory, log, spares, disk, make):
    """And nothing else that looks similar."""
    spares.keep(rolled(log, make()).path)
    (directory / "mine.spare").touch()
    assert len(names(directory)) == 2
    examine(directory, disk, given=1).settle().clear()
    assert names(directory) == ["mine.spare"]


def test_who_reads_a_segment_that_is_written_over_is_told_it_is_gone(
    directory, log, spares, make, monkeypatch
):
    """Its events are in a file by then: half of it would look like damage."""
    sealed = rolled(log, make(b"old" * 100), make(b"old" * 100))
    (seen,) = segment_files(directory)
    read_bytes = Path.read_bytes

    def read_late(path: Path) -> bytes:
        with path.open("rb", buffering=0) as file:
            head = file.read(segment.HEADER_BYTES)
            spares.keep(sealed.path)
            log.commit([make(b"new")])
            return head + file.read()

    monkeypatch.setattr(Path, "read_bytes", read_late)
    with pytest.raises(FileNotFoundError):
        seen.scan(growing=True)  # else it is read again, and is not there
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    (now,) = segment_files(directory)
    assert [one.batch.body for one in now.scan()] == [b"new"]


def torn(path: Path, at: int, later: Callable[[], object]) -> bytes:
    """What one reads of it who is held up at a byte, while *later* happens."""
    with path.open("rb", buffering=0) as file:
        head = file.read(at)
        file.seek(at)
        old = file.read(200)
        later()
        file.seek(at + 200)
        return head + old + file.read()


def test_who_reads_the_open_segment_beside_its_writer_sees_no_damage(
    directory, log, spares, make, monkeypatch
):
    """Old bytes were read where the next group is by now, and behind them newer ones."""
    spares.keep(rolled(log, *[make(b"old" * 100) for _ in range(50)]).path)
    log.commit([make(b"a" * 100)])
    (file,) = segment_files(directory)
    read_bytes = Path.read_bytes
    monkeypatch.setattr(
        Path,
        "read_bytes",
        lambda path: torn(
            path, log.bytes, lambda: [log.commit([make(b"b" * 100)]) for _ in range(5)]
        ),
    )
    data = file.path.read_bytes()
    assert segment.Scan(data).survey().damage, "or this says nothing"
    for growing in (False, True):
        scan = file.scan(growing=growing)
        assert len(list(scan)) >= 1
        assert scan.damage == []
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert len(list(file.scan())) == len(list(file.scan(growing=True))) > 10


def test_what_is_damaged_for_good_is_told(directory, log, make):
    """Also of the newest segment, if nobody writes it."""
    log.commit([make(b"a" * 100)])
    begin = log.bytes
    log.commit([make(b"b" * 100)])
    log.commit([make(b"c" * 100)])
    (file,) = segment_files(directory)
    data = bytearray(file.path.read_bytes())
    data[begin + 60] ^= 1
    file.path.write_bytes(data)
    scan = file.scan()
    assert len(list(scan)) == 2
    assert [one.offset for one in scan.damage] == [begin]


@pytest.mark.parametrize("also", [None, 12, 17])
def test_old_bytes_under_a_new_name_are_no_segment(
    directory, log, spares, disk, make, also
):
    """The disk has lost what it called synced, and maybe *also* a bit of the old header:
    what is told is that something is lost, and nothing old comes back."""
    old = rolled(log, *[make(b"old" * 100) for _ in range(9)])
    data = bytearray(old.path.read_bytes())
    spares.keep(old.path)
    log.commit([make(b"lost", 3)])
    (file,) = segment_files(directory)
    if also is not None:
        data[also] ^= 1
    file.path.write_bytes(data)
    why = "damaged" if also else "that of a segment that begins with lsn 1, and .* 10$"
    with pytest.raises(segment.InvalidSegment, match=why):
        file.scan()
    found = examine(directory, disk, given=old.last_lsn, durable=12).settle().clear()
    assert found.segments == []
    (loss,) = found.losses
    assert (loss.path, loss.first_lsn) == (file.path, 10)
    assert loss.events >= 3
    assert names(directory) == [f"{file.path.name}.damaged"]


def test_a_damaged_header_before_old_bytes_is_no_loss(
    directory, log, spares, disk, make
):
    """Nothing was written in it yet: it goes, as one does that has no more than that."""
    old = rolled(log, *[make(b"old" * 100) for _ in range(50)])
    spares.keep(old.path)
    log.begin()
    (file,) = segment_files(directory)
    data = bytearray(file.path.read_bytes())
    data[17] ^= 4
    file.path.write_bytes(data)
    found = examine(directory, disk, given=old.last_lsn).settle().clear()
    assert found.losses == []
    assert found.next_lsn == log.next_lsn
    assert names(directory) == []
