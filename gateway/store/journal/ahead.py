"""Has the disk read what a start reads next, while that imports modules or checks sums.

It goes into the memory of the system, which takes it back when it needs that; the daemon
itself has one segment at a time.  What is wrong with a file, its reader is told.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway.store.disk import Disk
from gateway.store.journal import segment

__all__ = ["AHEAD_BYTES", "EARLY_BYTES", "begin", "in_time"]

EARLY_BYTES = 1 << 30
"""Read by `begin` at most.  Whoever checks is quicker than most disks, so it follows on its
heels; were it not, what was read could be gone again."""
AHEAD_BYTES = 64 << 20
"""Asked for at once while one is checked."""


def begin(journal: Path) -> None:
    """Read what a start reads first of a journal.  Blocks, and never raises.

    One call for each file or 64 MiB, as others run meanwhile, and what is read is let go.
    """
    pieces = [bytearray(1 << 18)] * 256
    left = EARLY_BYTES
    with contextlib.suppress(OSError):
        names = [path.name for path in journal.iterdir() if path.is_file()]
        for *_, name in segment.in_order(names):
            if left <= 0:
                return
            with (journal / name).open("rb", buffering=0) as file:
                while left > 0 and (size := os.readv(file.fileno(), pieces)):
                    left -= size


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
