"""Moves files into the archive: none in the place of one that is there.

What has the same name has the same events.  Of those in the archive some may be redacted,
so the one that is there stays, and the other goes.
"""

from __future__ import annotations

from pathlib import Path

from gateway.sdk.disk import Disk


def to_archive(path: Path, archive: Path, disk: Disk) -> None:
    """Have the file at *path* in *archive* under its name, and nowhere else.

    Raises OSError: FileNotFoundError, if it is gone.
    """
    there = archive / path.name
    if disk.exists(there):
        disk.unlink(path)
    else:
        disk.rename(path, there)
