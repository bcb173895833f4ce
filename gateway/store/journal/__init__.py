"""The write-ahead log where batches become durable: `Journal` has the thread, `Log` the
files, `segment` their format, `recovery` what a start makes of them.
"""

from gateway.store.journal.journal import Journal
from gateway.store.journal.log import Log, Segment, Synced
from gateway.store.journal.recovery import Loss, Recovered

__all__ = [
    "Journal",
    "Log",
    "Loss",
    "Recovered",
    "Segment",
    "Synced",
]
