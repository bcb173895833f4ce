"""Columns: batches whose rows differ among themselves."""

from __future__ import annotations

from gateway.event import Batch, Origin, Rows, Stored
from gateway.spool.parquet import Columns


def test_rows_may_differ_from_their_batch() -> None:
    """A row that names its own channel or kind gets it, and no other row does."""
    columns = Columns("gw")
    origin = Origin("pomelo", "game", "s-1", "127.0.0.1:9")
    uniform = Rows([b"1", b"2"], channel="a", kind="notify")
    mixed = Rows(
        [b"3", b"4", b"5"], channel="b", channels={1: "a", 2: "c"}, kinds={2: "request"}
    )
    for lsn, rows in ((1, uniform), (3, mixed)):
        count = len(rows.payloads)
        columns.add(Stored(Batch(origin, 0, count, b"", count), lsn), rows)
    batch = columns.batch()
    assert batch["channel"].to_pylist() == ["a", "a", "b", "a", "c"]
    assert batch["kind"].to_pylist() == ["notify", "notify", "data", "data", "request"]
