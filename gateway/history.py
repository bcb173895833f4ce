"""Reads the bytes of a channel back from where its events lie: journal, spool, archive.

Pravega's readers ask for a range of a segment.  Its events are rows, whose `seq` is
where each begins; a row's bytes are `00000000 | length | payload`, or the payload as it
is when it is flawed `unframed`.  Which file has them is known from an lsn near by, for
files are named by their lsns.  There is no second copy, and no index but that.

`fetch` blocks; `read` does it in a thread.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from twisted.internet.defer import Deferred

from gateway.disk import Disk
from gateway.event import Decode, Rows
from gateway.journal import segment as journal
from gateway.spool.names import parse_file_name

__all__ = ["Gone", "History"]

_UNFRAMED = "unframed"
_NEVER = 2**63 - 1

#: Decoded pieces that are kept, because readers come back for what follows.
_KEEP = 4


class Gone(LookupError):
    """The events are in no file any more."""


@dataclass(slots=True)
class _Run:
    """Events of one channel, in the order of their offsets."""

    offsets: list[int]
    payloads: list[bytes]
    raw: frozenset[int]
    """Which of them have no header."""

    def bytes(self, offset: int, size: int) -> bytes:
        """At most *size* bytes from *offset* on, without a gap."""
        at = bisect_right(self.offsets, offset) - 1
        if at < 0:
            return b""
        out: list[bytes] = []
        begin = end = self.offsets[at]
        while at < len(self.offsets) and self.offsets[at] == end < offset + size:
            payload = self.payloads[at]
            if at not in self.raw:
                out.append(len(payload).to_bytes(8))  # type 0, then the length
                end += 8
            out.append(payload)
            end += len(payload)
            at += 1
        skip = offset - begin
        return b"".join(out)[skip : skip + size]


class History:
    """Implements `gateway.pravega.container.Reader`."""

    def __init__(
        self,
        node: str,
        disk: Disk,
        *,
        journal: Path,
        spool: Path,
        archive: Path,
        protocol: str,
        decode: Decode,
        in_thread: Callable[..., Deferred[bytes]],
    ) -> None:
        """*in_thread* is `twisted.internet.threads.deferToThread`."""
        self.first_lsn = 0
        """What lies before it is in no file any more, as of the last look."""
        self._node = node
        self._disk = disk
        self._journal = journal
        self._places = (spool, archive)
        self._protocol = protocol
        self._decode = decode
        self._in_thread = in_thread
        self._lock = threading.Lock()
        self._files: list[tuple[int, int, str]] = []
        self._runs: OrderedDict[tuple[Any, ...], _Run] = OrderedDict()
        self.refresh()

    def read(self, segment: str, offset: int, size: int, lsn: int) -> Deferred[bytes]:
        """See `fetch`."""
        return self._in_thread(self.fetch, segment, offset, size, lsn)

    def refresh(self) -> None:
        """Look which files there are."""
        files = set()
        for place in self._places:  # a file moves from the first to the second
            for name in self._disk.names(place):
                parsed = parse_file_name(name)
                if parsed is not None and parsed[0] == self._node:
                    files.add((parsed[1], parsed[2], name))
        self._files = sorted(files)
        firsts = [first for first, _, _ in self._files]
        firsts += [first for first, _ in self._segments()]
        self.first_lsn = min(firsts, default=_NEVER)

    def fetch(self, segment: str, offset: int, size: int, lsn: int) -> bytes:
        """At most *size* bytes of a segment from *offset* on, and at least one.

        *lsn* is that of an event at or before the offset.  Raises `Gone`, OSError.
        """
        with self._lock:
            for _ in range(2):
                # A file may move or go while we look for it.
                with contextlib.suppress(FileNotFoundError):
                    found = self._fetch(segment, offset, size, lsn)
                    if found:
                        return found
                self.refresh()
        raise Gone(f"{segment} at {offset} is not in any file (lsn {lsn})")

    def _fetch(self, segment: str, offset: int, size: int, lsn: int) -> bytes:
        for run in self._runs_from(segment, lsn):
            found = run.bytes(offset, size)
            if found:
                return found
        return b""

    def _runs_from(self, segment: str, lsn: int) -> Iterator[_Run]:
        """The channel's events from *lsn* on, piece by piece."""
        for first, last, name in list(self._files):
            if last >= lsn:
                if first > lsn:
                    break  # in between is what is not published yet, or gone
                yield from self._in_file(name, segment, lsn)
                lsn = last + 1
        for _, path in self._segments(lsn):
            key = path.name, self._disk.size(path), segment
            yield self._kept(key, partial(self._in_segment, path, segment))

    def _kept(self, key: tuple[Any, ...], make: Callable[[], _Run]) -> _Run:
        run = self._runs.pop(key, None)
        if run is None:
            run = make()
        self._runs[key] = run
        while len(self._runs) > _KEEP:
            self._runs.popitem(last=False)
        return run

    # -- spool and archive ----------------------------------------------------------

    def _in_file(self, name: str, segment: str, lsn: int) -> Iterator[_Run]:
        for place in self._places:
            try:
                file = pq.ParquetFile(place / name, memory_map=True)
            except FileNotFoundError:
                continue
            with file:
                index = file.schema_arrow.get_field_index("lsn")
                for group in range(file.num_row_groups):
                    column = file.metadata.row_group(group).column(index)
                    if column.statistics.max >= lsn:
                        yield self._kept(
                            (name, group, segment),
                            partial(self._in_group, file, group, segment),
                        )
            return

    def _in_group(self, file: pq.ParquetFile, group: int, segment: str) -> _Run:
        columns = ["protocol", "channel", "seq", "payload", "flaw"]
        table = file.read_row_group(group, columns=columns)
        mine = pc.and_(
            pc.equal(table["channel"].cast(pa.string()), segment),
            pc.equal(table["protocol"].cast(pa.string()), self._protocol),
        )
        table = table.filter(mine)
        flaws = pc.equal(table["flaw"].cast(pa.string()), _UNFRAMED).fill_null(False)
        raw = np.flatnonzero(flaws.to_numpy())
        return _Run(
            table["seq"].to_pylist(),
            table["payload"].to_pylist(),
            frozenset(raw.tolist()),
        )

    # -- journal ----------------------------------------------------------------------

    def _segments(self, lsn: int = 0) -> list[tuple[int, Path]]:
        """Journal segments with events from *lsn* on, and their first lsns."""
        names = [
            (*parsed, name)
            for name in self._disk.names(self._journal)
            if (parsed := journal.parse_name(name)) is not None
        ]
        names.sort()
        firsts = [first for first, _, _ in names]
        begin = max(0, bisect_right(firsts, lsn) - 1)
        return [(first, self._journal / name) for first, _, name in names[begin:]]

    def _in_segment(self, path: Path, segment: str) -> _Run:
        run = _Run([], [], frozenset())
        raw: set[int] = set()
        for stored in journal.Scan(self._disk.read(path)):
            batch = stored.batch
            if batch.origin.protocol == self._protocol and batch.count:
                _take(self._decode(batch.body), segment, run, raw)
        run.raw = frozenset(raw)
        return run


def _take(rows: Rows, segment: str, run: _Run, raw: set[int]) -> None:
    channels: Mapping[int, str] = rows.channels
    assert rows.seqs is not None
    for row, payload in enumerate(rows.each()):
        if channels.get(row, rows.channel) == segment:
            if rows.flaws.get(row) == _UNFRAMED:
                raw.add(len(run.offsets))
            run.offsets.append(rows.seqs[row])
            run.payloads.append(payload)
