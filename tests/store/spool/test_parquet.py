"""Columns: batches whose rows differ among themselves."""

from __future__ import annotations

import io

import pyarrow.parquet as pq

from gateway.event import Batch, Origin, Rows, Stored
from gateway.store.spool.columns import Columns
from gateway.store.spool.decoding import Decoder
from gateway.store.spool.parquet import write

ORIGIN = Origin("rsio", "rs", "s-1", "127.0.0.1:9")


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


def test_payloads_in_one_piece_are_rows_like_others() -> None:
    """Few or many, beside payloads that are not, in the order of their batches."""
    columns = Columns("gw")
    blocks = Rows([], range(5, 8), block=b"aabbcc", size=2)
    many = Rows([], block=b"".join(b"%03d" % at for at in range(200)), size=3)
    for lsn, rows in (
        (1, Rows([b"1", b""], [8, 9])),
        (3, blocks),
        (6, Rows([b"2"])),
        (7, Rows([], block=b"d", size=1)),
        (8, many),
        (208, Rows([b"3"])),
    ):
        batch = Batch(ORIGIN, 0, rows.count, b"", 0)
        columns.add(Stored(batch, lsn), rows)
    batch = columns.batch()
    batch.validate(full=True)
    assert batch["payload"].to_pylist() == [
        b"1", b"", b"aa", b"bb", b"cc", b"2", b"d", *many.each(), b"3"
    ]  # fmt: skip
    assert batch["seq"].to_pylist() == [8, 9, 5, 6, 7] + [None] * 203
    assert batch["lsn"].to_pylist() == list(range(1, 209))


def test_small_payloads_in_one_piece_make_large_row_groups() -> None:
    """Four times as many rows; what is in one piece costs no object for each."""
    count, batches = 1 << 14, 32
    first = iter(range(1, count * batches, count))
    sink = io.BytesIO()
    written = write(
        (
            Stored(Batch(ORIGIN, 0, count, b"", count), next(first))
            for _ in range(batches)
        ),
        sink,
        node="gw",
        decoder=Decoder({"rsio": lambda _: Rows([], block=bytes(count), size=1)}),
        compression="zstd",
    )
    assert written.events == count * batches
    groups = pq.ParquetFile(sink).metadata
    assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [
        1 << 17
    ] * 4
