"""Looks at the clocks: is the time plausible, and is any file from the future?

The time of day is to run with the monotonic clock.
Files are dated by the wall clock, and no later than the newest one before; a clock that was
wrong once shows in them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from gateway.config import Config
from gateway.doctor.look import Look, fail, ok, warn
from gateway.spoken import duration, moment
from gateway.store.directories import Directories
from gateway.store.names import parse_file_name

_EARLIEST = datetime(2025, 1, 1, tzinfo=UTC).timestamp()
_LATEST = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
_OFF_SECONDS = 5.0
_TOGETHER_SECONDS = 0.05
_APART_SECONDS = 1.0
_SET_IT = "set the clock, and keep it with NTP (chrony, systemd-timesyncd)"


def examine(
    config: Config,
    *,
    wall: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Look]:
    now = wall()
    if not _EARLIEST < now < _LATEST:
        yield fail("clock", f"it is {moment(now)} here", _SET_IT)
    else:
        yield ok("clock", f"it is {moment(now)}")
    yield _run_together(wall, monotonic, sleep)
    yield _newest(config, now)


def _run_together(
    wall: Callable[[], float],
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
) -> Look:
    one, two = monotonic(), wall()
    sleep(_TOGETHER_SECONDS)
    passed, by_wall = monotonic() - one, wall() - two
    if passed <= 0:
        text = f"the monotonic clock went {passed:.3f} s while we waited"
        return fail("monotonic clock", text, "the kernel or the hypervisor is at fault")
    if abs(by_wall - passed) > _APART_SECONDS:
        text = f"the clock was set by {by_wall - passed:.1f} s while we looked"
        return warn("monotonic clock", text, _SET_IT)
    return ok("monotonic clock", "it goes forward, and the clock with it")


def _newest(config: Config, now: float) -> Look:
    places = Directories.of(config)
    newest, path = 0.0, Path()
    for directory in (places.spool, places.archive):
        with contextlib.suppress(FileNotFoundError):
            for one in directory.iterdir():
                if parse_file_name(one.name) is None:
                    continue
                with contextlib.suppress(FileNotFoundError):
                    modified = one.stat().st_mtime
                    newest, path = max((newest, path), (modified, one))
    if newest <= now + _OFF_SECONDS:
        return ok("times of files", "none is from the future")
    return warn(
        "times of files",
        f"{path} is of {moment(newest)}, {duration(newest - now)} from now",
        f"the clock is behind, or was ahead once; {_SET_IT}.  Until then new files get "
        "that time too",
    )
