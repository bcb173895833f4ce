"""Which journal segments have become files: the memory that makes publishing once.

One line per file, JSON behind its CRC, appended and synced *before* the file gets
its public name.  So for a segment that is still there after a crash:

    no line                 its file was never public: write it again
    a line and a hidden file    the rename did not happen: rename it now
    a line, no hidden file  it was public, whoever took it since: remove the segment

The last line also remembers the last lsn, once every segment is gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import msgspec

from gateway.disk import Disk, File

__all__ = ["Catalog", "Entry", "entries"]

_KEEP = 1000


class Entry(msgspec.Struct, frozen=True):
    """A file that may be public."""

    first: int
    last: int
    name: str

    @property
    def hidden(self) -> str:
        """Its name until it is complete; what starts with `.` is not there yet."""
        return f".{self.name}"


@dataclass(slots=True)
class _Lines:
    entries: list[Entry]
    good: int
    """Bytes of whole lines; what is behind them was never synced."""


class Catalog:
    """The file `catalog` in the journal's directory; the spool's thread owns it."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        """Raises OSError."""
        self.path = directory / "catalog"
        self._disk = disk
        self._new = directory / ".catalog"
        disk.unlink(self._new)
        read = _Lines([], 0)
        if disk.exists(self.path):
            read = _read(disk.read(self.path))
            self._file: File = disk.open(self.path)
            self._file.truncate(read.good)
        else:
            self._file = disk.create(self.path)
            disk.sync_directory(directory)
        self._size = read.good
        self._torn = False
        self._entries = {entry.first: entry for entry in read.entries}

    @property
    def last_lsn(self) -> int:
        """Of the newest entry; 0 if there is none."""
        return max((entry.last for entry in self._entries.values()), default=0)

    def __iter__(self) -> Iterator[Entry]:
        """The entries it still remembers."""
        return iter(self._entries.values())

    def find(self, first_lsn: int) -> Entry | None:
        """The entry of the segment that starts there."""
        return self._entries.get(first_lsn)

    def add(self, entry: Entry) -> None:
        """Remember it durably, or raise OSError having remembered nothing."""
        if self._torn or len(self._entries) >= 2 * _KEEP:
            self._rewrite()
        line = _line(entry)
        try:
            self._file.write([line])
            self._file.sync()
        except OSError:
            # After a failed sync this file can not be trusted with one more line.
            self._torn = True
            raise
        self._size += len(line)
        self._entries[entry.first] = entry

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _rewrite(self) -> None:
        keep = dict(list(self._entries.items())[-_KEEP:])
        self._disk.unlink(self._new)
        file = self._disk.create(self._new)
        try:
            lines = [_line(entry) for entry in keep.values()]
            file.write(lines)
            file.sync()
            self._disk.rename(self._new, self.path)
            self._disk.sync_directory(self.path.parent)
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                self._disk.unlink(self._new)
            raise
        self._file.close()
        self._file, self._entries = file, keep
        self._size = sum(map(len, lines))
        self._torn = False


def entries(data: bytes) -> list[Entry]:
    """What a catalog's bytes say; for those who may only look."""
    return _read(data).entries


def _line(entry: Entry) -> bytes:
    text = msgspec.json.encode(entry)
    return b"%08x %b\n" % (google_crc32c.value(text), text)


def _read(data: bytes) -> _Lines:
    entries: list[Entry] = []
    good = 0
    for line in data.splitlines(keepends=True):
        text = line[9:-1]
        if line[:8] != b"%08x" % google_crc32c.value(text) or line[-1:] != b"\n":
            break
        entries.append(msgspec.json.decode(text, type=Entry))
        good += len(line)
    return _Lines(entries, good)
