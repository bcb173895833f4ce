"""How large pages are when they are unpacked, by their headers."""

import io
import random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.event import Rows
from gateway.store.hub.pages import unpacked_sizes
from spools import spool_file


def chunks(data: bytes) -> list[Any]:
    found = pq.read_metadata(io.BytesIO(data))
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    return [group.column(at) for group in groups for at in range(group.num_columns)]


def sizes(data: bytes, chunk: Any) -> list[int]:
    return list(unpacked_sizes(io.BytesIO(data), len(data), chunk))


def written(rows: int, **options: Any) -> bytes:
    table = pa.table(
        {
            "number": pa.array(range(rows), pa.int64()),
            "name": pa.array(
                [f"name {n % 7}" for n in range(rows)]
            ).dictionary_encode(),
            "text": pa.array(
                [None if n % 3 else "text" * (n % 50) for n in range(rows)]
            ),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=400, data_page_size=500, **options)
    return sink.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        spool_file("edge", 1, [Rows([b"event"])]),
        spool_file("edge", 1, [Rows([b"event"] * 50_000), Rows([b"more"] * 3)]),
        *[
            written(1000, compression=codec, data_page_version=version)
            for codec in ("zstd", "snappy", "lz4", "none", "gzip")
            for version in ("1.0", "2.0")
        ],
        written(1000, use_dictionary=False, write_statistics=False),
        written(1000, write_page_checksum=True, write_page_index=True),
    ],
)
def test_they_are_what_the_writer_says(data):
    """Of each column of each group, whoever packed it: all pages together, with their
    headers, are as large as an honest footer has it.
    """
    found = chunks(data)
    assert [sum(sizes(data, each)) for each in found] == [
        each.total_uncompressed_size for each in found
    ]


GOOD = bytes.fromhex("15041510152215f9b9c1900b3c15021500120000")


def at_four(header: bytes, size: int = 100) -> tuple[bytes, Any]:
    data = b"PAR1" + header.ljust(size, b"\0")
    chunk = SimpleNamespace(
        data_page_offset=4, dictionary_page_offset=None, total_compressed_size=size
    )
    return data, chunk


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (GOOD[:-1] + b"\x15", "has no end"),
        (bytes.fromhex("1504151000"), "no size"),
        (bytes.fromhex("15041510152100"), "no size"),
        (bytes.fromhex("1504161000"), "no size"),
        (bytes.fromhex("15041510152205042000"), "in no order"),
        (bytes.fromhex("15041510152200"[:-2] + "050410" + "00"), "in no order"),
        # A reader takes field 65538 for field 2.
        (bytes.fromhex("15041510152205" + "848008" + "808008" + "00"), "in no order"),
        (
            bytes.fromhex("1504158080808080808080808000"),
            "more than 32 bits|without end",
        ),
        (bytes.fromhex("150415ffffffff7f00"), "more than 32 bits"),
        (bytes.fromhex("15041510152219150200"), "more in its lists"),
        (bytes.fromhex("150415101522" + "1c" * 12 + "00"), "of kind 12"),
        (bytes.fromhex("1504151015221b0000"), "of kind 11"),
        (bytes.fromhex("150415101522188080808008"), "has no end"),
    ],
)
def test_headers_that_are_none(header, why):
    """Nobody is to see less in one than a reader of the file does."""
    data, chunk = at_four(header, len(header))
    with pytest.raises(ValueError, match=why):
        sizes(data, chunk)


def test_a_column_that_is_elsewhere():
    """It is in the file; pages without end are not followed."""
    data, chunk = at_four(GOOD)
    for place in (-1, 0, 1 << 62):
        chunk.data_page_offset = place
        with pytest.raises(ValueError, match="lies outside the file"):
            sizes(data, chunk)
    empty = bytes.fromhex("15001500150000")
    data, chunk = at_four(empty * 70_000, 7 * 70_000)
    with pytest.raises(ValueError, match="more than 65536 pages"):
        sizes(data, chunk)


@pytest.mark.parametrize("seed", range(5))
def test_damaged_headers(seed):
    """Whatever they say, it comes to an end, with sizes or the reason why not."""
    chance = random.Random(seed)
    data = written(1000)
    places = [each for each in chunks(data) if each.total_compressed_size]
    for _ in range(300):
        chunk = chance.choice(places)
        at = chunk.dictionary_page_offset or chunk.data_page_offset
        broken = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            broken[at + chance.randrange(30)] = chance.randrange(256)
        try:
            assert min(sizes(bytes(broken), chunk)) >= 0
        except ValueError:
            continue
