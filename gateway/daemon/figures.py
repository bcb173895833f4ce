"""What the admin port shows of what the daemon's parts have in common.

Part of the composition root: nothing but `tap` imports it.  Everything here is read at
every scrape, so nothing counts through segments or senders.
"""

from __future__ import annotations

from gateway.admin.status import FeedStatus, PravegaStatus, StateStatus
from gateway.daemon.shared import Shared
from gateway.feeds.live import Live
from gateway.store.checkpoint import Checkpoint

__all__ = ["of_feeds", "of_pravega", "of_state"]


def of_state(checkpoint: Checkpoint) -> StateStatus:
    """How what protocols remember is saved."""
    return StateStatus(
        bytes=checkpoint.reserved_bytes,
        kept_bytes=checkpoint.kept_bytes,
        saved=checkpoint.saved,
        failed=checkpoint.failed,
        saved_at=checkpoint.saved_at,
    )


def of_pravega(shared: Shared) -> PravegaStatus:
    """The segments of all listeners."""
    container = shared.container
    return PravegaStatus(
        segments=len(container.state.segments),
        transactions=shared.controller.transactions,
        staged_bytes=container.state.staged_bytes,
        recent_bytes=container.recent.bytes,
        waiting_reads=container.waiting,
    )


def of_feeds(live: Live, shared: Shared) -> FeedStatus:
    """Who subscribes to our events."""
    return FeedStatus(
        followers=live.subscribers,
        replays=shared.replay.subscribers,
        skipped=live.skipped,
    )
