"""Reads the bytes of a Pravega segment back from journal, spool and archive.

Pravega's readers ask for a range of a segment.  Its events are rows, whose `seq` is
where each begins; `runs` makes bytes of them again.  Files are named by their lsns, so an
lsn near by tells which file may have them.  A sparse index (`runs.FileIndex`) tells which
row group of it has them.  It is made at the first look into the file, and forgotten when
others need the room.  So to look for old events costs about as much as there is of them,
whatever else was stored meanwhile.  Events in the journal are read from there
(`journal_runs`).  There is no second copy.

`fetch` blocks, and any thread may call it; `read` does it in one of a few threads
(`lookups`).  Only these decode.  Each uses the memory of its last row group again, as to
touch fresh memory may cost as much as to decode into it.  A decoded group serves all who
read near by.  For a reader that goes on, the next row group is decoded ahead.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import pyarrow.parquet as pq
from attrs import define, frozen
from twisted.internet.defer import Deferred

from gateway.protocols.pravega.cache import Shared
from gateway.protocols.pravega.journal_runs import JournalRun, JournalRuns
from gateway.protocols.pravega.lookups import Lookups
from gateway.protocols.pravega.runs import FileIndex, RowGroup, Run, Span
from gateway.sdk.files import Files, Gone, JournalFile, PublishedFile

#: Read once and kept, because readers come back for what follows, and others come too.
_RUN_BYTES = 32 << 20
_GROUP_BYTES = 64 << 20  # room for two, however large
_INDEX_BYTES = 16 << 20
_JOURNAL_BYTES = 16 << 20
_UNWANTED = 32
"""The most row groups decoded meanwhile for other readers, while one that was decoded ahead
is not taken: then it makes room for another one."""
_FOOTERS = 256
_HINTS = 4096


@define(eq=False, slots=False)
class History:
    """Implements `gateway.protocols.pravega.pending.Reader`."""

    _files: Files
    _protocol: str
    _lookups: Lookups

    def __attrs_post_init__(self) -> None:
        self.first_lsn = 0
        """The first lsn that a file still has, as of the last look."""
        self._lock = threading.Lock()
        self._no_files = True
        self._published = _Published(self._files, self._protocol)
        self._journal = _InJournal(self._protocol)
        self._hints: Shared[int] = Shared(_HINTS)
        """The lsn from which on to look, by channel and offset; later than a mark's."""
        self.refresh()

    def read(
        self, segment: str, offset: int, size: int, lsn: int, until: int
    ) -> Deferred[bytes | memoryview]:
        begin = max(lsn, self._hint(segment, offset))
        return self._lookups.read(
            begin, partial(self.fetch, segment, offset, size, lsn, until)
        )

    def refresh(self) -> None:
        """Look which files there are; any thread may call."""
        with self._lock:
            oldest = self._files.oldest()
            # Without any file nothing is known; what is stored next will be in one.
            self._no_files = oldest is None
            if oldest is not None:
                self.first_lsn = oldest

    def fetch(
        self, segment: str, offset: int, size: int, lsn: int, until: int | None = None
    ) -> bytes | memoryview:
        """Read *size* bytes of a segment from *offset* on, or less, but at least one.

        *lsn* is that of an event at or before the offset.  A reader that has all from *until* on,
        where that is given, needs nothing read ahead behind it.  Raises `Gone`, OSError.
        """
        for _ in range(2):
            # A file may move or go while we look for it.
            with contextlib.suppress(FileNotFoundError):
                found = self._fetch(segment, offset, size, lsn, until)
                if found:
                    return found
            self.refresh()
        with self._lock:
            if self._no_files:
                self.first_lsn = max(self.first_lsn, lsn + 1)
                raise Gone(lsn, None)
            raise Gone(lsn, self.first_lsn)

    def _fetch(
        self, segment: str, offset: int, size: int, lsn: int, until: int | None
    ) -> bytes | memoryview:
        hint = self._hint(segment, offset)
        begin, reads_on = max(lsn, hint), hint > 0
        chosen: _PublishedPiece | _JournalPiece | None = None
        for piece in self._pieces(segment, offset, begin):
            if chosen is not None and piece.first > offset:
                break
            chosen = piece
            if piece.first <= offset <= piece.last:
                break
        if chosen is None:
            return b""
        found, hint = chosen.read(offset, size, lsn)
        if found and hint:
            self._hints.put((segment, offset + len(found)), hint)
            more = offset + len(found) != until
            if reads_on and more and (ahead := chosen.ahead()):
                self._lookups.ahead(ahead)
        return found

    def _hint(self, segment: str, offset: int) -> int:
        """The lsn from which on to look, if an answer ended at the offset; else 0."""
        return self._hints.get((segment, offset)) or 0

    def _pieces(
        self, segment: str, offset: int, lsn: int
    ) -> Iterator[_PublishedPiece | _JournalPiece]:
        """The channel's events from *lsn* on; *offset* is what is looked for."""
        for file in self._files.files(lsn):
            if file.first > lsn:  # nobody needs it, or it is still in the journal only
                for each in self._files.segments(lsn):
                    if each.first < file.first:
                        yield from self._journal.pieces(each, segment, offset, lsn)
            yield from self._published.pieces(file, segment, lsn)
            lsn = file.last + 1
        for each in self._files.segments(lsn):
            if each.first > lsn:
                break  # published and removed since the last look, or gone
            yield from self._journal.pieces(each, segment, offset, lsn)
            if each.before is not None:
                lsn = each.before


