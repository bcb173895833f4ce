"""How full the spool and its disk are: measures them, and says when the journal must
take no more batches.

It takes none while the spool is at `spool.max_bytes`, or while the file system has no
room left for the files that the journal's segments will become.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from attrs import define

from gateway.sdk.disk import Disk
from gateway.spoken import size
from gateway.store.names import parse_file_name

#: A day of one file a second is 86,400 files, and nothing waits for their number:
#: counting the archive takes one part in so many of our time, at most.
_COUNTING_SHARE = 50


@dataclass(slots=True)
class Level:
    """How full a directory of spool files is."""

    files: int = 0
    bytes: int = 0


@define(eq=False, slots=False)
class Levels:
    """The levels of a spool and its archive, as of the last look.  Blocks; raises OSError.

    *max_bytes* is `spool.max_bytes`, and may change.
    """

    _directory: Path
    _archive: Path
    _disk: Disk
    max_bytes: int
    _clock: Callable[[], float] = time.monotonic
    _why: Callable[[], str] = lambda: "the Spark job is behind"
    """The words for what the spool waits for."""

    def __attrs_post_init__(self) -> None:
        self.spool = Level()
        self.archive = Level()
        self.free_bytes: int | None = None
        """Bytes free on their disk; None before the first look."""
        self._next_count = 0.0

    def measure(self) -> None:
        """Look again; at the archive from time to time."""
        self.spool = self._measure(self._directory)
        begun = self._clock()
        if begun >= self._next_count:
            self.archive = self._measure(self._archive)
            ended = self._clock()
            self._next_count = ended + _COUNTING_SHARE * (ended - begun)

    def left_archive(self, removed_bytes: int) -> None:
        """Note bytes that were removed from the archive, perhaps with what came since the look."""
        archive = self.archive
        archive.bytes = max(0, archive.bytes - removed_bytes)

    def why_full(self, backlog_bytes: int) -> str | None:
        """Why the spool takes no more, if it does not; *backlog_bytes* are to come."""
        total = self.spool.bytes + backlog_bytes
        if total < self.max_bytes:
            return None
        return (
            f"the spool holds {size(total)}, limit {size(self.max_bytes)} "
            f"(spool.max_bytes): {self._why()}"
        )

    def why_no_room(self, needed: int) -> str | None:
        """Why the disk takes no more, if it has less than *needed* bytes free."""
        self.free_bytes = free = self._disk.free(self._directory)
        if free >= needed:
            return None
        return (
            f"the disk of {self._directory} is full: {size(free)} free, "
            f"{size(needed)} needed for what is already acknowledged"
        )

    def _measure(self, directory: Path) -> Level:
        level = Level()
        for name in self._disk.names(directory):
            if parse_file_name(name) is None:
                continue
            # Spark's job moves files while we look.
            with contextlib.suppress(FileNotFoundError):
                level.bytes += self._disk.size(directory / name)
                level.files += 1
        return level
