"""The clock by which things are removed for their age: one that has leapt is not believed.

A clock that is years ahead, for the minutes until a time server is heard, makes everything
old at once, and what is removed does not come back.  So it is known over restarts what the
clock showed last, and a leap forward of more than three days counts once it has stood for
a day:

    the clock goes on, or is set back       that is the time
    it has leapt                            time goes on from where it was before
    it has shown that for a day             it was set: that is the time

How long it has stood is measured by a clock that runs on from the machine's start, as the one
on the wall may leap meanwhile.  After another start nothing else is there to ask than the
latter.  What was switched off for longer sees such a leap, too, and removes things a day later.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from attrs import define, field

from gateway.spoken import duration, moment
from gateway.store.node.catalog import Line

NAME = "removal-clock"
"""The name of its file."""
_MOST_SECONDS = 3 * 86400.0
_STANDS_SECONDS = 86400.0
_PAUSE_SECONDS = 100 * 86400.0
"""The longest pause between two runs; a clock that shows more has leapt again."""
_WRITE_SECONDS = 3600.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Now(NamedTuple):
    """The clocks at one moment."""

    wall: float
    """Seconds since the epoch, by the clock that may leap."""
    boot: str = ""
    """The machine's start."""
    running: float = 0.0
    """Seconds since that start, by a clock that does not leap."""


class Seen(Line, frozen=True, tag="removal-clock"):
    """The clock as it was last believed, in seconds since the epoch."""

    at: float
    """When it was last believed."""
    leapt_to: float = 0.0
    """The time it showed just after it had leapt from there; 0: it has not."""
    boot: str = ""
    """The machine's start then; empty where that is not known."""
    running: float = 0.0
    """Seconds since that start."""

    def then(self, now: Now) -> Seen:
        """The state that follows *now*."""
        wall = now.wall
        if wall <= self.at + _MOST_SECONDS:
            return Seen(wall)
        stood = self._stood(now)
        leaps = abs(wall - self.leapt_to - stood) > _MOST_SECONDS
        if not self.leapt_to or leaps or not 0 <= stood < _PAUSE_SECONDS:
            return Seen(self.at, wall, now.boot, now.running)
        return Seen(wall) if stood >= _STANDS_SECONDS else self

    def time(self, now: Now) -> float:
        """The time to go by *now*, which is known."""
        return self.at + self._stood(now) if self.leapt_to else now.wall

    def _stood(self, now: Now) -> float:
        """Seconds for which the clock has gone on since it leapt."""
        if self.boot and self.boot == now.boot:
            return now.running - self.running
        return now.wall - self.leapt_to


def boot() -> str:
    """The machine's start; empty where nothing says it."""
    with contextlib.suppress(OSError):
        return _BOOT.read_text().strip()
    return ""


@define(eq=False, slots=False)
class RemovalClock:
    """Seconds since the epoch.  Any thread calls it, now and then; it raises nothing, and two at
    once come to the same.

    *keep* makes a `Seen` durable, of which *kept* gives the last one.  *first* is when something of ours was written last, for where no file says more; None:
    nothing was.  *told* gets a sentence when the clock has leapt.
    """

    _kept: Callable[[], Seen | None]
    _keep: Callable[[Seen], None]
    _told: Callable[[str], None]
    _first: Callable[[], float | None] = lambda: None
    _clock: Callable[[], float] = time.time
    _monotonic: Callable[[], float] = time.monotonic
    _boot: str = field(factory=boot)

    def __attrs_post_init__(self) -> None:
        self._seen: Seen | None = None
        self._written: Seen | None = None
        self._said = False
        self.ahead_seconds = 0.0
        """How far ahead the clock was when it was last asked; 0: it is believed."""

    def __call__(self) -> float:
        """The time to go by."""
        wall = self._clock()
        now = Now(wall, self._boot, self._monotonic())
        seen = (self._seen or self._read(wall)).then(now)
        self._seen = seen
        self._write(seen)
        believed = seen.time(now)
        self.ahead_seconds = wall - believed
        if seen.leapt_to and not self._said:
            self._told(
                f"the clock shows {moment(wall)}, {duration(self.ahead_seconds)} more than it"
                " should after what it showed last: until that has stood for"
                f" {duration(_STANDS_SECONDS)}, what is removed for its age goes by the time"
                " before. If it is ahead, set it, and keep it with NTP; if nothing ran here"
                " for so long, there is nothing to do"
            )
        self._said = bool(seen.leapt_to)
        return believed

    def _read(self, wall: float) -> Seen:
        with contextlib.suppress(OSError):
            self._written = self._kept()
        if self._written is not None:
            return self._written
        with contextlib.suppress(OSError):
            if (first := self._first()) is not None:
                return Seen(first)
        return Seen(wall)

    def _write(self, seen: Seen) -> None:
        """Now and then.  An older one errs on the safe side, so a full disk is no failure."""
        known = self._written
        if (
            known is None
            or known.leapt_to != seen.leapt_to
            or not 0 <= seen.at - known.at < _WRITE_SECONDS
        ):
            self._written = seen
            with contextlib.suppress(OSError):
                self._keep(seen)
