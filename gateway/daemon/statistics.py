"""Values that /api/status, /metrics and the page show of the storage and of subscribers.

Read at every scrape, so nothing here counts through what may be many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gateway.admin.status import (
    ArchiveStatus,
    ChainStatus,
    IncarnationStatus,
    JournalStatus,
    ListenerStatus,
    SpoolStatus,
)
from gateway.feeds.live import Live
from gateway.feeds.replay import Replay
from gateway.figures import section
from gateway.forward import Forwarder
from gateway.net import Listener, MemoryBudget
from gateway.sdk.protocol import Statistics
from gateway.store.checkpoint import Checkpoint
from gateway.store.objects.node_record import MOST_EARLIER
from gateway.store.readers.consumers import Behind
from gateway.store.spool.retained import Retained
from gateway.store.spool.uploads import Uploads
from gateway.store.storage import Storage


class Stores(NamedTuple):
    """The parts of a `Status` that are the storage's."""

    journal: JournalStatus
    spool: SpoolStatus
    archive: ArchiveStatus
    chain: ChainStatus


def of_listeners(listeners: Iterable[Listener]) -> list[ListenerStatus]:
    """Each of them, as bound."""
    return [
        ListenerStatus(
            name=one.name,
            protocol=one.protocol,
            address=one.address,
            connections=one.connections,
            events=one.traffic.events,
            bytes=one.traffic.bytes,
            rejected=dict(one.rejected),
            connections_limit=one.limits.connections,
        )
        for one in listeners
    ]


def of_storage(storage: Storage, spool_bytes: int) -> Stores:
    """How far journal and spool are, and how full; *spool_bytes* is `spool.max_bytes`."""
    journal, spool = storage.journal, storage.spool
    levels = spool.levels
    published = spool.published_lsn
    return Stores(
        JournalStatus(
            # What is in a file is durable; the reactor may hear of that later.
            max(journal.durable_lsn, published),
            storage.journal_bytes,
            journal.why_full,
            journal.oldest_wait_seconds,
        ),
        SpoolStatus(
            published,
            levels.spool.files,
            levels.spool.bytes,
            spool_bytes,
            None if spool.uploads is None else spool.uploads.end.url,
            None if spool.uploads is None else spool.uploads.problem,
        ),
        ArchiveStatus(levels.archive.files, levels.archive.bytes),
        ChainStatus(*storage.link),
    )


def of_disk(storage: Storage, after: str) -> Statistics:
    """How much room there is; *after* is `spool.after`."""
    return section("disk").of(
        {
            "free_bytes": storage.spool.levels.free_bytes,
            "room_bytes": room_bytes(storage, after),
            "clock_ahead_seconds": storage.spool.clock_ahead_seconds,
        }
    )


def room_bytes(storage: Storage, after: str) -> int | None:
    """Free on the disk, with what leaves the archive when it is short, and without what
    is kept for events that are acknowledged; None before the first look.
    """
    levels = storage.spool.levels
    if levels.free_bytes is None:
        return None
    goes = after in ("archive", "forward") or storage.spool.uploads is not None
    archive = levels.archive.bytes if goes else 0
    return max(0, levels.free_bytes + archive - storage.spool.room.reserved_bytes)


def of_memory(memory: MemoryBudget) -> Statistics:
    """Memory that peers make the daemon hold, and who waits for others to be done."""
    values = {"held_bytes": memory.held_bytes, "waiting": memory.waiting}
    return section("memory").of(values)


def of_retained(retained: Retained) -> Iterator[Statistics]:
    """Files that are kept of those that left the archive; nothing if no protocol needs any."""
    if retained.needed:
        values = {"files": retained.files, "bytes": retained.bytes}
        yield section("retained").of(values)


def of_consumers(behind: Mapping[str, Behind]) -> Iterator[Statistics]:
    """How far each of `spool.consumers` is behind; nothing if there are none."""
    if behind:
        about = section("consumers")
        names = [one.own_name for one in about.figures]
        yield about.of(
            {
                name: {one: getattr(found, name) for one, found in behind.items()}
                for name in names
            }
        )


def of_uploads(uploads: Uploads | None) -> Iterator[Statistics]:
    """How files get into the bucket; nothing if the spool is a directory."""
    if uploads is not None:
        yield section("bucket").of(
            {
                "uploads": {"uploaded": uploads.uploaded, "failed": uploads.failed},
                "bytes": uploads.bytes,
                "away": uploads.why is not None,
                "stuck": len(uploads.conflicts) + len(uploads.stuck),
            }
        )


def of_forwarder(forwarder: Forwarder | None) -> Iterator[Statistics]:
    """How files get to the hub; nothing without `forward`."""
    if forwarder is None:
        return
    hub, node = forwarder.hub, forwarder.node
    yield section("forward").of(
        {
            "connected": hub.connected,
            "away_seconds": 0.0 if hub.connected else hub.seconds,
            "refused": hub.denied,
            "files": forwarder.sent_files,
            "bytes": forwarder.sent_bytes,
            "events": forwarder.sent_events,
            "connections": forwarder.connections,
            "set_aside": forwarder.set_aside,
            "arrived_lsn": forwarder.arrived_lsn,
            "hub": {node: forwarder.arrived_lsn} if node else {},
            "nodes": {**forwarder.nodes},
            "place": hub.place,
            "waiting_there": forwarder.files,
        },
        title=f"Files for {hub.to}",
    )


def of_state(checkpoint: Checkpoint) -> Iterator[Statistics]:
    """How what protocols remember is saved; nothing if none remembers."""
    if checkpoint.names:
        yield section("state").of(
            {
                "bytes": checkpoint.reserved_bytes,
                "saved_at": checkpoint.saved_at,
                "kept_bytes": checkpoint.kept_bytes,
                "saves": {"saved": checkpoint.saved, "failed": checkpoint.failed},
            }
        )


def of_incarnation(storage: Storage) -> IncarnationStatus:
    """The incarnation that gives lsns."""
    own = storage.lineage.now
    return IncarnationStatus(own.id, own.since, own.whole[-MOST_EARLIER:])


def of_feeds(live: Live, replay: Replay) -> Statistics:
    """Readers that subscribe to the gateway's events."""
    return section("feeds").of(
        {
            "followers": live.subscribers,
            "replays": replay.subscribers,
            "skipped": live.skipped,
        }
    )
