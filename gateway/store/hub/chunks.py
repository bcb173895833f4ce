"""Checks what a stranger's footer says of each column in each group of rows.

pyarrow ends the process where that does not fit the file's schema: it expects the exceptions
of its own library for rows, and none for what footers say.  So it is looked at before, by
these fields of Parquet's structs:

    footer 4         groups of rows, each: 1 its columns, each: 3 what is said of it
                     8 and 9: it is encrypted
    what is said     1 the type, 16 sizes
    sizes            1 bytes of its texts, 2 and 3 histograms of its levels
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow.parquet as pq

from gateway.store.hub.thrift import I32, STRUCT, Compact

_TYPES = (
    *("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE"),
    *("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"),
)
_ANY = 1 << 40
"""Lists may weigh anything: that they are not too much was looked at before."""
_GROUPS, _COLUMNS, _SAID, _ENCRYPTED = 4, 1, 3, (8, 9)
_TYPE, _SIZES = 1, 16
_TEXTS, _REPETITIONS, _DEFINITIONS = 1, 2, 3


class Chunk(NamedTuple):
    """A column in a group of rows."""

    kind: str
    """The type; empty if none is said."""
    encrypted: bool
    sizes: dict[int, int]
    """The sizes that are said, by field; of a histogram how many numbers it has."""

    def fits(self, column: pq.ColumnSchema) -> bool:
        """Whether it is one of this *column*."""
        sizes, repeated = self.sizes, column.max_repetition_level + 1
        return (
            self.kind == column.physical_type
            and not self.encrypted
            and (_TEXTS not in sizes or self.kind == "BYTE_ARRAY")
            and sizes.get(_REPETITIONS, 0) in (0, repeated)
            and sizes.get(_DEFINITIONS, 0) in (0, column.max_definition_level + 1)
        )


def why_unlike(footer: bytes, schema: pq.ParquetSchema) -> str | None:
    """Why the groups of rows of a *footer* are none of its *schema*; None if they are.

    Raises ValueError for bytes that are no footer.
    """
    columns = [schema.column(at) for at in range(len(schema))]
    for group in _Footer(footer, _ANY).groups():
        if len(group) != len(columns):
            return f"a group of its rows has {len(group)} columns"
        for chunk, column in zip(group, columns, strict=True):
            if not chunk.fits(column):
                return f"what its footer says of column {column.path} is of none such"
    return None


class _Footer(Compact):
    """A footer that these bytes begin with."""

    def groups(self) -> Iterator[list[Chunk]]:
        """The columns of each group of rows."""
        for number, kind in self.fields():
            if number == _GROUPS:
                for _ in self.structs(kind):
                    yield self._group()
            else:
                self.skip(kind)

    def _group(self) -> list[Chunk]:
        found: list[Chunk] = []
        for number, kind in self.fields():
            if number == _COLUMNS:
                found += [self._chunk() for _ in self.structs(kind)]
            else:
                self.skip(kind)
        return found

    def _chunk(self) -> Chunk:
        found = Chunk("", False, {})
        for number, kind in self.fields():
            if number == _SAID and kind == STRUCT:
                found = self._said(encrypted=found.encrypted)
            else:
                found = found._replace(
                    encrypted=found.encrypted or number in _ENCRYPTED
                )
                self.skip(kind)
        return found

    def _said(self, *, encrypted: bool) -> Chunk:
        kind_of, sizes = "", {}
        for number, kind in self.fields():
            if number == _TYPE and kind == I32:
                at = self.i32()
                kind_of = _TYPES[at] if 0 <= at < len(_TYPES) else ""
            elif number == _SIZES and kind == STRUCT:
                sizes = dict(self._sizes())
            else:
                self.skip(kind)
        return Chunk(kind_of, encrypted, sizes)

    def _sizes(self) -> Iterator[tuple[int, int]]:
        for number, kind in self.fields():
            yield number, self.skip(kind)
