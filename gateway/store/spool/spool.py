"""The spool's thread: publishes sealed segments in order of lsn, and watches the disk.

What fails for want of room or because of the disk is tried again until it works: the
segment is still there, so nothing is lost by waiting.  Between two segments, and every
second while there is none, the thread looks how full spool and disk are (`levels`).  It may
hold the journal then, and removes what has expired (`expiry`).  Where no job takes files
(`spool.after: keep`) it moves them to the archive itself; where they go to a bucket,
`uploads` does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger

from gateway.config import model
from gateway.spoken import size as in_words
from gateway.store.hub.archiving import to_archive
from gateway.store.journal.log import Segment
from gateway.store.names import SpoolFile, parse_file_name
from gateway.store.node.owners import Owners
from gateway.store.node.removal_clock import RemovalClock
from gateway.store.readers.consumers import Consumers
from gateway.store.readers.job_word import JobBacklog
from gateway.store.spool.backlog import Backlog
from gateway.store.spool.expiry import Expiry
from gateway.store.spool.levels import Levels
from gateway.store.spool.pace import Pace
from gateway.store.spool.processes import Lost
from gateway.store.spool.publisher import Published, Publisher
from gateway.store.spool.retained import Retained
from gateway.store.spool.uploads import Uploads
from gateway.store.system.disk import NO_ROOM
from gateway.store.system.machine import Machine
from gateway.store.system.room import Room
from gateway.store.system.shared import SharedDict

_TICK_SECONDS = 1.0
_HELD_TICK_SECONDS = 0.05
"""While the spool is full; but looking takes one part in `_LOOKING_SHARE` of our time."""
_LOOKING_SHARE = 20
_FILES_PER_ROLL = 8
_MOST_ROLLS = 60
"""The most that a file waits for a job in a bucket that is behind, in usual intervals.

A file that is not there is lost with its disk."""
_LONGEST_PAUSE_SECONDS = 60.0
_UPLOADING_SECONDS = 10.0
"""Seconds for uploads at the stop; what is left then waits for the next start."""


class Journal(Protocol):
    """The part of the journal that the spool needs; called in the reactor's thread."""

    roll_factor: float
    pace: float

    @property
    def open_bytes(self) -> int:
        """Bytes that are not sealed yet."""

    @property
    def reasons(self) -> dict[str, str]:
        """The reasons that hold it, by what holds it."""

    def hold(self, who: str, why: str | None) -> None:
        """Take no more batches while *why* is not None."""

    def published(self, last_lsn: int) -> None:
        """Events up to there are in the spool."""


class Observer(Protocol):
    """The callbacks of the spool."""

    def published(self, file: Published) -> None:
        """There is a file.  In the spool's thread."""

    def done(self, sealed: Segment) -> None:
        """A segment is published, or has nothing to publish, and the journal was told of
        that.  In the reactor's thread.
        """

    def uploaded(self) -> None:
        """More files are in the bucket, and the journal was told.  In the reactor's thread."""

    def looked(self) -> None:
        """The spool has looked at spool and archive, as every second.

        In the spool's thread; what it raises is told, and it is called again.
        """

    def expiring(self, names: Iterable[str]) -> None:
        """Files of these names are about to leave the archive.  In the spool's thread;
        unless it raises OSError.
        """

    def expired(self) -> None:
        """Files have left the archive.  In the spool's thread."""


class Taker(Protocol):
    """The taker of files, if it is no Spark job; any thread may ask."""

    made_lsn: int
    """There are files up to this lsn, or holes: set by the spool."""

    @property
    def files(self) -> int:
        """Files that wait there for the reader."""

    @property
    def why_waiting(self) -> str:
        """The words for what files in the spool wait for."""


