"""What /api/status, /metrics and the page show of the storage and of subscribers.

Read at every scrape, so nothing here counts through what may be many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from gateway.forward import Forwarder
from gateway.net import Listener, MemoryBudget
from gateway.sdk.protocol import Statistic, Statistics
from gateway.store.checkpoint import Checkpoint
from gateway.store.objects.word import MOST_EARLIER
from gateway.store.readers.consumers import Behind
from gateway.store.spool.retained import Retained
from gateway.store.spool.uploads import Uploads
from gateway.store.storage import Storage


class Stores(NamedTuple):
    """Those parts of a `Status` that are the storage's."""

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
            None if spool.uploads is None else spool.uploads.bucket.url,
            None if spool.uploads is None else spool.uploads.problem,
        ),
        ArchiveStatus(levels.archive.files, levels.archive.bytes),
        ChainStatus(*storage.link),
    )


def of_disk(storage: Storage, after: str) -> Statistics:
    """How much room there is; *after* is `spool.after`."""
    return Statistics(
        "disk",
        "Disk of data_dir",
        [
            Statistic("free_bytes", "Free on the disk of data_dir.",
                      storage.spool.levels.free_bytes, "gateway_disk_free_bytes",
                      card="free", unit="bytes"),
            Statistic("room_bytes",
                      "What events may still take there before senders are held back.",
                      room_bytes(storage, after), "gateway_disk_room_bytes",
                      card="room for events", unit="bytes"),
            Statistic("clock_ahead_seconds",
                      "How far the clock has leapt, while nothing is removed by that.",
                      storage.spool.clock_ahead_seconds, "gateway_clock_ahead_seconds"),
        ],
    )  # fmt: skip


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
    """What peers make the daemon hold, and who waits for others to be done."""
    return Statistics(
        "memory",
        "Messages that arrive",
        [
            Statistic("held_bytes",
                      "Unfinished input and unread output of all connections.",
                      memory.held_bytes, "gateway_held_bytes", card="in memory",
                      unit="bytes"),
            Statistic("waiting", "Connections that are not read, as all hold so much.",
                      memory.waiting, "gateway_waiting_connections",
                      card="connections wait for memory"),
        ],
    )  # fmt: skip


def of_retained(retained: Retained) -> Iterator[Statistics]:
    """What is kept of files that left the archive; nothing if no protocol needs any."""
    if not retained.needed:
        return
    yield Statistics(
        "retained",
        "Events that streams keep, beside the archive",
        [
            Statistic("files",
                      "Files with what streams keep of those that left the archive.",
                      retained.files, "gateway_retained_files"),
            Statistic("bytes", "Their bytes.", retained.bytes, "gateway_retained_bytes",
                      card="on disk", unit="bytes"),
        ],
    )  # fmt: skip


def of_consumers(behind: Mapping[str, Behind]) -> Iterator[Statistics]:
    """How far each of `spool.consumers` is behind; nothing if there are none."""
    if not behind:
        return

    def each(
        name: str, text: str, value: Callable[[Behind], float], card: str = ""
    ) -> Statistic:
        counter = name.startswith("missed")
        return Statistic(
            name,
            text,
            {one: value(found) for one, found in behind.items()},
            f"gateway_consumer_{name}{'_total' if counter else ''}",
            "consumer",
            counter=counter,
            card=card,
        )

    yield Statistics(
        "consumers",
        "Consumers of the spool",
        [
            each(
                "files",
                "Files that it has not read, in the archive or the bucket.",
                lambda one: one.files,
                "files not read",
            ),
            each("bytes", "Their bytes.", lambda one: one.bytes),
            each(
                "oldest_seconds",
                "For how long the oldest of them has been there.",
                lambda one: one.oldest_seconds,
            ),
            each(
                "held_files",
                "Those that stay for it beyond spool.retention.",
                lambda one: one.held_files,
            ),
            each("held_bytes", "Their bytes.", lambda one: one.held_bytes),
            each(
                "missed_files",
                "Files that left for want of room before it had read them.",
                lambda one: one.missed_files,
            ),
        ],
    )


