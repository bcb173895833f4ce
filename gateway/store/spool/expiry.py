"""Removes files from the archive once Spark has had them for `spool.retention`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gateway.store.disk import Disk
from gateway.store.spool.names import parse_file_name

__all__ = ["Expiry"]

_MOST_SECONDS = 60.0  # between two looks


class Expiry:
    """The expiry of one archive.  Blocks."""

    def __init__(
        self,
        archive: Path,
        disk: Disk,
        retention: float,
        on_expired: Callable[[], None],
    ) -> None:
        """*retention* in seconds; *on_expired* is called when files were removed."""
        self._archive = archive
        self._disk = disk
        self._retention = retention
        self._on_expired = on_expired
        self._next = 0.0

    def run(self) -> None:
        """Look if it is time to; raises OSError."""
        now = time.time()
        if now < self._next:
            return
        self._next = now + min(_MOST_SECONDS, self._retention)
        oldest = now - self._retention
        expired = False
        for name in self._disk.names(self._archive):
            path = self._archive / name
            if parse_file_name(name) and self._disk.modified(path) < oldest:
                self._disk.unlink(path)
                expired = True
        if expired:
            self._on_expired()
