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

from attrs import define
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
from gateway.event import Stored
from gateway.feeds.live import Live, Tap
from gateway.feeds.replay import Replay
from gateway.sdk.protocol import Context
from gateway.store.disk import Disk
from gateway.store.finder import Finder
from gateway.store.journal import Commit
from gateway.store.spool import Published
from gateway.store.storage import OpenedStorage, Storage, StorageCallbacks

__all__ = ["DRAIN_SECONDS", "Opened", "Shared", "open_daemon"]

DRAIN_SECONDS = 10.0
EXIT_DISK = 74
"""The daemon's exit status when its journal is lost."""


@define(eq=False, slots=False)
class Shared:
    """What is there before anything is opened, and goes on after it."""

    reactor: Any
    disk: Disk
    metrics: Metrics
    in_thread: Callable[..., Deferred[Any]]


class Heard:
    """What the storage tells, and to whom that goes."""

    _log = Logger()

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.flawed = Flawed()
        self.durable: list[Callable[[list[Stored]], object]] = []
        """Who is told of each group that is durable, in this order; in the reactor."""

    def callbacks(self, found: Found, expired: Callable[[], None]) -> StorageCallbacks:
        """For the storage."""
        metrics = self._metrics
        return StorageCallbacks(
            damaged=found.damaged,
            noticed=found.noticed,
            durable=self._durable,
            committed=self._committed,
            failed=metrics.journal_failed,
            published=self._published,
            uploaded=lambda one: metrics.uploaded(one.seconds),
            expired=expired,
            fatal=self._fatal,
        )

    def _durable(self, group: list[Stored]) -> None:
        for tell in self.durable:
            tell(group)

    def acknowledged(self, group: list[Stored]) -> None:
        """How long their senders have waited."""
        now = time.monotonic()
        self._metrics.acknowledged([now - one.batch.submitted_at for one in group])

    def _committed(self, commit: Commit) -> None:
        self._metrics.committed(commit.seconds, commit.events, commit.bytes)

    def _published(self, file: Published) -> None:
        self._metrics.published(file.seconds, file.flaws)
        self.flawed.note(time.monotonic(), file)

    def _fatal(self, why: str) -> None:
        """The disk can not be trusted: end now, as kill -9 would; that loses nothing."""
        self._log.critical("the journal is lost: {why}; exit status 74", why=why)
        sys.stderr.flush()
        os._exit(EXIT_DISK)


@define(eq=False, slots=False)
class Opened:
    """All parts of a daemon but its admin port; none runs, and none is bound."""

    settings: config.Config
    shared: Shared
    protocols: Protocols
    storage: Storage
    found: Found
    heard: Heard
    live: Live
    tap: Tap
    replay: Replay
    lake: LakeWatch
    network: Network
    listeners: Listeners


def open_daemon(settings: config.Config, shared: Shared) -> Opened:
    """Raises `Broken`, `Unusable`, `Locked`, `segment.OtherFormat`, `Unreadable`, OSError."""
    metrics, reactor = shared.metrics, shared.reactor
    protocols = Protocols(
        plugins.installed(), settings.listeners, metrics.protocol_failed
    )
    known = protocols.decoders()
    found = Found(settings.node, metrics.corrupt_records)
    heard = Heard(metrics)
    opened = OpenedStorage.locked(
        settings,
        shared.disk,
        reactor,
        known,
        heard.callbacks(found, protocols.files_removed),
        remembering=protocols.remember,
    )
    found.tell(opened)
    live = Live(
        settings.node,
        known,
        durable_lsn=lambda: opened.journal.durable_lsn,
        in_thread=shared.in_thread,
        clock=reactor,
        incarnation=opened.found.incarnation,
    )
    tap = Tap(live)
    lake = LakeWatch(
        settings.node,
        settings.data_dir / "lake",
        opened.settings.directories.spool,
        has_job=settings.spool.after != "keep",
        # That of a bucket may run anywhere, and is a target of its own.
        elsewhere=settings.spool.bucket is not None,
    )
    replay = Replay(live, opened.settings.directories, in_thread=shared.in_thread)
    network = Network(settings, reactor, opened.journal, metrics)
    heard.durable += [
        lambda _: (
            network.turns.let_others_go_first()
        ),  # the answers that waited for these
        heard.acknowledged,
        live.durable,
        lake.durable,
    ]
    listeners = Listeners(protocols, network.listener, DRAIN_SECONDS)
    lend = partial(_lend, settings, reactor, opened, tap, replay, listeners)
    storage = opened.recover(protocols.open(opened.found.remembered, lend))
    return Opened(
        settings,
        shared,
        protocols,
        storage,
        found,
        heard,
        live,
        tap,
        replay,
        lake,
        network,
        listeners,
    )


def _lend(
    settings: config.Config,
    reactor: Any,
    opened: OpenedStorage,
    tap: Tap,
    replay: Replay,
    listeners: Listeners,
    protocol: str,
    served: list[config.Listener],
) -> Context:
    return Context(
        node=settings.node,
        listeners=served,
        journal=opened.journal,
        reactor=reactor,
        decode=replay.live.decoders[protocol],
        feeds={"tap": tap, "events": replay},
        data_dir=settings.data_dir,
        disk=opened.machine.disk,
        files=Finder(opened.settings.directories, settings.node, retained=True),
        address=listeners.address,
    )
