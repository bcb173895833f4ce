"""A listener of the configuration: its port, its connections, and how it drains.

listener = Listener(settings, port, common)
listener.bind()           # or raises CannotListen
listener.start()
...
listener.stop()
listener.drain(5.0)       # fires when no connection is left

A listener never changes.  What a reload makes of it is another one, which takes over its
socket and its `Traffic`; connections keep the one that accepted them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from ipaddress import IPv6Address
from sys import intern
from typing import Any

from attrs import define
from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IListeningPort,
    IReactorTime,
)
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from gateway import config
from gateway.config.revocation import CrlEnd
from gateway.net.admission import Admission
from gateway.net.bind import CannotListen, bind, listen, share
from gateway.net.common import Common
from gateway.net.connection import AcceptedConnection
from gateway.net.connection_log import Seen
from gateway.net.looks import Looks
from gateway.net.loops import Loops
from gateway.net.reading import READ_BYTES
from gateway.net.rejections import Rejections
from gateway.net.tls import ServerTls, UnusableCertificate
from gateway.net.traffic import Traffic
from gateway.net.transport import address_text
from gateway.net.websocket_upgrade import UpgradeParser
from gateway.sdk.http2 import PREFACE
from gateway.sdk.interfaces import Server
from gateway.sdk.protocol import Port

__all__ = ["CannotListen", "Listener"]

_LINGER_SECONDS = 5.0
_DRAINING_LINGER_SECONDS = 1.0
_DRAINING_LOOK_SECONDS = 0.1
_TO_USE = 5
"""The part of a drain's time for what is here of a peer whose server takes nothing."""
_TLS_CHECK_SECONDS = 5.0


