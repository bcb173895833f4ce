"""The mark: what it says, who may read it, and that it names nothing that was removed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gateway.event import Batch, Origin, Rows
from gateway.store import summed
from gateway.store.directories import Directories
from gateway.store.disk import RealDisk
from gateway.store.journal import Synced, segment
from gateway.store.mark import Mark, Marker, decode
from gateway.store.opening import Opened, open_node
from gateway.testing.disk import Fault, RecordingDisk

ORIGIN = Origin("plain", "l", "s-1", "[::1]:9")


def start(root: Path) -> Opened:
    return open_node(
        "gw",
        Directories.under(root),
        RealDisk(),
        {"plain": lambda body: Rows([body])},
        remembering=True,
    )


def remember(opened: Opened, body: bytes) -> Path:
    """Store metadata; the segment that it is in."""
    opened.log.commit([Batch(ORIGIN, 1, 0, body, len(body))])
    return opened.log.directory / opened.log.synced.name


def test_a_mark_of_an_earlier_version_is_read() -> None:
    """It knows of no bytes."""
    text = b'{"given":7,"durable":6,"published":5,"link":"a","incarnation":"i"}'
    line = b"%08x %b\n" % (summed.google_crc32c.value(text), text)
    assert decode(line) == Mark(7, 6, 5, "a", "i")


def test_a_later_field_does_not_stop_who_goes_back() -> None:
    """What an earlier version does not know, it passes over."""
    text = b'{"given":7,"later":[1]}'
    line = b"%08x %b\n" % (summed.google_crc32c.value(text), text)
    assert decode(line) == Mark(7)


def test_metadata_that_rots_at_the_end_is_told(tmp_path: Path) -> None:
    """Or is cut off, or its file removed: before anything is changed."""
    opened = start(tmp_path)
    remember(opened, b"m" * 40)
    path = remember(opened, b"n" * 40)
    opened.marker.write(opened.mark(0), now=True)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(b"n" * 40) - 50] ^= 1
    for content in (bytes(flipped), whole[:-1], whole[:50], b"", None):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        opened = start(tmp_path)
        told = [(one.path, one.first_lsn, one.events) for one in opened.losses]
        assert told == [(path, 1, 0)], content
        assert opened.first_lsn == 1


def test_what_the_last_run_left_is_named_until_this_one_has_more(
    tmp_path: Path,
) -> None:
    """It may be long before there is another batch."""
    opened = start(tmp_path)
    path = remember(opened, b"m" * 40)
    size = path.stat().st_size
    opened = start(tmp_path)
    mark = opened.mark(0)
    assert (mark.segment, mark.synced) == (path.name, size)
    remember(opened, b"n")
    mark = opened.mark(0)
    assert mark.segment == segment.name(1, 1)
    assert opened.mark(0, Synced("x", 1)).segment == "x"


def test_a_segment_that_is_not_needed_any_more_is_no_loss(tmp_path: Path) -> None:
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


def test_one_of_the_last_run_is_none_either(tmp_path: Path) -> None:
    """This run has written no mark yet that does not name it."""
    opened = start(tmp_path)
    remember(opened, b"m")
    opened.marker.write(opened.mark(0), now=True)
    opened = start(tmp_path)
    opened.publisher.remove(opened.segments[0])
    assert opened.losses == start(tmp_path).losses == []


def test_a_mark_that_can_not_be_written_keeps_the_segment() -> None:
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
