"""Removes files from the archive once Spark has had them for `spool.retention`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from attrs import define

from gateway.store.disk import Disk
from gateway.store.spool.names import parse_file_name

__all__ = ["Expiry"]

_MOST_SECONDS = 60.0  # between two looks
_STEP_SECONDS = 1.0  # a clock that drifts is less off


@define(eq=False, slots=False)
class Expiry:
    """The expiry of one archive.  Blocks.

    How old a file is, its modification time tells, which the wall clock gave it.  That
    clock may be set forward, and everything would be old at once: what it was set
    forward is taken off again for as long as files from before may be there.

    *retention* in seconds; *on_expired* is called when files were removed.
    """

    _archive: Path
    _disk: Disk
    _retention: float
    _on_expired: Callable[[], None]
    _clock: Callable[[], float] = time.monotonic
    _wall_clock: Callable[[], float] = time.time

    def __attrs_post_init__(self) -> None:
        self._next = self._clock()
        self._offset = self._wall_clock() - self._clock()
        self._set_forward: list[tuple[float, float]] = []
        """When, and by how many seconds."""

    def run(self) -> None:
        """Look if it is time to; raises OSError."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + min(_MOST_SECONDS, self._retention)
        oldest = self._wall_clock() - self._steps(now) - self._retention
        expired = False
        for name in self._disk.names(self._archive):
            path = self._archive / name
            if parse_file_name(name) and self._disk.modified(path) < oldest:
                self._disk.unlink(path)
                expired = True
        if expired:
            self._on_expired()

    def _steps(self, now: float) -> float:
        """By how many seconds the wall clock was set forward lately."""
        offset = self._wall_clock() - now
        step, self._offset = offset - self._offset, offset
        if step > _STEP_SECONDS:
            self._set_forward.append((now, step))
        since = now - self._retention
        self._set_forward = [each for each in self._set_forward if each[0] > since]
        return sum(step for _, step in self._set_forward)
