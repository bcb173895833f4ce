"""Rows of spool files, what their names promise, and what is read of a stranger's footer."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.event import SCHEMA
from gateway.store.hub.promised import why_not_those
from gateway.store.hub.thrift import STRUCT, Compact, TooMuch
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


def read(data: str, most: int = 100, longest: int = 10) -> Compact:
    found = Compact(bytes.fromhex(data), most, longest)
    found.skip(STRUCT)
    return found


@pytest.mark.parametrize(
    "data",
    [
        "00",
        "11 12 00",  # true, false
        "13 07 14 01 15 02 16 80 01 00",  # a byte, integers
        "17 0102030405060708 00",
        "18 03 616263 00",
        "19 35 02 04 06 00",  # three integers
        "19 31 01 02 01 00",  # three booleans
        "19 2c 00 15 02 00 00",  # two structs
        "05 14 02 00",  # a number of its own for a field
    ],
)
def test_a_struct_is_read_to_its_end(data):
    assert read(data).length == len(bytes.fromhex(data))


def test_an_element_weighs_eight_and_deep_in_lists_one():
    """As memory has it: what is in a list of a list of a list is small."""
    three = "19 1c 19 1c 19 25 02 04 00 00 00"
    assert read(three, most=18).length
    with pytest.raises(TooMuch, match="more in its lists"):
        read(three, most=17)


def test_what_is_too_long():
    """Before it is looked at."""
    with pytest.raises(TooMuch, match="a string of 11 bytes"):
        read("18 0b")
    with pytest.raises(TooMuch, match="more in its lists"):
        read("19 f5 ffffffff0f")


@pytest.mark.parametrize(
    "data",
    ["", "15", "18 03 61", "19 25 02", "1b 00", "15 02 05 02", "05 808004 02 00"],
)
def test_what_is_none(data):
    """It ends early, or has what no Parquet has."""
    with pytest.raises(ValueError, match=r"no end|kind|in no order"):
        read(data)
