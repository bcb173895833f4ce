"""The real file system calls behind `gateway.sdk.disk`, and what to do when one fails."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway.sdk.disk import Disk, File

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a write when disk or quota are full."""

_IOV_MAX = 1024
_PIECE = 1 << 10
"""Pieces up to this size, on average, are written as one: a copy costs less."""
_SECTOR = 4096
_FETCHED = 128 << 10
"""Bytes of one call: Linux reads no more at once than the device's `read_ahead_kb`."""
_TRIES = 5
_PAUSE_SECONDS = 1.0
_GET_GENERATION = 0x80087601
"""FS_IOC_GETVERSION, of ext4, XFS, Btrfs and others."""
_ADVICE = {
    errno.ENOENT: "is a disk not mounted, or does a link lead nowhere?",
    errno.EEXIST: "a directory belongs there; does a link lead nowhere?",
    errno.EISDIR: "a file belongs there: move the directory away",
    errno.ENOTDIR: "a directory belongs there: move the file away",
    errno.ENOSPC: "make room on that disk; delete nothing in journal/, spool/, state/",
    errno.EDQUOT: "make room, or raise the quota",
    errno.EROFS: "mount it for writing; if the system did this, dmesg says why",
    errno.EACCES: "let the daemon's user read and write there",
    errno.EPERM: "let the daemon's user read and write there",
    errno.EIO: "the disk fails: dmesg says more; copy data_dir to another one, as it is",
}


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Have an OSError of a write to the file *path* name it, as one of opening it does."""
    try:
        yield
    except OSError as why:
        why.filename = why.filename or str(path)
        raise


class _RealFile:
    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path

    def write(self, chunks: Sequence[bytes]) -> None:
        if sum(map(len, chunks)) <= _PIECE * len(chunks):
            chunks = (b"".join(chunks),)
        pending = [memoryview(chunk) for chunk in chunks if chunk]
        at = 0
        with named(self._path):
            while at < len(pending):
                done = os.writev(self._fd, pending[at : at + _IOV_MAX])
                while at < len(pending) and done >= len(pending[at]):
                    done -= len(pending[at])
                    at += 1
                if done:
                    pending[at] = pending[at][done:]

    def sync(self) -> None:
        with named(self._path):
            os.fdatasync(self._fd)

    def rewrite(self, data: bytes) -> None:
        done, view = 0, memoryview(data)
        with named(self._path):
            while done < len(view):
                done += os.pwrite(self._fd, view[done:], done)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        os.lseek(self._fd, size, os.SEEK_SET)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        """A file that a failure drops keeps no descriptor, as Python's own files."""
        self.close()


def _sector(fd: int, at: int, size: int) -> bytes:
    length = min(_SECTOR, size - at)
    try:
        return os.pread(fd, length, at).ljust(length, b"\0")
    except OSError as why:
        if why.errno != errno.EIO:
            raise
        return bytes(length)


class RealDisk:
    """The operating system's file system."""

    def create(self, path: Path) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return _RealFile(os.open(path, flags, 0o640), path)

    def open(self, path: Path) -> File:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        os.lseek(fd, 0, os.SEEK_END)
        return _RealFile(fd, path)

    def overwrite(self, path: Path) -> File:
        return _RealFile(os.open(path, os.O_RDWR | os.O_CLOEXEC), path)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def fetch(self, path: Path) -> int:
        """Fetch as `Disk` does; where the system has no such call, nothing is read."""
        with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
            fd, size = file.fileno(), os.fstat(file.fileno()).st_size
            if hasattr(os, "posix_fadvise"):
                for at in range(0, size, _FETCHED):
                    os.posix_fadvise(fd, at, _FETCHED, os.POSIX_FADV_WILLNEED)
            return size
        return 0

    def read_around(self, path: Path) -> bytes:
        """Read as `Disk` does.

        Its readers know damage by checksums, and one bad sector is no reason to lose all the rest.
        """
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            return b"".join(_sector(fd, at, size) for at in range(0, size, _SECTOR))
        finally:
            os.close(fd)

    def is_file(self, path: Path) -> bool:
        return path.is_file()

    def names(self, directory: Path) -> list[str]:
        return sorted(os.listdir(directory))

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def modified(self, path: Path) -> float:
        return path.stat().st_mtime

    def changed(self, path: Path) -> float:
        return path.stat().st_ctime

    def identity(self, path: Path) -> tuple[int, int]:
        """The identity as `Disk` has it: of its inode, whose number is given again once removed.

        The number of the device is no part of it: that changes when a machine is started.
        """
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            generation = bytearray(8)  # the kernel writes 4; it is declared with 8
            with contextlib.suppress(OSError):
                fcntl.ioctl(fd, _GET_GENERATION, generation)
            return os.fstat(fd).st_ino, int.from_bytes(generation[:4], sys.byteorder)
        finally:
            os.close(fd)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def make_directory(self, path: Path) -> None:
        missing = [p for p in (path, *path.parents) if not p.exists()]
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o750)
            self.sync_directory(directory.parent)
        if not missing:
            # The process that made it may have been killed before this.
            self.sync_directory(path.parent)

    def set_times(self, path: Path, seconds: float) -> None:
        os.utime(path, (seconds, seconds))

    def free(self, path: Path) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize


def what_to_do(why: OSError) -> str:
    """Advice on a call that failed, as the second half of a sentence; empty if there is none."""
    advice = _ADVICE.get(why.errno or 0)
    return f".  What to do: {advice}" if advice else ""


def read_patiently(disk: Disk, path: Path) -> tuple[bytes, bool]:
    """All of a file, and whether all of it could be read.  Blocks; raises OSError.

    A path that fails over, or a loose cable, answers a second later; what can not be read
    even then is zeros.
    """
    for _ in range(_TRIES):
        try:
            return disk.read(path), True
        except OSError as why:
            if why.errno != errno.EIO:
                raise
        time.sleep(_PAUSE_SECONDS)
    return disk.read_around(path), False


_MOUNTS = Path("/proc/self/mountinfo")


def goes_with(path: Path) -> str:
    """The thing that takes the files of *path* along when it is replaced.

    It is `its pod` for an emptyDir, `its container` for other files in a pod, and empty if
    the system tells of none.
    """
    path, found = path.absolute(), ("", "", "")
    with contextlib.suppress(OSError):
        for line in _MOUNTS.read_text().splitlines():
            before, _, behind = line.partition(" - ")
            root, point = before.split()[3:5]
            if path.is_relative_to(point) and len(point) >= len(found[0]):
                found = point, root, behind.split()[0]
    if "/kubernetes.io~empty-dir/" in found[1]:
        return "its pod"
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    return "its container" if in_pod and found[2] == "overlay" else ""
