"""The file system calls that durability rests on, as an interface.

Journal, spool and checkpoint write through nothing else, and neither does a protocol that
keeps files of its own (`Context.disk`).  So a test can record every call, fail any one of
them, or build what a crash would have left (`gateway_testkit`).  Calls block: they belong
in threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

__all__ = ["Disk", "File", "replace_file"]


class File(Protocol):
    """An open file that is written from one end to the other."""

    def write(self, chunks: Sequence[bytes]) -> None:
        """Write all of it behind what was written, or raise OSError having written some.

        That is the end of the file, but where it is written over (`Disk.overwrite`).
        """

    def sync(self) -> None:
        """Return once every byte written so far survives a power cut (fdatasync)."""

    def rewrite(self, data: bytes) -> None:
        """Put these bytes at its beginning; the next write goes where it would have gone.

        Where they are there already, a crash changes nothing.  After a sync that failed,
        what is read may be in memory only, and the next sync succeed for having nothing to
        do.  Written again, it is synced again.
        """

    def truncate(self, size: int) -> None:
        """Cut back to *size* bytes; the next write goes there."""

    def close(self) -> None:
        """Idempotent; makes nothing durable."""


class Disk(Protocol):
    """The calls.  They raise OSError like `os`."""

    def create(self, path: Path) -> File:
        """A new empty file; FileExistsError if there is one."""

    def open(self, path: Path) -> File:
        """An existing file, to truncate or sync it, or to write at its end."""

    def overwrite(self, path: Path) -> File:
        """An existing file, to be written over from its beginning.

        What it has behind that stays; until a sync each sector has its old bytes or the new
        ones.
        """

    def read(self, path: Path) -> bytes:
        """All of it."""

    def fetch(self, path: Path) -> int:
        """Have the system begin to read it, for a `read` that comes soon; never raises.

        Returns its size, 0 if that is not known: what is wrong with it, `read` says.
        """

    def read_around(self, path: Path) -> bytes:
        """All of it; zeros where the disk can not give back what is there (EIO)."""

    def is_file(self, path: Path) -> bool:
        """Whether it is a regular file: no directory, no FIFO, no device."""

    def names(self, directory: Path) -> list[str]:
        """The names in a directory, sorted, hidden ones too."""

    def size(self, path: Path) -> int:
        """Bytes; FileNotFoundError if there is none."""

    def modified(self, path: Path) -> float:
        """Seconds since the epoch; FileNotFoundError if there is none."""

    def changed(self, path: Path) -> float:
        """The time of the last change or rename, in seconds since the epoch."""

    def identity(self, path: Path) -> tuple[int, int]:
        """Numbers that stay with a directory, and that a copy of it does not have.

        The second is 0 where the file system has none.  Then one that is put in the place
        of another may have its number.
        """

    def exists(self, path: Path) -> bool:
        """Whether the name is there."""

    def rename(self, old: Path, new: Path) -> None:
        """Atomically, within one file system."""

    def unlink(self, path: Path) -> None:
        """Remove; a name that is gone already is fine."""

    def sync_directory(self, path: Path) -> None:
        """Return once names made, changed or removed in it survive a power cut."""

    def make_directory(self, path: Path) -> None:
        """Make a directory with its parents, durably; an existing one is fine."""

    def set_times(self, path: Path, seconds: float) -> None:
        """Set the modification time."""

    def free(self, path: Path) -> int:
        """Bytes that an unprivileged writer may still use."""


def replace_file(disk: Disk, path: Path, chunks: Sequence[bytes]) -> File:
    """Put a file with these bytes in the place of *path*, durably; it is left open.

    A crash leaves the old one or the new one.  Beside it the hidden name, `.NAME`, is
    used; where it fails, that is removed.  Blocks; raises OSError.
    """
    hidden = path.with_name(f".{path.name}")
    disk.unlink(hidden)
    file = disk.create(hidden)
    try:
        file.write(chunks)
        file.sync()
        disk.rename(hidden, path)
        disk.sync_directory(path.parent)
    except OSError:
        file.close()
        with contextlib.suppress(OSError):
            disk.unlink(hidden)
        raise
    return file
