"""The composition root: the one place that knows every part of the daemon.

Start:  lock the data directory → recover the journal → finish half-published files
        → what the protocols remember → journal and spool threads → listeners → admin
        port → READY
Stop:   listeners close, connections drain → the journal commits and seals → the
        spool publishes → a last checkpoint → admin port closes
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from gateway import __version__, config, plugins
from gateway.admin.access import Misconfigured
from gateway.admin.freshness import Freshness, judge
from gateway.admin.history import EVERY, History
from gateway.admin.metrics import Metrics
from gateway.admin.reload import reload_post
from gateway.admin.service import Admin
from gateway.admin.site import Page, page_of
from gateway.admin.status import Status
from gateway.config.model import Logging
from gateway.config.problems import spell
from gateway.config.reload import plan
from gateway.daemon import notify, statistics
from gateway.daemon.admin_port import AdminParts, make_site
from gateway.daemon.facts import Flawed, Growth, Visits, collect
from gateway.daemon.found import Found
from gateway.daemon.lake import LakeWatch
from gateway.daemon.listeners import Change, Listeners
from gateway.daemon.ports import session_names
from gateway.daemon.protocols import Broken, Protocols
from gateway.daemon.reload import Outcome, Reloads, refused
from gateway.daemon.terminal import Terminal
from gateway.event import Stored
from gateway.feeds.live import Live, Tap
from gateway.feeds.replay import Replay
from gateway.net import (
    CannotListen,
    ConnectionLog,
    Listener,
    MemoryBudget,
    Penalties,
    RejectionLog,
    admin_connections,
    raise_descriptor_limit,
)
from gateway.net.loops import Loops
from gateway.net.traffic import Traffic
from gateway.net.turns import Turns
from gateway.sdk.protocol import Context, Port, Post, Statistics, Unusable
from gateway.store.checkpoint import Unreadable
from gateway.store.disk import Disk, what_to_do
from gateway.store.finder import Finder
from gateway.store.heap import Bursts
from gateway.store.journal import Commit, segment
from gateway.store.lock import Locked, wait_for
from gateway.store.spool import Published
from gateway.store.storage import Storage, StorageCallbacks

__all__ = ["Gateway"]

DRAIN_SECONDS = 10.0
_CHECK_SECONDS = 1.0
_PUBLISHING = "what the last run left is being published (ack: spool)"
_STOPPING = "stopping"
EXIT_DISK = 74


class Gateway(MultiService):
    """All of the daemon, built from one configuration."""

    _log = Logger()

    def __init__(
        self,
        settings: config.Config,
        reactor: Any,
        disk: Disk,
        terminal: Terminal,
    ) -> None:
        super().__init__()
        self.settings = settings
        self._terminal = terminal
        self.configure_log: Callable[[Logging], None] = lambda _: None
        """Told of other settings for the log."""
        self.wait_seconds = 0.0
        """For another daemon that has the data directory, and is stopping."""
        self._reactor = reactor
        self._disk = disk
        self._begun = time.monotonic()
        self._phase: str | None = "starting"
        self._loops = Loops(
            reactor,
            lambda do, why: self._log.failure(
                "{what} failed", why, what=do.__qualname__
            ),
        )
        self._growth = Growth()
        self._visits = Visits()
        self._flawed = Flawed()
        self._history = History()
        self._bursts = Bursts()
        self.metrics = Metrics(self.status)
        self.protocols = Protocols(
            plugins.installed(), settings.listeners, self.metrics.protocol_failed
        )
        self.listeners = Listeners(self.protocols, self._listener, DRAIN_SECONDS)
        self.reloads = Reloads(
            lambda: self.settings,
            self._apply,
            deferToThread,
            began=notify.reloading,
            ended=self._tell_doing,
        )

    # -- start ----------------------------------------------------------------

    def privilegedStartService(self) -> None:
        """Take the directory, recover, bind: whatever fails here ends the start."""
        try:
            wait_for(self.settings.data_dir, self.wait_seconds)
            self._open()
            self._bind()
        except (
            Broken, CannotListenError, CannotListen, Locked, Misconfigured, OSError,
            segment.OtherFormat, Unreadable, Unusable,
        ) as why:  # fmt: skip
            advice = what_to_do(why) if isinstance(why, OSError) else ""
            self._terminal.leave(f"gateway can not start: {why}{advice}")
        super().privilegedStartService()

    def startService(self) -> None:
        """Everything is bound and recovered: take events, as soon as senders may come."""
        try:
            super().startService()  # binds the admin port
        except CannotListenError as why:
            self._terminal.leave(f"gateway can not start: admin: {why}")
        try:
            self.storage.start()
        except Unreadable as why:
            self._terminal.leave(f"gateway can not start: {why}")
        self._loops.every(_CHECK_SECONDS, self._check)
        self._loops.every(EVERY, self._sample)
        self.lake.begin(self.storage.journal.durable_lsn)
        try:
            self.protocols.start()
        except Broken as why:
            self._terminal.leave(f"gateway can not start: {why}")
        if (seconds := notify.watchdog_seconds()) is not None:
            self._loops.every(seconds, notify.watchdog)
        # What lives now lives for ever; the collector need not look at it again.
        gc.collect()
        gc.freeze()
        if self.storage.ready.called:
            self._serve()
        else:
            self._phase = _PUBLISHING
            self._log.info("Senders wait: {why}", why=_PUBLISHING)
            notify.ready(_PUBLISHING)
            self.storage.ready.addCallback(lambda _: self._serve())
        self._terminal.close()
        self.reloads.begin()

    def _serve(self) -> None:
        """Accept connections, unless the daemon is stopping by now."""
        if self._phase == _STOPPING:
            return
        self.listeners.start()
        self._phase = None
        self._log.info(
            "Node {node} takes events: {where}; admin on {admin}",
            node=self.settings.node,
            where=self._where,
            admin=self.admin.address,
        )
        self._tell_doing()

    @property
    def _where(self) -> str:
        return ", ".join(f"{one.name} on {one.address}" for one in self.listeners)

    def _tell_doing(self) -> None:
        if self._phase != _STOPPING:
            notify.ready(self._phase or f"taking events: {self._where}")

    def _open(self) -> None:
        settings = self.settings
        known = self.protocols.decoders()
        self._found = found = Found(settings.node, self.metrics.corrupt_records)
        self.storage = storage = Storage.open(
            settings,
            self._disk,
            self._reactor,
            known,
            StorageCallbacks(
                damaged=found.damaged,
                noticed=found.noticed,
                durable=self._durable,
                committed=self._committed,
                failed=self.metrics.journal_failed,
                published=self._published,
                uploaded=lambda one: self.metrics.uploaded(one.seconds),
                expired=self.protocols.files_removed,
                fatal=self._fatal,
            ),
            remembering=self.protocols.remember,
        )
        found.tell(storage)
        self.live = Live(
            settings.node,
            known,
            durable_lsn=lambda: storage.journal.durable_lsn,
            in_thread=deferToThread,
            clock=self._reactor,
            incarnation=storage.incarnation,
        )
        self._tap = Tap(self.live)
        self.lake = LakeWatch(
            self.settings.node,
            self.settings.data_dir / "lake",
            storage.directories.spool,
            has_job=self.settings.spool.after != "keep",
        )
        self._replay = Replay(self.live, storage.directories, in_thread=deferToThread)
        storage.recover(self.protocols.open(storage.remembered, self._lend))

    def _lend(self, protocol: str, listeners: list[config.Listener]) -> Context:
        return Context(
            node=self.settings.node,
            listeners=listeners,
            journal=self.storage.journal,
            reactor=self._reactor,
            decode=self.live.decoders[protocol],
            feeds={"tap": self._tap, "events": self._replay},
            data_dir=self.settings.data_dir,
            disk=self._disk,
            files=Finder(self.storage.directories, self.settings.node, retained=True),
            address=self.listeners.address,
        )

    def _bind(self) -> None:
        settings = self.settings
        raise_descriptor_limit()
        self._rejection_log = RejectionLog(self._reactor)
        self._penalties = Penalties(self._reactor)
        self._sessions = session_names(time.time())
        self._turns = Turns(self._reactor)
        self._turns.before.append(self.storage.journal.end_turn)
        journal, turns = self.storage.journal, self._turns
        self._memory = MemoryBudget(
            journal.reserve,
            _read_ahead_bytes(settings),
            lambda: journal.reservable_bytes - turns.put_off_bytes,
        )
        self._connection_log = ConnectionLog(self._reactor)
        self._connection_log.configure(**_connection_lines(settings.logging))
        self._site = make_site(
            AdminParts(
                settings=settings,
                reactor=self._reactor,
                metrics=self.metrics,
                probe=self.status,
                history=self._history,
                protocols=self.protocols,
                tap=self._tap,
                listeners=self.listeners,
                rejection_log=self._rejection_log,
                penalties=self._penalties,
                turns=self._turns,
            )
        )
        self._site.add({}, {"/api/reload": reload_post(self.reloads.ask)})
        self.admin = Admin(self._site, self.metrics, self._reactor, admin_connections())
        self.admin.setServiceParent(self)
        self.listeners.open(settings.listeners)

    def _listener(
        self, settings: config.Listener, port: Port, traffic: Traffic | None
    ) -> Listener:
        return Listener(
            settings,
            port,
            self._reactor,
            self._sessions,
            traffic=traffic,
            rejection_log=self._rejection_log,
            turns=self._turns,
            memory=self._memory,
            connection_log=self._connection_log,
            penalties=self._penalties,
            on_wrong_credentials=self.metrics.wrong_credentials,
            on_refused=self.metrics.refused,
        )

    # -- while it runs --------------------------------------------------------

    def status(self) -> Status:
        """The daemon at this moment, for the admin port."""
        stores = statistics.of_storage(self.storage, self.settings.spool.max_bytes)
        lake = list(self.lake.statistics())  # first: it reads what the job said
        protocols = list(self.protocols.statistics())
        return Status(
            node=self.settings.node,
            version=__version__,
            not_ready_reason=self._phase or stores.journal.why_full,
            uptime_seconds=time.monotonic() - self._begun,
            listeners=statistics.of_listeners(self.listeners),
            journal=stores.journal,
            spool=stores.spool,
            archive=stores.archive,
            chain=stores.chain,
            incarnation=statistics.of_incarnation(self.storage),
            reload=self.reloads.status(),
            more=[
                *self.reloads.statistics(),
                *protocols,
                statistics.of_memory(self._memory),
                *statistics.of_retained(self.storage.retained),
                *statistics.of_uploads(self.storage.spool.uploads),
                *statistics.of_state(self.storage.checkpoint),
                statistics.of_feeds(self.live, self._replay),
                *lake,
            ],
            freshness=self._freshness(protocols),
            batches=self.lake.batches,
            payloads=self._site.trusted,
        )

    def _freshness(self, sections: list[Statistics]) -> Freshness:
        stopping = self._phase == _STOPPING
        return judge(
            collect(
                self.settings,
                self.storage,
                self.lake,
                self.listeners,
                self._growth.rate,
                phase=None if stopping else self._phase,
                stopping=stopping,
                now=datetime.now(UTC),
                reload=self.reloads.status(),
                lost_events=max(self._found.lost_events, self._flawed.lost),
                refused=self._visits.refused(self._rejection_log.recent),
                flawed=self._flawed.lately(time.monotonic()),
                sections=sections,
            )
        )

    def _check(self) -> None:
        journal = self.storage.journal
        journal.check()
        self._bursts.note(journal.taken_bytes)

    def _sample(self) -> None:
        """For the last hour's history, and how fast the spool grows."""
        spool, now = self.storage.spool, time.monotonic()
        self._growth.note(now, spool.levels.spool.bytes + spool.backlog_bytes)
        self._visits.note(now, self.listeners)
        bounds, counts = self.metrics.acknowledgements
        self._history.note(time.time(), now, self.status(), bounds, counts)

    def hang_up(self) -> None:
        """SIGHUP: reload, once the reactor runs.  A signal handler may call."""
        self._reactor.callFromThread(self.reloads.want)

    def _apply(self, wanted: config.Config) -> Outcome:
        """Go on as *wanted* says, as far as that goes without a restart."""
        found = plan(self.settings, wanted, self.protocols.served)
        now = found.effective
        # Each of the two is right; what is left of both need not be.
        if misfits := [f"{spell(at)}: {why}" for at, why in now.misfits()]:
            return refused(*misfits, *found.restart)
        self.protocols.configure(now.listeners)
        try:
            change, pages, posts = self._prepare(now)
        except Exception as why:
            self.protocols.undo(self.settings.listeners)
            if isinstance(why, Broken | CannotListen | OSError | Unusable):
                return refused(str(why))
            raise
        self.settings = now
        if self.protocols.settle():
            self._site.add(pages, posts)
        self.listeners.commit(change)
        self.storage.configure(now)
        self._memory.read_ahead_bytes = _read_ahead_bytes(now)
        self._site.trust(now.admin)
        self.configure_log(now.logging)
        self._connection_log.configure(**_connection_lines(now.logging))
        problems = [*self.listeners.reload(), *self.protocols.reload()]
        return Outcome(
            problems=problems,
            changed=found.changed,
            restart=found.restart,
            job=found.job,
        )

    def _prepare(
        self, now: config.Config
    ) -> tuple[Change, dict[str, Page], dict[str, Post]]:
        change = self.listeners.prepare(now.listeners)
        try:
            gets, posts = self.protocols.gets(), self.protocols.posts()
            return change, {path: page_of(get) for path, get in gets.items()}, posts
        except Broken:
            self.listeners.abandon(change)
            raise

    def _durable(self, group: list[Stored]) -> None:
        now = time.monotonic()
        self._turns.let_others_go_first()  # the answers that waited for these
        self.metrics.acknowledged([now - one.batch.submitted_at for one in group])
        self.live.durable(group)
        self.lake.durable(group)

    def _committed(self, commit: Commit) -> None:
        self.metrics.committed(commit.seconds, commit.events, commit.bytes)

    def _published(self, file: Published) -> None:
        self.metrics.published(file.seconds, file.flaws)
        self._flawed.note(time.monotonic(), file)

    def _fatal(self, why: str) -> None:
        """The disk can not be trusted: end now, as kill -9 would; that loses nothing."""
        self._log.critical("the journal is lost: {why}; exit status 74", why=why)
        sys.stderr.flush()
        os._exit(EXIT_DISK)

    # -- stop -----------------------------------------------------------------

    def stopService(self) -> Deferred[None]:
        """Answer what was taken, then close; bounded by `DRAIN_SECONDS`."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._phase = _STOPPING
        notify.stopping()
        self.reloads.end()
        self.live.stop()
        await self.listeners.stop()
        await self.protocols.stop()
        await self.listeners.drain()
        self.protocols.close()
        await self.storage.stop()
        self._loops.stop()
        self._tell_stopped()
        await super().stopService()

    def _tell_stopped(self) -> None:
        acknowledged = self.storage.journal.durable_lsn
        published = self.storage.spool.published_lsn
        if published >= acknowledged:
            text = "Stopped: everything acknowledged (lsn {lsn}) is published"
        else:
            text = (
                "Stopped: {waiting} acknowledged events (up to lsn {lsn}) wait in the "
                "{where}; the next start publishes them"
            )
        alone = self.storage.spool.uploads is None
        self._log.info(
            text,
            lsn=acknowledged,
            waiting=acknowledged - published,
            where="journal" if alone else "journal or the spool",
        )


def _read_ahead_bytes(settings: config.Config) -> int:
    return settings.journal.memory_bytes // 4


def _connection_lines(settings: Logging) -> dict[str, Any]:
    return {"lines": settings.connections, "opened": settings.level == "debug"}
