"""Sealed journal segments to Parquet files that Spark can see, each exactly once.

    1. write `.events-….parquet` from the segment; sync it; sync the directory
    2. enter it in the catalog, synced         from here on it is never written again
    3. rename it to `events-….parquet`; sync the directory           Spark may read it
    4. remove the segment, unless somebody's memory needs it: then `gateway.store.checkpoint`
       does that later.  One without events becomes no file at all

A crash between any two steps is finished by the next start (`Catalog`).  What fails
for want of room or because of the disk is tried again until it works: the segment
is still there, so nothing is lost by waiting.

One thread does all this, in order of lsn.  It also watches the sizes: the journal
takes nothing while the spool is at `spool.max_bytes`, or while the file system has
no room left for the files that the journal's segments will become.
"""

from __future__ import annotations

import contextlib
import io
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from gateway.event import Decode, Stored
from gateway.store.disk import Disk, File
from gateway.store.journal import segment
from gateway.store.journal.log import Segment
from gateway.store.spool import parquet
from gateway.store.spool.catalog import Catalog, Entry
from gateway.store.spool.names import file_name, parse_file_name

__all__ = ["Level", "Published", "Publisher", "Settings", "Spool"]

_TICK_SECONDS = 1.0
_SPARE_BYTES = 4 * 2**20
_FILES_PER_ROLL = 8
_COUNTING_SHARE = 20


@dataclass(slots=True)
class Settings:
    """`spool.*`."""

    max_bytes: int = 20 * 2**30
    compression: str = "zstd"
    retention: float = 86400.0


@dataclass(slots=True)
class Published:
    """A file that has become public."""

    path: Path
    first_lsn: int
    last_lsn: int
    flaws: Counter[str]
    """How many of its events are flawed, by reason."""
    seconds: float


@dataclass(slots=True)
class Level:
    """How full a directory of spool files is."""

    files: int = 0
    bytes: int = 0


