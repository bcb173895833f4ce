"""Where batches become durable: `Journal` on a `Log` of segments, and `recover`."""

from gateway.store.journal.journal import Commit, Journal, Settings
from gateway.store.journal.log import Log, Segment
from gateway.store.journal.recovery import Loss, Recovered, recover

__all__ = [
    "Commit",
    "Journal",
    "Log",
    "Loss",
    "Recovered",
    "Segment",
    "Settings",
    "recover",
]
