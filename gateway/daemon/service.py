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
import signal
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.application.service import IService, MultiService
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python import usage

from gateway import __version__, config, plugins
from gateway.admin.access import Misconfigured
from gateway.admin.freshness import Freshness, judge
from gateway.admin.history import EVERY, History
from gateway.admin.metrics import Metrics
from gateway.admin.service import Admin
from gateway.admin.status import Status
from gateway.daemon import logs, notify, statistics
from gateway.daemon.admin_port import AdminParts, make_site
from gateway.daemon.clock import make_monotonic
from gateway.daemon.facts import Growth, collect
from gateway.daemon.lake import LakeWatch
from gateway.daemon.ports import session_names, settings_of
from gateway.daemon.protocols import Broken, Protocols
from gateway.daemon.terminal import Terminal, leave
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
from gateway.net.turns import Turns
from gateway.protocol import Context, Unusable
from gateway.store.checkpoint import Unreadable
from gateway.store.disk import Disk, RealDisk, what_to_do
from gateway.store.journal import Commit, Loss, segment
from gateway.store.lock import Locked
from gateway.store.orphans import Orphan
from gateway.store.spool import Published
from gateway.store.storage import Storage, StorageCallbacks

__all__ = ["Gateway", "Options", "makeService"]

DRAIN_SECONDS = 10.0
_SWITCH_SECONDS = 0.0005
_CHECK_SECONDS = 1.0
_PUBLISHING = "what the last run left is being published (ack: spool)"
_STOPPING = "stopping"
EXIT_DISK = 74


class Options(usage.Options):
    """`twistd gateway`'s command line."""

    synopsis = "[--config FILE] [--check-config]"
    optParameters = [  # noqa: RUF012, N815 - usage.Options' way
        ["config", "c", "/etc/gateway/gateway.yaml", "configuration file"],
    ]
    optFlags = [  # noqa: RUF012, N815
        ["check-config", None, "read the configuration, report, exit"],
    ]
    longdesc = "Example: twistd -n gateway --config conf/demo.yaml"

    def postOptions(self) -> None:
        """Read the configuration, so that a mistake in it is a usage error."""
        _leave_no_pid_file(self.parent)
        try:
            self["loaded"] = config.load(Path(self["config"]))
        except config.Invalid as why:
            leave(str(why))
        if self["check-config"]:
            sys.stdout.write(f"{self['config']}: ok\n")
            sys.exit(0)


def _leave_no_pid_file(twistd: Any) -> None:
    """In the foreground nobody needs twistd.pid: the data directory's lock knows who runs.

    It would need a folder to write to, stay after a crash, and keep a second node of
    another data directory from starting in the same folder.
    """
    if twistd and twistd["nodaemon"] and twistd["pidfile"] == "twistd.pid":
        twistd["pidfile"] = ""


def makeService(options: Options) -> IService:
    """The daemon, as twistd starts it."""
    from twisted.internet import reactor

    refuse_uvloop(reactor)
    make_monotonic(reactor)
    loaded: config.Config = options["loaded"]
    root = logs.LoggingService(loaded.logging, options.parent)
    twistd = options.parent or {"nodaemon": True}
    terminal = Terminal(in_background=not twistd["nodaemon"])
    Gateway(loaded, reactor, RealDisk(), terminal).setServiceParent(root)
    service: IService = root
    return service


def refuse_uvloop(reactor: Any) -> None:
    """Refuse uvloop: it does not report a peer that resets with data in flight."""
    loop = getattr(reactor, "_asyncioEventloop", None)
    if type(loop).__module__.startswith("uvloop"):
        leave("gateway does not run on uvloop, which loses disconnects; use epoll")


