"""The data directory in the hands of the daemon: journal, spool, checkpoint.

Part of the composition root: the one place that knows how these three hand segments
to each other.

    open      lock the directory → recover the journal → finish half-published files
    recover   checkpoint and journal → what the protocols remember
    start     journal and spool threads
    stop      the journal commits and seals → the spool publishes → a last checkpoint
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.threads import deferToThread

from gateway import config
from gateway.event import Decode, Stored
from gateway.interfaces import Memory
from gateway.store.checkpoint import Checkpoint, known
from gateway.store.directories import Directories
from gateway.store.disk import Disk
from gateway.store.journal import Commit, Journal, Log, Loss, Segment, recover
from gateway.store.journal import Settings as JournalSettings
from gateway.store.lock import lock
from gateway.store.spool import Catalog, Published, Publisher, Spool, last_lsn
from gateway.store.spool import Settings as SpoolSettings

__all__ = ["Storage", "Told"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Who is told of what happens."""

    durable: Callable[[list[Stored]], None]
    """In the reactor's thread, once a group."""
    committed: Callable[[Commit], None]
    """In the journal's thread."""
    published: Callable[[Published], None]
    """In the spool's thread."""
    expired: Callable[[], None]
    """The archive has dropped files; in the spool's thread."""
    fatal: Callable[[str], None]
    """The journal is lost: the daemon must end."""


class Storage:
    """Raises `lock.Locked`, `segment.Newer`, `checkpoint.Unreadable`, OSError."""

    def __init__(
        self,
        settings: config.Config,
        disk: Disk,
        reactor: Any,
        decoders: Mapping[str, Decode],
        told: Told,
        *,
        remembering: bool,
    ) -> None:
        """Open it; *remembering* is whether a protocol that is served has a memory."""
        self.directories = Directories.of(settings)
        self._settings = settings
        self._disk = disk
        self._reactor = reactor
        self._told = told
        disk.make_directory(self.directories.root)
        self._lock = lock(self.directories.root / "lock", f"gateway {settings.node}")
        self._open(decoders, remembering=remembering)

    def _open(self, decoders: Mapping[str, Decode], *, remembering: bool) -> None:
        at, disk, node = self.directories, self._disk, self._settings.node
        journal, state = at.journal_of(node), at.state_of(node)
        for path in (journal, at.spool, at.archive, state):
            disk.make_directory(path)
        self.remembered = known(state, disk)
        """Whose state is there; it must be kept, whether they are served or not."""
        catalog = Catalog(journal, disk)
        found = recover(journal, disk, unpublished=catalog.unpublished)
        self.losses: Sequence[Loss] = found.losses
        publisher = Publisher(
            node,
            at.spool,
            catalog,
            disk,
            decoders,
            self._settings.spool.compression,
            keep=remembering or bool(self.remembered),
        )
        self._found = found.segments
        self._left = publisher.recover(found.segments)
        # The names outlive a journal directory that was lost: no lsn is given twice.
        given = last_lsn(node, [*disk.names(at.spool), *disk.names(at.archive)])
        published = (
            self._left[0].first_lsn - 1 if self._left else max(catalog.last_lsn, given)
        )
        self.spool = self._make_spool(publisher, published)
        self.journal = self._make_journal(
            max(found.next_lsn, catalog.last_lsn + 1, given + 1)
        )

    def _make_spool(self, publisher: Publisher, published_lsn: int) -> Spool:
        spool = self._settings.spool
        return Spool(
            self.directories.spool,
            self.directories.archive,
            publisher,
            SpoolSettings(
                max_bytes=spool.max_bytes,
                compression=spool.compression,
                retention=spool.retention,
            ),
            self._disk,
            self._reactor,
            published_lsn=published_lsn,
            on_published=self._told.published,
            on_done=self._done,
            on_expired=self._told.expired,
            also_reserved=lambda: self.checkpoint.reserved_bytes,
        )

    def _make_journal(self, next_lsn: int) -> Journal:
        journal, spool = self._settings.journal, self._settings.spool
        return Journal(
            Log(
                self.directories.journal_of(self._settings.node),
                self._disk,
                next_lsn,
                reserve=lambda: self.spool.reserved_bytes,
            ),
            JournalSettings(
                commit_interval=journal.commit_interval,
                memory_bytes=journal.memory_bytes,
                segment_bytes=journal.segment_bytes,
                roll_interval=spool.roll_interval,
                roll_events=spool.roll_events,
                roll_bytes=spool.roll_bytes,
                acknowledge_when_published=self._settings.ack == "spool",
            ),
            self._reactor,
            on_sealed=self.spool.publish,
            on_fatal=self._told.fatal,
            on_durable=self._told.durable,
            on_commit=self._told.committed,
        )

    def _done(self, sealed: Segment) -> None:
        self.checkpoint.published(sealed)

    def recover(self, memories: Mapping[str, Memory]) -> None:
        """Give *memories* back what they knew; before `start`, once."""
        self.checkpoint = Checkpoint(
            self.directories.state_of(self._settings.node),
            memories,
            self._disk,
            self._reactor,
            deferToThread,
        )
        self.checkpoint.recover(self._found, self._left)

    @property
    def journal_bytes(self) -> int:
        """Of all segments that are there."""
        waiting = self.spool.backlog_bytes + self.checkpoint.kept_bytes
        return self.journal.open_bytes + waiting

    def start(self) -> None:
        """Take batches, publish what the last run left."""
        self.journal.start()
        self.spool.start(self.journal, self._left)
        self.checkpoint.start()

    async def stop(self) -> None:
        """Everything acknowledged is published, and remembered."""
        self.checkpoint.quiet()
        await self.journal.stop()
        await self.spool.stop()
        await self.checkpoint.stop()
