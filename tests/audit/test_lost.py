"""A row that holds a lost event's place is not the event."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.audit import audit
from gateway.store.directories import Directories

NAME = "events-gw-00000000000000000001-00000000000000000004.parquet"


@pytest.mark.parametrize("where", ["spool", "lake/quarantine"])
def test_a_lost_event_is_a_hole(tmp_path: Path, where: str) -> None:
    """Whichever place its placeholder has reached, the audit reports the loss."""
    for name in ("journal", "spool", "archive", where):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "node": ["gw"] * 4,
            "lsn": pa.array([1, 2, 3, 4], pa.int64()),
            "flaw": pa.array([None, "lost", "invalid-json", None], pa.string()),
        }
    )
    pq.write_table(table, tmp_path / where / NAME)
    report = audit(Directories.under(tmp_path), pause=lambda _: None)
    assert not report.complete
    [node] = report.nodes
    assert (node.last, list(node.holes)) == (4, [(2, 2)])