class Listener:
    """One of `listeners`, and its connections.

    *port* is what the protocol says of it.  *traffic*: that of the listener whose place it
    takes.  *admission*: not as the limits of *settings* have it.

    39 attributes: 24 are what its connections ask on their way, each in one step.
    """

    _log = Logger()

    def __init__(
        self,
        settings: config.Listener,
        port: Port,
        common: Common,
        *,
        traffic: Traffic | None = None,
        admission: Admission | None = None,
    ) -> None:
        self.name = settings.name
        self.protocol = settings.protocol
        self.address = str(settings.listen)
        """The address; as bound, once `bind` was called."""
        self.traffic = traffic or Traffic(
            Rejections(
                self.name, self.protocol, common.rejection_log, common.on_refused
            )
        )
        self.accept = port.accept
        self.next_session = common.sessions
        self.clock: IReactorTime = common.reactor
        self.seconds: Callable[[], float] = common.reactor.seconds
        self.turns, self.memory = common.turns, common.memory
        self.penalties = common.penalties
        self.connection_log = common.connection_log
        self.limits = settings.limits
        self.admission = admission or Admission(
            settings.limits,
            settings.proxy_protocol,
            self.traffic.peers,
            certificates=settings.tls is not None
            and settings.tls.client_auth != "none",
        )
        self.websocket = settings.websocket
        self.upgrades = self.websocket is not None and not port.mixed
        """Nothing but WebSocket is taken."""
        self.text = port.text
        self.acknowledges = port.acknowledges
        self.http2 = port.http2
        """The content type that it takes over HTTP/2; empty: none."""
        self.prefixes = (*port.prefixes, *([PREFACE] if self.http2 else ()))
        proxy = settings.proxy_protocol
        self.proxied = proxy is not None
        self.proxy_names = proxy is not None and proxy.names
        """Balancers say who their clients are."""
        self.tls: ServerTls | None = None
        """Loaded by `bind`."""
        self.unread_bytes = max(port.unread_bytes, READ_BYTES)
        """Bytes that may be written to a peer that does not read, beyond `READ_BYTES`.

        One read can lead to as many, in a protocol that answers no longer than it is asked.
        """
        self.linger = _LINGER_SECONDS

        self._on_wrong_credentials = common.on_wrong_credentials
        self._settings = settings
        self._reactor = common.reactor
        self._served = port
        self.rejections = self.traffic.rejections
        self._connections: dict[AcceptedConnection, None] = {}
        self.looks = Looks(self, self._connections)
        self._port: IListeningPort | None = None
        self._flush: Callable[[], None] | None = None
        """Sends what the port's sockets have to send."""
        self._loops = Loops(
            common.reactor,
            lambda _, why: self._log.failure("{listener}", why, listener=self.name),
        )
        self._ended: Deferred[None] | None = None
        self._draining = False
        self._drain_deadline: IDelayedCall | None = None
        self.used_by = 0.0
        """While draining: when servers are to have used what was here when that began."""

    @property
    def endpoint(self) -> config.Endpoint:
        """The address as configured."""
        return self._settings.listen

    @property
    def connections(self) -> int:
        """Open now; with those of the listeners whose place it took."""
        return self.traffic.open

    def seen(self) -> Iterator[Seen]:
        """Each open connection."""
        return (connection.seen for connection in self._connections)

    @property
    def certificate_ends(self) -> datetime | None:
        """When the certificate in use does (UTC); None without TLS."""
        return None if self.tls is None else self.tls.ends

    @property
    def crl_end(self) -> CrlEnd | None:
        """When the CRLs in use do; None without, or if they never end."""
        return None if self.tls is None else self.tls.crl_end

    @property
    def rejected(self) -> Counter[str]:
        """Connections rejected, by reason: `connections`, `connections_per_peer`,
        `descriptors`, `proxy`, `tls`, `language`, `websocket`, `handshake`, `idle`,
        `protocol`, `unread`, `memory`; and those whose protocol raised: `failure`.
        """
        return self.rejections.counts

    def bind(self) -> None:
        """Load the certificate, take the port.  Raises `CannotListen`.

        New connections wait in the kernel until `start`; those to a shared port go to the
        others.
        """
        self.prepare()
        self._port, self.address, self._flush = bind(
            self._reactor,
            self._settings,
            ConnectionFactory(self),
        )
        self.turns.before.append(self._flush)
        self._port.stopReading()  # type: ignore[attr-defined]

    def take_over(self, before: Listener) -> None:
        """Accept on the socket of *before*, which accepts no more.

        Its connections stay with it.  Certificates are loaded already.
        """
        port, before._port = before._port, None
        assert port is not None
        port.factory = ConnectionFactory(self)  # type: ignore[attr-defined]
        if self._settings.reuse_port != before._settings.reuse_port:
            share(port, self._settings)
        self._port, self.address = port, before.address
        self._flush, before._flush = before._flush, None

    def prepare(self) -> None:
        """Load the certificate, as `bind` does.  Raises `CannotListen`."""
        try:
            self.load_tls()
        except UnusableCertificate as why:
            raise CannotListen(f"listener {self.name}: tls: {why}") from None

    def load_tls(self) -> None:
        """Read the certificate.  Raises `tls.UnusableCertificate`."""
        if self._settings.tls is not None:
            self.tls = ServerTls(
                self.name,
                self._settings.tls,
                self.clock,
                alpn=(*self._served.alpn, *([b"h2"] if self.http2 else ())),
            )

    def start(self) -> None:
        """Accept connections."""
        self.start_timers()
        if self._port is not None:
            listen(self._port, self._settings)
            self._port.startReading()  # type: ignore[attr-defined]

    def start_timers(self) -> None:
        """Begin to check deadlines and certificate files; `start` does."""
        self._loops.every(self.looks.seconds, self.looks.look_at_all)
        if self.tls is not None:
            self._loops.every(_TLS_CHECK_SECONDS, self.tls.check)

    def reload(self) -> str | None:
        """Read certificate files again, whether they changed or not (SIGHUP).

        Returns why they can not be used; then the old ones stay.
        """
        return None if self.tls is None else self.tls.reload()

    def stop(self) -> Deferred[None]:
        """Accept no more connections.  Open ones stay."""
        port, self._port = self._port, None
        if port is None:
            return succeed(None)
        if self._flush is not None:
            self.turns.before.remove(self._flush)
        stopped: Deferred[None] | None = port.stopListening()
        return stopped or succeed(None)

    def ended(self) -> Deferred[None]:
        """Fires when no connection is left.  Call `stop` or `take_over` first."""
        if self._ended is None:
            self._ended = Deferred()
            self._maybe_ended()
        return self._ended

    def drain(self, seconds: float) -> Deferred[None]:
        """Let every connection finish; after *seconds*, abort those that did not.

        Fires when there are none.  Call `stop` first.
        """
        if not self._draining and not self.ended().called:
            self._draining = True
            self.linger = _DRAINING_LINGER_SECONDS
            self.used_by = self.seconds() + seconds / _TO_USE
            self._loops.stop()
            self._loops.every(_DRAINING_LOOK_SECONDS, self.looks.look_at_all)
            self._drain_deadline = self.clock.callLater(seconds, self._abort_all)
            self._log.info(
                "{listener}: stopping, connections to end: {count}",
                listener=self.name,
                count=len(self._connections),
            )
            for connection in tuple(self._connections):
                connection.calls.drain()
        return self.ended()

    def _abort_all(self) -> None:
        self._drain_deadline = None
        self._log.warn(
            "{listener}: {count} connections did not finish in time",
            listener=self.name,
            count=len(self._connections),
        )
        for connection in tuple(self._connections):
            connection.abort()

    def _maybe_ended(self) -> None:
        if self._ended is None or self._connections or self._ended.called:
            return
        if self._drain_deadline is not None:
            self._drain_deadline.cancel()
            self._drain_deadline = None
        self._loops.stop()
        self._ended.callback(None)

    # Admission

    def admit(self, address: object) -> AcceptedConnection | None:
        """A connection for the peer at *address*, or None: it is rejected."""
        host, peer = _host_and_peer(address)
        rejection = self.admission.check(self.traffic.open, host)
        if rejection is not None:
            self.rejections.refused(host, peer, *rejection)
            return None
        return AcceptedConnection(self, host, peer)

    # Called by connections

    def opened(self, connection: AcceptedConnection) -> None:
        """Count one that was made."""
        self._connections[connection] = None
        self.traffic.open += 1
        self.traffic.accepted += 1
        if not self.admission.expects_header(connection.host):
            self.admission.add(connection)

    def admit_real_peer(self, connection: AcceptedConnection) -> bool:
        """A PROXY header named the peer; false: it has too many, and is rejected."""
        rejection = self.admission.check_host(connection.host, self.traffic.open - 1)
        if rejection is not None:
            connection.ending.broke(*rejection)
            return False
        self.admission.add(connection)
        return True

    def admit_known_peer(self, connection: AcceptedConnection) -> bool:
        """Count a peer whose handshake is done; false: it has too many, and is rejected."""
        rejection = self.admission.known(connection, self.traffic.open - 1)
        if rejection is not None:
            connection.ending.broke(*rejection)
        return rejection is None

    def closed(self, connection: AcceptedConnection) -> None:
        """Forget one that is lost."""
        if connection in self._connections:
            del self._connections[connection]
            self.traffic.open -= 1
        self.admission.remove(connection)
        self._maybe_ended()

    def upgrade_parser(self) -> UpgradeParser:
        """A parser of one WebSocket's request."""
        assert self.websocket is not None
        origins = self.websocket.origins or ("*",)
        return UpgradeParser(self.websocket.path, origins, self._served.subprotocols)

    def accept_http2(self, connection: AcceptedConnection) -> Server:
        """The server of a connection that began as HTTP/2 does."""
        from gateway.net.http2 import Carrier  # what few need is loaded for them

        return Carrier(connection, self)

    def penalty(self, connection: AcceptedConnection) -> float:
        """Count wrong credentials: how many seconds their answer is to wait."""
        self._on_wrong_credentials(self.name)
        return self.penalties.add(connection.host)


@define(eq=False)
class ConnectionFactory(Factory):
    """Twisted's protocol factory: makes a connection of each accepted socket."""

    noisy = False
    _listener: Listener

    def buildProtocol(self, addr: IAddress | None) -> Any:
        connection = self._listener.admit(addr)
        return None if connection is None else connection.input

    def logPrefix(self) -> str:
        return self._listener.name


def _host_and_peer(address: Any) -> tuple[str, str]:
    """`192.0.2.1` and `192.0.2.1:4000`; an IPv4 address that IPv6 maps is that one."""
    if address is None or isinstance(address, UNIXAddress):
        return "unix", "unix"
    host: str = intern(address.host)  # one text, however many come from there
    if host.startswith("::ffff:"):
        mapped = IPv6Address(host).ipv4_mapped
        host = str(mapped) if mapped else host
    return host, address_text(host, address.port)
