"""The daemon's durable storage: journal, spool and checkpoint of one node, joined.

    OpenedStorage.locked    lock the data directory; recover what the last run left
                            (`opening`); a journal that protocols can be lent
    OpenedStorage.recover   checkpoint and journal → what the protocols remember
    Storage.start           the threads of journal and spool
    Storage.stop            the journal commits and seals → the spool publishes → a last
                            checkpoint

The one place that knows how these three hand segments to each other: the journal seals
one, the spool publishes it, the checkpoint removes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from gateway import config
from gateway.config import model
from gateway.event import Decode, Stored
from gateway.sdk.disk import Disk
from gateway.sdk.interfaces import Memory, Retaining
from gateway.store.checkpoint import Checkpoint
from gateway.store.digests import Link
from gateway.store.directories import Directories
from gateway.store.hub.arrivals import Arrivals
from gateway.store.journal import Journal, Loss, Segment
from gateway.store.lsns import Lsns
from gateway.store.names import SpoolFile
from gateway.store.node.expired import ExpiredRecord
from gateway.store.node.orphans import Orphan, publish_orphans
from gateway.store.node.owners import Owners, kept_until
from gateway.store.node.removal_clock import RemovalClock, Seen
from gateway.store.objects.bucket import Bucket, BucketError
from gateway.store.objects.bucket_looks import BucketLooks
from gateway.store.objects.node_record import EVERY_SECONDS as EVERY_RECORD_SECONDS
from gateway.store.objects.node_record import MOST_EARLIER, Relay, Speaker
from gateway.store.objects.s3 import bucket_of
from gateway.store.opening import Opened, Start, open_node
from gateway.store.readers.consumers import Consumers, marks_at
from gateway.store.readers.job_word import EVERY_SECONDS, JobBacklog
from gateway.store.spool import Published, Spool
from gateway.store.spool.backlog import Backlog
from gateway.store.spool.consumed import LOOK_SECONDS, BucketExpiry
from gateway.store.spool.processes import Processes, usual_number
from gateway.store.spool.retained import Retained
from gateway.store.spool.uploads import BucketEnd, Uploaded, Uploads
from gateway.store.system.lock import alone_with, is_locked, lock, lock_directory
from gateway.store.system.machine import Machine
from gateway.store.system.room import SPARE_BYTES, Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The part of the configuration that the storage needs."""

    node: str
    directories: Directories
    journal: model.Journal = field(default_factory=model.Journal)
    spool: model.Spool = field(default_factory=model.Spool)
    acknowledge_when_published: bool = False
    """Whether batches are acknowledged when they are published (`ack: spool`)."""
    checkpoint_bytes: int = 128 * 2**20
    """Published segments of so many bytes are removed before the minute is over."""

    @classmethod
    def of(cls, settings: config.Config) -> Settings:
        return cls(
            node=settings.node,
            directories=Directories.of(settings),
            journal=settings.journal,
            spool=settings.spool,
            acknowledge_when_published=settings.ack == "spool",
        )


_MOST_RANGES = 20
"""The most ranges of lsns of an incarnation in a word."""


def _processes(
    settings: config.Config,
    disk: Disk,
    protocols: Iterable[str],
    tell: Callable[[str], None],
) -> Processes | None:
    """The processes that write the spool's files; None: this one does."""
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


def _ignore(_: object) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCallbacks:
    """The callbacks of the storage."""

    damaged: Callable[[Sequence[Loss], Sequence[str]], None] = lambda *_: None
    """While it is opened: what is lost and what was repaired, before files are changed."""
    noticed: Callable[[str], None] = _ignore
    """Told of a notice for operators about the directory's past, while it is opened.
    Any thread."""
    durable: Callable[[list[Stored]], None] = _ignore
    """Told of durable batches in the reactor's thread, once a group."""
    committed: Callable[[float, int, int], None] = lambda *_: None
    """A group commit took so many seconds, of so many events and bytes; in the journal's thread."""
    failed: Callable[[str], None] = _ignore
    """The journal's disk failed in this, `write` or `sync`; in the reactor's thread."""
    published: Callable[[Published], None] = _ignore
    """Told of a file in the spool's thread."""
    uploaded: Callable[[Uploaded], None] = _ignore
    """A file is in the bucket; in a thread of its own."""
    expired: Callable[[], None] = lambda: None
    """The archive has dropped files; in the spool's thread."""
    fatal: Callable[[str], None]
    """The journal is lost: the daemon must end."""


