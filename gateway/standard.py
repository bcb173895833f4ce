"""A program's standard input, output and error where some are missing, and its parent's end.

A closed one (`2>&-`, a supervisor that gives none) leaves its number free.  The next file
or socket to be opened gets it, and with it what a library prints.  That may be a pipe of
the event loop, or the Parquet file that is being written.
"""

from __future__ import annotations

import os
import sys
from typing import Literal, TextIO

_PR_SET_PDEATHSIG = 1


def when_the_parent_ends(number: int) -> None:
    """Have the kernel send this process the signal of that *number* then; 0: none."""
    import ctypes  # late: other programs need none

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def hold_descriptors() -> None:
    """Have descriptors 0, 1 and 2: those that are closed lead to /dev/null from now on.

    Processes that are started inherit them.  Call it before any file is opened that stays
    open.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free, which this one is.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = _stream(0, "r")
    if sys.stdout is None:
        sys.stdout = _stream(1, "w")
    if sys.stderr is None:
        sys.stderr = _stream(2, "w")


def _stream(number: int, mode: Literal["r", "w"]) -> TextIO:
    return open(
        number, mode, encoding="utf-8", errors="backslashreplace", closefd=False
    )
