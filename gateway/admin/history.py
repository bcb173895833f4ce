"""The last hour of the daemon, a sample every five seconds: rates, latencies, backlog.

Kept by the daemon and not by the page, so that a page opened at night shows how it came to
this.  A ring: an hour takes some 100 KiB, however long the daemon runs.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from gateway.admin.status import Status

EVERY = 5.0
"""Seconds between two samples."""
_MOST_SAMPLES = 720


class Sample(NamedTuple):
    """The five seconds before `at`."""

    at: float
    """Seconds since the epoch."""
    events: float
    """Made durable, a second."""
    bytes: float
    """Received, a second."""
    ack_p50: float | None
    """Seconds from a batch's last byte to durable; None: there was no batch."""
    ack_p99: float | None
    waiting_bytes: int
    """Bytes that wait for Spark."""
    journal_bytes: int
    connections: int
    freshness: float | None
    """Age of the oldest event in no table."""
    level: str
    """The level of the sentence: `good`, `warning`, `bad`."""


class History:
    """The ring."""

    def __init__(self, kept: int = _MOST_SAMPLES) -> None:
        self._samples: deque[Sample] = deque(maxlen=kept)
        self._before: tuple[float, int, int, Sequence[int]] | None = None

    @property
    def latest(self) -> Sample | None:
        """None: there was no time for one yet."""
        return self._samples[-1] if self._samples else None

    def note(
        self,
        at: float,
        monotonic: float,
        status: Status,
        bounds: Sequence[float],
        acks: Sequence[int],
    ) -> None:
        """The daemon *at* this time; *acks* counts all batches ever by these *bounds* of
        seconds, and those above the last one.
        """
        events = sum(one.events for one in status.listeners)
        received = sum(one.bytes for one in status.listeners)
        before, self._before = self._before, (monotonic, events, received, acks)
        if before is None or monotonic <= before[0]:
            return
        seconds = monotonic - before[0]
        batches = [now - then for now, then in zip(acks, before[3], strict=True)]
        fresh = status.freshness
        self._samples.append(
            Sample(
                at=round(at, 1),
                # A listener that is gone takes its counts with it.
                events=round(max(events - before[1], 0) / seconds, 1),
                bytes=round(max(received - before[2], 0) / seconds, 1),
                ack_p50=quantile(bounds, batches, 0.5),
                ack_p99=quantile(bounds, batches, 0.99),
                waiting_bytes=fresh.waiting_bytes if fresh else status.spool.bytes,
                journal_bytes=status.journal.bytes,
                connections=sum(one.connections for one in status.listeners),
                freshness=None
                if fresh is None or fresh.age_seconds is None
                else round(fresh.age_seconds, 2),
                level=fresh.level if fresh else "good",
            )
        )

    def as_json(self) -> bytes:
        """The answer of `/api/history`: a list for each column, the oldest first."""
        columns = zip(*self._samples, strict=True) if self._samples else ()
        found = dict(zip(Sample._fields, map(list, columns), strict=False))
        empty: dict[str, list[object]] = {name: [] for name in Sample._fields}
        return json.dumps({"every": EVERY, **empty, **found}).encode()


def quantile(
    bounds: Sequence[float], counts: Sequence[int], share: float
) -> float | None:
    """The value that *share* of the values do not exceed, about; None if there are none.

    *counts* are those of a histogram with these upper *bounds*, and one more for what is
    above.  Within a bucket values count as evenly spread.
    """
    total = sum(counts)
    if not total:
        return None
    wanted = share * total
    for index, below in enumerate(accumulate(counts)):
        if below >= wanted and counts[index]:
            if index >= len(bounds):
                break
            low = bounds[index - 1] if index else 0.0
            inside = (wanted - (below - counts[index])) / counts[index]
            return round(low + (bounds[index] - low) * inside, 6)
    return bounds[-1]
