"""The admin port: a site of the pages that are about parts of the daemon, on a listener.

It is a listener as others are, with their TLS, PROXY headers, turns and deadlines.  Three
things are other, so that it answers while those are under attack.  No peer is turned away
(`net.GivingWay`).  It may use the file descriptors that are kept from their connections.
The memory of its peers does not count in the memory of theirs.

It is bound when the journal is recovered, before any listener accepts: `/readyz` says what
the daemon still waits for.  It is closed last.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred

from gateway import config
from gateway.access import Access
from gateway.admin.feed import Feed
from gateway.admin.history import History
from gateway.admin.http import HttpServer
from gateway.admin.metrics import Metrics
from gateway.admin.page import fixed_pages
from gateway.admin.peers import Peers
from gateway.admin.site import Site, page_of
from gateway.admin.status import Probe
from gateway.config.listener import NoOptions
from gateway.daemon.listeners import Change, Listeners
from gateway.daemon.opened import OpenedDaemon
from gateway.daemon.others import Others
from gateway.feeds.page import tap_page
from gateway.net import Common, GivingWay, Listener, admin_connections
from gateway.net.traffic import Traffic
from gateway.sdk.endpoint import Tcp, Unix
from gateway.sdk.http1 import METHODS
from gateway.sdk.interfaces import Connection
from gateway.sdk.limits import Limits
from gateway.sdk.protocol import Answer, Port

_MOST_CONNECTIONS = 256
_IDLE_SECONDS = 75.0
"""Longer than any sane scrape interval, so that connections last."""
_DRAIN_SECONDS = 1.0


def make_site(
    opened: OpenedDaemon,
    probe: Probe,
    history: History,
    others: Others,
    reload: Callable[[], Deferred[Any]],
) -> Site:
    """The site of all pages.  Raises `protocols.Broken`."""
    clock, protocols = opened.reactor, opened.protocols
    recent = opened.network.common.rejection_log.recent
    peers = Peers(opened.listeners.seen, lambda: recent, clock.seconds)
    feed = Feed(probe, history, lambda: (recent.serial, peers.rejections_json), clock)
    return Site(
        Access.to(opened.settings.admin),
        {
            **fixed_pages(probe, opened.metrics),
            **{path: page_of(get) for path, get in protocols.gets().items()},
            "/api/tap": tap_page(opened.tap, clock, lambda: opened.listeners.names),
            "/api/feed": feed.page,
            "/api/history": feed.history,
            "/api/gateways": page_of(others.page),
            "/api/connections": page_of(peers.connections),
            "/api/rejections": page_of(peers.rejections),
        },
        {
            **protocols.posts(),
            "/api/reload": lambda _: reload().addCallback(_what_became_of_it),
        },
    )


def _what_became_of_it(outcome: Any) -> Answer:
    """The answer of `POST /api/reload`: 409 when nothing has changed."""
    body = json.dumps(asdict(outcome)).encode()
    return Answer(body, "application/json", 200 if outcome.applied else 409)


class AdminPort(Service):
    """The admin port, open while the service runs.

    `startService` raises `CannotListen`, which names the address.
    """

    name = "admin"

    def __init__(
        self,
        site: Site,
        settings: config.model.Admin,
        metrics: Metrics,
        reactor: Any,
        *,
        most_connections: int | None = None,
        **shared: Any,
    ) -> None:
        """*most_connections* may be open at once; *shared* is what all listeners share with it."""
        self.site = site
        self._settings = settings
        self._reactor = reactor
        self._lag = metrics.reactor_lag(reactor)
        self.port = Port(accept=self._accept, websocket=False, prefixes=METHODS)
        most = most_connections or admin_connections()
        self._limits = Limits().model_copy(
            update={
                "connections": min(most, _MOST_CONNECTIONS),
                "idle": _IDLE_SECONDS,
                "read_ahead_bytes": 0,
            }
        )
        self._admission = GivingWay(self._limits, settings.proxy_protocol)
        common = Common(
            reactor,
            lambda: "admin",
            on_wrong_credentials=metrics.wrong_credentials,
            **shared,
        )
        self._make = partial(Listener, common=common, admission=self._admission)
        self._listeners = Listeners(self, self.make, _DRAIN_SECONDS)

    @property
    def listener(self) -> Listener | None:
        """The present listener; None: it is not started, or has stopped."""
        return next(iter(self._listeners), None)

    @property
    def address(self) -> str:
        """The address as bound, written as `admin.listen` is: `tcp:127.0.0.1:41234`."""
        where = self.site.access.where
        if isinstance(where, Unix) or self.listener is None:
            return str(where)
        return str(Tcp(where.host, int(self.listener.address.rpartition(":")[2])))

    def make(
        self, settings: config.Listener, port: Port, traffic: Traffic | None
    ) -> Listener:
        """A listener that is not bound yet."""
        return self._make(settings=settings, port=port, traffic=traffic)

    def startService(self) -> None:
        """Bind, or raise."""
        super().startService()
        self._listeners.open([self.settings_of(self._settings)])
        self._listeners.start()
        self._lag.start()

    def prepare(self, admin: config.model.Admin) -> Change:
        """Make ready what a reload has; nothing changes yet.  Raises `CannotListen`."""
        opened = [self.settings_of(admin)] if self.running else []
        return self._listeners.prepare(opened)

    def commit(self, change: Change, admin: config.model.Admin) -> None:
        self._settings = admin
        self._admission.believe(admin.proxy_protocol)
        self._listeners.commit(change)
        self.site.trust(Access.to(admin))

    def reload(self) -> list[str]:
        """Read the certificate again; returns why it can not be used, if so."""
        return self._listeners.reload()

    def stopService(self) -> Deferred[None]:
        """Close the port and every connection, soon."""
        self._lag.stop()
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self._listeners.stop()
        await self._listeners.drain()

    # -- in place of the protocols of other listeners --------------------------

    def ports(self, _: config.Listener) -> list[Port]:
        return [self.port]

    def retired(self, protocol: str, port: Port) -> None:
        """Nothing is left of a port."""

    def _accept(self, connection: Connection) -> HttpServer:
        return HttpServer(connection, self.site, self._reactor, self._admission.served)

    def settings_of(self, admin: config.model.Admin) -> config.Listener:
        # `model_construct`, as no protocol of that name is installed.
        return config.Listener.model_construct(
            name=self.name,
            protocol="http",
            listen=admin.listen,
            reuse_port=False,
            websocket=None,
            proxy_protocol=admin.proxy_protocol,
            tls=admin.tls,
            limits=self._limits,
            options=NoOptions(),
        )
