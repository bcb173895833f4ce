"""How much earlier than its interval says a segment is sealed, so that its file is in time.

With `ack: spool` a sender whose event came first waits for the interval, and then for the
file: decoding, Parquet, the upload.  Sealing earlier by what the last files took ends its
wait about when the interval does.  A job on the same machine begins its batches at whole
multiples of `spark.trigger` since 1970, as Spark does.  A file that is there just before
waits for no other batch.
"""

from __future__ import annotations

import math
from collections import deque

_MOST_OF_INTERVAL = 0.5
"""The most of the interval: no more than twice as many files are made."""
_LOOKS_SECONDS = 0.1
"""Seconds before its batch by which a file should be there."""
_FADES = 0.125
"""The part that the longest recent time loses with each file that took less."""


class Lead:
    """The lead of one journal.  Times are of one clock, in seconds; two threads may call."""

    def __init__(self) -> None:
        self._took = 0.0
        """Seconds that a file takes: the longest recent time."""
        self._sealed: deque[tuple[int, float]] = deque()
        """Segments without a file: the last lsn, and when it was sealed."""

    def sealed(self, last_lsn: int, now: float) -> None:
        """The file of this segment is to be written."""
        self._sealed.append((last_lsn, now))

    def published(self, last_lsn: int, now: float) -> None:
        """The files up to this lsn are there."""
        sealed = self._sealed
        while sealed and sealed[0][0] <= last_lsn:
            _, at = sealed.popleft()
            took = now - at
            self._took = max(took, self._took + _FADES * (took - self._took))

    def of(self, interval: float) -> float:
        """Seconds by which to seal earlier than after *interval* seconds.

        0 while a file is still to be written: the next one would only wait for it.
        """
        return 0.0 if self._sealed else min(self._took, _MOST_OF_INTERVAL * interval)

    def before_batch(self, begun: float, interval: float) -> float:
        """The time of the day when a segment is sealed that began at *begun*, in seconds.

        It is at most *interval* later, and before a multiple of that.
        """
        ahead = min(self._took + _LOOKS_SECONDS, _MOST_OF_INTERVAL * interval)
        return math.ceil((begun + ahead) / interval) * interval - ahead
