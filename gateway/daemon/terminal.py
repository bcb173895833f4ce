"""Tells the user of `twistd gateway` why a start failed, with or without `-n`.

Without `-n` twistd forks, points standard error to /dev/null, and waits to hear how the
start went: it does not hear of a SystemExit, and would wait for ever.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

_STANDARD_ERROR = 2


class StartFailed(Exception):
    """twistd shows the beginning of its text, removes its pid file, and ends."""


def leave(why: str) -> NoReturn:
    """End the start with a sentence instead of a traceback."""
    sys.stderr.write(why.rstrip() + "\n")
    raise SystemExit(1)


class Terminal:
    """Standard error as it was when twistd was called."""

    def __init__(self, *, in_background: bool) -> None:
        self._fd = os.dup(_STANDARD_ERROR) if in_background else None

    def leave(self, why: str) -> NoReturn:
        """End the start: a sentence here, exit status 1.  Raises, always."""
        if self._fd is None:
            leave(why)
        with contextlib.suppress(OSError):
            os.write(self._fd, why.rstrip().encode() + b"\n")
        raise StartFailed(why)

    def close(self) -> None:
        """The start has not failed: let the terminal go."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
