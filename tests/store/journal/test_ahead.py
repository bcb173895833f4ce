"""A start has the disk read what it will read, so much ahead and no more."""

import os
from pathlib import Path

import pytest

from gateway.store.journal import ahead
from gateway.store.journal.ahead import begin, in_time
from gateway.store.system.disk import RealDisk
from incarnations import segment_name

MOST = ahead.AHEAD_BYTES


class Sizes(RealDisk):
    """Files of any size, of which none is there; a log of what it is asked for."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = {Path(f"{n:03}"): size for n, size in enumerate(sizes)}
        self.asked: list[Path] = []

    def fetch(self, path: Path) -> int:
        self.asked.append(path)
        return self.sizes[path]


@pytest.mark.parametrize(
    "sizes",
    [
        [MOST] * 3,
        [16 << 20] * 40,
        [14 << 20] * 80,
        [MOST, MOST * 3, 1, MOST - 1, 1, 1],
        [0] * 5,
        [1],
        [],
    ],
)
def test_each_file_is_asked_for_before_it_is_read(sizes):
    """In order and once, with the next; those behind it, but for one, keep to the bound."""
    disk, read = Sizes(*sizes), 0
    paths = list(disk.sizes)
    for path in in_time(paths, disk):
        read += 1
        assert path == paths[read - 1]
        assert disk.asked == paths[: len(disk.asked)]
        assert len(disk.asked) >= min(read + 1, len(paths))
        waiting = disk.asked[read:]
        assert sum(disk.sizes[one] for one in waiting[:-1]) < MOST
    assert read == len(paths) == len(disk.asked)


@pytest.mark.parametrize("size", [16 << 20, MOST, MOST + 1])
def test_the_disk_has_always_something_to_read(size):
    """While one is looked at, as much as may be is asked for."""
    disk = Sizes(*[size] * 40)
    for read, _ in enumerate(in_time(list(disk.sizes), disk), 1):
        assert len(disk.asked) == min(40, read + max(MOST // size, 1))


def test_only_the_beginning_of_a_long_journal_is_read_early(tmp_path, monkeypatch):
    """What is no segment is let be, and a FIFO of a segment's name, too."""
    monkeypatch.setattr(ahead, "EARLY_BYTES", 25)
    for lsn in (1, 2, 3, 4):
        (tmp_path / segment_name(lsn)).write_bytes(bytes(10))
    (tmp_path / "catalog").write_bytes(bytes(10))
    os.mkfifo(tmp_path / segment_name(1, 1))
    read: list[int] = []
    readv = os.readv

    def noted(fd: int, pieces: list[bytearray]) -> int:
        read.append(readv(fd, pieces))
        return read[-1]

    monkeypatch.setattr(os, "readv", noted)
    begin(tmp_path)
    assert read == [10, 0, 10, 0, 10]


def test_a_journal_that_can_not_be_read_is_for_the_start_to_tell(tmp_path, monkeypatch):
    """A directory that is missing, or a disk that fails: whoever is first says nothing."""
    begin(tmp_path / "missing")
    (tmp_path / segment_name(1)).write_bytes(b"x")

    def fails(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "readv", fails)
    begin(tmp_path)
