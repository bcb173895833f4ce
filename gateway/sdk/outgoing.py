"""Outgoing connections for the clients of all protocols: TCP, TLS, WebSocket, HTTP/2, pipes.

    target = endpoint(reactor, "gw.example", 5044, tls=True)
    target.connect(Streams(user, websocket=None))

A stream is TCP or TLS, or a WebSocket or HTTP/2 on either; its user need not know which.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from cryptography import x509
from OpenSSL import SSL, crypto
from service_identity import VerificationError
from twisted.internet import endpoints, error, interfaces, protocol, ssl
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.sdk.websocket_client import WebSocketClient

__all__ = [
    "PIPE_ENDED",
    "Http2",
    "Stdio",
    "Stream",
    "Streams",
    "User",
    "end_of",
    "endpoint",
    "error_text",
    "why_lost",
]


PIPE_ENDED = "the other end of standard input and output is gone"
"""Why `Stdio` does not connect again."""


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
        """The connection ended."""


class Http2(NamedTuple):
    """The request that opens a stream of HTTP/2."""

    target: str
    """`//HOST/PATH`."""
    content_type: str
    tls: bool


class Streams(protocol.Factory):
    """Makes the streams of one user."""

    noisy = False

    def __init__(
        self,
        user: User,
        websocket: str | None,
        *,
        subprotocols: Sequence[str] = (),
        http2: Http2 | None = None,
    ) -> None:
        """*websocket* is `//HOST/PATH`, or None for none; *subprotocols* are offered."""
        self._user = user
        self._websocket = websocket
        self._subprotocols = subprotocols
        self._http2 = http2

    def buildProtocol(self, addr: interfaces.IAddress | None) -> protocol.Protocol:
        if self._http2 is not None:
            return _OverHttp2(self._user, self._http2)
        if self._websocket is None:
            return _Plain(self._user)
        host, path = _host_and_path(self._websocket)
        return _Layered(self._user, WebSocketClient(host, path, self._subprotocols))


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
    trust, ours, more = None, None, {}
    if ca is not None:
        trust = ssl.trustRootFromCertificates(certificates(ca))
    if certificate is not None:
        ours = credentials(certificate, private_key)
        chain = [one.original for one in certificates(certificate)[1:]]
        more = {"extraCertChain": chain} if chain else {}
    options = ssl.optionsForClientTLS(
        host,
        trust,
        ours,
        acceptableProtocols=list(alpn) or None,
        extraCertificateOptions=more,
    )
    return endpoints.wrapClientTLS(options, plain)


class Stdio:
    """An endpoint: standard input and output, as `ssh` or `socat` have given them to us.

    They are one connection, and there is no other when that is lost.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._used = False

    def connect(self, factory: protocol.Factory) -> Deferred[interfaces.IProtocol]:
        if self._used:
            return fail(ConnectionError(PIPE_ENDED))
        from twisted.internet.stdio import StandardIO

        class Pipes(StandardIO):
            """Lost with either direction: who is at the other end of both is one."""

            def childConnectionLost(self, fd: str, reason: Failure) -> None:
                both: Any = self
                if not self.disconnected:
                    both.connectionLost(reason)

            def abortConnection(self) -> None:
                self.childConnectionLost("", Failure(error.ConnectionAborted()))

        self._used = True
        made = factory.buildProtocol(None)
        assert made is not None
        Pipes(made, reactor=self._reactor)
        return succeed(made)


def certificates(path: Path) -> list[ssl.Certificate]:
    """All those in a file of PEM, one at least.  Raises ValueError, OSError."""
    end = b"-----END CERTIFICATE-----"
    parts = path.read_bytes().split(end)[:-1]
    if not parts:
        raise ValueError(f"{path}: no certificate")
    try:
        return [ssl.Certificate.loadPEM(part + end) for part in parts]
    except (SSL.Error, crypto.Error, ValueError) as why:
        raise ValueError(f"{path}: {error_text(why)}") from None


def credentials(certificate: Path, key: Path | None) -> ssl.PrivateCertificate:
    """A client's certificate and key, in files of PEM; without *key* both are in one.

    Raises ValueError if they are none, or do not belong together, as while they are
    renewed.
    """
    of_key = (key or certificate).read_bytes()
    try:
        found: ssl.PrivateCertificate = ssl.PrivateCertificate.loadPEM(
            of_key + b"\n" + certificate.read_bytes()
        )
    except (SSL.Error, crypto.Error, error.VerifyError, ValueError) as why:
        files = str(certificate) if key is None else f"{certificate} with {key}"
        raise ValueError(f"{files}: {error_text(why)}") from None
    return found


