"""Makes the reactor's time monotonic: no timer and no time-out follows the wall clock.

Twisted's reactors ask `time.time`.  Set an hour back, the wall clock would stop every
timer for an hour; set forward, all connections would have been idle for an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def make_monotonic(
    reactor: Any,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], float] = time.time,
) -> None:
    """Let `reactor.seconds` begin at the wall clock's time and go on without jumps.

    Timers, `LoopingCall`s and all that have the reactor as a clock take time from there.
    Calls that are scheduled already keep their time, as it begins at the wall clock's.
    The wall clock has the time for people, as in events.
    """
    offset = wall_clock() - monotonic()
    # As `lambda: offset + monotonic()`, without a call in Python: each event asks often.
    reactor.seconds = map(offset.__add__, iter(monotonic, None)).__next__
