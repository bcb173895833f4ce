"""What footers say of columns, where pyarrow ends the process for what does not fit."""

import io
import struct

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.sdk.arrow import statistics_of
from gateway.store.hub.chunks import why_unlike

TABLE = pa.table({"lsn": [1, 2], "text": ["a", None], "list": [["a"], []]})


def test_no_flipped_bit_of_a_footer_that_is_let_in_ends_the_process():
    """As a column's other type does, bytes of texts that it has not, or other histograms."""
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, store_schema=False)
    whole = sink.getvalue()
    (size,) = struct.unpack("<I", whole[-8:-4])
    begin = len(whole) - 8 - size
    refused = read = 0
    for bit in range(8 * size):
        data = bytearray(whole)
        data[begin + bit // 8] ^= 1 << bit % 8
        try:
            file = pq.ParquetFile(io.BytesIO(data))
            wrong = why_unlike(bytes(data[begin:-8]), file.schema)
        except Exception:  # it can not be read, and says so
            continue
        if wrong is not None:
            refused += 1
            continue
        for group in range(file.metadata.num_row_groups):
            for column in range(file.metadata.num_columns):
                read += statistics_of(file.metadata, group, column) is not None
    assert refused > 50
    assert read > 1000
