"""Selects rows of files: those from some lsn on of each channel, into a file of their own.

Files are read and written row group by row group; new ones are made in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.event import SCHEMA, SCHEMA_VERSION, SCHEMA_VERSION_KEY
from gateway.sdk.arrow import codes, damage_named
from gateway.store.spool.parquet import open_writer

_GROUP_ROWS, _GROUP_BYTES = 100_000, 32 << 20
"""A row group is written when it has one of these."""

Needed: TypeAlias = Mapping[str, Callable[[str], "int | None"]]
"""The lsn from which on a channel's events must stay readable, by protocol; None: none of them."""

_NOTHING = 1 << 62


class Damaged(Exception):
    """A file can not be read."""


def count(data: bytes | pa.NativeFile, needed: Needed) -> tuple[int, int]:
    """How many rows of a file are needed, and how many it has.  Raises `Damaged`.

    Of an open file only three columns are read.
    """
    file = _open(data)
    groups = range(file.metadata.num_row_groups)
    found = sum(int(_mask(file, number, needed).sum()) for number in groups)
    return found, file.metadata.num_rows


def unpacked(data: bytes | pa.NativeFile) -> int:
    """How many bytes the columns of a file have unpacked, as its footer says.  Raises `Damaged`."""
    groups = _open(data).metadata
    return sum(
        groups.row_group(number).total_byte_size
        for number in range(groups.num_row_groups)
    )


def select(files: Iterable[bytes], needed: Needed, compression: str) -> bytes | None:
    """A file with all that is needed of these; None if that is nothing.  Raises `Damaged`."""
    sink = pa.BufferOutputStream()
    waiting: list[pa.Table] = []
    written = 0
    with open_writer(sink, compression) as writer:
        writer.add_key_value_metadata({SCHEMA_VERSION_KEY: b"%d" % SCHEMA_VERSION})
        for data in files:
            for table in _needed_tables(_open(data), needed):
                waiting.append(table)
                rows = sum(map(len, waiting))
                size = sum(each.nbytes for each in waiting)
                if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                    written += _flush(waiting, writer)
        if waiting:
            written += _flush(waiting, writer)
    return sink.getvalue().to_pybytes() if written else None


def _flush(waiting: list[pa.Table], writer: pq.ParquetWriter) -> int:
    table = pa.concat_tables(waiting).unify_dictionaries().combine_chunks()
    waiting.clear()
    writer.write_table(table, row_group_size=max(1, len(table)))
    return len(table)


def _open(data: bytes | pa.NativeFile) -> pq.ParquetFile:
    source = pa.BufferReader(data) if isinstance(data, bytes) else data
    try:
        with damage_named():
            return pq.ParquetFile(source, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as why:
        raise Damaged(str(why)) from None


def _mask(file: pq.ParquetFile, number: int, needed: Needed) -> Any:
    """A mask of the needed rows of a row group."""
    try:
        with damage_named():
            names = file.read_row_group(number, columns=["protocol", "channel", "lsn"])
    except (pa.ArrowException, OSError) as why:
        raise Damaged(str(why)) from None
    lsns = names["lsn"].to_numpy()
    own, protocols = codes(names["protocol"])
    places, channels = codes(names["channel"])
    mask = np.zeros(len(lsns), bool)
    for place, protocol in enumerate(protocols):
        asked = needed.get(protocol or "")
        if asked is None:
            continue
        firsts = np.full(len(channels) + 1, _NOTHING, np.int64)
        for code, channel in enumerate(channels):
            first = None if channel is None else asked(channel)
            if first is not None:
                firsts[code] = first
        mask |= (own == place) & (lsns >= firsts[places])
    return mask


def _needed_tables(file: pq.ParquetFile, needed: Needed) -> Iterable[pa.Table]:
    for number in range(file.metadata.num_row_groups):
        mask = _mask(file, number, needed)
        if not mask.any():
            continue
        try:
            with damage_named():
                table = file.read_row_group(number).select(SCHEMA.names).cast(SCHEMA)
        except (pa.ArrowException, OSError) as why:
            raise Damaged(str(why)) from None
        yield table.filter(pa.array(mask))
