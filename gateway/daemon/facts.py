"""Collects what the freshness of a node is judged by (`gateway.admin.freshness`).

Read at every scrape and look at the page: nothing here touches the disk but the small
file in which the Spark job reports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Protocol

from gateway import config
from gateway.admin.freshness import Facts
from gateway.daemon.lake import LakeWatch
from gateway.store.storage import Storage

__all__ = ["Growth", "Source", "collect"]

_WINDOW_SECONDS = 60.0


class Growth:
    """How fast what waits for Spark grows: over the last minute, in bytes a second."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now: float, waiting_bytes: int) -> None:
        """At *now*, by a monotonic clock, so much waits; call it every few seconds."""
        seen = self._seen
        seen.append((now, waiting_bytes))
        while len(seen) > 2 and seen[1][0] <= now - _WINDOW_SECONDS:
            seen.popleft()

    @property
    def rate(self) -> float | None:
        """None as long as nobody knows; below 0 when it shrinks."""
        if len(self._seen) < 2:
            return None
        (begun, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - begun) if ended > begun else None


class Source(Protocol):
    """A listener, as far as freshness goes."""

    name: str
    address: str

    @property
    def connections(self) -> int:
        """Open now."""

    @property
    def certificate_ends(self) -> datetime | None:
        """When its certificate does; None without TLS."""


def collect(
    settings: config.Config,
    storage: Storage,
    lake: LakeWatch,
    listeners: Iterable[Source],
    growth: float | None,
    *,
    phase: str | None,
    stopping: bool,
    now: datetime,
) -> Facts:
    """The facts at *now*; *phase* is why the daemon itself takes nothing, if so."""
    journal, spool = storage.journal, storage.spool
    uploads = spool.uploads
    # The job of a bucket may run anywhere, and report there.
    has_job = settings.spool.after != "keep"
    has_job = has_job and (uploads is None or bool(lake.job.state))
    published = spool.published_lsn
    committed = lake.committed_lsn
    arrived = committed if has_job else published
    levels = spool.levels
    room = levels.free_bytes
    if room is not None and (settings.spool.after == "archive" or uploads):
        room += levels.archive.bytes  # it goes when the disk is short
    sources = list(listeners)
    return Facts(
        phase=phase,
        stopping=stopping,
        reasons=journal.reasons,
        disk_wait=journal.disk_wait_seconds,
        stall_after=settings.journal.stall_after,
        roll_seconds=settings.spool.roll_interval * journal.roll_factor,
        trigger_seconds=settings.spark.trigger,
        unpublished=lake.age_behind(max(published, committed)),
        uncommitted=lake.age_behind(committed) if has_job else None,
        newest=lake.newest_age(arrived),
        listeners=lake.listener_ages(arrived, [one.name for one in sources]),
        durable_lsn=max(journal.durable_lsn, published),
        connections=sum(one.connections for one in sources),
        addresses={one.name: one.address for one in sources},
        waiting_bytes=levels.spool.bytes + spool.backlog_bytes,
        limit_bytes=settings.spool.max_bytes,
        free_bytes=room,
        growth=growth,
        job=lake.job if has_job else None,
        bucket=uploads is not None,
        bucket_error=None if uploads is None else uploads.problem,
        certificates=_left(sources, now),
    )


def _left(listeners: Iterable[Source], now: datetime) -> Mapping[str, float]:
    """Seconds that each certificate is still valid, by listener."""
    return {
        one.name: (one.certificate_ends - now).total_seconds()
        for one in listeners
        if one.certificate_ends is not None
    }
