"""The file system below the tables: a `Disk` with folders that Spark fills."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from pathlib import Path
from typing import Protocol

from gateway.sdk.disk import Disk
from gateway.store.system.disk import RealDisk

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
#: What a kernel or file system says that can not exchange two names.
_CANNOT = {errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP}


class LakeDisk(Disk, Protocol):
    """A `Disk` with folders that others fill."""

    def tree(self, path: Path) -> list[Path]:
        """Every file below *path*, sorted; nothing if it is not there."""

    def remove_tree(self, path: Path) -> None:
        """*path* and all below it; one that is gone already is fine."""

    def link(self, old: Path, new: Path) -> None:
        """Give a file a second name."""

    def exchange(self, one: Path, other: Path) -> None:
        """Swap two folders' names, in one step where the file system can."""


def sync(disk: Disk, path: Path) -> None:
    """Make durable what another process wrote to a file."""
    file = disk.open(path)
    try:
        file.sync()
    finally:
        file.close()


class Lake(RealDisk):
    """The operating system's `LakeDisk`."""

    def tree(self, path: Path) -> list[Path]:
        return sorted(
            Path(folder) / name for folder, _, names in os.walk(path) for name in names
        )

    def remove_tree(self, path: Path) -> None:
        if path.exists():
            shutil.rmtree(path)

    def link(self, old: Path, new: Path) -> None:
        os.link(old, new)

    def exchange(self, one: Path, other: Path) -> None:
        """Exchange as `LakeDisk` does; where it can not, *other* is missing for a moment."""
        libc = ctypes.CDLL(None, use_errno=True)
        names = os.fsencode(one), os.fsencode(other)
        renameat2 = getattr(libc, "renameat2", None)
        if renameat2 is not None:
            done = renameat2(
                _AT_FDCWD,
                names[0],
                _AT_FDCWD,
                names[1],
                ctypes.c_uint(_RENAME_EXCHANGE),
            )
            if done == 0:
                return
            if (number := ctypes.get_errno()) not in _CANNOT:
                raise OSError(number, os.strerror(number), str(one), None, str(other))
        between = one.with_name(f".{one.name}.between")
        self.rename(other, between)
        self.rename(one, other)
        self.rename(between, one)
