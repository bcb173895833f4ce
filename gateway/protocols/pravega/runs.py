"""Bytes of Pravega segments, out of a Parquet file.

A row's bytes are `00000000 | length | payload`, or the payload as it is when it is
flawed `unframed`; what a registry's header was is said by the content type (`framing`).
Its `seq` is the offset of the first one.  Rows of a channel that
follow each other without a gap are one *extent*.  Columns are taken as a whole, never
row by row: a reader that catches up asks for millions of events.

`FileIndex` says which row groups of a file have rows of a channel: to make it, a few
small columns are read once.  `RowGroup` is one of them, decoded, for all who have
something in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.event import DELETED
from gateway.protocols.pravega.framing import header
from gateway.sdk.arrow import bounds_of, codes, filled, statistics_of

_UNFRAMED = ("unframed", f"{DELETED}:unframed")
_HEADER_BYTES = 8
_FILE_COST, _RUN_COST, _ENTRY_COST = 1024, 512, 28
_ROW_COST = 29
"""Bytes of a row in a decoded group beside its payload."""

_NOTHING = pa.array([b""], pa.binary())[0]
"""The separator of a row's parts."""

_Numbers: TypeAlias = np.ndarray[Any, Any]


@dataclass(slots=True)
class _Extent:
    offset: int
    """The offset of its first byte in the channel."""
    end: int
    position: int
    """The place of its first byte in the run."""
    last_lsn: int


@dataclass(slots=True)
class Run:
    """The data of one channel in one place, in the order of arrival."""

    data: bytes | memoryview = b""
    extents: list[_Extent] = field(default_factory=list)

    def read(self, offset: int, size: int, lsn: int) -> bytes | memoryview:
        """Read from *offset* on, *size* bytes at most, of extents that reach to *lsn*.

        A view keeps all of the run.  A channel that was deleted and made again has its old bytes
        under old lsns.
        """
        for extent in reversed(self.extents):
            if extent.last_lsn < lsn:
                break
            if extent.offset <= offset < extent.end:
                begin = extent.position + offset - extent.offset
                size = min(size, extent.end - offset)
                return self.data[begin : begin + size]
        return b""

    @property
    def end(self) -> int:
        """Where it ends in the channel; 0 if it has nothing."""
        return self.extents[-1].end if self.extents else 0

    @property
    def weight(self) -> int:
        """Bytes in memory, about."""
        return len(self.data) + _RUN_COST


@dataclass(frozen=True, slots=True)
class Span:
    """A row group that has rows of a channel."""

    group: int
    """The number of the row group in the file."""
    first: int
    """The offset where the channel's first row there begins."""
    last: int
    """The offset where the last one begins."""


class FileIndex:
    """Where a file has rows of a channel: their row groups, first and last offsets.

    Channels are known by hashes of 64 bits: a row group that seems to have rows of one
    has none in it, at worst.
    """

    __slots__ = ("_firsts", "_groups", "_keys", "_lasts", "lasts")

    def __init__(self, file: pq.ParquetFile, protocol: str) -> None:
        self.lasts: list[int] = []
        """The last lsn of each row group."""
        found = [np.zeros((4, 0), np.int64)]
        for number in range(file.num_row_groups):
            if (lsns := _bounds(file, number, "lsn")) is None:
                raise pa.ArrowInvalid(
                    "damaged: its footer does not say which lsns it has"
                )
            self.lasts.append(lsns[1])
            first, last = _bounds(file, number, "protocol") or (protocol, protocol)
            if first <= protocol <= last:
                found.append(_spans(file, number, protocol))
        keys, groups, firsts, lasts = np.concatenate(found, axis=1)
        order = np.argsort(keys, kind="stable")
        self._keys, self._groups = keys[order], groups[order].astype(np.int32)
        self._firsts, self._lasts = firsts[order], lasts[order]

    @property
    def weight(self) -> int:
        """Bytes in memory, about."""
        return _FILE_COST + _ENTRY_COST * len(self._keys) + 8 * len(self.lasts)

    def spans(self, channel: str, lsn: int) -> Iterator[Span]:
        """A channel's row groups from the one with *lsn* on."""
        key = hash(channel)
        begin = int(self._keys.searchsorted(key))
        end = int(self._keys.searchsorted(key, "right"))
        least = bisect_left(self.lasts, lsn)
        for at in range(begin, end):
            if (group := int(self._groups[at])) >= least:
                yield Span(group, int(self._firsts[at]), int(self._lasts[at]))


def _spans(file: pq.ParquetFile, number: int, protocol: str) -> _Numbers:
    """Each channel in a row group: its hash, the group, first and last offset."""
    table = _read(file, number, protocol, ["channel", "seq"])
    own, names = _own(table, protocol)
    # Rows of a channel come many in a row: of each stretch the ends are enough.
    ends = np.append(np.flatnonzero(own[1:] != own[:-1]), len(own) - 1)
    begins = np.append(0, ends[:-1] + 1)
    ours = own[begins] >= 0
    begins, ends = begins[ours], ends[ours]
    firsts, lasts = np.full((2, len(names)), -1)
    # Of a number that is set twice the later one stays.
    firsts[own[begins[::-1]]] = begins[::-1]
    lasts[own[ends]] = ends
    there = np.flatnonzero(firsts >= 0)
    seqs = _seqs(table)
    keys = np.fromiter((hash(names[at]) for at in there), np.int64, len(there))
    groups = np.full(len(there), number)
    return np.stack([keys, groups, seqs[firsts[there]], seqs[lasts[there]]])


