"""Sizes of the unpacked pages of a Parquet file of a stranger, without unpacking one.

A page has a header, and its bytes, packed.  Arrow takes the memory that the header names,
and unpacks into that: what the footer says of sizes it does not look at.  A header is a
struct of Thrift's compact protocol, its fields in the order of their numbers:

    2   i32     bytes of the page, unpacked
    3   i32     bytes of the page, packed: so many follow the header
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow.parquet as pq

from gateway.store.hub.thrift import I32, Compact

_HEADER_BYTES = 1 << 12
"""The most that a header has: some ten, and the least and the greatest value."""
MOST_PAGES = 1 << 16
"""The most pages of one column in a group of rows; no file of a gateway has as many in all."""
_UNPACKED, _PACKED = 2, 3


def unpacked_sizes(
    opened: BinaryIO, size: int, chunk: pq.ColumnChunkMetaData
) -> Iterator[int]:
    """The size of each page of a column in a group, with its header, in a file of *size* bytes.

    Raises ValueError for what is no page, OSError.
    """
    at, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    if dictionary is not None and 0 < dictionary < at:
        at = dictionary
    end = at + chunk.total_compressed_size
    if not 0 < at <= end <= size:
        raise ValueError(f"a column lies outside the file, at {at} to {end}")
    for _ in range(MOST_PAGES):
        if at >= end:
            return
        opened.seek(at)
        header = _Header(opened.read(_HEADER_BYTES))
        yield header.length + header.unpacked
        at += header.length + header.packed
    raise ValueError(f"a column has more than {MOST_PAGES} pages in a group")


class _Header(Compact):
    """The header of a page, which these bytes begin with."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        found = dict.fromkeys((_UNPACKED, _PACKED), -1)
        for number, kind in self.fields():
            if number in found and kind == I32:
                found[number] = self.i32()
            elif number in found:
                raise ValueError("a page has no size")
            else:
                self.skip(kind)
        self.unpacked, self.packed = found[_UNPACKED], found[_PACKED]
        if min(found.values()) < 0:
            raise ValueError("a page has no size")
