"""Reads the rows of a Parquet file in pieces of some MiB, and joins such to row groups.

By a number of rows alone a piece of large ones would be some GiB.  How large they are once
they are decoded is known of a row group as a whole, by the file's footer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.sdk.arrow import batches_of

PIECE_BYTES = 16 << 20
_PIECE_ROWS, _SAMPLE_ROWS = 1 << 16, 256

GROUP_BYTES = 64 << 20
"""Bytes of the row groups that are written, as they are in memory."""


def pieces(
    file: pq.ParquetFile, columns: Collection[str] | None = None
) -> Iterator[pa.Table]:
    """All rows of a file, or these columns of them, some at a time.

    The rows of a row group are taken to be alike.  Raises what pyarrow raises.
    """
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        rows = max(1, group.num_rows)
        each = _bytes_of(group, columns) / rows
        if rows > _SAMPLE_ROWS:  # values of a dictionary are there once
            some = next(batches_of(file, number, _SAMPLE_ROWS, columns))
            each = max(each, some.nbytes / some.num_rows)
        most = max(1, min(int(PIECE_BYTES / max(each, 1)), _PIECE_ROWS))
        yield from map(pa.table, batches_of(file, number, most, columns))


def _bytes_of(group: pq.RowGroupMetaData, columns: Collection[str] | None) -> int:
    if columns is None:
        return int(group.total_byte_size)
    names = tuple(f"{name}." for name in columns)
    chunks = (group.column(n) for n in range(group.num_columns))
    return sum(
        chunk.total_uncompressed_size
        for chunk in chunks
        if f"{chunk.path_in_schema}.".startswith(names)
    )


def joined(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables that are as large as a row group should be."""
    size = 0
    waiting: list[pa.Table] = []
    for table in tables:
        size += table.nbytes
        waiting.append(table)
        if size >= GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)
