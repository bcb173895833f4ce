"""Where a journal segment has the bytes of Pravega segments.

The journal has what was appended as it came.  To read it back needs no row, only the place
of each append in the file, which is known after the file was scanned once.  Each
piece is checked with its sum when it is read, as what a failed write left may be written
again in the same place.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import google_crc32c
import numpy as np

from gateway.protocols.pravega import records
from gateway.sdk.files import JournalFile

_PIECE_BYTES = 1 << 18
"""A larger append is several pieces, so that little is read for a small read."""
_WINDOW_BYTES = 1 << 16
"""Read at once of small pieces that lie side by side."""
_PIECE_COST = 36
_RUN_COST = 1 << 10


class JournalRun:
    """The data of one channel in a journal segment, in the order of arrival.

    Pieces that follow each other without a gap are one *extent*.
    """

    __slots__ = ("_begins", "_lsns", "_offsets", "_places", "_sizes", "_sums")

    def __init__(self) -> None:
        self._offsets = array("q")
        """Where each piece begins in the channel."""
        self._places = array("q")
        """Where each piece begins in the file."""
        self._sizes, self._sums = array("I"), array("I")
        self._lsns = array("q")
        """All events up to this one end here, or before."""
        self._begins = [0]
        """The first piece of each extent."""

    def add(
        self, offset: int, place: int, data: memoryview, lsn: int, rows: int
    ) -> None:
        """An append that lies at *place* in the file; its rows have lsns from *lsn* on."""
        if self._offsets and offset != self._offsets[-1] + self._sizes[-1]:
            self._begins.append(len(self._offsets))
        for at in range(0, len(data), _PIECE_BYTES):
            piece = bytes(data[at : at + _PIECE_BYTES])
            self._offsets.append(offset + at)
            self._places.append(place + at)
            self._sizes.append(len(piece))
            self._sums.append(google_crc32c.value(piece))
            self._lsns.append(lsn - 1)
        self._lsns[-1] += rows

    @property
    def first(self) -> int:
        return self._offsets[0]

    @property
    def last(self) -> int:
        return self._offsets[-1] + self._sizes[-1] - 1

    @property
    def newest_lsn(self) -> int:
        return self._lsns[-1]

    @property
    def weight(self) -> int:
        """Bytes in memory, about."""
        return _PIECE_COST * len(self._offsets)

    def read(
        self, file: JournalFile, offset: int, size: int, lsn: int
    ) -> tuple[bytes, int] | None:
        """Read from *offset* on, *size* bytes at most, of extents that reach to *lsn*.

        With an lsn before which nothing lies of what follows; 0: that is not known.  None: the
        file has other bytes there by now.  Raises FileNotFoundError, OSError.
        """
        found = self._find(offset, lsn)
        if found is None:
            return b"", 0
        first, end = found
        stop = bisect_left(self._offsets, offset + size, first, end)
        data = b"".join(self._pieces(file, range(first, stop)))
        behind = self._offsets[stop - 1] + self._sizes[stop - 1]
        if len(data) != behind - self._offsets[first]:
            return None
        begin = offset - self._offsets[first]
        known = self._lsns[stop - 1] + 1 if behind <= offset + size else 0
        return data[begin : begin + size], known

    def _find(self, offset: int, lsn: int) -> tuple[int, int] | None:
        """The piece with *offset*, and the end of its extent."""
        end = len(self._offsets)
        for begin in reversed(self._begins):
            # A channel that was deleted and made again has its old bytes under old lsns.
            if self._lsns[end - 1] < lsn:
                break
            behind = self._offsets[end - 1] + self._sizes[end - 1]
            if self._offsets[begin] <= offset < behind:
                return bisect_right(self._offsets, offset, begin, end) - 1, end
            end = begin
        return None

    def _pieces(self, file: JournalFile, numbers: range) -> Iterator[memoryview]:
        """The pieces of these numbers that still have the right sum."""
        window, begin = memoryview(b""), 0
        with file.open() as opened:
            for number in numbers:
                place, size = self._places[number], self._sizes[number]
                if not begin <= place <= begin + len(window) - size:
                    wanted = max(size, _WINDOW_BYTES)
                    window = memoryview(os.pread(opened.fileno(), wanted, place))
                    begin = place
                piece = window[place - begin : place - begin + size]
                if google_crc32c.value(bytes(piece)) == self._sums[number]:
                    yield piece


class JournalRuns:
    """All channels of a journal segment, as the file was when it was scanned."""

    def __init__(self, file: JournalFile, protocol: str) -> None:
        """Scans it; raises FileNotFoundError, OSError."""
        self._runs: dict[str, JournalRun] = {}
        scan = file.scan(growing=True)
        for stored in scan:
            batch = stored.batch
            if batch.origin.protocol == protocol and batch.count:
                self._add(batch.body, scan.end - len(batch.body), stored.lsn)
        self._file = file
        self._end, self._salt = scan.end, scan.salt

    def has_grown(self) -> bool:
        """Something was written behind what was scanned.  Raises FileNotFoundError, OSError."""
        return self._file.goes_on(self._end, self._salt)

    def _add(self, body: bytes, place: int, lsn: int) -> None:
        begin = place - _address(body)
        for record in records.unpack(body).records:
            if isinstance(record, records.Append | records.Merge) and record.count:
                run = self._runs.setdefault(record.segments[-1], JournalRun())
                data = record.data
                place = begin + _address(data)
                run.add(record.offset, place, data, lsn, record.rows)
                lsn += record.rows

    @property
    def weight(self) -> int:
        """Bytes in memory, about."""
        return sum(run.weight + _RUN_COST for run in self._runs.values())

    def of(self, channel: str) -> JournalRun | None:
        """The data of a channel, if there is any."""
        return self._runs.get(channel)


def _address(data: bytes | memoryview) -> int:
    """Where it lies in memory: so where a view lies in what it is a view of is known."""
    place: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return place