@define(eq=False, slots=False)
class _Handing:
    """How what the spool has published goes on: the mark, the memories, who waits for it.

    It is the spool's `Observer`.

    16 attributes: nine are given; four are the observer's callbacks.
    """

    _opened: Opened
    _journal: Journal
    _checkpoint: Checkpoint
    _uploads: Uploads | None
    _expired: ExpiredRecord
    _callbacks: StorageCallbacks
    _waits: bool
    """`ack: spool`."""
    _reactor: Any
    _has_job_here: bool
    """Whether the spool is a directory that a job reads."""

    def __attrs_post_init__(self) -> None:
        self.published, self.expired = (
            self._callbacks.published,
            self._callbacks.expired,
        )
        self.expiring = self._expired.note
        self._left = {one.path for one in self._opened.unpublished if self._waits}
        """Segments of the last run that are in no file, while senders wait for that."""
        self._vouched_for = self._opened.vouched_for and not self._waits
        """Whether the mark says yet that all is in files, which the first batch ends."""
        self.untold_bytes = 0
        """Bytes of segments with a file, whose batches are not all acknowledged."""
        self.ready: Deferred[None] = Deferred()
        """Fires as `Storage.ready` does."""

    def done(self, sealed: Segment) -> None:
        if self._checkpoint.names:
            self.untold_bytes += sealed.bytes
            self._journal.when_told(sealed.last_lsn, partial(self._told, sealed))
        self._left.discard(sealed.path)
        self.uploaded()

    def _told(self, sealed: Segment) -> None:
        self.untold_bytes -= sealed.bytes
        self._checkpoint.published(sealed)

    def uploaded(self) -> None:
        """Let senders come if nothing is left that they wait for."""
        if self.waits_for is None and not self.ready.called:
            self.ready.callback(None)

    @property
    def waits_for(self) -> str | None:
        """Why senders may not come yet."""
        if not self._checkpoint.known.called:
            return "what protocols remember is being written for the first time"
        if self._vouched_for:
            return f"{self._opened.marker.path} can not be written, and has to be first"
        if self._left or self._left_here():
            return "what the last run left is being published (ack: spool)"
        return None

    def _left_here(self) -> bool:
        """Whether senders wait for files that the last run left to be in the bucket."""
        if self._uploads is None or not self._waits:
            return False
        left = self._opened.first_lsn - 1
        return self._uploads.safe_lsn(left) < left

    def looked(self, *, ended: bool = False) -> None:
        """Write the mark: about once a second, or now as the node has *ended*.  Raises OSError."""
        opened = self._opened
        # First: what it says is up to the lsn then; else a bucket or a hub is told.
        through = self._journal.through if self._has_job_here else None
        synced = self._journal.synced  # first, too
        durable = self._journal.durable_lsn
        all_in_files = ended and opened.publisher.published_lsn >= durable
        exact = self._waits or all_in_files
        now = ended or self._vouched_for
        mark = opened.mark(durable, synced, exact=exact, through=through)
        opened.marker.write(mark, now=now)
        if self._vouched_for:
            self._vouched_for = False
            self._reactor.callFromThread(self.uploaded)


