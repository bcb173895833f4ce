"""The lock file: one running daemon for each data directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["Locked", "lock"]


class Locked(Exception):
    """Somebody else has it; the text says who."""


def lock(path: Path, what: str) -> int:
    """Take the lock file at *path* until the process ends; returns its descriptor.

    The kernel lets go when the process dies, however it dies.  Raises `Locked`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(fd, 200).decode("utf-8", "replace").strip()
        os.close(fd)
        raise Locked(
            f"{path.parent} is in use by {holder or 'another process'} (lock {path})"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{what}, pid {os.getpid()}\n".encode(), 0)
    return fd
