"""The first half of a start: the data directory is ours and recovered, the services of
the protocols are made, and nothing is bound.

    lock the data directory → recover the journal → finish half-published files
    → what the protocols remember
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from gateway import config, plugins
from gateway.admin.metrics import Metrics
from gateway.daemon.facts import Flawed
from gateway.daemon.found import Found
from gateway.daemon.lake import LakeWatch
from gateway.daemon.listeners import Listeners
from gateway.daemon.network import Network
from gateway.daemon.protocols import Protocols
from gateway.event import Decode, Stored
from gateway.feeds.live import Live, Tap
from gateway.feeds.replay import Replay
from gateway.forward import Forwarder
from gateway.sdk.disk import Disk
from gateway.sdk.protocol import Context
from gateway.store.finder import Finder
from gateway.store.spool import Published
from gateway.store.storage import OpenedStorage, StorageCallbacks

DRAIN_SECONDS = 10.0
EXIT_DISK = 74
"""The daemon's exit status when its journal is lost."""


class OpenedDaemon:
    """All parts of a daemon but its admin port; none runs, and none is bound."""

    _log = Logger()

    def __init__(
        self,
        settings: config.Config,
        reactor: Any,
        disk: Disk,
        metrics: Metrics,
        in_thread: Callable[..., Deferred[Any]],
    ) -> None:
        """Raises `Broken`, `Unusable`, `Locked`, `segment.OtherFormat`, `Unreadable`, OSError."""
        self.settings, self.reactor, self.metrics = settings, reactor, metrics
        self.flawed = Flawed()
        self.protocols = protocols = Protocols(
            plugins.installed(), settings.listeners, metrics.protocol_failed
        )
        known = protocols.decoders()
        self.found = Found(settings.node, metrics.corrupt_records)
        opened = self._storage(disk, known)
        self.found.tell(opened)
        lineage = opened.found.lineage
        self.live = Live(
            settings.node,
            known,
            durable_lsn=lambda: opened.journal.durable_lsn,
            in_thread=in_thread,
            clock=reactor,
            lineage=lineage,
        )
        self.tap = Tap(self.live)
        self.lake = LakeWatch(
            settings.node,
            settings.data_dir / "lake",
            opened.settings.directories.spool,
            has_job=settings.spool.has_job,
            # That of a bucket may run anywhere, and is a target of its own.
            elsewhere=settings.spool.bucket is not None,
            is_ours=lineage.knows,
        )
        directories = opened.settings.directories
        self.replay = Replay(self.live, directories, in_thread=in_thread)
        self.network = Network(settings, reactor, opened.journal, metrics)
        self.listeners = Listeners(protocols, self.network.listener, DRAIN_SECONDS)
        lend = partial(self._lend, opened)
        self.storage = opened.recover(protocols.open(opened.found.remembered, lend))
        self.forwarder = self._forwarder(opened, disk)

    def _forwarder(self, opened: OpenedStorage, disk: Disk) -> Forwarder | None:
        if (wanted := self.settings.forward) is None:
            return None
        storage = self.storage
        forwarder = Forwarder(
            wanted,
            self.settings.node,
            storage.lineage,
            storage.directories,
            disk,
            storage.spool.is_ours,
            lambda: storage.node_records(
                lambda: forwarder.arrived_lsn, forwarder.uploads.waiting_of
            ),
        )
        storage.spool.forwarded_to(forwarder)
        opened.arrivals.onward = forwarder.uploads
        return forwarder

    def _storage(self, disk: Disk, known: dict[str, Decode]) -> OpenedStorage:
        """Open the storage; its callbacks hear nothing but damage before it is started."""
        found, metrics, protocols = self.found, self.metrics, self.protocols
        return OpenedStorage.locked(
            self.settings,
            disk,
            self.reactor,
            known,
            StorageCallbacks(
                damaged=found.damaged,
                noticed=found.noticed,
                durable=self._durable,
                committed=metrics.committed,
                failed=metrics.journal_failed,
                published=self._published,
                uploaded=lambda one: metrics.uploaded(one.seconds),
                expired=protocols.files_removed,
                fatal=self._fatal,
            ),
            remembering=protocols.remember,
        )

    def _lend(
        self, opened: OpenedStorage, protocol: str, listeners: list[config.Listener]
    ) -> Context:
        directories = opened.settings.directories
        return Context(
            node=self.settings.node,
            listeners=listeners,
            journal=opened.journal,
            reactor=self.reactor,
            decode=self.live.decoders[protocol],
            feeds={"tap": self.tap, "events": self.replay},
            data_dir=self.settings.data_dir,
            disk=opened.machine.disk,
            files=Finder(directories, self.settings.node, retained=True),
            address=self.listeners.address,
            arrivals=opened.arrivals,
        )

    # -- what the storage tells, once it is started -----------------------------

    def _durable(self, group: list[Stored]) -> None:
        now = time.monotonic()
        self.network.common.turns.let_others_go_first()  # the answers that waited for these
        self.metrics.acknowledged([now - one.batch.submitted_at for one in group])
        self.live.durable(group)
        self.lake.durable(group)

    def _published(self, file: Published) -> None:
        if self.forwarder is not None:
            self.forwarder.uploads.add(file.path.name)
        self.metrics.published(file.seconds, file.flaws)
        self.flawed.note(time.monotonic(), file)

    def _fatal(self, why: str) -> None:
        """The disk can not be trusted: end now, as kill -9 would; that loses nothing."""
        self._log.critical("the journal is lost: {why}; exit status 74", why=why)
        sys.stderr.flush()
        os._exit(EXIT_DISK)