class _Published:
    """The events in spool, archive and retained files."""

    def __init__(self, files: Files, protocol: str) -> None:
        self._files = files
        self._protocol = protocol
        self._indexes: Shared[FileIndex] = Shared(_INDEX_BYTES, lambda one: one.weight)
        self._footers: Shared[pq.FileMetaData] = Shared(_FOOTERS)
        self._groups: Shared[RowGroup] = Shared(_GROUP_BYTES, lambda one: one.weight)
        self._runs: Shared[Run] = Shared(_RUN_BYTES, lambda one: one.weight)
        self._ahead = _Ahead()

    def pieces(
        self, file: PublishedFile, segment: str, lsn: int
    ) -> Iterator[_PublishedPiece]:
        """Pieces of one file, from the row group with *lsn* on."""
        index = self._indexes.made(file.name, lambda: self._index(file))
        for span in index.spans(segment, lsn):
            before = index.lasts[span.group - 1] if span.group else file.first - 1
            lsns = before + 1, index.lasts[span.group]
            yield _PublishedPiece(self, file, segment, span, lsns)

    def run(self, file: PublishedFile, number: int, segment: str) -> Run:
        """A channel's part of a row group."""
        return self._runs.made(
            (file.name, number, segment),
            lambda: self._group(file, number).run(segment),
        )

    def decoded(self, file: PublishedFile, number: int, segment: str) -> Run | None:
        """The decoded run, if another read needed it a short while ago."""
        return self._runs.get((file.name, number, segment))

    def followed(self, file: PublishedFile, number: int) -> bool:
        """Whether what is behind a row group is decoded, or could not be now."""
        group = self._groups.peek((file.name, number))
        return group is None or group.followed or not self._ahead.free

    def decode_behind(
        self, file: PublishedFile, number: int, segment: str, lsn: int
    ) -> None:
        """Decode the row group behind this one with the channel's events from *lsn* on, if it is in
        the next file.

        No further file is looked into before a reader asks.
        """
        before = self._groups.peek((file.name, number))
        if before is not None:
            before.followed = True
        behind = self._files.file(lsn)
        if behind is None:
            return
        for piece in islice(self.pieces(behind, segment, lsn), 1):
            key = behind.name, piece.group
            if self._groups.peek(key) is None and self._ahead.free:
                self._ahead.keep(key, self._decoded(behind, piece.group))

    def _group(self, file: PublishedFile, number: int) -> RowGroup:
        key = file.name, number
        return self._groups.made(
            key, lambda: self._ahead.taken(key) or self._decoded(file, number)
        )

    def _decoded(self, file: PublishedFile, number: int) -> RowGroup:
        with self._open(file) as opened:
            return RowGroup(opened, number, self._protocol)

    def _index(self, file: PublishedFile) -> FileIndex:
        with self._open(file) as opened:
            return FileIndex(opened, self._protocol)

    def _open(self, file: PublishedFile) -> pq.ParquetFile:
        name = file.name
        footer = self._footers.get(name)
        opened = self._files.open(file, footer)
        if footer is None or footer.serialized_size != opened.metadata.serialized_size:
            self._footers.put(name, opened.metadata)
        return opened


