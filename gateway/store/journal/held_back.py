"""Tells in the log when the journal begins to hold senders back, and when that is over.

Several reasons may hold at once, and a full disk holds and lets go every second.  So a
reason is told once until nothing has held for a few seconds; then the end is told, with
how long it took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from twisted.logger import Logger, LogLevel

_SETTLED_SECONDS = 3.0
_ERRORS = {"commit", "stall"}
"""Reasons of the disk's, rather than of a sender that fills it."""


class HoldingLog:
    """The lines of one journal; `update` it when a reason changes, and every second."""

    _log = Logger()

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._told: set[str] = set()
        self._since = self._until = 0.0

    def update(self, reasons: Mapping[str, str]) -> None:
        """*reasons* that hold now: who holds, and why in a sentence for people."""
        if not (reasons or self._told):
            return
        now = self._clock()
        if reasons:
            if not self._told:
                self._since = now
            self._until = now
            for who in reasons.keys() - self._told:
                self._told.add(who)
                self._begin(who, reasons[who])
        elif self._told and now - self._until >= _SETTLED_SECONDS:
            self._log.info(
                "Senders go on: nothing holds them back any more, after {seconds:.0f} s "
                "({who})",
                seconds=self._until - self._since,
                who=", ".join(sorted(self._told)),
            )
            self._told.clear()

    def _begin(self, who: str, why: str) -> None:
        since = datetime.fromtimestamp(self._wall_clock(), UTC)
        self._log.emit(
            LogLevel.error if who in _ERRORS else LogLevel.warn,
            "Senders are held back since {since}: {why}",
            since=since.isoformat(timespec="seconds").replace("+00:00", "Z"),
            why=why,
            who=who,
        )
