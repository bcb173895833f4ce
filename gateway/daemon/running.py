"""A daemon that is bound and recovered: how it starts to take events, what it shows, how
it changes by a reload, and how it stops.

Start:  admin port → journal and spool threads → what the protocols do → listeners accept
        → READY
Stop:   listeners close, connections drain → the journal commits and seals → the spool
        publishes → a last checkpoint → admin port closes
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from datetime import UTC, datetime

from attrs import define, field
from twisted.logger import Logger

from gateway import __version__, config
from gateway.admin.freshness import Freshness, judge
from gateway.admin.history import EVERY, History
from gateway.admin.site import Page, page_of
from gateway.admin.status import Probe, Status
from gateway.config.model import Logging, misfits
from gateway.config.problems import spell
from gateway.config.reload import plan
from gateway.daemon import notify, statistics
from gateway.daemon.admin_port import AdminPort, make_site
from gateway.daemon.facts import Growth, Visits, collect
from gateway.daemon.listeners import Change
from gateway.daemon.opened import OpenedDaemon
from gateway.daemon.others import EVERY_SECONDS, Others
from gateway.daemon.protocols import Broken
from gateway.daemon.reload import Outcome, Reloads, refused
from gateway.net import CannotListen, raise_descriptor_limit
from gateway.net.loops import Loops
from gateway.sdk import native
from gateway.sdk.protocol import Post, Statistics, Unusable
from gateway.store.system.bursts import Bursts

_CHECK_SECONDS = 1.0
_STOPPING = "stopping"


@define(eq=False, slots=False)
class Running:
    """All of the daemon, from its ports on; `start` and `stop`, once each.

    *configure_log* is told of other settings for the log.
    """

    _log = Logger()

    opened: OpenedDaemon
    admin: AdminPort
    _others: Others
    _history: History
    _reloads: Reloads
    configure_log: Callable[[Logging], object]
    settings: config.Config = field(init=False)
    """The settings in force; reloads change them."""
    _phase: str | None = field(default="starting", init=False)
    """Why it takes no events, if that is the daemon's own doing."""
    _begun: float = field(factory=time.monotonic, init=False)
    _growth: Growth = field(factory=Growth, init=False)
    _visits: Visits = field(factory=Visits, init=False)
    _bursts: Bursts = field(factory=Bursts, init=False)
    _loops: Loops = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.settings = self.opened.settings
        self._loops = Loops(
            self.opened.reactor,
            lambda do, why: self._log.failure(
                "{what} failed", why, what=do.__qualname__
            ),
        )

    @classmethod
    def bind(
        cls,
        opened: OpenedDaemon,
        probe: Probe,
        reloads: Reloads,
        configure_log: Callable[[Logging], object],
    ) -> Running:
        """Bind the listeners: connections wait in the kernel.  *probe* gives the status.

        Raises `Broken`, `CannotListen`, `Unusable`, OSError.
        """
        raise_descriptor_limit()
        common, history = opened.network.common, History()
        others = Others(opened.settings.admin, probe, opened.reactor)
        site = make_site(opened, probe, history, others, reloads.ask)
        admin = AdminPort(
            site,
            opened.settings.admin,
            opened.metrics,
            opened.reactor,
            turns=common.turns,
            rejection_log=common.rejection_log,
            penalties=common.penalties,
        )
        opened.listeners.open(opened.settings.listeners)
        return cls(opened, admin, others, history, reloads, configure_log)

    # -- start ----------------------------------------------------------------

    def start(self) -> None:
        """The admin port is bound: take events, as soon as senders may come.

        Raises `Broken`, `Unreadable`, OSError.
        """
        storage, opened = self.opened.storage, self.opened
        self._log.info("Kernel in C: {said}", said=native.said)
        storage.start()
        self._loops.every(_CHECK_SECONDS, self._check)
        self._loops.every(EVERY, self._sample)
        self._loops.every(EVERY_SECONDS, self._others.look)
        opened.lake.begin(storage.journal.durable_lsn)
        if opened.forwarder is not None:
            opened.forwarder.start(storage.spool.published_lsn)
        opened.protocols.start()
        if (seconds := notify.watchdog_seconds()) is not None:
            self._loops.every(seconds, notify.watchdog)
        # What lives now lives for ever; the collector need not look at it again.
        gc.collect()
        gc.freeze()
        if storage.ready.called:
            self.serve()
        else:
            self._phase = why = storage.waits_for
            self._log.info("Senders wait: {why}", why=why)
            notify.ready(why or "")
            storage.ready.addCallback(lambda _: self.serve())

    def serve(self) -> None:
        """Accept connections, unless the daemon is stopping by now."""
        if self._phase == _STOPPING:
            return
        self.opened.listeners.start()
        self._phase = None
        self._log.info(
            "Node {node} takes events: {where}; admin on {admin}",
            node=self.settings.node,
            where=self._where,
            admin=self.admin.address,
        )
        self.tell_doing()

    @property
    def _why_not(self) -> str | None:
        """Why it takes no events, if that is the daemon's own doing."""
        if self._phase in (None, _STOPPING):
            return self._phase
        storage = self.opened.storage
        return storage.journal.why_full or storage.waits_for or self._phase

    @property
    def _where(self) -> str:
        return ", ".join(
            f"{one.name} on {one.address}" for one in self.opened.listeners
        )

    def tell_doing(self) -> None:
        """Tell the service manager what the daemon does now."""
        if self._phase != _STOPPING:
            notify.ready(self._phase or f"taking events: {self._where}")

    # -- while it runs --------------------------------------------------------

    def status(self) -> Status:
        """The daemon at this moment, for the admin port."""
        opened, storage = self.opened, self.opened.storage
        stores = statistics.of_storage(storage, self.settings.spool.max_bytes)
        lake = list(opened.lake.statistics())  # first: it reads what the job said
        protocols = list(opened.protocols.statistics())
        return Status(
            node=self.settings.node,
            version=__version__,
            not_ready_reason=self._why_not or stores.journal.why_full,
            uptime_seconds=time.monotonic() - self._begun,
            listeners=statistics.of_listeners(opened.listeners),
            journal=stores.journal,
            spool=stores.spool,
            archive=stores.archive,
            chain=stores.chain,
            incarnation=statistics.of_incarnation(storage),
            reload=self._reloads.status(),
            more=[
                *self._reloads.statistics(),
                *protocols,
                statistics.of_disk(storage, self.settings.spool.after),
                statistics.of_memory(opened.network.common.memory),
                *statistics.of_retained(storage.retained),
                *statistics.of_consumers(storage.spool.consumers.behind),
                *statistics.of_uploads(storage.spool.uploads),
                *statistics.of_forwarder(opened.forwarder),
                *statistics.of_state(storage.checkpoint),
                statistics.of_feeds(opened.live, opened.replay),
                *lake,
            ],
            freshness=self._freshness(protocols),
            batches=opened.lake.told.batches,
            paths=opened.lake.told.paths,
            payloads=self.admin.site.access.trusted,
        )

    def _freshness(self, sections: list[Statistics]) -> Freshness:
        opened, stopping = self.opened, self._phase == _STOPPING
        flawed = opened.flawed
        return judge(
            collect(
                self.settings,
                opened.storage,
                opened.lake,
                [*opened.listeners],
                self._growth.rate,
                phase=None if stopping else self._why_not,
                stopping=stopping,
                now=datetime.now(UTC),
                reload=self._reloads.status(),
                lost_events=max(opened.found.lost_events, opened.storage.lost_events),
                refused=self._visits.refused(
                    opened.network.common.rejection_log.recent
                ),
                flawed=flawed.lately(time.monotonic()),
                sections=sections,
                admin=self.admin.listener,
                forwarder=opened.forwarder,
            )
        )

    def _check(self) -> None:
        journal = self.opened.storage.journal
        journal.check()
        self._bursts.note(journal.taken_bytes)

    def _sample(self) -> None:
        """Note the last hour's history, and how fast the spool grows."""
        spool, now = self.opened.storage.spool, time.monotonic()
        self._growth.note(now, spool.levels.spool.bytes + spool.backlog_bytes)
        self._visits.note(now, self.opened.listeners)
        bounds, counts = self.opened.metrics.acknowledgements
        self._history.note(time.time(), now, self.status(), bounds, counts)

    # -- a reload -------------------------------------------------------------

    def apply(self, wanted: config.Config) -> Outcome:
        """Go on as *wanted* says, as far as that goes without a restart."""
        protocols, listeners = self.opened.protocols, self.opened.listeners
        found = plan(self.settings, wanted, protocols.served)
        now = found.effective
        # Each of the two is right; what is left of both need not be.
        if wrong := [f"{spell(at)}: {why}" for at, why in misfits(now)]:
            return refused(*wrong, *found.restart)
        protocols.configure(now.listeners)
        try:
            admin = self.admin.prepare(now.admin)
            change, pages, posts = self._prepare(now)
        except Exception as why:
            protocols.undo(self.settings.listeners)
            if isinstance(why, Broken | CannotListen | OSError | Unusable):
                return refused(str(why))
            raise
        self.settings = now
        if protocols.settle():
            self.admin.site.add(pages, posts)
        listeners.commit(change)
        self.opened.storage.configure(now)
        if self.opened.forwarder is not None and now.forward is not None:
            self.opened.forwarder.configure(now.forward)
        self.opened.network.configure(now)
        self.admin.commit(admin, now.admin)
        self._others.configure(now.admin)
        self.configure_log(now.logging)
        problems = [*listeners.reload(), *self.admin.reload(), *protocols.reload()]
        return Outcome(
            problems=problems,
            changed=found.changed,
            restart=found.restart,
            job=found.job,
        )

    def _prepare(
        self, now: config.Config
    ) -> tuple[Change, dict[str, Page], dict[str, Post]]:
        protocols, listeners = self.opened.protocols, self.opened.listeners
        change = listeners.prepare(now.listeners)
        try:
            gets, posts = protocols.gets(), protocols.posts()
            return change, {path: page_of(get) for path, get in gets.items()}, posts
        except Broken:
            listeners.abandon(change)
            raise

    # -- stop -----------------------------------------------------------------

    async def stop(self) -> None:
        """Answer what was taken, and publish it; the admin port stays."""
        opened = self.opened
        self._phase = _STOPPING
        notify.stopping()
        self._reloads.end()
        opened.live.stop()
        if opened.forwarder is not None:
            opened.forwarder.stop()
        await opened.listeners.stop()
        await opened.protocols.stop()
        await opened.listeners.drain()
        opened.protocols.close()
        await opened.storage.stop()
        self._loops.stop()
        self._others.close()
        self._tell_stopped()

    def _tell_stopped(self) -> None:
        storage = self.opened.storage
        acknowledged = storage.journal.durable_lsn
        published = storage.spool.published_lsn
        if published >= acknowledged:
            text = "Stopped: everything acknowledged (lsn {lsn}) is published"
        else:
            text = (
                "Stopped: {waiting} acknowledged events (up to lsn {lsn}) wait in the "
                "{where}; the next start publishes them"
            )
        self._log.info(
            text,
            lsn=acknowledged,
            waiting=acknowledged - published,
            where="journal"
            if storage.spool.uploads is None
            else "journal or the spool",
        )
