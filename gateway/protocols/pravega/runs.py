"""Bytes of Pravega segments, out of one Parquet row group or one journal segment.

A row's bytes are `00000000 | length | payload`, or the payload as it is when it is
flawed `unframed`; its `seq` is the offset of the first one.  Rows of a channel that
follow each other without a gap are one *extent*.  Columns are taken as a whole, never
row by row: a reader that catches up asks for millions of events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.event import Decode, Rows, Stored
from gateway.store.spool.columns import codes, numbers

__all__ = ["RowGroup", "Run", "of_batches"]

_UNFRAMED = "unframed"
_HEADER_BYTES = 8

#: Of fewer rows it does not pay to take columns.
_FEW = 32

_Numbers: TypeAlias = np.ndarray[Any, Any]


@dataclass(slots=True)
class _Extent:
    offset: int
    """Of its first byte in the channel."""
    end: int
    position: int
    """Of its first byte in the run."""
    last_lsn: int


@dataclass(slots=True)
class Run:
    """What one channel has in one place, in the order of arrival."""

    data: bytes | bytearray | memoryview = b""
    extents: list[_Extent] = field(default_factory=list)

    def read(self, offset: int, size: int, lsn: int) -> bytes:
        """At most *size* bytes from *offset* on, of extents that reach to *lsn*.

        A channel that was deleted and made again has its old bytes under old lsns.
        """
        for extent in reversed(self.extents):
            if extent.last_lsn < lsn:
                break
            if extent.offset <= offset < extent.end:
                begin = extent.position + offset - extent.offset
                size = min(size, extent.end - offset)
                return bytes(self.data[begin : begin + size])
        return b""

    def begins_after(self, offset: int, lsn: int) -> bool:
        """Whether what it has from *lsn* on begins after *offset*."""
        first = next((one for one in self.extents if one.last_lsn >= lsn), None)
        return first is not None and first.offset > offset

    @property
    def end(self) -> int:
        """Where it ends in the channel; 0 if it has nothing."""
        return self.extents[-1].end if self.extents else 0

    def add(self, offset: int, end: int, lsn: int, position: int) -> None:
        """Bytes that end with those of event *lsn*, at *position* in the data."""
        last = self.extents[-1] if self.extents else None
        if last is not None and last.end == offset:
            last.end, last.last_lsn = end, lsn
        else:
            self.extents.append(_Extent(offset, end, position, lsn))


class RowGroup:
    """A row group; its payloads are read when somebody has rows in it."""

    def __init__(self, file: pq.ParquetFile, number: int, protocol: str) -> None:
        """Rows of other protocols are nobody's."""
        names = file.read_row_group(number, columns=["protocol", "channel", "lsn"])
        own, protocols = _codes(names["protocol"])
        found, channels = _codes(names["channel"])
        number_of = protocols.get(protocol, -1)
        self._lsns = names["lsn"].to_numpy()
        self._codes = np.where(own == number_of, found, -1) if number_of >= 0 else None
        self._channels = channels
        self._rows = len(found)
        self._body: tuple[memoryview, _Numbers, _Numbers] | None = None

    @property
    def bytes(self) -> int:
        """What it takes in memory, about."""
        body = 0 if self._body is None else len(self._body[0]) + 16 * self._rows
        return body + 12 * self._rows

    def run(self, file: pq.ParquetFile, number: int, channel: str) -> Run:
        """A channel's part; *file* and *number* are what it was made of."""
        code = self._channels.get(channel)
        if code is None or self._codes is None:
            return Run()
        rows = np.flatnonzero(self._codes == code)
        if not len(rows):
            return Run()
        if self._body is None:
            self._body = _body(file, number)
        data, starts, seqs = self._body
        run = Run(_gathered(data, starts[rows], starts[rows + 1]))
        sizes = starts[rows + 1] - starts[rows]
        _extend(run, 0, sizes, seqs[rows], self._lsns[rows])
        return run


def _extend(
    run: Run, position: int, sizes: _Numbers, offsets: _Numbers, lsns: _Numbers
) -> None:
    """Rows whose bytes begin at *position*, one behind the other."""
    breaks = np.flatnonzero(offsets[1:] != (offsets + sizes)[:-1]) + 1
    for first, behind in _stretches(breaks, len(sizes)):
        size = int(sizes[first:behind].sum())
        offset = int(offsets[first])
        run.add(offset, offset + size, int(lsns[behind - 1]), position)
        position += size