def of_uploads(uploads: Uploads | None) -> Iterator[Statistics]:
    """How files get into the bucket; nothing if the spool is a directory."""
    if uploads is None:
        return
    yield Statistics(
        "bucket",
        "Uploads to the bucket",
        [
            Statistic.outcomes("uploads", "Attempts to put a file into the bucket.",
                               {"uploaded": uploads.uploaded, "failed": uploads.failed},
                               "gateway_bucket_uploads_total", card="attempts"),
            Statistic("bytes", "Bytes of the files that were uploaded.", uploads.bytes,
                      "gateway_bucket_bytes_total", counter=True, card="uploaded",
                      unit="bytes"),
            Statistic("away", "1 while the bucket takes no files.", uploads.why is not None,
                      "gateway_bucket_away", card="takes no files"),
            Statistic("stuck", "Files that can not be uploaded as they are.",
                      len(uploads.conflicts) + len(uploads.stuck),
                      "gateway_bucket_stuck_files", card="files that can not be uploaded"),
        ],
    )  # fmt: skip


def of_forwarder(forwarder: Forwarder | None) -> Iterator[Statistics]:
    """How files get to the hub; nothing without `forward`."""
    if forwarder is None:
        return
    hub = forwarder.hub
    yield Statistics(
        "forward",
        f"Files for {hub.to}",
        [
            Statistic("connected", "1 while the hub takes this gateway's files.",
                      hub.connected, "gateway_forward_connected", card="connected"),
            Statistic("away_seconds", "For how long it has not; 0 while it does.",
                      0.0 if hub.connected else hub.seconds,
                      "gateway_forward_away_seconds", card="away for", unit="seconds"),
            Statistic("refused", "1 while the hub refuses this gateway.",
                      hub.denied, "gateway_forward_refused"),
            Statistic("files", "Files that the hub has told to have.",
                      forwarder.sent_files, "gateway_forward_files_total",
                      counter=True, card="files sent"),
            Statistic("bytes", "Their bytes.", forwarder.sent_bytes,
                      "gateway_forward_bytes_total", counter=True, card="sent",
                      unit="bytes"),
            Statistic("events", "Events in them.", forwarder.sent_events,
                      "gateway_forward_events_total", counter=True),
            Statistic("connections", "Connections to the hub that were opened.",
                      forwarder.connections, "gateway_forward_connections_total",
                      counter=True),
            Statistic("set_aside", "Files that could not be read, and are in poison/.",
                      forwarder.set_aside, "gateway_forward_set_aside_files_total",
                      counter=True),
            Statistic("arrived_lsn", "The hub has all of our events up to there.",
                      forwarder.arrived_lsn),
            Statistic("hub", "Likewise, by the node of the hub that was connected last.",
                      {forwarder.node: forwarder.arrived_lsn} if forwarder.node else {}),
            Statistic("nodes", "Of others that forward to this one: the hub has all of "
                      "their present life up to there.", {**forwarder.nodes}),
            Statistic("place", "Which of forward.to is connected, or tried: 1 is the first.",
                      hub.place, "gateway_forward_hub_place"),
            Statistic("waiting_there", "Files that wait at the hub for its job.",
                      forwarder.files, "gateway_forward_hub_waiting_files"),
        ],
    )  # fmt: skip


def of_state(checkpoint: Checkpoint) -> Iterator[Statistics]:
    """How what protocols remember is saved; nothing if none remembers."""
    if not checkpoint.names:
        return
    yield Statistics(
        "state",
        "State that protocols remember",
        [
            Statistic("bytes", "State files on disk.", checkpoint.reserved_bytes,
                      "gateway_state_bytes", card="on disk", unit="bytes"),
            Statistic("saved_at", "When state was saved last, since the epoch.",
                      checkpoint.saved_at, "gateway_state_saved_timestamp_seconds",
                      card="saved", unit="time"),
            Statistic("kept_bytes",
                      "Published journal segments that stay until state is saved.",
                      checkpoint.kept_bytes, "gateway_state_kept_bytes",
                      card="journal kept until the next", unit="bytes"),
            Statistic.outcomes("saves", "Attempts to save state.",
                               {"saved": checkpoint.saved, "failed": checkpoint.failed},
                               "gateway_state_saves_total", card="attempts"),
        ],
    )  # fmt: skip


def of_incarnation(storage: Storage) -> IncarnationStatus:
    """Who gives lsns."""
    own = storage.lineage.now
    return IncarnationStatus(own.id, own.since, own.whole[-MOST_EARLIER:])


def of_feeds(live: Live, replay: Replay) -> Statistics:
    """Who subscribes to the gateway's events."""
    return Statistics(
        "feeds",
        "",
        [
            Statistic("followers", "Who follow live.", live.subscribers,
                      "gateway_feed_followers"),
            Statistic("replays", "Subscriptions to events.", replay.subscribers,
                      "gateway_feed_replays"),
            Statistic("skipped", "Lsns that a tap was too slow for.", live.skipped,
                      "gateway_feed_skipped_events_total", counter=True),
        ],
    )  # fmt: skip
