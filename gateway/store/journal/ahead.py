"""Has the disk read what a start reads next, while that imports modules or checks sums.

It goes into the memory of the system, which takes it back when it needs that; the daemon
itself has one segment at a time.  What is wrong with a file, its reader is told.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway.store.disk import Disk
from gateway.store.journal import segment

__all__ = ["AHEAD_BYTES", "begin", "in_time"]

AHEAD_BYTES = 512 << 20
"""As much as a fast disk reads while the daemon is imported."""


def begin(journal: Path, disk: Disk) -> None:
    """Read what a start reads first of a journal.  Blocks, and never raises."""
    with contextlib.suppress(OSError):
        names = [name for name in disk.names(journal) if disk.is_file(journal / name)]
        read = 0
        for *_, name in segment.in_order(names):
            if read >= AHEAD_BYTES:
                break
            # Whole, as others run only between calls: that it is held is no more than
            # what a start does with each.
            read += len(disk.read(journal / name))


def in_time(paths: Sequence[Path], disk: Disk) -> Iterator[Path]:
    """The same, of files that are read one after the other.

    The disk has begun with each before it comes, and with others behind it, as long as
    those have less than `AHEAD_BYTES`.
    """
    upcoming = iter(paths)
    sizes: deque[int] = deque()
    for path in paths:
        while sum(sizes) < AHEAD_BYTES and (coming := next(upcoming, None)):
            sizes.append(disk.fetch(coming))
        yield path
        sizes.popleft()
