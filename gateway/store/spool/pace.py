"""The pace at which the journal may take bytes while the spool fills up.

Without it senders fill the spool as fast as they can, stand until something has left it,
and fill it again.  So the less room there is, the nearer the rate of what comes is to the
rate of what leaves.  Then the last part of the room is never used up, and no sender stands.
"""

from __future__ import annotations

import math

_SECONDS = 2.0
"""The room that is left would last for so long."""
_KEPT_FREE = 16
"""One part in so many of the room."""
_AVERAGE_SECONDS = 2.0
"""Seconds of the average of what leaves: it does so in whole files."""
_PEAK_SECONDS = 8.0
"""Seconds for which the spool's peak lasts, before the last of it left."""


class Pace:
    """The pace of a spool that may hold *most* bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        """The limit, which may change."""
        self._leaving = 0.0
        self._peak = 0.0
        self._last: tuple[float, int] | None = None

    def look(self, now: float, taken: int, held: int) -> float:
        """The rate that is right from now on, in bytes a second; infinite: any.

        *taken* is how much came since the beginning, *held* what of it is still there;
        *now* is in seconds.
        """
        left = taken - held
        if self._last is None:
            self._last = now, left
            return math.inf
        seconds = now - self._last[0]
        if seconds > 0:
            rate = max(0.0, (left - self._last[1]) / seconds)
            self._leaving += _weight(seconds, _AVERAGE_SECONDS) * (rate - self._leaving)
            self._peak += _weight(seconds, _PEAK_SECONDS) * (held - self._peak)
            self._last = now, left
        self._peak = max(self._peak, held)
        free = self.most - self._peak - self.most / _KEPT_FREE
        return max(0.0, self._leaving + free / _SECONDS)


def _weight(seconds: float, of: float) -> float:
    """The weight of what was seen for so long, in an average over about *of* seconds."""
    return -math.expm1(-seconds / of)
