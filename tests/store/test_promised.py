"""Rows of spool files, and what their names promise."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.event import SCHEMA
from gateway.store.hub.promised import why_not_those
from gateway.store.names import SpoolFile
from incarnations import A
from spools import envelope

GOOD = envelope("edge", 1, [b"event"] * 5)


def lsns(*values: int) -> pa.Table:
    """Those, in place of 1 to 5."""
    return GOOD.set_column(1, SCHEMA.field("lsn"), pa.array(values, pa.int64()))


@pytest.mark.parametrize("columns", [None, ("node", "lsn")])
@pytest.mark.parametrize(
    ("table", "why"),
    [
        (GOOD, None),
        (lsns(1, 2, 4, 3, 5), "where lsn 3 should be, it has 4"),
        (lsns(1, 2, 2, 3, 4), "where lsn 3 should be, it has 2"),
        (lsns(2, 3, 4, 5, 6), "where lsn 1 should be, it has 2"),
        (lsns(1, 2, 3, 4, 6), "where lsn 5 should be, it has 6"),
        (GOOD.slice(0, 4), "its lsns end with 4"),
        (envelope("edge", 1, [b"event"] * 6), "its lsns end with 6"),
        (
            pa.concat_tables([GOOD.slice(0, 4), envelope("other", 5, [b"event"])]),
            "it has events of other nodes than edge",
        ),
    ],
)
@pytest.mark.parametrize("group", [2, 100])
def test_each_lsn_is_there_in_its_place(table, why, columns, group):
    """Whatever stands in between, in one group of rows or in several."""
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group)
    with pq.ParquetFile(io.BytesIO(sink.getvalue())) as content:
        assert why_not_those(content, SpoolFile("edge", A, 1, 5), columns) == why


def test_damaged_bytes_of_any_column():
    """With all of them each byte is read, and its page's checksum."""
    sink = io.BytesIO()
    pq.write_table(GOOD, sink, write_page_checksum=True)
    data = bytearray(sink.getvalue())
    group = pq.read_metadata(sink).row_group(0)
    place = [group.column(at).path_in_schema for at in range(group.num_columns)]
    chunk = group.column(place.index("payload"))
    data[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 1
    source = io.BytesIO(bytes(data))
    with (
        pq.ParquetFile(source, page_checksum_verification=True) as content,
        pytest.raises(OSError, match="CRC"),
    ):
        why_not_those(content, SpoolFile("edge", A, 1, 5))