class Publisher:
    """Turns one segment at a time into a file.  Blocking; raises OSError."""

    _log = Logger()

    def __init__(
        self,
        node: str,
        spool: Path,
        catalog: Catalog,
        disk: Disk,
        decoders: Mapping[str, Decode],
        compression: str,
        *,
        keep: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """*keep*: leave published segments where they are."""
        self._node = node
        self._spool = spool
        self._catalog = catalog
        self._disk = disk
        self._decoders = decoders
        self._compression = compression
        self._keep = keep
        self._clock = clock
        self._newest = 0.0
        self._complete: tuple[Entry, Counter[str]] | None = None
        """The last hidden file that was written, and its flaws.  It is left alone if
        only its catalog entry failed: that line may be durable all the same, and would
        make of a half-written file a public one."""

    def recover(self, segments: Sequence[Segment]) -> list[Segment]:
        """Finish what a crash left half done; returns what is still to be published."""
        known = {entry.hidden: entry for entry in self._catalog}
        for name in self._disk.names(self._spool):
            if name in known:
                self._disk.rename(self._spool / name, self._spool / known[name].name)
            elif name.startswith(".") and self._is_ours(name[1:]):
                self._disk.unlink(self._spool / name)
            elif self._is_ours(name):
                # Somebody may take it while we look.
                with contextlib.suppress(FileNotFoundError):
                    modified = self._disk.modified(self._spool / name)
                    self._newest = max(self._newest, modified)
        self._disk.sync_directory(self._spool)
        return [left for sealed in segments if (left := self._left_of(sealed))]

    def _left_of(self, sealed: Segment) -> Segment | None:
        """What of a segment is not public yet.

        More than nothing and less than all of it only where a sync failed, its
        segment was published up to there, and the power went before the next one.
        """
        first = self._catalog.unpublished(sealed.first_lsn)
        if first > sealed.last_lsn:
            self._let_go(sealed)
            return None
        return replace(sealed, first_lsn=first)

    def publish(self, sealed: Segment) -> Published | None:
        """All four steps; after an OSError the same segment may be tried again.

        None if it has no events.
        """
        if not sealed.events:
            self._let_go(sealed)
            return None
        begun = time.perf_counter()
        entry = self._catalog.find(sealed.first_lsn)
        flaws: Counter[str] = Counter()
        if entry is None:
            entry = Entry(
                sealed.first_lsn,
                sealed.last_lsn,
                file_name(self._node, sealed.first_lsn, sealed.last_lsn),
            )
            if self._complete is None or self._complete[0] != entry:
                written = self._write(sealed, self._spool / entry.hidden)
                self._complete = entry, written
            flaws = self._complete[1]
            self._catalog.add(entry)
        if self._disk.exists(self._spool / entry.hidden):
            self._disk.rename(self._spool / entry.hidden, self._spool / entry.name)
        self._disk.sync_directory(self._spool)
        self._let_go(sealed)
        return Published(
            self._spool / entry.name,
            entry.first,
            entry.last,
            flaws,
            time.perf_counter() - begun,
        )

    def _let_go(self, sealed: Segment) -> None:
        if not self._keep:
            self._disk.unlink(sealed.path)

    def _write(self, sealed: Segment, path: Path) -> Counter[str]:
        self._disk.unlink(path)
        scan = segment.Scan(self._disk.read(sealed.path), before=sealed.last_lsn + 1)
        sink = _Sink(self._disk.create(path))
        try:
            written = parquet.write(
                parquet.gapless(scan, sealed.first_lsn, sealed.last_lsn),
                sink,
                node=self._node,
                decoders=self._decoders,
                compression=self._compression,
                on_undecodable=self._undecodable,
            )
            sink.flush()
            sink.file.sync()
        except BaseException:
            with contextlib.suppress(OSError):
                self._disk.unlink(path)
            raise
        finally:
            sink.file.close()
        self._newest = max(self._newest, self._clock())
        self._disk.set_times(path, self._newest)
        self._disk.sync_directory(self._spool)
        return written.flaws

    def _is_ours(self, name: str) -> bool:
        parsed = parse_file_name(name)
        return parsed is not None and parsed[0] == self._node

    def _undecodable(self, stored: Stored, why: Exception) -> None:
        self._log.error(
            "Batch at lsn {lsn} can not be decoded ({why}); its bytes are kept, flawed",
            lsn=stored.lsn,
            why=f"{type(why).__name__}: {why}",
        )


class _Sink(io.RawIOBase):
    """A `File` as pyarrow wants one; small writes are gathered."""

    def __init__(self, file: File) -> None:
        super().__init__()
        self.file = file
        self._chunks: list[bytes] = []
        self._gathered = 0
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        self._chunks.append(chunk)
        self._gathered += len(chunk)
        self._size += len(chunk)
        if self._gathered >= 1 << 20:
            self.flush()
        return len(chunk)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        chunks, self._chunks, self._gathered = self._chunks, [], 0
        if chunks:
            self.file.write(chunks)


class Held(Protocol):
    """What the spool needs of the journal."""

    roll_factor: float

    def hold(self, who: str, why: str | None) -> None:
        """Take no more batches while *why* is not None."""

    def published(self, last_lsn: int) -> None:
        """Events up to there are in the spool."""


class Threads(Protocol):
    """The call that the spool needs of a reactor."""

    def callFromThread(self, f: Callable[..., Any], *args: Any) -> Any:
        """Run *f* in the reactor's thread, soon."""


class Spool:
    """The publishing thread, and the levels that it watches."""

    _log = Logger()

    def __init__(
        self,
        directory: Path,
        archive: Path,
        publisher: Publisher,
        settings: Settings,
        disk: Disk,
        reactor: Threads,
        *,
        published_lsn: int,
        on_published: Callable[[Published], None] = lambda _: None,
        on_done: Callable[[Segment], None] = lambda _: None,
        on_expired: Callable[[], None] = lambda: None,
        also_reserved: Callable[[], int] = lambda: 0,
    ) -> None:
        """*on_published* is called in the spool's own thread, and so is *on_expired*,
        when the archive has dropped files.

        *on_done* hears in the reactor's of each segment that is published, or has
        nothing to publish, after the journal does.  *also_reserved*: bytes of the disk
        that are not to be used up.
        """
        self.published_lsn = published_lsn
        """Everything up to this lsn has been given to Spark."""
        self.level = Level()
        self.archived = Level()
        self.backlog_bytes = 0
        """Sealed segments that are not published yet."""
        self._directory = directory
        self._archive = archive
        self._publisher = publisher
        self._settings = settings
        self._disk = disk
        self._reactor = reactor
        self._on_published = on_published
        self._on_done = on_done
        self._on_expired = on_expired
        self._also_reserved = also_reserved
        self._journal: Held | None = None
        self._work: queue.SimpleQueue[Segment | None] = queue.SimpleQueue()
        self._ended: Deferred[None] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)
        self._complained = False
        self._next_expiry = 0.0
        self._next_count = 0.0
        # The journal's thread adds to the backlog, ours takes from it.
        self._backlog_lock = threading.Lock()

    # -- the reactor's side ---------------------------------------------------

    def start(self, journal: Held, left: Sequence[Segment]) -> None:
        """Start publishing, *left* by the last run first."""
        self._journal = journal
        for sealed in left:
            self.publish(sealed)
        self._watch()
        self._thread.start()

    def publish(self, sealed: Segment) -> None:
        """Queue a sealed segment; any thread may call."""
        self._add_to_backlog(sealed.bytes)
        self._work.put(sealed)

    def _add_to_backlog(self, size: int) -> None:
        with self._backlog_lock:
            self.backlog_bytes += size

    def stop(self) -> Deferred[None]:
        """Publish what is queued, once; what fails then waits for the next start."""
        self._ended = Deferred()
        self._stop.set()
        self._work.put(None)
        return self._ended

    @property
    def reserved_bytes(self) -> int:
        """Room on the disk for what has to be written there, come what may.

        First of all the files that the sealed segments will become.
        """
        return self.backlog_bytes + self._also_reserved() + _SPARE_BYTES

    # -- the thread's side ----------------------------------------------------

    def _run(self) -> None:
        while (sealed := self._next()) is not None:
            if not self._publish(sealed):
                break
        if self._ended is not None:
            self._reactor.callFromThread(self._ended.callback, None)

    def _next(self) -> Segment | None:
        """The next segment to publish, watching the levels meanwhile; None at the end."""
        while True:
            self._look_around()
            try:
                return self._work.get(timeout=_TICK_SECONDS)
            except queue.Empty:
                continue

    def _publish(self, sealed: Segment) -> bool:
        """Until it worked; false if the daemon is stopping and it did not."""
        while True:
            try:
                done = self._publisher.publish(sealed)
            except Exception as why:  # the segment is safe; publishing must go on
                self._complain(sealed, why)
                if self._stop.wait(0 if self._stop.is_set() else _TICK_SECONDS):
                    return False
                self._look_around()
                continue
            self._complained = False
            self._add_to_backlog(-sealed.bytes)
            self.published_lsn = sealed.last_lsn
            if done is not None:
                self._on_published(done)
            self._reactor.callFromThread(self._tell, sealed)
            return True

    def _tell(self, sealed: Segment) -> None:
        if self._journal is not None:
            self._journal.published(sealed.last_lsn)
        self._on_done(sealed)

    def _complain(self, sealed: Segment, why: Exception) -> None:
        if not self._complained:
            self._log.error(
                "{segment} can not be published yet: {why}",
                segment=sealed.path.name,
                why=f"{type(why).__name__}: {why}",
            )
        self._complained = True

    def _look_around(self) -> None:
        with contextlib.suppress(OSError):
            self._watch()
            self._expire()

    def _watch(self) -> None:
        self.level = self._measure(self._directory)
        self._count_archive()
        limit = self._settings.max_bytes
        full = room = None
        if self.level.bytes + self.backlog_bytes >= limit:
            full = (
                f"the spool holds {self.level.bytes + self.backlog_bytes} bytes, "
                f"limit {limit} (spool.max_bytes): the Spark job is behind"
            )
        free = self._disk.free(self._directory)
        need = self.reserved_bytes
        if free < need:
            room = (
                f"the disk of {self._directory} is full: {free} bytes free, "
                f"{need} needed for what is already acknowledged"
            )
        self._reactor.callFromThread(self._hold, full, room, self.level.files)

    def _hold(self, full: str | None, room: str | None, files: int) -> None:
        journal = self._journal
        if journal is None:
            return
        journal.roll_factor = max(1.0, files / _FILES_PER_ROLL)
        journal.hold("spool", full)
        journal.hold("disk", room)

    def _count_archive(self) -> None:
        # A day of one file a second is 86,400 files, and nothing waits for their
        # number: counting them may take a twentieth of our time.
        begun = time.monotonic()
        if begun >= self._next_count:
            self.archived = self._measure(self._archive)
            ended = time.monotonic()
            self._next_count = ended + _COUNTING_SHARE * (ended - begun)

    def _measure(self, directory: Path) -> Level:
        level = Level()
        for name in self._disk.names(directory):
            if parse_file_name(name) is None:
                continue
            # Spark's job moves files while we look.
            with contextlib.suppress(FileNotFoundError):
                level.bytes += self._disk.size(directory / name)
                level.files += 1
        return level

    def _expire(self) -> None:
        now = time.time()
        if now < self._next_expiry:
            return
        self._next_expiry = now + min(60.0, self._settings.retention)
        oldest = now - self._settings.retention
        expired = False
        for name in self._disk.names(self._archive):
            path = self._archive / name
            if parse_file_name(name) and self._disk.modified(path) < oldest:
                self._disk.unlink(path)
                expired = True
        if expired:
            self._on_expired()