@define(eq=False, slots=False)
class Spool:
    """The thread, and its interface in the reactor.

    *archive* may be shared with other nodes: *owners* knows whose files are ours to move
    and to remove.  *retained* keeps what readers need of those that go.  *room* is what
    the disk must have left, and *uploads* puts the files into a bucket: published is what
    is there.

    31 attributes and 35 methods: what holds senders back depends on all that the thread
    does.
    """

    _log = Logger()

    _directory: Path
    _archive: Path
    _publisher: Publisher
    _backlog: Backlog
    _journal: Journal
    _observer: Observer
    _owners: Owners
    room: Room
    _settings: model.Spool
    _machine: Machine
    _reactor: IReactorFromThreads
    _made_lsn: int = field(alias="published_lsn")
    """There are files up to this lsn."""
    consumers: Consumers
    """The consumers of the archive, or of the bucket."""
    _retained: Retained | None = None
    uploads: Uploads | None = None
    _removal_clock: RemovalClock | None = None
    """The clock by which archived files are old; None: the machine's."""

    job: JobBacklog | None = field(default=None, init=False)
    """The job's backlog in the bucket, if that matters."""
    _taker: Taker | None = field(default=None, init=False)
    """The hub, where files are forwarded to one."""

    def __attrs_post_init__(self) -> None:
        machine, settings = self._machine, self._settings
        self._disk, self._clock = machine.disk, machine.monotonic
        self.levels = Levels(
            self._directory,
            self._archive,
            self._disk,
            settings.max_bytes,
            self._clock,
            self._why_waiting,
        )
        """How full the spool and the archive are."""
        self._expiry = Expiry(
            self._archive,
            self._disk,
            settings.retention,
            settings.archive_bytes,
            self._observer.expired,
            self._clock,
            self._removal_clock or machine.clock,
            self._observer.expiring,
            self._retained,
            self._owners.is_ours,
            self._is_only_copy,
            self.consumers if self.uploads is None else None,
        )
        self._pace = Pace(settings.max_bytes)
        self.arrived_bytes: Callable[[], int] = lambda: 0
        """Bytes of files that others have brought here since the start; any thread may ask."""
        self.look_at_arrivals: Callable[[], None] = lambda: None
        """Look at brought files that have not their names yet.  In the spool's thread."""
        self._arriving_bytes = 0
        """Bytes that others would bring now, without room for them at the last look."""
        self._ended: Deferred[None] = Deferred()
        self._thread = machine.threads.thread("spool", self._run)
        self._tick = _TICK_SECONDS
        self.publish_error: str | None = None
        """Why the file in hand can not be written now."""
        self._told: SharedDict[str, str] = SharedDict()
        """Failures beside publishing that were told, and why."""
        self._backlog.watch(lambda: self._reactor.callFromThread(self._hold_if_full))

    # -- the reactor's side ---------------------------------------------------

    def start(self, left: Sequence[Segment]) -> None:
        """Start publishing, *left* by the last run first."""
        for sealed in left:
            self._backlog.add(sealed)
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
        self.consumers.names = settings.consumers
        self._expiry.configure(settings.retention, settings.archive_bytes)
        self._hold_if_full()

    def forwarded_to(self, taker: Taker) -> None:
        """A hub takes the files, once `start` is called."""
        self._taker = taker

    def is_ours(self, node: str) -> bool:
        """Whether files of that node are ours to move.  Any thread."""
        return self._owners.is_ours(node)

    @property
    def clock_ahead_seconds(self) -> float:
        """How far the clock has leapt, while nothing is removed by that."""
        clock = self._removal_clock
        return 0.0 if clock is None else clock.ahead_seconds

    @property
    def published_lsn(self) -> int:
        """Everything up to this lsn has been given to Spark."""
        made = self._made_lsn
        return made if self.uploads is None else self.uploads.safe_lsn(made)

    @property
    def backlog_bytes(self) -> int:
        """Bytes of sealed segments that are not published yet."""
        return self._backlog.bytes

    @property
    def waiting_files(self) -> int:
        """Files that wait for the spool's reader, of all nodes."""
        there = 0 if self.job is None else self.job.all_files
        return self.levels.spool.files + there

    def why_not(self, size: int) -> str | None:
        """The reason why there is no room for a file of so many bytes, as of the last look.

        The file comes from elsewhere; at the next look the archive makes room for it.
        """
        levels = self.levels
        if (full := levels.why_full(self.backlog_bytes)) is not None:
            return full
        if size > levels.max_bytes:
            return (
                f"a file has {in_words(size)}, and the spool no more than "
                f"{in_words(levels.max_bytes)} (spool.max_bytes)"
            )
        free, needed = levels.free_bytes, self.room.reserved_bytes + size
        if free is None or free >= needed:
            return None
        self._arriving_bytes = max(self._arriving_bytes, size)
        return (
            f"the disk of {self._directory} is full: {in_words(free)} free, "
            f"{in_words(needed)} needed with what is already acknowledged"
        )

    def stop(self) -> Deferred[None]:
        """Publish what is queued, once; what fails then waits for the next start."""
        self._publisher.writer.hurry()
        self._backlog.stop()
        return self._ended

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
        self._reactor.callFromThread(self._ended.callback, None)

    def _next(self) -> Segment | None:
        """The next segment to publish, watching the levels meanwhile; None at the end."""
        return self._backlog.next(self._check_levels, lambda: self._tick)

    def _publish(self, sealed: Segment) -> bool:
        """Publish until it works; false if the daemon is stopping and it did not."""
        pause, alone = _TICK_SECONDS, False
        while True:
            try:
                upcoming = () if alone else self._backlog.upcoming()
                done = self._publisher.publish(sealed, upcoming)
            except Exception as why:  # the segment is safe; publishing must go on
                self._failed(sealed, why)
                if isinstance(why, OSError) and why.errno in NO_ROOM:
                    # What waits for this file may have the last room.
                    self._publisher.give_room()
                    alone = True
                if self._backlog.stopping_after(pause, self._clock):
                    return False
                if isinstance(why, Lost):  # to start a process costs half a second
                    pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                self._check_levels()
                continue
            self.publish_error = None
            self._backlog.published(sealed)
            if self.uploads is not None:
                for file in done:
                    self.uploads.add(file.path.name)
            self._made_lsn = sealed.last_lsn
            for file in done:
                self._tell_published(file)
            self._reactor.callFromThread(self._tell, sealed)
            return True

    @property
    def publish_silence(self) -> str | None:
        """The process that has got nowhere for long with the file in hand."""
        return self._publisher.writer.silence()

    @property
    def troubles(self) -> list[str]:
        """Failures beside publishing, and why."""
        return [f"{what}: {why}" for what, why in self._told.snapshot().items()]

    def _tell_published(self, done: Published) -> None:
        try:
            self._observer.published(done)
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
        if self._is_alone:
            self._try("files can not be moved to the archive", self._archive_all)
        what = "files of others can not be given their names"
        self._try(what, self.look_at_arrivals)
        self._try("spool and archive can not be looked after", self._look)
        self._try("the mark in state/ can not be written", self._observer.looked)

    def _why_waiting(self) -> str:
        """The words for what the files in the spool wait for."""
        if self._taker is not None:
            return self._taker.why_waiting
        if self.uploads is None:
            return "the Spark job is behind"
        url, why = self.uploads.end.url, self.uploads.why
        return f"{url} takes no files: {why}" if why else f"uploads to {url} are behind"

    def _try(self, what: str, do: Callable[[], None]) -> None:
        """Call *do*; a failure is told once until it works, as publishing must go on."""
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
            if parsed is None or not self._owners.is_ours(parsed.node):
                continue
            with contextlib.suppress(FileNotFoundError):  # somebody else removed it
                to_archive(self._directory / name, self._archive, disk)
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
        self._arriving_bytes = 0
        no_room = levels.why_no_room(self.room.reserved_bytes)
        self._reactor.callFromThread(
            self._watched, no_room, self._why_refused(), levels.spool.files
        )

    def _enough_room(self) -> bool:
        wanted = max(self.room.wanted_bytes, self._arriving_bytes)
        return self.levels.why_no_room(self.room.reserved_bytes + wanted) is None

    def _why_refused(self) -> str | None:
        """Why the journal has no room for a group that waits, if one does."""
        return self.levels.why_no_room(
            self.room.reserved_bytes + self.room.wanted_bytes
        )

    @property
    def _is_alone(self) -> bool:
        """Whether there is neither a job nor a bucket: the archive has the only copy."""
        return self._settings.after == "keep" and self.uploads is None

    def _is_only_copy(self, file: SpoolFile) -> bool:
        """Whether there is no other copy of what is in that file of the archive."""
        if self._is_alone and self.consumers.names:
            return not self.consumers.all_have(file)
        return self._owners.is_only_copy(file)

    def _make_room(self) -> None:
        if self._is_alone and not self._settings.consumers:
            return  # no table has what is in there
        removed = self._expiry.make_room(self._enough_room)
        if removed:
            self.levels.left_archive(sum(removed))
            self._log.warn(
                "The disk is short: {count} files left the archive before "
                "spool.retention; they are in {where}",
                count=len(removed),
                where=self._where_else,
            )

    @property
    def _where_else(self) -> str:
        """Where what leaves the archive is."""
        if self.uploads is not None:
            return "the bucket"
        if self._taker is not None:
            return "at the hub"
        return "what their consumers made of them" if self._is_alone else "the tables"

    # -- called from the thread, in the reactor's -------------------------------

    def _tell(self, sealed: Segment) -> None:
        made, uploads = sealed.last_lsn, self.uploads
        done = made if uploads is None else uploads.safe_lsn(made)
        if self._taker is not None:
            self._taker.made_lsn = made
        self._journal.published(done)
        self._observer.done(sealed)

    def _tell_uploaded(self) -> None:
        self._journal.published(self.published_lsn)
        self._observer.uploaded()

    def _watched(self, no_room: str | None, refused: str | None, files: int) -> None:
        """*refused*: see `_why_refused`."""
        journal = self._journal
        if "commit" in journal.reasons:
            no_room = refused
        if (behind := self.job or self._taker) is not None:
            files += min(behind.files, _FILES_PER_ROLL * _MOST_ROLLS)
        journal.roll_factor = max(1.0, files / _FILES_PER_ROLL)
        journal.pace = self._paced(journal.open_bytes)
        journal.hold("disk", no_room)
        self._hold_if_full()

    def _paced(self, open_bytes: int) -> float:
        taken, waiting = self._backlog.taken
        taken += self.arrived_bytes()  # or what they take up would seem not to leave
        held = self.levels.spool.bytes + waiting + open_bytes
        return self._pace.look(self._clock(), taken + open_bytes, held)

    def _hold_if_full(self) -> None:
        self._journal.hold("spool", self.levels.why_full(self.backlog_bytes))
        if self.uploads is not None:
            conflicts = self.uploads.conflicts.snapshot().values()
            self._journal.hold("bucket", next(iter(conflicts), None))
