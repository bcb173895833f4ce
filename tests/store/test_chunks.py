"""What damaged footers say of columns: pyarrow raises anything, or ends the process."""

import io
import struct
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.sdk.arrow import bounds_of, footer_of
from gateway.store.hub.chunks import why_unlike

AT = datetime(2026, 3, 1, tzinfo=UTC)
TABLE = pa.table(
    {"lsn": [1, 2], "text": ["a", None], "list": [["a"], []], "at": [AT, AT]}
)


def test_no_flipped_bit_of_a_footer_that_is_let_in_ends_the_process():
    """As a column's other type does, bytes of texts that it has not, or other histograms.
    What can not be read is told in one way, and an instant of no year is none.
    """
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
            footer = footer_of(io.BytesIO(data))
        except (OSError, pa.ArrowException):
            continue
        try:
            wrong = why_unlike(bytes(data[begin:-8]), footer.schema)
        except Exception:  # it can not be read, and says so
            continue
        if wrong is not None:
            refused += 1
            continue
        for group in range(footer.num_row_groups):
            for column in range(footer.num_columns):
                read += bounds_of(footer, group, column) is not None
    assert refused > 50
    assert read > 1000
