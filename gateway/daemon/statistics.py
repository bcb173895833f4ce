"""What /api/status, /metrics and the page show of saved state and of subscribers.

Read at every scrape, so nothing here counts through what may be many.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.feeds.live import Live
from gateway.feeds.replay import Replay
from gateway.protocol import Statistic, Statistics
from gateway.store.checkpoint import Checkpoint

__all__ = ["of_feeds", "of_state"]


def of_state(checkpoint: Checkpoint) -> Iterator[Statistics]:
    """How what protocols remember is saved; nothing if none remembers."""
    if not checkpoint.names:
        return
    yield Statistics(
        "state",
        "State that protocols remember",
        [
            Statistic(
                "bytes",
                "State files on disk.",
                checkpoint.reserved_bytes,
                "gateway_state_bytes",
                card="on disk",
                unit="bytes",
            ),
            Statistic(
                "saved_at",
                "When state was saved last, since the epoch.",
                checkpoint.saved_at,
                "gateway_state_saved_timestamp_seconds",
                card="saved",
                unit="time",
            ),
            Statistic(
                "kept_bytes",
                "Published journal segments that stay until state is saved.",
                checkpoint.kept_bytes,
                "gateway_state_kept_bytes",
                card="journal kept until the next",
                unit="bytes",
            ),
            Statistic(
                "saves",
                "Attempts to save state.",
                {"saved": checkpoint.saved, "failed": checkpoint.failed},
                "gateway_state_saves_total",
                label="outcome",
                counter=True,
                card="attempts",
            ),
        ],
    )


def of_feeds(live: Live, replay: Replay) -> Statistics:
    """Who subscribes to the gateway's events."""
    return Statistics(
        "feeds",
        "",
        [
            Statistic(
                "followers",
                "Who follow live.",
                live.subscribers,
                "gateway_feed_followers",
            ),
            Statistic(
                "replays",
                "Subscriptions to events.",
                replay.subscribers,
                "gateway_feed_replays",
            ),
            Statistic(
                "skipped",
                "Events that a tap was too slow for.",
                live.skipped,
                "gateway_feed_skipped_events_total",
                counter=True,
            ),
        ],
    )
