"""The spool's thread: publishes sealed segments in order of lsn, and watches the disk.

What fails for want of room or because of the disk is tried again until it works: the
segment is still there, so nothing is lost by waiting.  Between two segments, and every
second while there is none, the thread looks how full spool and disk are (`levels`),
which may hold the journal, and removes what has expired (`expiry`).  Where no job takes
files (`spool.after: keep`) it moves them to the archive itself; where they go to a bucket,
`uploads` does.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger

from gateway.config import model
from gateway.store.disk import NO_ROOM, Disk
from gateway.store.journal.log import Segment
from gateway.store.names import parse_file_name
from gateway.store.shared import SharedDict
from gateway.store.spool.expiry import Expiry
from gateway.store.spool.levels import Levels
from gateway.store.spool.pace import Pace
from gateway.store.spool.processes import Lost
from gateway.store.spool.publisher import Published, Publisher
from gateway.store.spool.retained import Retained
from gateway.store.spool.uploads import Uploads
from gateway.store.threads import RealThreads, Threads

__all__ = ["Spool"]

_TICK_SECONDS = 1.0
_HELD_TICK_SECONDS = 0.05
"""While the spool is full; but looking takes one part in `_LOOKING_SHARE` of our time."""
_LOOKING_SHARE = 20
_SPARE_BYTES = 4 * 2**20
_FILES_PER_ROLL = 8
_UPCOMING = 16
_LONGEST_PAUSE_SECONDS = 60.0
_UPLOADING_SECONDS = 10.0
"""At the stop; what is left then waits for the next start."""


class Journal(Protocol):
    """What the spool needs of the journal; called in the reactor's thread."""

    roll_factor: float
    pace: float

    @property
    def open_bytes(self) -> int:
        """What it holds that is not sealed yet."""

    @property
    def reasons(self) -> dict[str, str]:
        """Who holds it, and why."""

    def hold(self, who: str, why: str | None) -> None:
        """Take no more batches while *why* is not None."""

    def published(self, last_lsn: int) -> None:
        """Events up to there are in the spool."""


