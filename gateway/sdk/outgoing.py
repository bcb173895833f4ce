"""Outgoing connections for the clients of all protocols: TCP, TLS and WebSocket.

    target = endpoint(reactor, "gw.example", 5044, tls=True)
    target.connect(Streams(user, websocket=None))

A stream is TCP or TLS, or a WebSocket on either; its user need not know which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from twisted.internet import endpoints, interfaces, protocol, ssl
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.sdk.websocket_client import WebSocketClient

__all__ = ["Stream", "Streams", "User", "endpoint"]


class Stream(Protocol):
    """An open connection."""

    def send(self, data: bytes) -> None:
        """Write; over WebSocket, as one binary message."""

    def close(self) -> None:
        """Send what was written, then close."""

    def abort(self) -> None:
        """Close at once."""

    def when_choked(self, tell: Callable[[bool], None]) -> None:
        """Call *tell* with False when the send buffer is full, with True when it is not."""


class User(Protocol):
    """Gets the events of a stream."""

    def connected(self, stream: Stream) -> None:
        """Connected; the WebSocket handshake may still be to come."""

    def opened(self) -> None:
        """The stream is ready for data."""

    def received(self, data: bytes) -> None:
        """Data arrived."""

    def closed(self, why: Failure) -> None:
        """It ended."""


class Streams(protocol.Factory):
    """Makes the streams of one user."""

    noisy = False

    def __init__(
        self, user: User, websocket: str | None, *, subprotocols: Sequence[str] = ()
    ) -> None:
        """*websocket* is `//HOST/PATH`, or None for none; *subprotocols* are offered."""
        self._user = user
        self._websocket = websocket
        self._subprotocols = subprotocols

    def buildProtocol(self, addr: interfaces.IAddress | None) -> protocol.Protocol:
        """See `protocol.Factory`."""
        if self._websocket is None:
            return _Plain(self._user)
        return _WebSocket(self._user, self._websocket, self._subprotocols)


def endpoint(
    reactor: Any,
    host: str,
    port: int,
    *,
    unix: Path | None = None,
    tls: bool = False,
    ca: Path | None = None,
    certificate: Path | None = None,
    private_key: Path | None = None,
    alpn: Sequence[bytes] = (),
) -> interfaces.IStreamClientEndpoint:
    """Where to connect to: *unix*, a socket's path, or else *host* and *port*.

    With *tls* the name *host* is always verified; against *ca* (PEM), or the platform's
    authorities.
    """
    plain: interfaces.IStreamClientEndpoint
    if unix is None:
        plain = endpoints.HostnameEndpoint(reactor, host, port)
    else:
        plain = endpoints.UNIXClientEndpoint(reactor, str(unix))
    if not tls:
        return plain
    trust = None
    if ca is not None:
        trust = ssl.trustRootFromCertificates(certificates(ca))
    ours = None
    if certificate is not None:
        ours = credentials(certificate, private_key)
    options = ssl.optionsForClientTLS(
        host, trust, ours, acceptableProtocols=list(alpn) or None
    )
    return endpoints.wrapClientTLS(options, plain)


def certificates(path: Path) -> list[ssl.Certificate]:
    """All those in a file of PEM."""
    end = b"-----END CERTIFICATE-----"
    parts = path.read_bytes().split(end)[:-1]
    return [ssl.Certificate.loadPEM(part + end) for part in parts]


def credentials(certificate: Path, key: Path | None) -> ssl.PrivateCertificate:
    """What a client shows, in files of PEM; without *key* both are in one."""
    of_key = (key or certificate).read_bytes()
    found: ssl.PrivateCertificate = ssl.PrivateCertificate.loadPEM(
        of_key + b"\n" + certificate.read_bytes()
    )
    return found


@implementer(interfaces.IPushProducer)
class _Plain(protocol.Protocol):
    """TCP or TLS."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._tell: Callable[[bool], None] | None = None

    def connectionMade(self) -> None:
        self._user.connected(self)
        self._user.opened()

    def dataReceived(self, data: bytes) -> None:
        self._user.received(data)

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        self._user.closed(reason)

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        if self._tell is not None:
            self._consumer.unregisterProducer()  # TLS would wait for it
        self._transport.loseConnection()

    def abort(self) -> None:
        self._transport.abortConnection()

    def when_choked(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._consumer.registerProducer(self, True)

    def pauseProducing(self) -> None:
        if self._tell is not None:
            self._tell(False)

    def resumeProducing(self) -> None:
        if self._tell is not None:
            self._tell(True)

    def stopProducing(self) -> None:
        pass

    @property
    def _transport(self) -> interfaces.ITCPTransport:
        return cast("interfaces.ITCPTransport", self.transport)

    @property
    def _consumer(self) -> interfaces.IConsumer:
        return cast("interfaces.IConsumer", self.transport)


class _WebSocket(_Plain):
    """One binary message for each `send`."""

    def __init__(self, user: User, target: str, subprotocols: Sequence[str]) -> None:
        super().__init__(user)
        host, _, path = target.removeprefix("//").partition("/")
        self._client = WebSocketClient(host, f"/{path}", subprotocols)

    def connectionMade(self) -> None:
        self._user.connected(self)
        self._transport.write(self._client.output())

    def dataReceived(self, data: bytes) -> None:
        client, was_open = self._client, self._client.opened
        payload = client.feed(data)
        if client.opened and not was_open:
            self._user.opened()
        if payload:
            self._user.received(payload)
        if output := client.output():
            self._transport.write(output)
        if client.broken:
            self.abort()
        elif client.closed:
            self.close()

    def send(self, data: bytes) -> None:
        self._transport.write(self._client.message(data))
