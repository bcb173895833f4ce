"""A port of the configuration: who may come in, how many, and what became of them.

listener = Listener(settings, accept, reactor, sessions)
listener.start()          # or raises CannotListen
...
listener.stop(); listener.drain(5.0).addCallback(...)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address
from typing import Any, cast

from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IListeningPort,
    ILoggingContext,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
)
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from zope.interface import implementer

from gateway import config
from gateway.interfaces import Accept, Refusal
from gateway.net.approach import Approach
from gateway.net.bind import CannotListen, bind
from gateway.net.connection import READ_BYTES, Link
from gateway.net.limits import Complaints, Crowd, descriptor_ceiling, next_descriptor
from gateway.net.proxy import Trust
from gateway.net.tls import ServerTls, Unusable
from gateway.net.websocket import Upgrade
from gateway.net.wire import joined

__all__ = ["CannotListen", "Listener"]

_LINGER_SECONDS = 5.0
_DRAINING_LINGER_SECONDS = 1.0
_TLS_CHECK_SECONDS = 5.0
_UNREAD_BYTES = READ_BYTES
"""What one read can lead to, in a protocol that answers no longer than it is asked."""


class Listener:
    """One of `listeners`, and its connections.

    *subprotocols* and *alpn* are the names the protocol has in WebSocket and TLS.
    *mixed*: with `websocket` on, plain connections are taken on the same port.
    *text*: WebSocket clients may send text messages, which count like binary ones.
    *http2*: the protocol begins with HTTP/2's preface.
    *unread_bytes*: what may be written to a peer that does not read, beyond
    `connection.READ_BYTES`; a protocol that sends more than acknowledgements sets it.
    *reuse_port*: other processes listen on the same port.  *on_refused* is told the
    configuration key of every refusal.
    """

    _log = Logger()

    def __init__(
        self,
        settings: config.Listener,
        accept: Accept,
        reactor: Any,
        sessions: Callable[[], str],
        *,
        subprotocols: Sequence[str] = (),
        alpn: Sequence[bytes] = (),
        mixed: bool = False,
        text: bool = False,
        http2: bool = False,
        unread_bytes: int = _UNREAD_BYTES,
        reuse_port: bool = False,
        complaints: Complaints | None = None,
        on_refused: Callable[[str | None], None] = lambda key: None,
    ) -> None:
        self.name = settings.name
        self.protocol = settings.protocol
        self.address = str(settings.listen)
        """As bound, once `bind` was called."""
        self.accepted = 0
        """Connections taken, ever."""
        self.rejected: Counter[str] = Counter()
        """Connections turned away, by reason: `connections`, `connections_per_peer`,
        `descriptors`, `proxy`, `tls`, `language`, `websocket`, `handshake`, `idle`,
        `protocol`, `unread`, `failure`."""
        self.events = 0
        """Durable ones."""
        self.bytes = 0
        """Received, as they came over the wire."""

        self.accept = accept
        self.next_session = sessions
        self.clock = cast(IReactorTime, reactor)
        self.limits = settings.limits
        self.websocket = settings.websocket
        self.upgrades = self.websocket is not None and not mixed
        """Nothing but WebSocket is taken."""
        self.text = text
        self.http2 = http2
        self.proxied = settings.proxy_protocol is not None
        self.tls: ServerTls | None = None
        """Loaded by `bind`."""
        self.unread_bytes = unread_bytes
        self.linger = _LINGER_SECONDS

        self._settings = settings
        self._reactor = reactor
        self._subprotocols = subprotocols
        self._alpn = alpn
        self._reuse_port = reuse_port
        proxy = settings.proxy_protocol
        self._trust = Trust(proxy.trusted if proxy else ())
        self._on_refused = on_refused
        self._complaints = complaints or Complaints(self.clock)
        self._crowd = Crowd()
        self._links: set[Link] = set()
        self._ceiling = descriptor_ceiling()
        self._port: IListeningPort | None = None
        self._loops: list[LoopingCall] = []
        self._drained: Deferred[None] | None = None
        self._drain_deadline: IDelayedCall | None = None

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self._links)

    def bind(self) -> None:
        """Load the certificate, take the port.  Raises `CannotListen`.

        Whoever connects waits in the kernel until `start`.
        """
        settings = self._settings
        try:
            self.load_tls()
        except Unusable as why:
            raise CannotListen(f"listener {self.name}: tls: {why}") from None
        self._port, self.address = bind(
            self._reactor, settings, Door(self), reuse_port=self._reuse_port
        )
        self._port.stopReading()  # type: ignore[attr-defined]
        self._ceiling = descriptor_ceiling()

    def load_tls(self) -> None:
        """Read the certificate; `bind` does.  Raises `tls.Unusable`."""
        if self._settings.tls is not None:
            self.tls = ServerTls(
                self.name, self._settings.tls, self.clock, alpn=self._alpn
            )

    def start(self) -> None:
        """Let them in."""
        self.watch()
        if self._port is not None:
            self._port.startReading()  # type: ignore[attr-defined]

    def watch(self) -> None:
        """Begin to look after deadlines and certificate files; `start` does."""
        shortest = min(self.limits.handshake, self.limits.idle)
        self._every(min(2.5, max(0.05, shortest / 4)), self._sweep)
        if self.tls is not None:
            self._every(_TLS_CHECK_SECONDS, self.tls.check)

    def _every(self, seconds: float, do: Callable[[], None]) -> None:
        loop = LoopingCall(do)
        loop.clock = self.clock
        loop.start(seconds, now=False).addErrback(
            lambda why: self._log.failure("{listener}", why, listener=self.name)
        )
        self._loops.append(loop)

    def reload(self) -> None:
        """Read certificate files again, whether they changed or not (SIGHUP)."""
        if self.tls is not None:
            self.tls.reload()

    def stop(self) -> Deferred[None]:
        """Accept nobody any more.  Open connections stay."""
        port, self._port = self._port, None
        if port is None:
            return succeed(None)
        stopped: Deferred[None] | None = port.stopListening()
        return stopped or succeed(None)

    def drain(self, seconds: float) -> Deferred[None]:
        """Let every connection finish; after *seconds*, abort those that did not.

        Fires when there are none.  Call `stop` first.
        """
        if self._drained is None:
            self._drained = Deferred()
            self.linger = _DRAINING_LINGER_SECONDS
            self._stop_loops()
            self._every(0.1, self._sweep)
            self._drain_deadline = self.clock.callLater(seconds, self._abort_all)
            if self._links:
                self._log.info(
                    "{listener}: stopping, connections to end: {count}",
                    listener=self.name,
                    count=len(self._links),
                )
            for link in tuple(self._links):
                link.drain()
            self._maybe_drained()
        return self._drained

    def _abort_all(self) -> None:
        self._drain_deadline = None
        self._log.warn(
            "{listener}: {count} connections did not finish in time",
            listener=self.name,
            count=len(self._links),
        )
        for link in tuple(self._links):
            link.abort()

    def _maybe_drained(self) -> None:
        if self._drained is None or self._links or self._drained.called:
            return
        if self._drain_deadline is not None:
            self._drain_deadline.cancel()
        self._stop_loops()
        self._drained.callback(None)

    def _stop_loops(self) -> None:
        for loop in self._loops:
            loop.stop()
        self._loops.clear()

    def _sweep(self) -> None:
        now = self.clock.seconds()
        for link in tuple(self._links):
            link.sweep(now)

    # Admission

    def admit(self, address: object) -> Link | None:
        """A connection for who comes from *address*, or None to turn it away."""
        host, peer = _who(address)
        kind, why = self._full()
        if why is None and not self.expects_header(host):
            kind, why = "connections_per_peer", self._crowded(host)
        if why is not None:
            self._complain(host, peer, why, kind)
            return None
        return Link(self, host, peer)

    def _full(self) -> tuple[str, Refusal | None]:
        limit = self.limits.connections
        if len(self._links) >= limit:
            why = Refusal("too many connections", limit=limit, key="limits.connections")
            return "connections", why
        if next_descriptor() > self._ceiling:
            limit = self._ceiling
            return "descriptors", Refusal("too many open files", limit=limit)
        return "", None

    def _crowded(self, host: str) -> Refusal | None:
        limit = self.limits.connections_per_peer
        if self._crowd[host] < limit:
            return None
        return Refusal(
            "too many connections from one peer",
            limit=limit,
            key="limits.connections_per_peer",
        )

    def expects_header(self, host: str) -> bool:
        """Whether connections from *host* begin with a PROXY header.

        Whoever may write to a unix socket is trusted: it has no address.
        """
        return self.proxied and (host == "unix" or host in self._trust)

    def joined(self, link: Link) -> None:
        """A connection is there."""
        self._links.add(link)
        self.accepted += 1
        if not self.expects_header(link.host):
            self._enter(link)

    def introduced(self, link: Approach) -> bool:
        """A PROXY header named the real peer; false: there are too many of it."""
        why = self._crowded(link.host)
        if why is not None:
            self.complain(link, why, "connections_per_peer")
            return False
        self._enter(link)
        return True

    def _enter(self, link: Approach) -> None:
        self._crowd.enter(link.host)
        link.counted = True

    def left(self, link: Link) -> None:
        """A connection is gone."""
        self._links.discard(link)
        if link.counted:
            link.counted = False
            self._crowd.leave(link.host)
        self._maybe_drained()

    def upgrade(self) -> Upgrade:
        """Reads the request of one WebSocket."""
        assert self.websocket is not None
        origins = self.websocket.origins or ("*",)
        return Upgrade(self.websocket.path, origins, self._subprotocols)

    # Complaints

    def reject(self, kind: str) -> None:
        """Count a connection turned away."""
        self.rejected[kind] += 1

    def complain(self, link: Approach, why: Refusal, kind: str) -> None:
        """Count it, and log it unless its host was just complained about."""
        self._complain(link.host, link.origin.peer, why, kind)

    def _complain(self, host: str, peer: str, why: Refusal, kind: str) -> None:
        self.reject(kind)
        self._on_refused(why.key)
        missed = self._complaints.admit(host)
        if missed is None:
            return
        self._log.warn(
            "{listener}: {peer} refused: {why}{more}",
            listener=self.name,
            peer=peer,
            why=str(why),
            more=f" ({missed} more of this peer not logged)" if missed else "",
            rule=why.rule,
            limit=why.limit,
            key=why.key,
            suppressed=missed,
        )


@implementer(IProtocolFactory, ILoggingContext)
class Door:
    """What Twisted's port calls for each connection."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def doStart(self) -> None:
        """See IProtocolFactory."""

    def doStop(self) -> None:
        """See IProtocolFactory."""

    def buildProtocol(self, addr: IAddress | None) -> IProtocol | None:
        """See IProtocolFactory."""
        return cast(IProtocol | None, self._listener.admit(addr))

    def logPrefix(self) -> str:
        """See ILoggingContext."""
        return self._listener.name


def _who(address: Any) -> tuple[str, str]:
    """Host, and host with port, of whoever connected."""
    if address is None or isinstance(address, UNIXAddress):
        return "unix", "unix"
    host: str = address.host
    if host.startswith("::ffff:"):
        mapped = IPv6Address(host).ipv4_mapped
        host = str(mapped) if mapped else host
    return host, joined(host, address.port)
