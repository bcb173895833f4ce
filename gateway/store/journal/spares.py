"""Files of published segments, to be written over as new ones.

A sync waits for the file system's own journal where a file has grown.  Those are two writes
instead of one, and behind whatever else is written there, as Parquet files are.  Over bytes
that have their place it waits for the disk alone.

What is left of an old segment behind the records of the new one is no record of that: it
has another salt and lower lsns (`segment`).  And no crash makes a segment of it:

    published segment:  rename to `.spare` → sync directory → it may be taken
    new segment:        write the new header over the old, zeros over its first record
                        → sync → rename to the new name → sync directory → first group

So a file with the old name has what it had, and one with the new name the new header.  A
start removes what it finds under the names of spares.

Only segments that this run has begun and ended are kept, all of whose syncs succeeded:
a file is not relied on after a sync of it that failed.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from gateway.sdk.disk import Disk, File
from gateway.store.journal import segment
from gateway.store.system.shared import SharedDeque

_SUFFIX = ".spare"
_MOST_BYTES = 128 << 20
"""The most bytes of all spares, or one file.

They come in crowds where protocols remember (`checkpoint`)."""


def is_spare(name: str) -> bool:
    stem = name.removesuffix(_SUFFIX)
    return stem != name and segment.parse_name(stem + segment.SUFFIX) is not None


class Spares:
    """The spare files of one directory.  Blocking; any thread may call."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._free: SharedDeque[tuple[Path, int]] = SharedDeque()
        """Paths, and the size of each."""

    def keep(self, path: Path) -> None:
        """Keep the file of a sound segment that is not needed, or remove it; once more is fine.

        Raises OSError.
        """
        kept = sum(size for _, size in self._free.snapshot())
        with contextlib.suppress(FileNotFoundError):
            size = self._disk.size(path)
            if kept and kept + size > _MOST_BYTES:
                self._disk.unlink(path)
                return
            spare = path.with_suffix(_SUFFIX)
            self._disk.rename(path, spare)
            try:
                self._disk.sync_directory(spare.parent)
            except OSError:
                self._remove(spare)
            else:
                self._free.append((spare, size))

    def take(self) -> tuple[Path, File] | None:
        """One to write over, from its beginning; None if there is none."""
        while self._free:
            with contextlib.suppress(IndexError):
                path, _ = self._free.pop()  # of the last one most is still in memory
                try:
                    return path, self._disk.overwrite(path)
                except OSError:
                    self._remove(path)
        return None

    def give_room(self) -> bool:
        """Remove them all: the disk is full, or none is taken any more; whether there were any."""
        there = bool(self._free)
        while self._free:
            with contextlib.suppress(IndexError):
                self._remove(self._free.popleft()[0])
        return there

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # the next start does
            self._disk.unlink(path)
