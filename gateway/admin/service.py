"""The admin port as a Twisted service, and its fixed paths.

Start it before recovery and before the listeners, so that `/readyz` can say what
the daemon is waiting for, and stop it last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from twisted.application.service import Service
from twisted.internet import tcp
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IListeningPort, IReactorTime

from gateway.admin.access import browser_url, check
from gateway.admin.connections import Guard, LimitedFactory
from gateway.admin.metrics import Metrics
from gateway.admin.page import live_pages
from gateway.admin.site import AdminRequest, AdminSite, Page
from gateway.admin.status import Probe, as_json
from gateway.sdk.endpoint import Endpoint, Tcp, Unix
from gateway.sdk.protocol import Answer, Post

__all__ = ["Admin", "admin_site"]

_SOCKET_MODE = 0o660  # the file's owner and group may connect


def admin_site(
    listen: Endpoint,
    token: str | None,
    probe: Probe,
    metrics: Metrics,
    clock: IReactorTime,
    guard: Guard,
    more: Mapping[str, Page] | None = None,
    posts: Mapping[str, Post] | None = None,
    *,
    trust_loopback: bool = False,
) -> AdminSite:
    """The site: fixed paths, and *more* pages and *posts* behind the same token.

    Raises `access.Misconfigured`.
    """

    def readyz(request: AdminRequest) -> Answer:
        reason = probe().not_ready_reason
        if reason is None:
            return Answer(b"ready\n")
        return Answer(f"not ready: {reason}\n".encode(), code=503)

    def status(request: AdminRequest) -> Answer:
        return Answer(as_json(probe()), "application/json")

    def scrape(request: AdminRequest) -> Answer:
        return Answer(*metrics.render(",".join(request.fields("Accept"))))

    return AdminSite(
        check(listen, token),
        token,
        health={"/healthz": lambda _: Answer(b"ok\n"), "/readyz": readyz},
        pages={
            **live_pages(),
            "/metrics": scrape,
            "/api/status": status,
            **(more or {}),
        },
        posts=posts or {},
        clock=clock,
        guard=guard,
        trust_loopback=trust_loopback,
    )


class Admin(Service):
    """The admin port; it is open while the service runs.

    `startService` raises `CannotListenError`, which names the address.  *reactor* listens
    on TCP and unix sockets and keeps time.
    """

    name = "admin"

    def __init__(
        self,
        site: AdminSite,
        metrics: Metrics,
        reactor: Any,
        most_connections: int = 256,
    ) -> None:
        self._where = site.where
        self._reactor = reactor
        self._lag = metrics.reactor_lag(reactor)
        self._factory = LimitedFactory(site, most_connections)
        self._port: IListeningPort | None = None

    @property
    def address(self) -> str:
        """As bound, written as `admin.listen` is: `tcp:127.0.0.1:41234`."""
        return str(self._bound)

    @property
    def url(self) -> str | None:
        """The live page, for a browser on this machine; None on a unix socket."""
        return browser_url(self._bound)

    @property
    def _bound(self) -> Tcp | Unix:
        if self._port is None or isinstance(self._where, Unix):
            return self._where
        bound = cast("IPv4Address | IPv6Address", self._port.getHost())
        return Tcp(self._where.host, bound.port)

    def startService(self) -> None:
        """Bind, or raise."""
        super().startService()
        if isinstance(self._where, Unix):
            self._port = self._reactor.listenUNIX(
                str(self._where.path), self._factory, mode=_SOCKET_MODE, wantPID=True
            )
        else:
            self._port = self._reactor.listenTCP(
                self._where.port, self._factory, interface=self._where.host
            )
        if isinstance(self._port, tcp.Port):
            _accept_few(self._port, self._factory.at_once)
        self._lag.start()

    def stopService(self) -> Deferred[None]:
        """Close the port and every connection."""
        self._lag.stop()
        port, self._port = self._port, None
        for connection in list(self._factory.protocols):
            connection.loseConnection()
        super().stopService()
        stopped: Deferred[None] | None = port.stopListening() if port else None
        return stopped or succeed(None)


def _accept_few(port: tcp.Port, most: int) -> None:
    """Accept *most* connections a turn of the reactor; the others wait in the kernel."""
    accept = port.doRead

    def accept_few() -> None:
        port.numberAccepts = min(
            port.numberAccepts, most
        )  # Twisted's own grows with traffic
        accept()

    port.doRead = accept_few  # type: ignore[method-assign]
