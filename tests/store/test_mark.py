"""The mark: what it says, who may read it, and that it names nothing that was removed."""

import errno
from pathlib import Path

import pytest

from gateway.event import Batch, Origin, Rows
from gateway.sdk.disk import Disk
from gateway.store.directories import Directories
from gateway.store.journal import Synced
from gateway.store.node.mark import Mark, Marker
from gateway.store.opening import Opened, Start, open_node
from gateway.store.system.disk import RealDisk
from gateway.store.system.machine import Machine
from gateway_testkit.disk import Fault, RecordingDisk
from incarnations import A, B, segment_name

ORIGIN = Origin("plain", "l", "s-1", "[::1]:9")


def start(root: Path, disk: Disk | None = None, *, remembering: bool = True) -> Opened:
    return open_node(
        Start(
            "gw",
            Directories.under(root),
            Machine(disk or RealDisk()),
            {"plain": lambda body: Rows([body])},
            remembering=remembering,
        )
    )


def remember(opened: Opened, body: bytes) -> Path:
    """Store metadata; the segment that it is in."""
    opened.log.commit([Batch(ORIGIN, 1, 0, body, len(body))])
    return opened.log.directory / opened.log.synced.name


def test_a_state_directory_that_is_gone_is_told(tmp_path):
    """With what protocols remembered: its senders would find out, and nobody else."""
    start(tmp_path).log.commit([Batch(ORIGIN, 1, 1, b"a", 1)])
    opened = start(tmp_path)
    assert opened.repairs == [], "killed before anything was marked"
    opened.marker.path.unlink()
    [gone] = start(tmp_path).repairs
    assert gone.startswith(f"{opened.marker.path} is gone, and so is what protocols")
    assert start(tmp_path).repairs == []
    (tmp_path / "state/gw/plain.state").touch()
    opened.marker.path.unlink()
    [gone] = start(tmp_path).repairs
    assert gone == f"{opened.marker.path} is gone, and was there; it is written anew"


def test_metadata_that_rots_at_the_end_is_told(tmp_path):
    """Or is cut off, or its file removed: before anything is changed."""
    opened = start(tmp_path)
    remember(opened, b"m" * 40)
    path = remember(opened, b"n" * 40)
    opened.marker.write(opened.mark(0), now=True)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(b"n" * 40) - 50] ^= 1
    mark = opened.marker.path.read_bytes()
    for content in (bytes(flipped), whole[:-1], whole[:50], b"", None):
        opened.marker.path.write_bytes(mark)
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        opened = start(tmp_path)
        told = [(one.path, one.first_lsn, one.events) for one in opened.losses]
        assert told == [(path, 1, 0)], content
        assert opened.first_lsn == 1


def test_what_the_last_run_left_is_named_until_this_one_has_more(tmp_path):
    """It may be long before there is another batch."""
    opened = start(tmp_path)
    path = remember(opened, b"m" * 40)
    size = path.stat().st_size
    opened = start(tmp_path)
    mark = opened.mark(0)
    assert (mark.segment, mark.synced) == (path.name, size)
    remember(opened, b"n")
    mark = opened.mark(0)
    assert mark.segment == path.name.replace(f"{A}.journal", f"{B}.1.journal")
    assert opened.mark(0, Synced("x", 1)).segment == "x"


def test_a_segment_that_is_not_needed_any_more_is_no_loss(tmp_path):
    """A checkpoint has its metadata; whenever the power goes after that."""
    opened = start(tmp_path)
    remember(opened, b"m")
    opened.marker.write(opened.mark(0), now=True)
    late = opened.mark(0)
    sealed = opened.log.seal()
    assert sealed is not None
    opened.publisher.remove(sealed)
    assert not sealed.path.exists()
    assert start(tmp_path).losses == []
    opened.marker.write(late, now=True)  # it was made before the segment was removed
    opened.publisher.remove(sealed)
    assert start(tmp_path).losses == []
    opened = start(tmp_path)
    opened.marker.write(opened.mark(0), now=True)
    assert start(tmp_path).losses == []


