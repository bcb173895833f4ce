"""One connection's TLS: Twisted's memory-BIO protocol between transport and connection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from cryptography import x509
from OpenSSL import SSL
from twisted.internet.interfaces import IHandshakeListener, IProtocol, ITransport
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.net.openssl_internals import renew_buffers
from gateway.net.tls import ServerTls
from gateway.net.transport import Transport
from gateway.sdk.outgoing import error_text


class _TlsTransport:
    """The transport that Twisted's TLS protocol sees.

    `loseConnection` only notes that TLS has ended: the connection closes the transport,
    with FIN, and lingers.
    """

    def __init__(self, transport: Transport) -> None:
        self.write = transport.write
        self.abortConnection = transport.abortConnection
        self.over = False

    def writeSequence(self, pieces: Sequence[bytes]) -> None:
        self.write(b"".join(pieces))

    def loseConnection(self) -> None:
        self.over = True

    def getPeer(self) -> None:
        return None

    def getHost(self) -> None:
        return None


@implementer(IProtocol, IHandshakeListener)
class TlsConnection:
    """Decrypts what it is fed; encrypts and sends what is written."""

    def __init__(self, tls: ServerTls, transport: Transport) -> None:
        self.established = False
        """The handshake is done, the peer's certificate known."""
        self.bare_bytes = 0
        """Bytes since the handshake, or since the last record that had data in it."""
        self.failure: str | None = None
        """Why the handshake failed, once `stop` was called."""
        self._tls = tls
        self._plain: list[bytes] = []
        self._below = _TlsTransport(transport)
        self._above = tls.factory.protocol(tls.factory, self)
        self._above.makeConnection(cast(ITransport, self._below))

    @property
    def over(self) -> bool:
        """The peer sent close_notify, or the handshake failed: close."""
        return self._below.over

    def feed(self, data: bytes) -> bytes:
        """*data* decrypted, in one piece."""
        established = self.established
        self._above.dataReceived(data)
        plain = self._plain
        if not plain:
            self.bare_bytes += len(data) * established
            return b""
        self.bare_bytes = 0
        self._plain = []
        return plain[0] if len(plain) == 1 else b"".join(plain)

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        self._above.write(data)

    def writeSequence(self, pieces: Iterable[bytes | memoryview]) -> None:
        self.write(b"".join(pieces))

    def renew_buffers(self) -> None:
        """Let go of what OpenSSL's buffers have grown to."""
        if self.established and not self.over:
            renew_buffers(self._above.getHandle())

    def close(self) -> None:
        """Send close_notify; the transport is not closed."""
        if self.established and not self.over:
            self._above.loseConnection()

    def stop(self, reason: Failure) -> None:
        """The transport is gone."""
        self._above.connectionLost(reason)

    def principal(self) -> str | None:
        certificate = self._above.getPeerCertificate()
        if certificate is None:
            return None
        return self._tls.principal(certificate.to_cryptography())

    def allow(self, client: x509.Name | None) -> None:
        self._tls.allow(client)

    @property
    def version(self) -> str:
        """`TLSv1.3`."""
        return str(self._above.getHandle().get_protocol_version_name())

    # Called by Twisted's TLS protocol, as the protocol above it

    def makeConnection(self, transport: object) -> None: ...

    def connectionMade(self) -> None: ...

    def handshakeCompleted(self) -> None:
        self.established = True

    def dataReceived(self, data: bytes) -> None:
        self._plain.append(data)

    def connectionLost(self, reason: Failure) -> None:
        if not isinstance(reason.value, SSL.Error):
            return
        text = error_text(reason.value)
        noted = self._above.getHandle().get_app_data()
        if isinstance(noted, str):
            text = noted
        elif "alert" in text:
            text = f"the client does not go on: {text}"
        self.failure = text