def _codes(column: pa.ChunkedArray) -> tuple[_Numbers, dict[str | None, int]]:
    """A name column as numbers, and the number of each name."""
    found, names = codes(column)
    return found, {name: code for code, name in enumerate(names)}


def _body(file: pq.ParquetFile, number: int) -> tuple[memoryview, _Numbers, _Numbers]:
    """All rows' bytes in one piece, where each begins (and the end), and their seqs."""
    table = file.read_row_group(number, columns=["seq", "payload", "flaw"])
    flaws, names = _codes(table["flaw"])
    framed = flaws != names.get(_UNFRAMED, -2)
    data, starts = _framed(table["payload"].combine_chunks(), framed)
    seqs = table["seq"].combine_chunks().fill_null(0).to_numpy(zero_copy_only=False)
    return data, starts, seqs


def _framed(payloads: pa.Array, framed: _Numbers) -> tuple[memoryview, _Numbers]:
    """The rows' bytes in one piece; where each begins, and the end."""
    sizes = pc.binary_length(payloads).to_numpy(zero_copy_only=False)
    headers = np.where(framed, _HEADER_BYTES, 0)
    # Type 0 and then the length: together the length, in eight bytes.
    heads = _binary(sizes[framed].astype(">u8"), headers)
    joined = pc.binary_join_element_wise(heads, payloads, pa.scalar(b"", pa.binary()))
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes + headers, out=starts[1:])
    data = joined.buffers()[2]
    return memoryview(b"" if data is None else data), starts


def _binary(data: _Numbers | bytes, sizes: _Numbers) -> pa.Array:
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _gathered(data: memoryview, starts: _Numbers, ends: _Numbers) -> Any:
    """The rows' bytes behind each other.

    No copy if they are most of *data*, which a view of them keeps in memory.
    """
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    parts = [
        data[starts[first] : ends[behind - 1]]
        for first, behind in _stretches(breaks, len(starts))
    ]
    if len(parts) == 1 and 2 * len(parts[0]) >= len(data):
        return parts[0]
    return b"".join(parts)


def _stretches(breaks: _Numbers, count: int) -> Iterable[tuple[int, int]]:
    edges = [0, *breaks.tolist(), count]
    return pairwise(edges)


def of_batches(
    batches: Iterable[Stored], protocol: str, decode: Decode
) -> dict[str, Run]:
    """The runs of a journal segment, by channel."""
    runs: dict[str, Run] = {}
    for stored in batches:
        batch = stored.batch
        if batch.origin.protocol == protocol and batch.count:
            rows = decode(batch.body)
            if rows.count < _FEW or rows.channels or rows.flaws:
                _take_each(rows, stored.lsn, runs)
            else:
                _take_all(rows, stored.lsn, runs)
    return runs


def _take_all(rows: Rows, lsn: int, runs: dict[str, Run]) -> None:
    """Rows of one channel, all of them framed."""
    assert rows.channel is not None
    run, data = _begun(runs, rows.channel)
    if rows.size:
        sizes = np.full(rows.count, rows.size, np.int64)
        payloads = _binary(rows.block, sizes)
    else:
        payloads = pa.array(rows.payloads, pa.binary())
    more, starts = _framed(payloads, np.ones(rows.count, bool))
    assert rows.seqs is not None
    position = len(data)
    data += more
    lsns = lsn + np.arange(rows.count)
    _extend(run, position, np.diff(starts), numbers(rows.seqs), lsns)


def _begun(runs: dict[str, Run], channel: str) -> tuple[Run, bytearray]:
    run = runs.get(channel)
    if run is None:
        run = runs[channel] = Run(bytearray())
    assert isinstance(run.data, bytearray)
    return run, run.data


def _take_each(rows: Rows, lsn: int, runs: dict[str, Run]) -> None:
    seqs, channels, flaws = rows.seqs, rows.channels, rows.flaws
    assert seqs is not None
    for row, payload in enumerate(rows.each()):
        channel = channels.get(row, rows.channel) if channels else rows.channel
        assert channel is not None
        run, data = _begun(runs, channel)
        position = len(data)
        if not flaws or flaws.get(row) != _UNFRAMED:
            data += len(payload).to_bytes(_HEADER_BYTES)
        data += payload
        offset = seqs[row]
        run.add(offset, offset + len(data) - position, lsn + row, position)
