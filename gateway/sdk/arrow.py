"""Stored rows: their columns as numpy has them, without pandas, and what footers say of them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = [
    "batches_by_group",
    "batches_of",
    "bounds_of",
    "codes",
    "damage_named",
    "filled",
    "footer_of",
    "leave_pandas_out",
    "schema_of",
    "statistics_of",
    "without_pandas",
]


class _NoPandas:
    """A finder of modules that hides one."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Hide pandas from libraries that import it only because it is installed.

    It takes 50 MiB and a third of a second.  A later import has it all the same.
    """
    sys.meta_path.insert(0, _NoPandas)
    try:
        yield
    finally:
        sys.meta_path.remove(_NoPandas)


def leave_pandas_out() -> None:
    """Make pyarrow's first array without pandas, in a process that makes nothing of frames.

    It takes a series for a list from then on, until it was asked for a frame.
    """
    with without_pandas():
        pa.array([0])


@contextmanager
def damage_named() -> Iterator[None]:
    """Make one kind of what pyarrow raises for damaged bytes, which is anything: ArrowInvalid.

    OSError, MemoryError and what Arrow says by itself are raised as they are.
    """
    try:
        yield
    except (OSError, MemoryError, pa.ArrowException):
        raise
    except Exception as why:
        raise pa.ArrowInvalid(f"damaged: {why}") from why


def footer_of(source: Any) -> pq.FileMetaData:
    """The footer of a Parquet file: a path, or what pyarrow reads from.

    Raises OSError, and ArrowException for a damaged one.
    """
    import pyarrow.parquet as pq

    with damage_named():
        return pq.read_metadata(source)


def schema_of(source: Any) -> pa.Schema:
    """The columns of a Parquet file; raises the same as `footer_of`."""
    import pyarrow.parquet as pq

    with damage_named():
        return pq.read_schema(source)


def bounds_of(
    footer: pq.FileMetaData, group: int, column: int
) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column in a row group.

    None if the file does not say them, or says what no value of that type can be.
    """
    with suppress(OverflowError, ValueError):
        said = statistics_of(footer, group, column)
        if said is not None and said.has_min_max:
            return said.min, said.max
    return None


def statistics_of(footer: pq.FileMetaData, group: int, column: int) -> Any:
    """Statistics of a column in a row group; None if the file says none, or none of its type.

    pyarrow would end the process where a damaged footer gives the column another type there
    than in the file's schema.
    """
    found = footer.row_group(group).column(column)
    of_schema = footer.schema.column(column).physical_type
    return found.statistics if found.physical_type == of_schema else None


def batches_by_group(
    file: pq.ParquetFile, rows: int, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of a file, so many at once, and of one row group at a time.

    A group has as many bytes as its writer thought fit; a number of rows may have any.
    """
    for group in range(file.num_row_groups):
        yield from batches_of(file, group, rows, columns)


def batches_of(
    file: pq.ParquetFile, group: int, rows: int, columns: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of one row group of a file, so many at once."""
    found: Iterator[pa.RecordBatch] = file.iter_batches(
        rows, row_groups=[group], columns=columns, use_threads=False
    )
    return found


def codes(column: pa.ChunkedArray) -> tuple[Any, list[str | None]]:
    """A name column as numbers, -1 for none, and the names by number."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    return filled(array.indices, -1), array.dictionary.to_pylist()


def filled(array: pa.Array, none: int) -> np.ndarray[Any, Any]:
    """Whole numbers as numpy has them, with *none* for null; not to be written to.

    By the buffers: for `fill_null` and `to_numpy` pyarrow imports pandas where that is
    installed, which holds the interpreter for a third of a second.
    """
    valid, data = array.buffers()
    kind = np.dtype(str(array.type))
    if data is None or array.null_count == len(array):
        return np.full(len(array), none, kind)
    found = np.frombuffer(data, kind, len(array), array.offset * kind.itemsize)
    if array.null_count:
        bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")
        there = bits[array.offset : array.offset + len(array)]
        found = np.where(there, found, kind.type(none))
    return found