class _Ahead:
    """The row group that was decoded ahead: one, which takes the room of no other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: object = None
        self._group: RowGroup | None = None
        self._passed = 0

    @property
    def free(self) -> bool:
        """Whether there is none, or it seems that no reader wants it."""
        return self._group is None or self._passed >= _UNWANTED

    def keep(self, key: object, group: RowGroup) -> None:
        """Keep it until a reader wants it, or another one is kept."""
        with self._lock:
            self._key, self._group, self._passed = key, group, 0

    def taken(self, key: object) -> RowGroup | None:
        """Take it out, if it is the one with this key."""
        with self._lock:
            if self._key != key:
                self._passed += 1
                return None
            group, self._key, self._group = self._group, None, None
            return group


@frozen(eq=False)
class _PublishedPiece:
    """Rows of a channel in a row group, where they lie together."""

    _files: _Published
    _file: PublishedFile
    _segment: str
    _span: Span
    _lsns: tuple[int, int]

    @property
    def group(self) -> int:
        return self._span.group

    @property
    def first(self) -> int:
        """The offset where the first of them begins."""
        return self._span.first

    @property
    def last(self) -> int:
        """The offset where the last of them begins, or where it ends if that is known."""
        # Where the last row ends is known once it is decoded: who reads on within a large
        # event finds it here, and need not look for its channel in all later files.
        run = self._files.decoded(self._file, self.group, self._segment)
        return self._span.last if run is None else max(self._span.last, run.end - 1)

    def read(self, offset: int, size: int, lsn: int) -> tuple[bytes | memoryview, int]:
        """Bytes of extents that reach to *lsn*, and an lsn from which on to look for what
        follows; 0: as before.
        """
        run = self._files.run(self._file, self.group, self._segment)
        found = run.read(offset, size, lsn)
        first, last = self._lsns
        return found, last + 1 if offset + len(found) == run.end else first

    def ahead(self) -> Callable[[], None] | None:
        """Decodes what comes next in the channel; None if that is done, or has no room."""
        files, file, group = self._files, self._file, self.group
        if files.followed(file, group):
            return None
        lsn = self._lsns[1] + 1
        return partial(files.decode_behind, file, group, self._segment, lsn)


class _InJournal:
    """The events in the journal."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self._runs: Shared[JournalRuns] = Shared(_JOURNAL_BYTES, lambda one: one.weight)
        self._one = threading.Lock()
        """One segment is scanned at a time, as it is in memory meanwhile."""

    def pieces(
        self, file: JournalFile, segment: str, offset: int, lsn: int
    ) -> Iterator[_JournalPiece]:
        """Pieces of one journal segment: one, or none.

        A channel that was deleted and made again begins at zero, so its offsets alone do
        not tell that a scan is too old.
        """
        runs = self._runs.made(_key(file), lambda: self._scanned(file))
        run = runs.of(segment)
        short = run is None or run.last < offset or run.newest_lsn < lsn
        if short and file.before is None and runs.has_grown():
            self._runs.drop(_key(file))
            runs = self._runs.made(_key(file), lambda: self._scanned(file))
            run = runs.of(segment)
        if run is not None:
            yield _JournalPiece(self, file, run)

    def _scanned(self, file: JournalFile) -> JournalRuns:
        with self._one:
            return JournalRuns(file, self._protocol)

    def changed(self, file: JournalFile) -> None:
        """Forget the scan of a file that has other bytes by now."""
        self._runs.drop(_key(file))


def _key(file: JournalFile) -> object:
    return file.name, file.before


@frozen(eq=False)
class _JournalPiece:
    """Appends to a channel in a journal segment, as `_PublishedPiece` gives rows."""

    _journal: _InJournal
    _file: JournalFile
    _run: JournalRun

    @property
    def first(self) -> int:
        return self._run.first

    @property
    def last(self) -> int:
        return self._run.last

    def read(self, offset: int, size: int, lsn: int) -> tuple[bytes, int]:
        found = self._run.read(self._file, offset, size, lsn)
        if found is None:
            self._journal.changed(self._file)
            return b"", 0
        return found

    def ahead(self) -> None:
        return None