class RowGroup:
    def __init__(self, file: pq.ParquetFile, number: int, protocol: str) -> None:
        self.followed = False
        """Whether a reader has looked for what is behind it."""
        columns = ["channel", "lsn", "seq", "payload", "flaw", "content_type"]
        table = _read(file, number, protocol, columns)
        own, names = _own(table, protocol)
        self._codes = {name: code for code, name in enumerate(names)}
        # A channel's rows lie together here: nobody looks at all rows for each of many.
        # 16 bits are sorted ten times as fast as 32.
        few = len(names) <= np.iinfo(np.int16).max
        own = own.astype(np.int16 if few else np.int32)
        self._rows = np.argsort(own, kind="stable")
        self._ends = np.searchsorted(
            own[self._rows], np.arange(-1, len(names)), "right"
        )
        self._lsns = filled(_whole(table["lsn"]), 0)
        self._seqs = _seqs(table)
        self._payloads = _whole(table["payload"])
        self._framed = np.ones(len(table), bool)
        if "flaw" in table.column_names:
            flaws, reasons = codes(table["flaw"])
            for reason in _UNFRAMED:
                if reason in reasons:
                    self._framed &= flaws != reasons.index(reason)

        kinds, types = codes(table["content_type"])
        self._headers = list(map(header, types))
        """Headers of registries, by the numbers in `_types`."""
        self._types = kinds.astype(np.int16) if any(self._headers) else None
        """The number of each row's content type, if any has a header."""

    @property
    def weight(self) -> int:
        """Bytes in memory, about."""
        return int(self._payloads.nbytes) + _ROW_COST * len(self._rows)

    def run(self, channel: str) -> Run:
        code = self._codes.get(channel)
        if code is None:
            return Run()
        rows = self._rows[self._ends[code] : self._ends[code + 1]]
        if not len(rows):
            return Run()
        every = len(rows) == len(self._rows)
        payloads = self._payloads if every else self._payloads.take(pa.array(rows))
        if self._types is None:
            data, sizes = _framed(payloads, self._framed[rows])
        else:
            kinds = self._types[rows].tolist()
            data, sizes = _with_headers(
                payloads, self._framed[rows], [self._headers[kind] for kind in kinds]
            )
        run = Run(data)
        _extend(run, sizes, self._seqs[rows], self._lsns[rows])
        return run


def _bounds(file: pq.ParquetFile, number: int, column: str) -> tuple[Any, Any] | None:
    return bounds_of(file.metadata, number, _place(file, column))


def _place(file: pq.ParquetFile, column: str) -> int:
    return int(file.schema.names.index(column))


def _read(
    file: pq.ParquetFile, number: int, protocol: str, columns: list[str]
) -> pa.Table:
    """The columns of a row group, and `protocol` where there may be others.

    Without `flaw` where nothing is flawed.
    """
    if _bounds(file, number, "protocol") != (protocol, protocol):
        columns = [*columns, "protocol"]
    about = statistics_of(file.metadata, number, _place(file, "flaw"))
    if (
        about is not None
        and about.null_count == file.metadata.row_group(number).num_rows
    ):
        columns = [each for each in columns if each != "flaw"]
    # There are several readers, each in a thread of its own already.
    return file.read_row_group(number, columns=columns, use_threads=False)


def _own(table: pa.Table, protocol: str) -> tuple[_Numbers, list[str | None]]:
    """The channel of each row as a number, -1 for another protocol's, and the names."""
    found, channels = codes(table["channel"])
    if "protocol" not in table.column_names:
        return found, channels
    protocols, names = codes(table["protocol"])
    if protocol not in names:
        return np.full(len(found), -1), channels
    if len(names) == 1:
        return found, channels
    return np.where(protocols == names.index(protocol), found, -1), channels


def _seqs(table: pa.Table) -> _Numbers:
    return filled(_whole(table["seq"]), 0)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _extend(run: Run, sizes: _Numbers, offsets: _Numbers, lsns: _Numbers) -> None:
    """Rows whose bytes lie one behind the other."""
    position = 0
    breaks = np.flatnonzero(offsets[1:] != (offsets + sizes)[:-1]) + 1
    for first, behind in pairwise([0, *breaks.tolist(), len(sizes)]):
        size, offset = int(sizes[first:behind].sum()), int(offsets[first])
        last_lsn = int(lsns[behind - 1])
        run.extents.append(_Extent(offset, offset + size, position, last_lsn))
        position += size


def _framed(payloads: pa.Array, framed: _Numbers) -> tuple[memoryview, _Numbers]:
    """The rows' bytes in one piece, and how many each has."""
    offsets = np.frombuffer(payloads.buffers()[1], np.int32)[payloads.offset :]
    sizes = np.diff(offsets[: len(payloads) + 1])
    headers = np.where(framed, _HEADER_BYTES, 0)
    # Type 0 and then the length: together the length, in eight bytes.
    heads = _binary(sizes[framed].astype(">u8"), headers)
    joined = pc.binary_join_element_wise(heads, payloads, _NOTHING)
    data = joined.buffers()[2]
    return memoryview(b"" if data is None else data), sizes + headers


def _with_headers(
    payloads: pa.Array, framed: _Numbers, headers: list[bytes]
) -> tuple[memoryview, _Numbers]:
    """The same of rows of which each has that header of a registry's, or none."""
    parts = []
    for payload, has_length, head in zip(
        payloads.to_pylist(), framed.tolist(), headers, strict=True
    ):
        body = head + payload
        parts.append(len(body).to_bytes(_HEADER_BYTES) + body if has_length else body)
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    return memoryview(b"".join(parts)), sizes


def _binary(data: _Numbers, sizes: _Numbers) -> pa.Array:
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