@define(eq=False, slots=False, kw_only=True)
class OpenedStorage:
    """The state that the last run left, and a journal: protocols can be made, which are lent it.

    Nothing runs.  `recover` makes the `Storage` of it that does.

    Making one opens it.  The directories are not locked: see `locked`.  Raises
    `segment.OtherFormat`, OSError.

    18 attributes: eleven are given; the others are parts that `recover` joins.
    """

    settings: Settings
    machine: Machine
    reactor: Any
    decoders: Mapping[str, Decode]
    callbacks: StorageCallbacks
    remembering: bool
    """Whether a protocol that is served has a memory."""
    writer: Processes | None = None
    """Writes the spool's files; None: the spool's own thread."""
    bucket: Bucket | None = None
    """The bucket that files go on to, if there is one."""
    in_thread: Callable[..., Deferred[Any]] = deferToThread
    is_live: Callable[[Path], bool] = lambda _: False
    """Says of a journal's directory whether a daemon has it."""
    publish_orphans: bool = False
    """Publish what nodes have left that have a journal here, and no daemon."""

    def __attrs_post_init__(self) -> None:
        settings, machine, callbacks = self.settings, self.machine, self.callbacks
        self.room = Room(SPARE_BYTES)
        start = Start(
            settings.node,
            settings.directories,
            machine,
            self.decoders,
            remembering=self.remembering,
            compression=settings.spool.compression,
            room=self.room,
            tell=callbacks.damaged,
            tell_notice=callbacks.noticed,
            writer=self.writer,
            bucket=self.bucket,
        )
        self.found = found = open_node(start)
        publisher = found.publisher
        self.backlog = Backlog(machine.threads, publisher.file_bytes, self.room)
        self.journal = Journal(
            found.log,
            settings.journal,
            settings.spool,
            self.reactor,
            acknowledge_when_published=settings.acknowledge_when_published,
            before_batches=settings.spool.has_job and settings.spool.bucket is None,
            on_sealed=self.backlog.add,
            on_fatal=callbacks.fatal,
            on_durable=callbacks.durable,
            on_commit=callbacks.committed,
            on_failure=callbacks.failed,
            clock=machine.monotonic,
            wall_clock=machine.clock,
            threads=machine.threads,
            copies=publisher.copies,
        )
        self.removal_clock = RemovalClock(
            partial(found.catalog.newest, Seen),
            found.catalog.put,
            callbacks.noticed,
            clock=machine.clock,
            monotonic=machine.monotonic,
        )
        self.orphans = self._orphans() if self.publish_orphans else []
        self.arrivals = Arrivals(
            settings.node,
            settings.directories,
            machine.disk,
            callbacks.noticed,
            machine.clock,
            by=lambda: found.lineage.now.id,
        )

    def _orphans(self) -> list[Orphan]:
        return publish_orphans(
            self.settings.node,
            self.settings.directories,
            self.machine.disk,
            self.decoders,
            compression=self.settings.spool.compression,
            clock=self.machine.clock,
            alone_with=alone_with,
            tell=self.callbacks.damaged,
        )

    @classmethod
    def locked(
        cls,
        settings: config.Config,
        disk: Disk,
        reactor: Any,
        decoders: Mapping[str, Decode],
        callbacks: StorageCallbacks,
        *,
        remembering: bool,
    ) -> OpenedStorage:
        """The storage of a configuration, with its directory locked until the process ends.

        Raises `lock.Locked`, `segment.OtherFormat`, OSError.
        """
        root = settings.data_dir
        disk.make_directory(root)
        lock(root / "lock", f"gateway {settings.node}")
        # The journal may lie elsewhere, beside those of other gateways.
        journal = Directories.of(settings).journal_of(settings.node)
        disk.make_directory(journal)
        lock_directory(journal)
        return cls(
            settings=Settings.of(settings),
            machine=Machine(disk),
            reactor=reactor,
            decoders=decoders,
            callbacks=callbacks,
            remembering=remembering,
            writer=_processes(settings, disk, decoders, callbacks.noticed),
            bucket=bucket_of(settings.spool),
            is_live=is_locked,
            publish_orphans=True,
        )

    def recover(self, memories: Mapping[str, Memory]) -> Storage:
        """Give *memories*, by protocol, back what they knew; what can be started then.

        Raises `checkpoint.Unreadable`, OSError.
        """
        settings, found, machine = self.settings, self.found, self.machine
        owners = Owners(
            settings.node,
            settings.directories,
            machine.disk,
            self.is_live,
            self._kept_until(),
            self.arrivals.has,
        )
        uploads = self._uploads(owners)
        if uploads is not None:
            uploads.find()
        checkpoint = self._recovered(memories)
        retained = self._retained(memories)
        handing = _Handing(
            found,
            self.journal,
            checkpoint,
            uploads,
            ExpiredRecord(found.catalog, settings.directories.archive, machine.disk),
            self.callbacks,
            settings.acknowledge_when_published,
            self.reactor,
            settings.spool.has_job and self.bucket is None,
        )
        consumers = self._consumers()
        spool = self._spool(handing, owners, retained, uploads, consumers)
        self.arrivals.watch(
            spool.why_not,
            lambda: spool.waiting_files,
            uploads,
            waits=settings.acknowledge_when_published and uploads is not None,
        )
        spool.arrived_bytes = partial(getattr, self.arrivals, "bytes")
        spool.look_at_arrivals = self.arrivals.look_after_parts
        storage = Storage(self, spool, checkpoint, retained, handing)
        storage.speak()
        return storage

    def _spool(
        self,
        handing: _Handing,
        owners: Owners,
        retained: Retained,
        uploads: Uploads | None,
        consumers: Consumers,
    ) -> Spool:
        directories, found = self.settings.directories, self.found
        return Spool(
            directories.spool,
            directories.archive,
            found.publisher,
            self.backlog,
            self.journal,
            handing,
            owners,
            self.room,
            self.settings.spool,
            self.machine,
            self.reactor,
            published_lsn=found.published_lsn,
            retained=retained,
            uploads=uploads,
            consumers=consumers,
            removal_clock=self.removal_clock,
        )

    def _consumers(self) -> Consumers:
        directories, disk = self.settings.directories, self.machine.disk
        marks = partial(marks_at, self.bucket, directories.consumers, disk)
        return Consumers(marks, self.settings.spool.consumers)

    def _kept_until(self) -> int:
        """The lsn up to which the archive has the only copy of our files."""
        keeps = self.settings.spool.after == "keep" and self.bucket is None
        catalog, published = self.found.catalog, self.found.published_lsn
        try:
            return kept_until(catalog, published, keeps=keeps)
        except OSError as why:  # no room: that must not stop a start
            self.callbacks.noticed(
                f"{catalog.path} can not be written, the next start tries again: {why}"
            )
            return published

    def _uploads(self, owners: Owners) -> Uploads | None:
        if self.bucket is None:
            return None
        settings, machine = self.settings, self.machine
        return Uploads(
            BucketEnd(self.bucket, settings.node, machine.disk),
            settings.node,
            settings.directories.spool,
            settings.directories.archive,
            machine.disk,
            settings.spool.s3.uploads,
            self.callbacks.uploaded,
            owners.is_nobodys,
            self.arrivals.has,
            clock=machine.monotonic,
            threads=machine.threads,
            in_order=settings.acknowledge_when_published,
        )

    def _recovered(self, memories: Mapping[str, Memory]) -> Checkpoint:
        settings, found = self.settings, self.found
        checkpoint = Checkpoint(
            settings.directories.state_of(settings.node),
            memories,
            self.machine.disk,
            self.reactor,
            self.in_thread,
            found.publisher.remove,
            most_bytes=settings.checkpoint_bytes,
            room=self.room,
        )
        checkpoint.recover(found.segments, found.unpublished)
        return checkpoint

    def _retained(self, memories: Mapping[str, Memory]) -> Retained:
        settings, machine = self.settings, self.machine
        retained = Retained(
            settings.node,
            settings.directories.retained_of(settings.node),
            settings.directories.archive,
            machine.disk,
            settings.spool.compression,
            machine.monotonic,
            needed={
                name: memory.needed
                for name, memory in memories.items()
                if isinstance(memory, Retaining)
            },
        )
        retained.recover()
        return retained


