"""Connections that we open: what the clients of all protocols stand on.

    target = endpoint(reactor, "gw.example", 5044, tls=True)
    target.connect(Streams(user, websocket=None))

A stream is TCP or TLS, or a WebSocket on either; its user does not see which.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, cast

from twisted.internet import endpoints, interfaces, protocol, ssl
from twisted.python.failure import Failure
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    Request,
)
from wsproto.utilities import ProtocolError

__all__ = ["Stream", "Streams", "User", "endpoint"]


class Stream(Protocol):
    """An open connection."""

    def send(self, data: bytes) -> None:
        """Over WebSocket, as one binary message."""

    def close(self) -> None:
        """Send what was given, then end it."""

    def abort(self) -> None:
        """End it at once."""


class User(Protocol):
    """Who is told what happens on a stream."""

    def connected(self, stream: Stream) -> None:
        """There is a connection; it may still have to become a WebSocket."""

    def opened(self) -> None:
        """It takes data."""

    def received(self, data: bytes) -> None:
        """The peer says something."""

    def closed(self, why: Failure) -> None:
        """It ended."""


class Streams(protocol.Factory):
    """Makes the streams of one user; *websocket* is `//HOST/PATH`, or None for none."""

    noisy = False

    def __init__(self, user: User, websocket: str | None) -> None:
        self._user = user
        self._websocket = websocket

    def buildProtocol(self, addr: interfaces.IAddress | None) -> protocol.Protocol:
        """See `protocol.Factory`."""
        if self._websocket is None:
            return _Plain(self._user)
        return _WebSocket(self._user, self._websocket)


def endpoint(
    reactor: Any,
    host: str,
    port: int,
    *,
    tls: bool = False,
    ca: Path | None = None,
    certificate: Path | None = None,
    private_key: Path | None = None,
) -> interfaces.IStreamClientEndpoint:
    """Where to connect to.  The reader's name is always verified; against *ca* (PEM),
    or the platform's authorities.
    """
    plain = endpoints.HostnameEndpoint(reactor, host, port)
    if not tls:
        return plain
    trust = None
    if ca is not None:
        trust = ssl.trustRootFromCertificates(_certificates(ca))
    ours = None
    if certificate is not None:
        key = (private_key or certificate).read_bytes()
        ours = ssl.PrivateCertificate.loadPEM(key + b"\n" + certificate.read_bytes())
    options = ssl.optionsForClientTLS(host, trust, ours)
    return endpoints.wrapClientTLS(options, plain)


def _certificates(path: Path) -> list[ssl.Certificate]:
    end = b"-----END CERTIFICATE-----"
    parts = path.read_bytes().split(end)[:-1]
    return [ssl.Certificate.loadPEM(part + end) for part in parts]


class _Plain(protocol.Protocol):
    """TCP or TLS."""

    def __init__(self, user: User) -> None:
        self._user = user

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
        self._transport.loseConnection()

    def abort(self) -> None:
        self._transport.abortConnection()

    @property
    def _transport(self) -> interfaces.ITCPTransport:
        return cast("interfaces.ITCPTransport", self.transport)


class _WebSocket(_Plain):
    """One binary message for each `send`."""

    def __init__(self, user: User, target: str) -> None:
        super().__init__(user)
        host, _, path = target.removeprefix("//").partition("/")
        self._request = Request(host=host, target=f"/{path}")
        self._frames = WSConnection(ConnectionType.CLIENT)

    def connectionMade(self) -> None:
        self._user.connected(self)
        self._transport.write(self._frames.send(self._request))

    def dataReceived(self, data: bytes) -> None:
        try:
            self._frames.receive_data(data)
            for event in self._frames.events():
                self._happened(event)
        except ProtocolError:
            self.abort()

    def send(self, data: bytes) -> None:
        self._transport.write(self._frames.send(BytesMessage(data)))

    def _happened(self, event: Event) -> None:
        if isinstance(event, BytesMessage):
            self._user.received(bytes(event.data))
        elif isinstance(event, AcceptConnection):
            self._user.opened()
        elif isinstance(event, Ping):
            self._transport.write(self._frames.send(event.response()))
        elif isinstance(event, CloseConnection):
            self._transport.write(self._frames.send(event.response()))
            self.close()
        elif isinstance(event, RejectConnection):
            self.close()
