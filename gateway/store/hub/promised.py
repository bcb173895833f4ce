"""Whether the rows of a spool file are those that its name promises."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.store.names import SpoolFile

_BATCH_ROWS = 1 << 15


def why_not_those(
    content: pq.ParquetFile, named: SpoolFile, columns: Sequence[str] | None = None
) -> str | None:
    """Why they are not, None if they are: all lsns in order, of that node.

    Every byte is read, or with *columns*, which have these two, only those.  Damaged bytes
    make pyarrow raise anything.
    """
    expected = named.first
    for batch in content.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False):
        batch.validate(full=True)
        lsns = batch["lsn"].to_numpy()
        wanted = np.arange(expected, expected + len(lsns))
        if (wrong := np.flatnonzero(lsns != wanted)).size:
            at = wrong[0]
            return f"where lsn {wanted[at]} should be, it has {lsns[at]}"
        if pc.unique(batch["node"]).cast(pa.string()).to_pylist() != [named.node]:
            return f"it has events of other nodes than {named.node}"
        expected += len(lsns)
    return None if expected == named.last + 1 else f"its lsns end with {expected - 1}"
