"""The tables of whichever sink the Spark job has, for the audit.

Where a function of the user's own took the batches, nobody here can read the rows: then
the job's ledger is asked, and the report says that it is only told.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gateway.audit.counts import CHUNK, Counts
from gateway.audit.lake import Lake
from gateway.store.lake import committed, sink_of

__all__ = ["Told", "lake_of"]


def lake_of(lake: Path, *, node: str | None, first: int) -> Lake:
    """What counts the events in the tables; see `Lake`.  Raises OSError."""
    try:
        sink = (sink_of(lake) or {}).get("sink")
    except ValueError as why:
        raise OSError(f"{lake}: {why}") from None
    kind = Told if sink == "function" else Lake
    return kind(lake, node=node, first=first)


class Told(Lake):
    """Events that a user's function took, by the word of the job's ledger."""

    told = True

    def look(self) -> None:
        """See `Lake`."""
        self.nodes.clear()
        for node, spans in committed(self.directory).items():
            if self.node in (None, node):
                counts = self.nodes.setdefault(node, Counts())
                for first, last in spans:
                    for begin in range(max(first, self.first), last + 1, CHUNK):
                        end = min(begin + CHUNK, last + 1)
                        counts.add(np.arange(begin, end, dtype=np.int64))

    def files_with(self, node: str, first: int, last: int) -> list[str]:
        """None: no event is twice in a ledger."""
        return []
