"""The lock: one running daemon for each data directory.

Held twice: on the directory, as a lock file can be removed, and on the file `lock` in it,
which says who has it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_LOOK_SECONDS = 0.05


class Locked(Exception):
    """Another process has it; the text says which."""


class Lock:
    """A lock of a directory, until `release`, or until the process dies."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def take(self, path: Path, flags: int) -> int:
        """Open *path* and lock it; raises BlockingIOError if another process has it."""
        fd = os.open(path, flags | os.O_CLOEXEC, 0o640)
        self._fds.append(fd)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd

    def release(self) -> None:
        """Let go; idempotent."""
        while self._fds:
            os.close(self._fds.pop())


def lock(path: Path, what: str) -> Lock:
    """Lock the directory of *path*, and the lock file there.

    *what* is told to a process that comes second.  Raises `Locked`, OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _holding(path) as held:
        with _locking_files_only():
            held.take(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        _take_file(held, path, what)
    return held


def lock_file(path: Path, what: str) -> Lock:
    """Lock a file alone, in a directory that others may use."""
    with _holding(path) as held:
        _take_file(held, path, what)
    return held


@contextlib.contextmanager
def _holding(path: Path) -> Iterator[Lock]:
    """A lock that takes nothing where it can not take all."""
    held = Lock()
    try:
        yield held
    except BlockingIOError:
        held.release()
        raise Locked(_in_use(path)) from None
    except BaseException:
        held.release()
        raise


def _take_file(held: Lock, path: Path, what: str) -> None:
    file = held.take(path, os.O_RDWR | os.O_CREAT)
    with contextlib.suppress(OSError):  # a full disk: then nobody says who has it
        os.ftruncate(file, 0)
        os.pwrite(file, f"{what}, pid {os.getpid()}\n".encode(), 0)


def holder(path: Path) -> str | None:
    """The holder of the directory of *path*, as `Locked` names it, if any.  Raises OSError."""
    if not path.parent.exists() or not is_locked(path.parent):
        return None
    return _in_use(path)


def _in_use(path: Path) -> str:
    return f"{path.parent} is in use by {_holder(path)} (lock {path})"


def lock_directory(path: Path) -> Lock:
    """Lock a directory without a file in it.  Raises `Locked`, OSError."""
    held = Lock()
    try:
        with _locking_files_only():
            held.take(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as why:
        held.release()
        if isinstance(why, BlockingIOError):
            raise Locked(f"{path} is in use by another process") from None
        raise
    return held


def is_locked(path: Path) -> bool:
    """Whether a process has this directory.  Raises OSError."""
    try:
        lock_directory(path).release()
    except Locked:
        return True
    return False


def wait_for(path: Path, seconds: float) -> bool:
    """Wait until no process has this directory, *seconds* at most; whether that is so.

    Raises OSError.
    """
    until = time.monotonic() + seconds
    while path.exists() and is_locked(path):
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


@contextlib.contextmanager
def _locking_files_only() -> Iterator[None]:
    """NFS locks only what is open for writing, which a directory never is: there nothing
    but the lock file is locked.
    """
    try:
        yield
    except OSError as why:
        if why.errno != errno.EBADF:
            raise


def _holder(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")[:200].strip() or "another process"
    except OSError:
        return "another process"


@contextlib.contextmanager
def alone_with(path: Path) -> Iterator[bool]:
    """Lock a directory for a while; False where another process has it.  Raises OSError."""
    try:
        held = lock_directory(path)
    except Locked:
        yield False
        return
    try:
        yield True
    finally:
        held.release()
