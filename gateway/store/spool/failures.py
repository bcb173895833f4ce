"""Failures of a spool's uploads: when they go on, how many at once, which not at all.

No I/O, no clock, no lock: `Uploads` calls it under its own.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_REFUSALS = 3
"""A file that failed so often, each time before another one went well, is the reason."""
_CALM_SECONDS = 600.0
"""Seconds before one upload more is tried at once, where several have failed together."""


class Failures:
    """The failures of all files, of which *number* may be under way together at best."""

    def __init__(self, number: int) -> None:
        self.in_a_row = 0
        """Failures in a row; those of requests that were under way together are one."""
        self.again_at = 0.0
        """When the next one may be tried, where some have failed."""
        self.tried: dict[str, int] = {}
        """How often a file has failed since anything went well."""
        self._number = number
        self._failed_at = 0.0
        self._joint: list[float] = []
        """How long those took that failed together, last; and why."""
        self._last_why = ""
        self._at_once = number
        """The requests that may be under way together."""
        self._fewer_at = 0.0
        self._refused: dict[str, tuple[int, str]] = {}
        """How often that was so when another one went well then; and why it failed."""

    def most_at_once(self, now: float) -> int:
        if self._at_once < self._number and now - self._fewer_at >= _CALM_SECONDS:
            self._at_once += 1
            self._fewer_at = now
        return self._at_once

    def failed(self, name: str, why: str, begun: float, now: float) -> None:
        """The end took no file, from a request that was made at *begun*."""
        if begun >= self._failed_at or not self.in_a_row:
            self.in_a_row += 1
            self._joint.clear()
        self._failed_at = now
        self._joint.append(now - begun)
        self._last_why = why
        self.tried[name] = self.tried.get(name, 0) + 1
        self._refused[name] = self._refused.get(name, (0, ""))[0], why
        pause = _FIRST_PAUSE_SECONDS * 2 ** min(self.in_a_row - 1, 16)
        pause = min(_LONGEST_PAUSE_SECONDS, pause)
        self.again_at = now + pause * (0.5 + random.random() / 2)  # noqa: S311 - spreads retries

    def too_many(self, seconds: float, now: float) -> dict[str, object] | None:
        """Whether uploads before one that took so long were in each other's way.

        They were where they failed together, and took longer, as at a time-out, than one by itself
        takes.
        """
        joint, self._joint = self._joint, []
        if self.in_a_row != 1 or len(joint) < 2 or min(joint) < seconds:
            return None
        self._at_once = max(1, self._at_once // 2)
        self._fewer_at = now
        return {"count": len(joint), "why": self._last_why, "most": self._at_once}

    def refusals(self, busy: Collection[str]) -> Iterator[tuple[str, str]]:
        """The files that fail by themselves, and why, once another one went well."""
        tried, self.tried = self.tried, {}
        for name in tried:
            times, why = self._refused[name]
            self._refused[name] = times + 1, why
            if times + 1 >= _REFUSALS and name not in busy:
                yield name, f"{name}, while others are: {why}"

    def forget(self, name: str) -> None:
        """A file waits no more."""
        self.tried.pop(name, None)
        self._refused.pop(name, None)