@define(eq=False, slots=False)
class Storage:
    """Journal, spool and checkpoint of one node; `start` and `stop`, once each."""

    _opened: OpenedStorage
    spool: Spool
    checkpoint: Checkpoint
    retained: Retained
    """The rows that readers of streams still need of files that have left the archive."""
    _handing: _Handing

    def __attrs_post_init__(self) -> None:
        opened = self._opened
        self.journal, self.orphans = opened.journal, opened.orphans
        self.directories = opened.settings.directories
        self.lineage = opened.found.lineage
        self.opened_at = opened.machine.clock()
        """When, by the wall's clock."""
        self._consumed: BucketExpiry | None = None
        self._speaker, self._words = self._said()
        """The speaker that tells bucket or hub how far this incarnation is, and its
        looks at a bucket."""
        self.bucket_looks = self._looks()
        """The look at what the job or consumers do in the bucket, if that matters here."""
        self.ready = self._handing.ready
        """Fires when senders may be served: a sender that resumes is told what is durable.

        There must be a state file of each memory, and the mark must say that not all need be in
        files.  With `ack: spool`, what the last run left is published."""

    def _looks(self) -> BucketLooks | None:
        opened, spool = self._opened, self.spool
        settings, machine = opened.settings, opened.machine
        bucket, uploads = opened.bucket, spool.uploads
        if bucket is None or uploads is None:
            return None
        if settings.spool.after == "keep":
            arrivals = opened.arrivals
            self._consumed = BucketExpiry(
                bucket,
                lambda: [settings.node, *arrivals.all_nodes()],
                spool.consumers,
                settings.spool.retention,
                opened.removal_clock,
                lambda node: (
                    node == settings.node
                    or arrivals.comes(node)
                    or bool(uploads.waiting_of(node))
                ),
            )
            return BucketLooks(
                self._consumed.look,
                LOOK_SECONDS,
                "what consumers have read stays in the bucket",
                machine.threads,
            )
        if settings.acknowledge_when_published:
            return None
        spool.job = JobBacklog(
            bucket, settings.node, lambda: uploads.uploaded, machine.monotonic
        )
        return BucketLooks(
            spool.job.look,
            EVERY_SECONDS,
            "how far the Spark job is behind is not known",
            machine.threads,
        )

    def node_records(
        self,
        handed_over: Callable[[], int],
        waiting: Callable[[str], Iterable[SpoolFile]],
    ) -> Callable[[Mapping[str, Lsns]], list[tuple[str, str, bytes]]]:
        """The words to say to a new hub, again and again (node, incarnation, word).

        The hub has all up to the lsn that is *handed_over*, and of other nodes not the files that
        are *waiting*.
        """
        relay = Relay(self.directories.arrivals, self._opened.machine.disk, waiting)

        def said(left: Mapping[str, Lsns]) -> list[tuple[str, str, bytes]]:
            record = self._speaker.record()
            own = msgspec.structs.replace(
                record,
                published=min(record.published, handed_over()),
                earlier=record.earlier[-MOST_EARLIER:],
                begins=record.begins[-MOST_EARLIER:],
                left={life: tuple(lsns)[:_MOST_RANGES] for life, lsns in left.items()},
            )
            node = self._opened.settings.node
            # Those of others first, as in a bucket (`Speaker.say`).
            return [*relay(), (node, own.incarnation, msgspec.json.encode(own))]

        return said

    def _said(self) -> tuple[Speaker, BucketLooks | None]:
        opened, spool = self._opened, self.spool
        settings, bucket = opened.settings, opened.bucket
        in_bucket = settings.acknowledge_when_published and bucket is not None
        waiting = spool.uploads.waiting_of if spool.uploads else lambda _: ()
        speaker = Speaker(
            bucket,
            settings.node,
            self.lineage,
            "spool" if in_bucket else "journal",
            lambda: self.acknowledged_lsn,
            lambda: spool.published_lsn,
            opened.machine.clock,
            Relay(self.directories.arrivals, opened.machine.disk, waiting),
            opened.found.marker.next_record,
            lambda: opened.journal.through,
        )
        if bucket is None or spool.uploads is None:
            return speaker, None
        return speaker, BucketLooks(
            speaker.say,
            EVERY_RECORD_SECONDS,
            "the bucket is not told how far this gateway has acknowledged",
            opened.machine.threads,
        )

    def speak(self) -> None:
        """Tell the bucket of this incarnation, before it gives a lsn.

        Raises `BucketError` where it does not answer, and has never heard of this directory: if
        that were lost, what it had acknowledged would not be missed.
        """
        try:
            self._speaker.say()
        except BucketError as why:
            if not self.lineage.now.earlier:
                raise BucketError(
                    f"{self._opened.settings.directories.journal} is new, and the bucket"
                    f" has to know of it before this acknowledges anything: {why}"
                ) from None

    @property
    def waits_for(self) -> str | None:
        """Why it is not `ready`."""
        return self._handing.waits_for

    @property
    def lost_ends(self) -> Mapping[str, int]:
        """Incarnations of this directory that came farther than this start found: the last
        lsn that is known of each.
        """
        found = self._opened.found
        return {} if found.notice is None else found.lineage.now.lost

    @property
    def twins(self) -> Iterator[tuple[str, str]]:
        """Nodes whose name two gateways have, and what is known of the other one."""
        if twin := self._speaker.twin:
            yield self._opened.settings.node, f"the other one is incarnation {twin}"
        for node in self._opened.arrivals.twins:
            yield node, "both bring their files here"

    @property
    def acknowledged_lsn(self) -> int:
        """The last lsn that senders may have been told of.  Any thread."""
        waits = self._opened.settings.acknowledge_when_published
        return self.spool.published_lsn if waits else self.journal.durable_lsn

    @property
    def lost_events(self) -> int:
        """Acknowledged events that the disk did not give back for a file.  Any thread."""
        return self._opened.found.publisher.lost_events

    @property
    def link(self) -> Link:
        """The link of the newest published file; any thread may ask."""
        return self._opened.found.publisher.link

    @property
    def journal_bytes(self) -> int:
        """Bytes of all segments that are there."""
        waiting = self.spool.backlog_bytes + self._handing.untold_bytes
        return self.journal.open_bytes + waiting + self.checkpoint.kept_bytes

    def configure(self, settings: config.Config) -> None:
        """Go on with what of these can change while the daemon runs."""
        self.journal.configure(settings.journal, settings.spool)
        self.spool.configure(settings.spool)
        if self._consumed is not None:
            self._consumed.retention = settings.spool.retention

    def start(self) -> None:
        """Take batches, publish what the last run left."""
        opened = self._opened
        if opened.writer is not None:
            with contextlib.suppress(OSError):  # it is said when one is needed
                opened.writer.start()
        if (uploads := self.spool.uploads) is not None:
            uploads.find()  # what a renamed node left, too
        if self._words is not None:
            self._words.start()
        self.journal.start()
        self.spool.start(opened.found.unpublished)
        self.checkpoint.start()
        if self.bucket_looks is not None:
            self.bucket_looks.start()
        self.checkpoint.known.addCallback(lambda _: self._handing.uploaded())

    async def stop(self) -> None:
        """Everything acknowledged is published, and remembered."""
        in_thread = self._opened.in_thread
        self.checkpoint.stop_memories()
        if self.bucket_looks is not None:
            self.bucket_looks.stop()
        await self.journal.stop()
        self.journal.look_through()
        await self.spool.stop()
        await self.checkpoint.stop()
        with contextlib.suppress(OSError):
            self._handing.looked(ended=True)
        await in_thread(self._opened.found.publisher.spares.give_room)
        if self._words is not None:
            self._words.stop()
            exact = self.spool.published_lsn >= self.journal.durable_lsn
            with contextlib.suppress(BucketError):  # nobody knows its end, then
                await in_thread(partial(self._speaker.say, exact=exact))