def test_one_of_the_last_run_is_none_either(tmp_path):
    """This run has written no mark yet that does not name it."""
    opened = start(tmp_path)
    remember(opened, b"m")
    opened.marker.write(opened.mark(0), now=True)
    opened = start(tmp_path)
    opened.publisher.remove(opened.segments[0])
    assert opened.losses == start(tmp_path).losses == []


def test_a_mark_that_can_not_be_written_keeps_the_segment():
    """Else the next start would miss it; the mark that failed may be there."""
    disk = RecordingDisk()
    directory = Path("/gw/state")
    disk.make_directory(directory)
    marker = Marker(directory, disk)
    marker.write(Mark(durable=1), now=True)
    disk.fault = Fault(1, errno.EIO, times=1, calls=frozenset({"sync_directory"}))
    with pytest.raises(OSError, match="error"):
        marker.write(Mark(durable=2, segment="one", synced=9), now=True)
    disk.fault = Fault(1, errno.EIO, times=1, calls=frozenset({"write"}))
    with pytest.raises(OSError, match="error"):
        marker.forget("one")
    marker.forget("one")
    read, _ = Marker(directory, disk).read()
    assert (read.durable, read.segment, read.synced) == (1, "", 0)
    marker.write(Mark(durable=3, segment="one", synced=10), now=True)
    assert Marker(directory, disk).read()[0] == Mark(durable=3)


@pytest.mark.parametrize("remembering", [True, False])
def test_a_segment_behind_a_removed_one_is_marked(tmp_path, remembering):
    """The last run was killed with metadata alone, and its segment is not needed."""
    opened = start(tmp_path)
    old = remember(opened, b"m")
    opened.marker.write(opened.mark(0), now=True)
    opened = start(tmp_path, remembering=remembering)
    opened.publisher.remove(opened.segments[0])
    assert not old.exists()
    path = remember(opened, b"n" * 40)
    opened.marker.write(opened.mark(0), now=True)
    read, _ = opened.marker.read()
    assert (read.segment, read.synced) == (path.name, path.stat().st_size)
    assert path != old
    path.unlink()
    assert [one.path for one in start(tmp_path).losses] == [path]


def test_a_late_mark_names_no_earlier_one_either():
    """It was made before two more were begun and removed."""
    disk = RecordingDisk()
    directory = Path("/gw/state")
    disk.make_directory(directory)
    marker = Marker(directory, disk)
    for attempt in range(9, 12):
        marker.forget(segment_name(5, attempt))
    marker.write(Mark(4, segment=segment_name(5, 9), synced=9), now=True)
    assert Marker(directory, disk).read()[0] == Mark(4)
    for newer in (Mark(4, segment=segment_name(5, 12), synced=9), Mark(7, segment="")):
        marker.write(newer, now=True)
        assert Marker(directory, disk).read()[0] == newer


def test_a_full_disk_keeps_no_start_from_going_on():
    """A segment of metadata that the mark names stays until there is room."""
    disk = RecordingDisk()
    root = Path("/gw")
    opened = start(root, disk)
    path = remember(opened, b"m")
    opened.marker.write(opened.mark(0), now=True)
    for _ in range(2):
        disk.fault = Fault(1, errno.ENOSPC, times=1 << 30, calls=frozenset({"write"}))
        opened = start(root, disk, remembering=False)
        assert opened.losses == []
        assert disk.exists(path)
        disk.fault = None
    assert opened.publisher.publish(opened.segments[0]) == []
    assert not disk.exists(path)
    assert start(root, disk, remembering=False).losses == []


def test_a_full_disk_holds_up_no_queue():
    """Nor does the same segment hold up what is to be published behind it."""
    disk = RecordingDisk()
    opened = start(Path("/gw"), disk, remembering=False)
    path = remember(opened, b"m")
    opened.marker.write(opened.mark(0), now=True)
    sealed = opened.log.seal()
    assert sealed is not None
    disk.fault = Fault(1, errno.ENOSPC, times=1 << 30, calls=frozenset({"write"}))
    assert opened.publisher.publish(sealed) == []
    assert disk.exists(path)
