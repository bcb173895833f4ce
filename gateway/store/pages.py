"""How large the pages of a Parquet file are when they are unpacked, without unpacking one:
for whoever reads a file of a stranger.

A page has a header, and its bytes, packed.  Arrow takes the memory that the header names,
and unpacks into that: what the footer says of sizes it does not look at.  A header is a
struct of Thrift's compact protocol, its fields in the order of their numbers:

    2   i32     bytes of the page, unpacked
    3   i32     likewise, packed: so many follow the header
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow.parquet as pq

_HEADER_BYTES = 1 << 12
"""The most that a header has: some ten, and the least and the greatest value."""
_MOST_PAGES = 1 << 16
"""Of one column in one group of rows."""
_MOST_DEPTH = 4
_I32 = 5
_UNPACKED, _PACKED = 2, 3


def unpacked_sizes(
    opened: BinaryIO, size: int, chunk: pq.ColumnChunkMetaData
) -> Iterator[int]:
    """Of each page of a column in a group, with its header, in a file of *size* bytes.

    Raises ValueError for what is no page, OSError.
    """
    at, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    if dictionary is not None and 0 < dictionary < at:
        at = dictionary
    end = at + chunk.total_compressed_size
    if not 0 < at <= end <= size:
        raise ValueError(f"a column lies outside the file, at {at} to {end}")
    for _ in range(_MOST_PAGES):
        if at >= end:
            return
        opened.seek(at)
        header = _Header(opened.read(_HEADER_BYTES))
        yield header.length + header.unpacked
        at += header.length + header.packed
    raise ValueError(f"a column has more than {_MOST_PAGES} pages in a group")


class _Header:
    """That of a page, which these bytes begin with."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = 0
        found = dict.fromkeys((_UNPACKED, _PACKED), -1)
        for number, kind in self._fields():
            if number in found and kind == _I32:
                found[number] = self._i32()
            elif number in found:
                raise ValueError("a page has no size")
            else:
                self._skip(kind, 1)
        self.unpacked, self.packed = found[_UNPACKED], found[_PACKED]
        if min(found.values()) < 0:
            raise ValueError("a page has no size")

    def _fields(self) -> Iterator[tuple[int, int]]:
        """The number and the kind of each; its value comes next."""
        last = 0
        while head := self._byte():
            number = last + (head >> 4) if head >> 4 else self._i32()
            if number <= last:  # a reader would take the later one of two
                raise ValueError("the fields of a page's header are in no order")
            last = number
            yield number, head & 0xF

    def _skip(self, kind: int, depth: int) -> None:
        match kind:
            case 1 | 2:  # true, false
                pass
            case 3:  # a byte
                self._byte()
            case 4 | 5 | 6:  # integers
                self._varint()
            case 7:  # a double
                self.length += 8
            case 8:  # bytes
                length = self._varint()
                self.length += length
            case 12 if depth < _MOST_DEPTH:
                for _, inner in self._fields():
                    self._skip(inner, depth + 1)
            case _:
                raise ValueError(f"a page's header has a field of kind {kind}")

    def _byte(self) -> int:
        if self.length >= len(self._data):
            raise ValueError("a page's header has no end")
        self.length += 1
        return self._data[self.length - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a page's header has a number without end")

    def _i32(self) -> int:
        value = self._varint()
        if value >> 32:
            raise ValueError("a page's header has a number of more than 32 bits")
        return (value >> 1) ^ -(value & 1)
