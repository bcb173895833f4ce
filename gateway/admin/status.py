"""The daemon at one moment, as the live page, the metrics and scripts read it.

The composition root makes a `Probe` that fills these in from the parts; it runs
on the reactor's thread, at every scrape, so it must be quick and must not block.
Events and bytes count from the start of the process; lsns and files do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

__all__ = [
    "ArchiveStatus",
    "FeedStatus",
    "JournalStatus",
    "ListenerStatus",
    "PravegaStatus",
    "Probe",
    "PushStatus",
    "SpoolStatus",
    "StateStatus",
    "Status",
    "as_json",
]


@dataclass(frozen=True, slots=True)
class ListenerStatus:
    """One configured listener."""

    name: str
    """Its name in the configuration."""
    protocol: str
    """`lumberjack`, `pravega`, `pomelo` or `rsio`."""
    address: str
    """As bound, so that port 0 shows the real port."""
    connections: int
    """Open now."""
    events: int
    """Made durable since the start."""
    bytes: int
    """Read from the network since the start."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Connections turned away before a protocol saw them, by reason; few reasons."""


@dataclass(frozen=True, slots=True)
class JournalStatus:
    """What is durable and how much of it waits for the spool."""

    durable_lsn: int
    """Of the newest event that survives a power cut; 0 when there is none yet."""
    bytes: int
    """On disk, sealed and open segments together."""
    why_full: str | None = None
    """Why it takes no more batches, or None while it does."""


@dataclass(frozen=True, slots=True)
class SpoolStatus:
    """What waits for Spark."""

    published_lsn: int
    """Of the newest event in a published file; 0 when there is none yet."""
    files: int
    bytes: int
    limit_bytes: int | None = None
    """`spool.max_bytes`: where the journal stops taking batches."""


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """What Spark has committed and retention has not removed yet."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PushStatus:
    """The way back to Pomelo's clients."""

    clients: int
    """That can be reached now."""
    pushes: Mapping[str, int]
    """By what became of them: `pomelo.registry.OUTCOMES`."""
    outbox_files: Mapping[str, int]
    """`pushed`, `set_aside`."""
    outbox_rows: Mapping[str, int]
    """Of the files that were pushed: `pushed`, `refused`."""


@dataclass(frozen=True, slots=True)
class StateStatus:
    """What protocols remember beside their events, as it was saved (`state/`)."""

    bytes: int
    """Of the state files."""
    kept_bytes: int
    """Of published journal segments that stay until the next save."""
    saved: int
    """How often since the start."""
    failed: int
    """How often it could not be saved; it is tried again until it can."""
    saved_at: float | None
    """When it was saved last, in seconds since the epoch; None: not since the start."""


@dataclass(frozen=True, slots=True)
class PravegaStatus:
    """The segments of all Pravega listeners."""

    segments: int
    """Tables and open transactions among them."""
    transactions: int
    """Open, of the controller."""
    staged_bytes: int
    """What transactions and large events hold in memory."""
    recent_bytes: int
    """The newest data, in memory for readers."""
    waiting_reads: int
    """At the end of a segment."""


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """Our events, for those who subscribe to them."""

    followers: int
    """Live: taps, the admin port's too, and replays that have caught up."""
    replays: int
    """Subscriptions to `events`, caught up or not."""
    skipped: int
    """Events that a tap was too slow for, counted for each."""


@dataclass(frozen=True, slots=True)
class Status:
    """The whole daemon, or one worker of it."""

    node: str
    version: str
    uptime_seconds: float
    not_ready_reason: str | None
    """One line for people: why it can not take events now; None when it can."""
    listeners: Sequence[ListenerStatus]
    journal: JournalStatus
    spool: SpoolStatus
    archive: ArchiveStatus
    pushes: PushStatus | None = None
    """None where nobody can be pushed to."""
    state: StateStatus | None = None
    """None where no protocol has any."""
    pravega: PravegaStatus | None = None
    """None where it is not served."""
    feeds: FeedStatus | None = None

    @property
    def ready(self) -> bool:
        """Whether events are being taken."""
        return self.not_ready_reason is None


#: Reads the daemon's state now.
Probe = Callable[[], Status]


def as_json(status: Status) -> bytes:
    """What `/api/status` answers: every field, and `ready`."""
    fields = asdict(status)
    head = {name: fields.pop(name) for name in ("node", "version")}
    return json.dumps({**head, "ready": status.ready, **fields}).encode()