class Gateway(MultiService):
    """All of the daemon, built from one configuration."""

    _log = Logger()

    def __init__(
        self, settings: config.Config, reactor: Any, disk: Disk, terminal: Terminal
    ) -> None:
        super().__init__()
        self.settings = settings
        self._terminal = terminal
        self.listeners: list[Listener] = []
        self._reactor = reactor
        self._disk = disk
        self._begun = time.monotonic()
        self._phase: str | None = "starting"
        self._loops: list[LoopingCall] = []
        self._growth = Growth()
        self._history = History()
        self.metrics = Metrics(self.status)
        self.protocols = Protocols(
            plugins.installed(), settings.listeners, self.metrics.protocol_failed
        )

    # -- start ----------------------------------------------------------------

    def privilegedStartService(self) -> None:
        """Take the directory, recover, bind: whatever fails here ends the start."""
        try:
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
        self.storage.start()
        self._every(_CHECK_SECONDS, self.storage.journal.check)
        self._every(EVERY, self._sample)
        self.lake.begin(self.storage.journal.durable_lsn)
        try:
            self.protocols.start()
        except Broken as why:
            self._terminal.leave(f"gateway can not start: {why}")
        if (seconds := notify.watchdog_seconds()) is not None:
            self._every(seconds, notify.watchdog)
        signal.signal(signal.SIGHUP, self._hangup)
        # Threads that decode for readers hold the interpreter no longer than this.
        sys.setswitchinterval(_SWITCH_SECONDS)
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

    def _serve(self) -> None:
        """Accept connections, unless the daemon is stopping by now."""
        if self._phase == _STOPPING:
            return
        for listener in self.listeners:
            listener.start()
        self._phase = None
        where = ", ".join(f"{one.name} on {one.address}" for one in self.listeners)
        self._log.info(
            "Node {node} takes events: {where}; admin on {admin}",
            node=self.settings.node,
            where=where,
            admin=self.admin.address,
        )
        notify.ready(f"taking events: {where}")

    def _every(self, seconds: float, do: Callable[[], object]) -> None:
        loop = LoopingCall(do)
        loop.clock = self._reactor
        loop.start(seconds, now=False).addErrback(
            lambda why: self._log.failure("{what} failed", why, what=do.__qualname__)
        )
        self._loops.append(loop)

    def _open(self) -> None:
        settings = self.settings
        known = self.protocols.decoders()
        self.storage = storage = Storage.open(
            settings,
            self._disk,
            self._reactor,
            known,
            StorageCallbacks(
                damaged=self._tell_damage,
                noticed=lambda notice: self._log.warn("{notice}", notice=notice),
                durable=self._durable,
                committed=self._committed,
                published=self._published,
                expired=self.protocols.files_removed,
                fatal=self._fatal,
            ),
            remembering=self.protocols.remember,
        )
        for orphan in storage.orphans:
            self._tell_orphan(orphan)
        for path in storage.foreign:
            self._log.warn("{path} is not the gateway's; it is left alone", path=path)
        self.live = Live(
            settings.node,
            known,
            durable_lsn=lambda: storage.journal.durable_lsn,
            in_thread=deferToThread,
            clock=self._reactor,
        )
        self._tap = Tap(self.live)
        self.lake = LakeWatch(
            self.settings.node,
            self.settings.data_dir / "lake",
            storage.directories.spool,
        )
        self._replay = Replay(self.live, storage.directories, in_thread=deferToThread)
        storage.recover(self.protocols.open(storage.remembered, self._lend))

    def _tell_damage(self, losses: Iterable[Loss], repairs: Iterable[str]) -> None:
        for loss in losses:
            self.metrics.corrupt_records(1)
            self._log.error(
                "{path}: {why} (lsn {lsn}, {events} acknowledged events)",
                path=loss.path,
                why=loss.why,
                lsn=loss.first_lsn,
                events=loss.events,
            )
        for repair in repairs:
            self.metrics.corrupt_records(1)
            self._log.error("{repair}", repair=repair)

    def _tell_orphan(self, orphan: Orphan) -> None:
        """Somebody renamed the node, knowingly or not."""
        here = self.settings.node
        if orphan.problem is not None:
            self._log.error(
                "What node {node} left in its journal can not be published: {why}",
                node=orphan.node,
                why=orphan.problem,
            )
        if orphan.events:
            self._log.warn(
                "Node {node} left {count} acknowledged events in its journal; they are "
                "published now, as its own.  This node is {here}: set node in the "
                "configuration, so that it keeps its name",
                node=orphan.node,
                count=orphan.events,
                here=here,
            )
        if orphan.remembers:
            self._log.warn(
                "What {protocols} remembered for node {node} is not served: this node is "
                "{here}.  Set node to {node} in the configuration, or remove {directory}",
                protocols=" and ".join(orphan.remembers),
                node=orphan.node,
                here=here,
                directory=self.storage.directories.state_of(orphan.node),
            )

    def _lend(self, protocol: str, listeners: list[config.Listener]) -> Context:
        return Context(
            node=self.settings.node,
            listeners=listeners,
            journal=self.storage.journal,
            reactor=self._reactor,
            decode=self.live.decoders[protocol],
            feeds={"tap": self._tap, "events": self._replay},
            data_dir=self.settings.data_dir,
            directories=self.storage.directories,
            address=self._address,
        )

    def _bind(self) -> None:
        settings = self.settings
        raise_descriptor_limit()
        rejection_log = RejectionLog(self._reactor)
        penalties = Penalties(self._reactor)
        site = make_site(
            AdminParts(
                settings=settings,
                reactor=self._reactor,
                metrics=self.metrics,
                probe=self.status,
                history=self._history,
                protocols=self.protocols,
                tap=self._tap,
                listeners=self.listeners,
                rejection_log=rejection_log,
                penalties=penalties,
            )
        )
        self._site = site
        self.admin = Admin(site, self.metrics, self._reactor, admin_connections())
        self.admin.setServiceParent(self)
        sessions = session_names(time.time())
        turns = Turns(self._reactor)
        memory = MemoryBudget(
            self.storage.journal.reserve, settings.journal.memory_bytes // 4
        )
        log = settings.logging
        connection_log = ConnectionLog(
            self._reactor, lines=log.connections, opened=log.level == "debug"
        )
        for configured in settings.listeners:
            for port in self.protocols.ports(configured):
                listener = Listener(
                    settings_of(configured, port),
                    port,
                    self._reactor,
                    sessions,
                    rejection_log=rejection_log,
                    turns=turns,
                    memory=memory,
                    connection_log=connection_log,
                    penalties=penalties,
                    on_wrong_credentials=self.metrics.wrong_credentials,
                    on_refused=self.metrics.refused,
                )
                listener.bind()
                self.listeners.append(listener)

    def _address(self, name: str) -> str:
        [address] = [one.address for one in self.listeners if one.name == name]
        return address

    # -- while it runs --------------------------------------------------------

    def status(self) -> Status:
        """The daemon at this moment, for the admin port."""
        stores = statistics.of_storage(self.storage, self.settings.spool.max_bytes)
        sections = list(self.lake.statistics())  # first: it reads what the job said
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
            more=[
                *self.protocols.statistics(),
                *statistics.of_retained(self.storage.retained),
                *statistics.of_state(self.storage.checkpoint),
                statistics.of_feeds(self.live, self._replay),
                *sections,
            ],
            freshness=self._freshness(),
            batches=self.lake.batches,
            payloads=self._site.trusted,
        )

    def _freshness(self) -> Freshness:
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
            )
        )

    def _sample(self) -> None:
        """For the last hour's history, and how fast the spool grows."""
        spool, now = self.storage.spool, time.monotonic()
        self._growth.note(now, spool.levels.spool.bytes + spool.backlog_bytes)
        bounds, counts = self.metrics.acknowledgements
        self._history.note(time.time(), now, self.status(), bounds, counts)

    def reload(self) -> None:
        """SIGHUP: certificates and definitions are read again.

        One that is broken leaves the old in place.
        """
        notify.reloading()
        for listener in self.listeners:
            listener.reload()
        self.protocols.reload()
        self._log.info("Certificates and definitions read again")
        notify.ready()

    def _hangup(self, *_: Any) -> None:
        self._reactor.callFromThread(self.reload)

    def _durable(self, group: list[Stored]) -> None:
        now = time.monotonic()
        self.metrics.acknowledged([now - one.batch.submitted_at for one in group])
        self.live.durable(group)
        self.lake.durable(group)

    def _committed(self, commit: Commit) -> None:
        self.metrics.committed(commit.seconds, commit.events, commit.bytes)

    def _published(self, file: Published) -> None:
        self.metrics.published(file.seconds)
        for flaw, events in file.flaws.items():
            self.metrics.flawed(flaw, events)

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
        self.live.stop()
        for listener in self.listeners:
            await listener.stop()
        await self.protocols.stop()
        drained = [listener.drain(DRAIN_SECONDS) for listener in self.listeners]
        for one in drained:
            await one
        self.protocols.close()
        await self.storage.stop()
        for loop in self._loops:
            if loop.running:
                loop.stop()
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
                "journal; the next start publishes them"
            )
        self._log.info(text, lsn=acknowledged, waiting=acknowledged - published)
