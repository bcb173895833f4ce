"""A word on the terminal for what takes longer than a second: what is being done.

Nothing is shown where standard error is no terminal.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

SECONDS = 1.0
"""Anything quicker needs no word."""


@contextlib.contextmanager
def working(what: str, seconds: float = SECONDS) -> Iterator[None]:
    """Say *what* is being done, once that has lasted; print nothing meanwhile."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    status = Console(stderr=True).status(f"{what} …")
    timer = threading.Timer(seconds, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()
