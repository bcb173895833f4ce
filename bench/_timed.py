"""`twistd` that writes down how long the disk took for each sync.

    python bench/_timed.py FILE <twistd's arguments>

A line of FILE for each fdatasync and fsync: when it ended (as `time.monotonic`), and its
seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any


def timed(call: Callable[[int], Any], record: int) -> Callable[[int], Any]:
    def call_and_write_down(descriptor: int) -> Any:
        begun = time.monotonic()
        try:
            return call(descriptor)
        finally:
            ended = time.monotonic()
            os.write(record, f"{ended:.6f} {ended - begun:.6f}\n".encode())

    return call_and_write_down


if __name__ == "__main__":
    _, where, *rest = sys.argv
    record = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for name in ("fdatasync", "fsync"):
        setattr(os, name, timed(getattr(os, name), record))
    sys.argv = ["twistd", *rest]
    from twisted.scripts.twistd import run

    run()
