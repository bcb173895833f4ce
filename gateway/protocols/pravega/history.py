"""Reads the bytes of a Pravega segment back from journal, spool and archive.

Pravega's readers ask for a range of a segment.  Its events are rows, whose `seq` is
where each begins; `runs` makes bytes of them again.  Which file has them is known from
an lsn near by, for files are named by their lsns.  There is no second copy, and no
index but that.

`fetch` blocks; `read` does it in a thread.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import pyarrow.parquet as pq
from twisted.internet.defer import Deferred, DeferredLock

from gateway.event import Decode
from gateway.protocols.pravega.runs import RowGroup, Run, of_batches
from gateway.store.directories import Directories
from gateway.store.finder import Finder, Gone, SegmentFile, SpoolFile

__all__ = ["History"]

_T = TypeVar("_T")

#: Read once and kept, because readers come back for what follows.
_RUN_BYTES = 32 << 20
_GROUP_BYTES = 48 << 20
_JOURNALS = 1
_FOOTERS = 256
_HINTS = 4096
_RUN_COST = 512


class _LruCache(Generic[_T]):
    """A cache of what was used last; all together weighs at most *most*."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._weight = 0
        self._items: OrderedDict[Any, tuple[_T, int]] = OrderedDict()

    def get(self, key: Any) -> _T | None:
        """It is the last one then."""
        found = self._items.get(key)
        if found is None:
            return None
        self._items.move_to_end(key)
        return found[0]

    def put(self, key: Any, value: _T, weight: int = 1) -> _T:
        """The last one stays, whatever it weighs."""
        _, before = self._items.pop(key, (value, 0))
        self._items[key] = value, weight
        self._weight += weight - before
        while self._weight > self._most and len(self._items) > 1:
            self._weight -= self._items.popitem(last=False)[1][1]
        return value


class History:
    """Implements `gateway.protocols.pravega.container.Reader`."""

    def __init__(
        self,
        node: str,
        directories: Directories,
        *,
        protocol: str,
        decode: Decode,
        in_thread: Callable[..., Deferred[bytes]],
    ) -> None:
        """*in_thread* is `twisted.internet.threads.deferToThread`."""
        self.first_lsn = 0
        """What lies before it is in no file any more, as of the last look."""
        self._finder = Finder(directories, node, retained=True)
        self._protocol = protocol
        self._decode = decode
        self._in_thread = in_thread
        self._lock = threading.Lock()
        self._turn = DeferredLock()
        self._no_files = True
        self._footers: _LruCache[_Footer] = _LruCache(_FOOTERS)
        self._groups: _LruCache[RowGroup] = _LruCache(_GROUP_BYTES)
        self._runs: _LruCache[Run] = _LruCache(_RUN_BYTES)
        self._journals: _LruCache[dict[str, Run]] = _LruCache(_JOURNALS)
        self._hints: _LruCache[int] = _LruCache(_HINTS)
        """By channel and offset: the lsn from which on to look, later than a mark's."""
        self.refresh()

    def read(self, segment: str, offset: int, size: int, lsn: int) -> Deferred[bytes]:
        """See `fetch`.  One at a time: threads that wait for another are wasted."""
        return self._turn.run(self._in_thread, self.fetch, segment, offset, size, lsn)

    def refresh(self) -> None:
        """Look which files there are; any thread may call."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        oldest = self._finder.oldest()
        # Without any file nothing is known; what is stored next will be in one.
        self._no_files = oldest is None
        if oldest is not None:
            self.first_lsn = oldest

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
                self._refresh()
            if self._no_files:
                self.first_lsn = max(self.first_lsn, lsn + 1)
                raise Gone(lsn, None)
            raise Gone(lsn, self.first_lsn)

    def _fetch(self, segment: str, offset: int, size: int, lsn: int) -> bytes:
        begin = max(lsn, self._hints.get((segment, offset)) or 0)
        for run, behind in self._runs_from(segment, begin):
            found = run.read(offset, size, lsn)
            if found:
                if behind and offset + len(found) == run.end:
                    self._hints.put((segment, run.end), behind)
                return found
            if run.begins_after(offset, lsn):
                break  # it is gone, and not further on
        return b""

    def _runs_from(self, segment: str, lsn: int) -> Iterator[tuple[Run, int]]:
        """The channel's events from *lsn* on, piece by piece.

        With each, the lsn behind it; 0 if there may be more before that.
        """
        for file in self._finder.files(lsn):
            if file.first > lsn:  # nobody needs it, or it is still in the journal only
                for each in self._finder.segments(lsn):
                    if each.first < file.first:
                        yield self._in_journal(each).get(segment) or Run(), 0
            yield from self._in_file(file, segment, lsn)
            lsn = file.last + 1
        for each in self._finder.segments(lsn):
            if each.first > lsn:
                break  # published and removed since the last look, or gone
            yield self._in_journal(each).get(segment) or Run(), 0
            if each.before is not None:
                lsn = each.before

    def _in_journal(self, file: SegmentFile) -> dict[str, Run]:
        key = file.path, file.path.stat().st_size, file.before
        runs = self._journals.get(key)
        if runs is None:
            runs = of_batches(file.scan(), self._protocol, self._decode)
            self._journals.put(key, runs)
        return runs

    def _in_file(
        self, file: SpoolFile, segment: str, lsn: int
    ) -> Iterator[tuple[Run, int]]:
        name = file.path.name
        footer = self._footers.get(name)
        if footer is None:
            with self._finder.open(file) as opened:
                footer = self._footers.put(name, _Footer(opened.metadata))
        at = bisect_left(footer.lasts, lsn)
        for number in range(at, len(footer.lasts)):
            key = name, number, segment
            run = self._runs.get(key)
            if run is None:
                run = self._in_group(file, number, footer, segment)
                self._runs.put(key, run, len(run.data) + _RUN_COST)
            yield run, footer.lasts[number] + 1

    def _in_group(
        self, file: SpoolFile, number: int, footer: _Footer, segment: str
    ) -> Run:
        key = file.path.name, number
        with self._finder.open(file, footer.metadata) as opened:
            group = self._groups.get(key)
            if group is None:
                group = RowGroup(opened, number, self._protocol)
            run = group.run(opened, number, segment)
        self._groups.put(key, group, group.bytes)
        return run


class _Footer:
    """What a file says of its row groups."""

    def __init__(self, metadata: pq.FileMetaData) -> None:
        self.metadata = metadata
        self.lasts: list[int] = []
        column = metadata.schema.to_arrow_schema().get_field_index("lsn")
        for number in range(metadata.num_row_groups):
            statistics = metadata.row_group(number).column(column).statistics
            self.lasts.append(statistics.max)