def end_of(path: Path) -> datetime | None:
    """When the first certificate of a file ends; None if there is none that can be read."""
    with contextlib.suppress(ValueError, IndexError, OSError):
        found = x509.load_pem_x509_certificates(path.read_bytes())
        return found[0].not_valid_after_utc
    return None


def error_text(why: BaseException) -> str:
    """The text of *why*; of OpenSSL's errors, which are tuples, the words."""
    of_openssl = isinstance(why, SSL.Error | crypto.Error)
    if of_openssl and why.args and isinstance(why.args[0], list):
        return ", ".join(each[-1] for each in why.args[0]) or "no reason given"
    text = why.strerror if isinstance(why, OSError) else str(why)
    return text or type(why).__name__


_NO_TLS = ("wrong version number", "handshake failure", "record layer failure")
"""OpenSSL's words where the other end speaks something else."""
OTHER_NAME = "its certificate is of another name"


def meant(text: str) -> str:
    """The meaning of OpenSSL's words for who connects."""
    if "verify failed" in text:
        return (
            f"its certificate is not valid here ({text}): it has ended, or none of those "
            "who are trusted has signed it, or this machine's clock is wrong"
        )
    if any(words in text for words in _NO_TLS):
        return f"no TLS is spoken at that port, or another version of it ({text})"
    return f"it does not go on: {text}" if "alert" in text else text


def why_lost(why: Failure) -> str:
    """Why a connection could not be made, or ended."""
    if isinstance(why.value, VerificationError):
        return OTHER_NAME
    if not isinstance(why.value, SSL.Error):
        return why.getErrorMessage()
    return meant(error_text(why.value))


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
            self._tell = None
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


def _host_and_path(target: str) -> tuple[str, str]:
    host, _, path = target.removeprefix("//").partition("/")
    return host, f"/{path}"


class _Client(Protocol):
    """A stream carried in another: WebSocket, HTTP/2."""

    opened: bool
    closed: bool
    broken: bool
    trouble: str

    def output(self) -> bytes: ...

    def message(self, payload: bytes) -> bytes: ...

    def feed(self, data: bytes) -> bytes: ...


class _Layered(_Plain):
    """A stream in another; one message of WebSocket for each `send`."""

    def __init__(self, user: User, client: _Client) -> None:
        super().__init__(user)
        self._client = client

    def connectionMade(self) -> None:
        self._user.connected(self)
        self._transport.write(self._client.output())

    def dataReceived(self, data: bytes) -> None:
        client, was_open = self._client, self._client.opened
        payload = client.feed(data)
        if client.opened and not was_open:
            self._granted()
        if payload:
            self._user.received(payload)
        if output := client.output():
            self._transport.write(output)
        if client.broken:
            self.abort()
        elif client.closed:
            self.close()

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        why = self._client.trouble
        super().connectionLost(Failure(ConnectionError(why)) if why else reason)

    def send(self, data: bytes) -> None:
        self._transport.write(self._client.message(data))

    def _granted(self) -> None:
        self._user.opened()


_WAITING_BYTES = 1 << 16
"""Bytes in Twisted's own buffer of a transport before it asks for a pause."""


class _OverHttp2(_Layered):
    """One stream of HTTP/2, whose windows choke it as a full socket does."""

    def __init__(self, user: User, asked: Http2) -> None:
        from gateway.sdk.http2_client import Http2Client  # few need it

        host, path = _host_and_path(asked.target)
        self._http2 = Http2Client(host, path, asked.content_type, tls=asked.tls)
        super().__init__(user, self._http2)
        self._choked = self._full = self._closing = False

    def connectionMade(self) -> None:
        super().connectionMade()
        # Who is between us and the server may hold the request back until octets follow.
        self._user.opened()

    def _granted(self) -> None:
        """Go on: it was open already."""

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)
        self._look()
        if self._closing and not self._http2.waiting:
            self.close()

    def send(self, data: bytes) -> None:
        super().send(data)
        self._look()

    def close(self) -> None:
        self._closing = True
        if not self._http2.waiting or self._http2.closed:
            self._transport.write(self._http2.end())
            super().close()

    def pauseProducing(self) -> None:
        self._full = True
        super().pauseProducing()

    def resumeProducing(self) -> None:
        self._full = False
        if not self._choked:
            super().resumeProducing()

    def _look(self) -> None:
        """Tell whether the windows, too, take more."""
        waiting = self._http2.waiting
        if waiting > _WAITING_BYTES and not self._choked:
            self._choked = True
            super().pauseProducing()
        elif self._choked and not waiting:
            self._choked = False
            if not self._full:
                super().resumeProducing()
