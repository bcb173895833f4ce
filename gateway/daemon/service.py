"""The daemon as twistd starts and stops it.

Gateway        nothing is open
OpenedDaemon   the data directory is ours, and recovered (`opened`)
Running        listeners are bound (`running`); from then on it has a status, and can be
               reloaded
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from gateway import config
from gateway.admin.metrics import Metrics
from gateway.admin.status import Status
from gateway.config.model import Logging
from gateway.daemon import notify
from gateway.daemon.opened import OpenedDaemon
from gateway.daemon.protocols import Broken
from gateway.daemon.reload import Outcome, Reloads
from gateway.daemon.running import Running
from gateway.daemon.terminal import Terminal
from gateway.net import CannotListen
from gateway.sdk.disk import Disk
from gateway.sdk.protocol import Unusable
from gateway.sdk.summed import OtherForm
from gateway.store.checkpoint import Unreadable
from gateway.store.journal import segment
from gateway.store.system.disk import what_to_do
from gateway.store.system.lock import Locked, wait_for


class Gateway(MultiService):
    """All of the daemon, built from one configuration.

    *load* reads that again, for a reload; *wait_seconds* for another daemon that has the
    data directory, and is stopping.
    """

    def __init__(
        self,
        settings: config.Config,
        reactor: Any,
        disk: Disk,
        terminal: Terminal,
        load: Callable[[], config.Config],
        *,
        configure_log: Callable[[Logging], object] = lambda _: None,
        wait_seconds: float = 0.0,
        in_thread: Callable[..., Deferred[Any]] = deferToThread,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._terminal = terminal
        self._configure_log = configure_log
        self._wait_seconds = wait_seconds
        self._reactor, self._disk, self._in_thread = reactor, disk, in_thread
        self._metrics = Metrics(self.status)
        self._running: Running | None = None
        self.reloads = Reloads(
            load,
            self._apply,
            in_thread,
            began=notify.reloading,
            ended=self._reloaded,
        )

    @property
    def daemon(self) -> Running:
        """The daemon, from `privilegedStartService` on."""
        assert self._running is not None
        return self._running

    def status(self) -> Status:
        """The daemon at this moment, for the admin port."""
        return self.daemon.status()

    def _apply(self, wanted: config.Config) -> Outcome:
        return self.daemon.apply(wanted)

    def _reloaded(self) -> None:
        self.daemon.tell_doing()

    def hang_up(self) -> None:
        """SIGHUP: reload, once the reactor runs.  A signal handler may call."""
        self._reactor.callFromThread(self.reloads.want)

    def privilegedStartService(self) -> None:
        """Take the directory, recover, bind: whatever fails here ends the start."""
        try:
            wait_for(self._settings.data_dir, self._wait_seconds)
            opened = OpenedDaemon(
                self._settings,
                self._reactor,
                self._disk,
                self._metrics,
                self._in_thread,
            )
            self._running = Running.bind(
                opened, self.status, self.reloads, self._configure_log
            )
        except (
            Broken, CannotListen, Locked, OSError, OtherForm, segment.OtherFormat,
            Unreadable, Unusable,
        ) as why:  # fmt: skip
            advice = what_to_do(why) if isinstance(why, OSError) else ""
            self._terminal.leave(f"gateway can not start: {why}{advice}")
        self._running.admin.setServiceParent(self)
        super().privilegedStartService()

    def startService(self) -> None:
        """Everything is bound and recovered: take events, as soon as senders may come."""
        try:
            super().startService()  # binds the admin port
            self.daemon.start()
        except (Broken, CannotListen, Unreadable) as why:
            self._terminal.leave(f"gateway can not start: {why}")
        self._terminal.close()
        self.reloads.begin()

    def stopService(self) -> Deferred[None]:
        """Answer what was taken, then close; bounded by `DRAIN_SECONDS`."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self.daemon.stop()
        await super().stopService()
