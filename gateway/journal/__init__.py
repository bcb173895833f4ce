"""Where batches become durable: `Journal` on a `Log` of segments, and `recover`."""

from gateway.journal.journal import Commit, Journal, Settings
from gateway.journal.log import Log, Segment
from gateway.journal.recovery import Loss, Recovered, recover

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
