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

from gateway.sdk.disk import Disk
from gateway.store.journal import segment

EARLY_BYTES = 1 << 30
"""Read by `begin` at most: of more the system could have let go again before it is checked."""
AHEAD_BYTES = 64 << 20
"""Asked for behind the file that is checked: it may be passed by the last one of them."""


def begin(journal: Path) -> None:
    """Read what a start reads first of a journal.  Blocks, and never raises.

    One call for each file or 64 MiB, as others run meanwhile, and what is read is let go.
    It needs no lock: a daemon that is refused, as another one runs, has read for nothing.
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
    """The paths, for a reader of one file after the other.

    The disk has begun with each before it comes, with the next one at least, and with as
    many as have `AHEAD_BYTES` together.
    """
    upcoming = iter(paths)
    sizes: deque[int] = deque()  # of those behind the one that is read
    asked = 0  # their sum
    for path in paths:
        if sizes:
            asked -= sizes.popleft()
        else:
            disk.fetch(next(upcoming))
        while asked < AHEAD_BYTES and (coming := next(upcoming, None)):
            sizes.append(disk.fetch(coming))
            asked += sizes[-1]
        yield path
