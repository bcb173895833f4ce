"""The daemon's durable storage: journal, spool and checkpoint of one node, joined.

    open      lock the data directory; recover what the last run left (`opening`)
    recover   checkpoint and journal → what the protocols remember
    start     the threads of journal and spool
    stop      the journal commits and seals → the spool publishes → a last checkpoint

The one place that knows how these three hand segments to each other: the journal seals
one, the spool publishes it, the checkpoint removes it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from gateway import config
from gateway.config import model
from gateway.event import Decode, Stored
from gateway.sdk.interfaces import Memory, Retaining
from gateway.store.bucket import Bucket
from gateway.store.checkpoint import Checkpoint
from gateway.store.claim import REQUEST_SECONDS, Claim, claimed
from gateway.store.digests import Link
from gateway.store.directories import Directories
from gateway.store.disk import Disk
from gateway.store.incarnation import Incarnation
from gateway.store.journal import Commit, Journal, Loss, Segment
from gateway.store.lake import End
from gateway.store.lineage import files_behind
from gateway.store.lock import Locked, is_locked, lock, lock_directory
from gateway.store.names import parse_file_name
from gateway.store.opening import open_node
from gateway.store.orphans import Orphan, publish_orphans
from gateway.store.s3 import bucket_of
from gateway.store.spool import Published, Spool
from gateway.store.spool.expired import ExpiredRecord
from gateway.store.spool.kept import NAME as KEPT
from gateway.store.spool.kept import kept_until
from gateway.store.spool.processes import Processes, usual_number
from gateway.store.spool.retained import Retained
from gateway.store.spool.uploads import Uploaded, Uploads
from gateway.store.table_words import TablePlace, table_of
from gateway.store.threads import RealThreads, Threads

__all__ = ["Settings", "Storage", "StorageCallbacks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the storage needs of the configuration."""

    node: str
    directories: Directories
    journal: model.Journal = field(default_factory=model.Journal)
    spool: model.Spool = field(default_factory=model.Spool)
    acknowledge_when_published: bool = False
    table: TablePlace | None = None
    """Of the Spark job, if it can be seen."""
    checkpoint_bytes: int = 128 * 2**20
    """Published segments of so many bytes are removed before the minute is over."""

    @classmethod
    def of(cls, settings: config.Config) -> Settings:
        """As configured."""
        return cls(
            node=settings.node,
            directories=Directories.of(settings),
            journal=settings.journal,
            spool=settings.spool,
            acknowledge_when_published=settings.ack == "spool",
            table=table_of(settings),
        )


@contextlib.contextmanager
def _alone_with(path: Path) -> Iterator[bool]:
    """Lock a directory for a while, unless somebody else has it."""
    try:
        held = lock_directory(path)
    except Locked:
        yield False
        return
    try:
        yield True
    finally:
        held.release()


def _processes(
    settings: config.Config,
    disk: Disk,
    protocols: Iterable[str],
    tell: Callable[[str], None],
) -> Processes | None:
    """Those that write the spool's files; None: this one does."""
    configured = settings.spool.publishers
    number = usual_number() if configured is None else configured
    options = {
        name: [one.options for one in settings.listeners if one.protocol == name]
        for name in protocols
    }
    if not number:
        return None
    try:
        return Processes(number, options, disk)
    except Exception as why:  # whatever a plug-in's options raise when they are pickled
        tell(
            "The daemon itself writes spool files (spool.publishers: 0): the options of a "
            f"protocol can not be given to a process: {type(why).__name__}: {why}"
        )
        return None


def _ignore(_: object) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCallbacks:
    """Whom the storage tells of what happens."""

    damaged: Callable[[Sequence[Loss], Sequence[str]], None] = lambda *_: None
    """While it is opened: what is lost and what was repaired, before files are changed."""
    noticed: Callable[[str], None] = _ignore
    """What an operator should know of the directory's past; likewise."""
    durable: Callable[[list[Stored]], None] = _ignore
    """In the reactor's thread, once a group."""
    committed: Callable[[Commit], None] = _ignore
    """In the journal's thread."""
    failed: Callable[[str], None] = _ignore
    """The journal's disk failed in this, `write` or `sync`; in the reactor's thread."""
    published: Callable[[Published], None] = _ignore
    """In the spool's thread."""
    uploaded: Callable[[Uploaded], None] = _ignore
    """A file is in the bucket; in a thread of its own."""
    expired: Callable[[], None] = lambda: None
    """The archive has dropped files; in the spool's thread."""
    fatal: Callable[[str], None]
    """The journal is lost: the daemon must end."""


