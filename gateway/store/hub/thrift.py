"""Reads Thrift's compact protocol, which headers of pages and footers of Parquet are in,
as far as is needed to judge bytes of a stranger: no value is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["I32", "STRUCT", "Compact", "TooMuch"]

I32 = 5
STRUCT = 12
_TRUE, _FALSE, _BYTE, _I16, _I64, _DOUBLE, _BINARY = 1, 2, 3, 4, 6, 7, 8
_LIST = 9
_MOST_DEPTH = 12
_MOST_FIELD = (1 << 15) - 1


class TooMuch(ValueError):
    """The bytes would take more memory than is wanted."""


class Compact:
    """A struct that these bytes begin with.

    *most* is what its lists may weigh: an element weighs 8, or 1 in a list of a list of a list,
    as small things are.  *longest* is how many bytes a string may have.  All methods raise
    ValueError for what is none.
    """

    def __init__(self, data: bytes, most: int = 0, longest: int = 1 << 31) -> None:
        self._data = data
        self._most = most
        self._longest = longest
        self.length = 0
        """The end of what was read."""

    def fields(self) -> Iterator[tuple[int, int]]:
        """The number and the kind of each; its value comes next."""
        last = 0
        while head := self._byte():
            number = last + (head >> 4) if head >> 4 else self.i32()
            # A reader would take the later one of two, and has numbers of 16 bits.
            if not last < number <= _MOST_FIELD:
                raise ValueError("fields are in no order")
            last = number
            yield number, head & 0xF

    def structs(self, kind: int) -> range:
        """The elements of a list of structs, which come next; a value of that *kind*."""
        count, inner = self._head() if kind == _LIST else (0, 0)
        if inner != STRUCT:
            raise ValueError(f"no list of structs: kind {kind}, of {inner}")
        return range(count)

    def skip(self, kind: int, depth: int = 1, lists: int = 0) -> int:
        """Skip a value of that kind, so deep in others, of which so many are lists.

        Returns how many elements a list has; else 1.
        """
        if kind == _BINARY:
            size = self._varint()
            if size > self._longest:
                raise TooMuch(f"a string of {size} bytes")
            self.length += size
        elif kind in (_I16, I32, _I64):
            self._varint()
        elif kind == STRUCT and depth < _MOST_DEPTH:
            for _, inner in self.fields():
                self.skip(inner, depth + 1, lists)
        elif kind == _LIST and depth < _MOST_DEPTH:
            return self._skip_all(depth, lists + 1)
        elif kind == _BYTE:
            self._byte()
        elif kind == _DOUBLE:
            self.length += 8
        elif kind not in (_TRUE, _FALSE):
            raise ValueError(f"a field of kind {kind}")
        return 1

    def _head(self) -> tuple[int, int]:
        """How many elements a list has, and their kind."""
        head = self._byte()
        return head >> 4 if head >> 4 < 0xF else self._varint(), head & 0xF

    def _skip_all(self, depth: int, lists: int) -> int:
        count, kind = self._head()
        self._most -= count * (8 if lists < 3 else 1)
        if self._most < 0:
            raise TooMuch("more in its lists than any gateway writes")
        if kind in (_TRUE, _FALSE):  # in a list each has a byte
            kind = _BYTE
        for _ in range(count):
            self.skip(kind, depth + 1, lists)
        return count

    def _byte(self) -> int:
        if self.length >= len(self._data):
            raise ValueError("it has no end")
        self.length += 1
        return self._data[self.length - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number without end")

    def i32(self) -> int:
        """A number, of 32 bits."""
        value = self._varint()
        if value >> 32:
            raise ValueError("a number of more than 32 bits")
        return (value >> 1) ^ -(value & 1)