@define(eq=False, slots=False)
class Spool:
    """The thread, and its interface in the reactor.

    *on_published* is called in the spool's own thread, and so is *on_expired*,
    when the archive has dropped files; *before_expiry* is called with their names
    before.  *retained* keeps what readers need of those; *ours* says of a node whether
    its files are ours to move and to remove, *only_copy* of a file's name whether no
    table has what is in it.

    *on_done* is called in the reactor's thread for each segment that is published,
    or has nothing to publish, after the journal was told.  *also_reserved*: bytes
    of the disk that are not to be used up.  *wanted*: bytes beside those for which the
    archive is to make room.

    *uploads* puts the files into a bucket: published is what is there.  *on_uploaded* is
    called in the reactor's thread, after the journal was told.
    """

    _log = Logger()

    _directory: Path
    _archive: Path
    _publisher: Publisher
    _settings: model.Spool
    _disk: Disk
    _reactor: IReactorFromThreads
    _made_lsn: int = field(alias="published_lsn")
    """There are files up to this lsn."""
    _on_published: Callable[[Published], None] = lambda _: None
    _on_done: Callable[[Segment], None] = lambda _: None
    _on_expired: Callable[[], None] = lambda: None
    _also_reserved: Callable[[], int] = lambda: 0
    _wanted: Callable[[], int] = lambda: 0
    _on_look: Callable[[], None] = lambda: None
    _before_expiry: Callable[[Iterable[str]], None] = lambda _: None
    _retained: Retained | None = None
    _ours: Callable[[str], bool] = lambda _: True
    _only_copy: Callable[[str], bool] = lambda _: False
    _clock: Callable[[], float] = time.monotonic
    _wall_clock: Callable[[], float] = time.time
    _threads: Threads = field(factory=RealThreads)
    uploads: Uploads | None = None
    _on_uploaded: Callable[[], None] = lambda: None

    def __attrs_post_init__(self) -> None:
        self.backlog_bytes = 0
        """Sealed segments that are not published yet; …"""
        self._to_write_bytes = 0
        """… and the files that they will become, at most about."""
        self.levels = Levels(
            self._directory,
            self._archive,
            self._disk,
            self._settings.max_bytes,
            self._clock,
            self._why_waiting,
        )
        """How full the spool and the archive are."""
        self._expiry = Expiry(
            self._archive,
            self._disk,
            self._settings.retention,
            self._settings.archive_bytes,
            self._on_expired,
            self._clock,
            self._wall_clock,
            self._before_expiry,
            self._retained,
            self._ours,
            self._only_copy,
        )
        self._pace = Pace(self._settings.max_bytes)
        self._journal: Journal | None = None
        self._ended: Deferred[None] | None = None
        self._thread = self._threads.thread("spool", self._run)
        self._tick = _TICK_SECONDS
        self.publish_error: str | None = None
        """Why the file in hand can not be written now."""
        self._told: SharedDict[str, str] = SharedDict()
        """What fails now beside publishing, and was told, and why."""
        # Shared between the threads, under the condition's lock; so is the backlog.
        self._condition = self._threads.condition()
        self._work: deque[Segment] = deque()
        self._sealed_bytes = 0
        """Of all segments that ever came."""
        self._stopping = False

    # -- the reactor's side ---------------------------------------------------

    def start(self, journal: Journal, left: Sequence[Segment]) -> None:
        """Start publishing, *left* by the last run first."""
        self._journal = journal
        for sealed in left:
            self.publish(sealed)
        self._watch()
        if self.uploads is not None:
            self.uploads.start(
                lambda: self._reactor.callFromThread(self._tell_uploaded)
            )
        self._thread.start()

    def configure(self, settings: model.Spool) -> None:
        """Go on with other limits; not with another directory or other processes."""
        self._settings = settings  # one reference, which the thread reads
        self.levels.max_bytes = self._pace.most = settings.max_bytes
        self._expiry.configure(settings.retention, settings.archive_bytes)
        self._hold_if_full()

    @property
    def published_lsn(self) -> int:
        """Everything up to this lsn has been given to Spark."""
        made = self._made_lsn
        return made if self.uploads is None else self.uploads.safe_lsn(made)

    def publish(self, sealed: Segment) -> None:
        """Queue a sealed segment; any thread may call.

        It counts towards `spool.max_bytes` from now on: senders fill the journal faster
        than the thread looks, above all while it writes its first file.
        """
        with self._condition:
            self.backlog_bytes += sealed.bytes
            self._to_write_bytes += self._file_bytes(sealed)
            self._sealed_bytes += sealed.bytes
            self._work.append(sealed)
            self._condition.notify()
        self._reactor.callFromThread(self._hold_if_full)

    def stop(self) -> Deferred[None]:
        """Publish what is queued, once; what fails then waits for the next start."""
        self._ended = Deferred()
        self._publisher.writer.hurry()
        with self._condition:
            self._stopping = True
            self._condition.notify()
        return self._ended

    @property
    def reserved_bytes(self) -> int:
        """Room on the disk for what has to be written there, come what may.

        First of all the files that the sealed segments will become.
        """
        return self._to_write_bytes + self._also_reserved() + _SPARE_BYTES

    def _file_bytes(self, sealed: Segment) -> int:
        return self._publisher.file_bytes(
            sealed.bytes, sealed.payload_bytes, sealed.events
        )

    # -- the thread's side ----------------------------------------------------

    def _run(self) -> None:
        try:
            while (sealed := self._next()) is not None:
                if not self._publish(sealed):
                    break
            self._publisher.writer.close()
            if self.uploads is not None:
                self.uploads.finish(_UPLOADING_SECONDS)
        except Exception:  # or the daemon would wait for us until somebody kills it
            self._log.failure("The thread that publishes has ended early")
        if self._ended is not None:
            self._reactor.callFromThread(self._ended.callback, None)

    def _next(self) -> Segment | None:
        """The next segment to publish, watching the levels meanwhile; None at the end."""
        while True:
            self._check_levels()
            with self._condition:
                if not (self._work or self._stopping):
                    self._condition.wait(self._tick)
                if self._work:
                    return self._work.popleft()
                if self._stopping:
                    return None

    def _publish(self, sealed: Segment) -> bool:
        """Until it worked; false if the daemon is stopping and it did not."""
        pause, alone = _TICK_SECONDS, False
        while True:
            try:
                upcoming = () if alone else self._upcoming()
                done = self._publisher.publish(sealed, upcoming)
            except Exception as why:  # the segment is safe; publishing must go on
                self._failed(sealed, why)
                if isinstance(why, OSError) and why.errno in NO_ROOM:
                    # What waits for this file may have the last room.
                    self._publisher.give_room()
                    alone = True
                if self._stopping_after(pause):
                    return False
                if isinstance(why, Lost):  # to start a process costs half a second
                    pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                self._check_levels()
                continue
            self.publish_error = None
            with self._condition:
                self.backlog_bytes -= sealed.bytes
                self._to_write_bytes -= self._file_bytes(sealed)
            if done is not None and self.uploads is not None:
                self.uploads.add(done.path.name)
            self._made_lsn = sealed.last_lsn
            if done is not None:
                self._tell_published(done)
            self._reactor.callFromThread(self._tell, sealed)
            return True

    @property
    def publish_silence(self) -> str | None:
        """Who has got nowhere for long with the file in hand."""
        return self._publisher.writer.silence()

    @property
    def troubles(self) -> list[str]:
        """What fails now beside publishing, and why."""
        return [f"{what}: {why}" for what, why in self._told.snapshot().items()]

    def _upcoming(self) -> list[Segment]:
        """What is to be published after the segment in hand, as far as is known."""
        with self._condition:
            return list(islice(self._work, _UPCOMING))

    def _stopping_after(self, seconds: float) -> bool:
        """Wait, unless the daemon is stopping; whether it is."""
        until = self._clock() + seconds
        with self._condition:
            while not self._stopping and (left := until - self._clock()) > 0:
                self._condition.wait(left)
            return self._stopping

    def _tell_published(self, done: Published) -> None:
        try:
            self._on_published(done)
        except Exception:
            self._log.failure("{file} was published", file=done.path.name)

    def _failed(self, sealed: Segment, why: Exception) -> None:
        text = f"{type(why).__name__}: {why}"
        if self.publish_error is None:
            self._log.error(
                "{segment} can not be published yet: {why}",
                segment=sealed.path.name,
                why=text,
            )
        self.publish_error = text

    def _check_levels(self) -> None:
        if self._settings.after == "keep" and self.uploads is None:
            self._try("files can not be moved to the archive", self._archive_all)
        self._try("spool and archive can not be looked after", self._look)
        self._try("the mark in state/ can not be written", self._on_look)

    def _why_waiting(self) -> str:
        """What the files in the spool wait for."""
        if self.uploads is None:
            return "the Spark job is behind"
        url, why = self.uploads.bucket.url, self.uploads.why
        return f"{url} takes no files: {why}" if why else f"uploads to {url} are behind"

    def _try(self, what: str, do: Callable[[], None]) -> None:
        """Whatever fails, publishing must go on; it is told once until it works."""
        try:
            do()
        except Exception as why:
            text = f"{type(why).__name__}: {why}"
            if what not in self._told:
                self._log.error("{what}: {why}", what=what, why=text)
            self._told[what] = text
        else:
            self._told.pop(what, None)

    def _look(self) -> None:
        self._watch()
        removed = self._expiry.run(self.levels.archive.bytes)
        self.levels.left_archive(removed)

    def _archive_all(self) -> None:
        disk = self._disk
        moved = False
        for name in disk.names(self._directory):
            parsed = parse_file_name(name)
            if parsed is None or not self._ours(parsed[0]):
                continue
            with contextlib.suppress(FileNotFoundError):  # somebody else removed it
                disk.rename(self._directory / name, self._archive / name)
                moved = True
        if moved:
            disk.sync_directory(self._archive)
            disk.sync_directory(self._directory)

    def _watch(self) -> None:
        levels = self.levels
        begun = self._clock()
        levels.measure()
        took = self._clock() - begun
        self._tick = min(_TICK_SECONDS, max(_HELD_TICK_SECONDS, _LOOKING_SHARE * took))
        if levels.why_full(self.backlog_bytes) is None:
            self._tick = _TICK_SECONDS
        if not self._enough_room():
            self._publisher.spares.give_room()
        if not self._enough_room():
            self._make_room()
        no_room = levels.why_no_room(self.reserved_bytes)
        self._reactor.callFromThread(
            self._watched, no_room, self._why_refused(), levels.spool.files
        )

    def _enough_room(self) -> bool:
        return self._why_refused() is None

    def _why_refused(self) -> str | None:
        """Why the journal has no room for a group that waits, if one does."""
        return self.levels.why_no_room(self.reserved_bytes + self._wanted())

    def _make_room(self) -> None:
        if self._settings.after == "keep" and self.uploads is None:
            return  # no table has what is in there
        removed = self._expiry.make_room(self._enough_room)
        if removed:
            self.levels.left_archive(sum(removed))
            self._log.warn(
                "The disk is short: {count} files left the archive before "
                "spool.retention; they are in {where}",
                count=len(removed),
                where="the tables" if self.uploads is None else "the bucket",
            )

    # -- called from the thread, in the reactor's -------------------------------

    def _tell(self, sealed: Segment) -> None:
        if self._journal is not None:
            self._journal.published(self._done_lsn(sealed))
        self._on_done(sealed)

    def _done_lsn(self, sealed: Segment) -> int:
        return (
            sealed.last_lsn
            if self.uploads is None
            else self.uploads.safe_lsn(sealed.last_lsn)
        )

    def _tell_uploaded(self) -> None:
        if self._journal is not None:
            self._journal.published(self.published_lsn)
        self._on_uploaded()

    def _watched(self, no_room: str | None, refused: str | None, files: int) -> None:
        """*refused*: see `_why_refused`."""
        if self._journal is not None:
            if "commit" in self._journal.reasons:
                no_room = refused
            self._journal.roll_factor = max(1.0, files / _FILES_PER_ROLL)
            self._journal.pace = self._paced(self._journal.open_bytes)
            self._journal.hold("disk", no_room)
        self._hold_if_full()

    def _paced(self, open_bytes: int) -> float:
        with self._condition:
            taken, waiting = self._sealed_bytes, self.backlog_bytes
        held = self.levels.spool.bytes + waiting + open_bytes
        return self._pace.look(self._clock(), taken + open_bytes, held)

    def _hold_if_full(self) -> None:
        if self._journal is not None:
            full = self.levels.why_full(self.backlog_bytes)
            self._journal.hold("spool", full)
            if self.uploads is not None:
                conflicts = self.uploads.conflicts.snapshot().values()
                self._journal.hold("bucket", next(iter(conflicts), None))