class Storage:
    """Journal, spool and checkpoint of one node.

    Making one opens it; then `recover`, `start` and `stop`, once each.
    """

    def __init__(
        self,
        settings: Settings,
        disk: Disk,
        reactor: Any,
        decoders: Mapping[str, Decode],
        callbacks: StorageCallbacks,
        *,
        remembering: bool,
        writer: Processes | None = None,
        bucket: Bucket | None = None,
        claim: Claim | None = None,
        in_thread: Callable[..., Deferred[Any]] = deferToThread,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        threads: Threads | None = None,
        is_live: Callable[[Path], bool] = lambda _: False,
    ) -> None:
        """*remembering* is whether a protocol that is served has a memory.  *writer* writes
        the spool's files; None: the spool's own thread.  They go on to *bucket*, if there
        is one, where *claim* is to the node's name.  *clock* is the wall clock; *threads* None: the operating system's.
        *is_live* says of a journal's directory whether a daemon has it.

        The directories are not locked: see `open`.  Raises `segment.OtherFormat`, OSError.
        """
        self.directories = settings.directories
        self._settings = settings
        self._disk = disk
        self._reactor = reactor
        self._in_thread = in_thread
        self._bucket, self._claim = bucket, claim
        self._unseen = False
        """Whether the bucket may have files of this node that this start has not seen."""
        self._is_live = is_live
        self._opened = opened = open_node(
            settings.node,
            settings.directories,
            disk,
            decoders,
            remembering=remembering,
            compression=settings.spool.compression,
            reserve=lambda: self.spool.reserved_bytes,
            clock=clock,
            monotonic=monotonic,
            threads=threads,
            tell=callbacks.damaged,
            tell_notice=callbacks.noticed,
            bucket=bucket,
            unclaimed=None if claim is None or claim.held else claim.why,
            said=None if claim is None else claim.found,
            table=settings.table,
            fenced=claim.fence if claim is not None and claim.taken_over else None,
        )
        threads = threads or RealThreads()
        uploads = None
        if bucket is not None:
            uploads = Uploads(
                bucket,
                settings.node,
                self.directories.spool,
                self.directories.archive,
                disk,
                settings.spool.s3.uploads,
                callbacks.uploaded,
                self._is_nobodys,
                self._elsewhere,
                clock=monotonic,
                threads=threads,
                name=claim,
                in_order=settings.acknowledge_when_published,
            )
            uploads.find()
            self._unseen = True
            if claim is not None and not claim.held:
                uploads.pause(
                    f"Whether another gateway has node {settings.node} of {bucket.url} is "
                    f"not known: {claim.why}"
                )
            elif claim is not None and opened.unlisted is not None:
                uploads.pause(opened.unlisted)
            else:
                self._unseen = False
        self.foreign: Sequence[Path] = opened.foreign
        """Files that are not ours; they are left alone."""
        self._writer = writer
        self.orphans: Sequence[Orphan] = ()
        """Nodes that have a journal here, and no daemon."""
        waits = settings.acknowledge_when_published
        self._left = {one.path for one in opened.unpublished} if waits else set()
        """What the last run left, as long as it is in no file and senders wait for that."""
        self._untold_bytes = 0
        """Of segments with a file, whose batches not all are acknowledged."""
        self.ready: Deferred[None] = Deferred()
        """Fires when senders may be served: when `start` is called, or, with `ack: spool`,
        when what the last run left is published.  Who resumes is told of it, and that is
        an acknowledgement."""
        self.retained = Retained(
            settings.node,
            self.directories.retained_of(settings.node),
            self.directories.archive,
            disk,
            settings.spool.compression,
            monotonic,
        )
        """What readers of streams need of files that have left the archive."""
        self.remembered = opened.remembered
        """Protocols whose state is kept, whether they are served or not."""
        self._kept_until = self._find_kept(
            opened.published_lsn, bucket, callbacks.noticed
        )
        self.spool = Spool(
            self.directories.spool,
            self.directories.archive,
            opened.publisher,
            settings.spool,
            disk,
            reactor,
            published_lsn=opened.published_lsn,
            on_published=callbacks.published,
            on_done=self._done,
            on_expired=callbacks.expired,
            also_reserved=lambda: self.checkpoint.reserved_bytes,
            wanted=lambda: opened.log.wanted_bytes,
            on_look=self._mark,
            before_expiry=ExpiredRecord(settings.directories.state, disk).note,
            retained=self.retained,
            ours=self._is_ours,
            only_copy=self._is_only_copy,
            clock=monotonic,
            wall_clock=clock,
            threads=threads,
            uploads=uploads,
            on_uploaded=self._check_ready,
        )
        self.journal = Journal(
            opened.log,
            settings.journal,
            settings.spool,
            reactor,
            acknowledge_when_published=settings.acknowledge_when_published,
            on_sealed=self.spool.publish,
            on_fatal=callbacks.fatal,
            on_durable=callbacks.durable,
            on_commit=callbacks.committed,
            on_failure=callbacks.failed,
            clock=monotonic,
            wall_clock=clock,
            threads=threads,
        )
        opened.publisher.copies = self.journal.copies
        if claim is not None:
            claim.known_as(
                opened.incarnation,
                opened.first_lsn - 1,
                here=opened.here_lsn,
                ack="spool" if settings.acknowledge_when_published else "journal",
                acknowledged=self._acknowledged,
            )

    @classmethod
    def open(
        cls,
        settings: config.Config,
        disk: Disk,
        reactor: Any,
        decoders: Mapping[str, Decode],
        callbacks: StorageCallbacks,
        *,
        remembering: bool,
    ) -> Storage:
        """As configured, with its data directory locked until the process ends.

        Raises `lock.Locked`, `segment.OtherFormat`, OSError.
        """
        root = settings.data_dir
        disk.make_directory(root)
        lock(root / "lock", f"gateway {settings.node}")
        directories = Directories.of(settings)
        # The journal may lie elsewhere, beside those of other gateways.
        disk.make_directory(directories.journal_of(settings.node))
        journal = directories.journal_of(settings.node)
        lock_directory(journal)
        claim, bucket = None, bucket_of(settings.spool)
        if (asked := bucket_of(settings.spool, REQUEST_SECONDS)) is not None:
            claim = claimed(asked, settings.node, journal, disk, callbacks.noticed)
            claim.begin()  # who asks is answered while this opens, which may take long
        storage = cls(
            Settings.of(settings),
            disk,
            reactor,
            decoders,
            callbacks,
            remembering=remembering,
            writer=_processes(settings, disk, decoders, callbacks.noticed),
            bucket=bucket,
            claim=claim,
            is_live=is_locked,
        )
        storage.orphans = publish_orphans(
            settings.node,
            directories,
            disk,
            decoders,
            compression=settings.spool.compression,
            alone_with=_alone_with,
            tell=callbacks.damaged,
        )
        return storage

    def _acknowledged(self) -> int:
        """The last lsn that senders may have been told of.  Any thread."""
        waits = self._settings.acknowledge_when_published
        return self.spool.published_lsn if waits else self.journal.durable_lsn

    def _is_ours(self, node: str) -> bool:
        """Whether this daemon removes that node's files: spool and archive may be shared
        with others, and each knows only what its own readers need.  In the spool's thread.

        A node that ran here once has left its journal; one that runs has locked it.
        """
        if node == self._settings.node:
            return True
        journal = self.directories.journal_of(node)
        try:
            return self._disk.exists(journal) and not self._is_live(journal)
        except OSError:
            return False

    def _find_kept(
        self, published: int, bucket: Bucket | None, tell: Callable[[str], None]
    ) -> int:
        """Up to which lsn the archive has the only copy of our files."""
        state = self.directories.state_of(self._settings.node)
        keeps = self._settings.spool.after == "keep" and bucket is None
        try:
            return kept_until(state, self._disk, published, keeps=keeps)
        except OSError as why:  # no room: that must not stop a start
            tell(
                f"{state / KEPT} can not be written, the next start tries again: {why}"
            )
            return published

    def _is_only_copy(self, name: str) -> bool:
        parsed = parse_file_name(name)
        return (
            parsed is not None
            and parsed[0] == self._settings.node
            and parsed[1] <= self._kept_until
        )

    def _is_nobodys(self, node: str) -> bool:
        """Whether that node's files in the spool are ours to upload: nobody else will."""
        journal = self.directories.journal_of(node)
        return node == self._settings.node or not (
            self._disk.exists(journal) and self._is_live(journal)
        )

    def _elsewhere(self, node: str) -> str | None:
        """Why another node's files must not be uploaded from here: its name is served."""
        if self._claim is None:
            return None
        journal = self.directories.journal_of(node)
        return Claim.by(self._claim.bucket, node, journal, self._disk).served()

    def _claimed(self) -> None:
        """The name is ours, and nothing of this life is in the bucket if that was not known.

        In the claim's thread.  Raises `BucketError`.
        """
        uploads = self.spool.uploads
        assert uploads is not None
        if not self._unseen:
            return
        node, known = self._settings.node, self._opened.known_lsn
        assert self._bucket is not None
        if others := files_behind(self._bucket, node, known):
            uploads.forbid(
                f"{self._bucket.url} has {others[-1]}, which another gateway of node {node} "
                f"has put there: this one knew of no file behind lsn {known}, and gives the "
                "same lsns.  Start it again while the bucket answers: it goes on behind that"
            )
        else:
            self._unseen = False
            uploads.resume()

    def _mark(self, *, now: bool = False) -> None:
        """In the spool's thread, about once a second."""
        opened = self._opened
        synced = self.journal.synced  # first: its events are up to the lsn then
        opened.marker.write(opened.mark(self.journal.durable_lsn, synced), now=now)

    def _done(self, sealed: Segment) -> None:
        if self.checkpoint.names:
            self._untold_bytes += sealed.bytes
            self.journal.when_told(sealed.last_lsn, partial(self._told, sealed))
        self._left.discard(sealed.path)
        self._check_ready()

    def _told(self, sealed: Segment) -> None:
        self._untold_bytes -= sealed.bytes
        self.checkpoint.published(sealed)

    def _check_ready(self) -> None:
        if self._left_here():
            return
        if not (self._left or self.ready.called):
            self.ready.callback(None)

    def _left_here(self) -> bool:
        """Whether senders wait for files that the last run left to be in the bucket."""
        uploads = self.spool.uploads
        if uploads is None or not self._settings.acknowledge_when_published:
            return False
        left = self._opened.first_lsn - 1
        return uploads.safe_lsn(left) < left

    def recover(self, memories: Mapping[str, Memory]) -> None:
        """Give *memories*, by protocol, back what they knew.

        Raises `checkpoint.Unreadable`, OSError.
        """
        settings = self._settings
        self.checkpoint = Checkpoint(
            self.directories.state_of(settings.node),
            memories,
            self._disk,
            self._reactor,
            self._in_thread,
            self._opened.publisher.remove,
            most_bytes=settings.checkpoint_bytes,
        )
        self.checkpoint.recover(self._opened.segments, self._opened.unpublished)
        self.retained.needed = {
            name: memory.needed
            for name, memory in memories.items()
            if isinstance(memory, Retaining)
        }
        self.retained.recover()

    @property
    def link(self) -> Link:
        """Of the newest published file; any thread may ask."""
        return self._opened.publisher.link

    @property
    def incarnation(self) -> Incarnation:
        """Who gives lsns, and who did before."""
        return self._opened.incarnation

    @property
    def ended(self) -> Mapping[str, End]:
        """Of others that had the node's name in its bucket, how those ended of which
        nobody knows what they acknowledged last; any thread may ask.
        """
        return {} if self._claim is None else self._claim.unvouched

    @property
    def journal_bytes(self) -> int:
        """Of all segments that are there."""
        waiting = self.spool.backlog_bytes + self._untold_bytes
        return self.journal.open_bytes + waiting + self.checkpoint.kept_bytes

    def configure(self, settings: config.Config) -> None:
        """Go on with what of these can change while the daemon runs."""
        self.journal.configure(settings.journal, settings.spool)
        self.spool.configure(settings.spool)

    def start(self) -> None:
        """Take batches, publish what the last run left."""
        if self._writer is not None:
            with contextlib.suppress(OSError):  # it is said when one is needed
                self._writer.start()
            self._opened.publisher.writer = self._writer
        if self.spool.uploads is not None:
            self.spool.uploads.find()  # what a renamed node left, too
            if self._claim is not None:
                self._claim.watch(self.spool.uploads.forbid, self._claimed)
        self.journal.start()
        self.spool.start(self.journal, self._opened.unpublished)
        self.checkpoint.start()
        self._check_ready()

    async def stop(self) -> None:
        """Everything acknowledged is published, and remembered."""
        self.checkpoint.stop_memories()
        await self.journal.stop()
        await self.spool.stop()
        await self.checkpoint.stop()
        with contextlib.suppress(OSError):
            self._mark(now=True)
        await self._in_thread(self._opened.publisher.spares.give_room)
        uploads = self.spool.uploads
        if self._claim is None or uploads is None:
            return
        # As long as something waits the name stays ours; the next start here has it at once,
        # and one elsewhere, which would give the same lsns, does not have it unasked.
        waits = self.spool.published_lsn < self.journal.durable_lsn
        keeps = waits or uploads.why is not None
        await self._in_thread(self._claim.keep if keeps else self._claim.release)
