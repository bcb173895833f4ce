"""TLS: one listener's certificate, renewed without a restart, and a connection's layer.

Twisted's own ways fall short in three places, each kept by a test: its `tls:` endpoint
serves the first certificate for ever; its ALPN callback kills every client that offers
only protocols we do not list (`h2`); and it has no deadline for the handshake (that is
`connection`'s).  What remains is its memory-BIO protocol, on a context of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from OpenSSL import SSL
from twisted.internet.interfaces import (
    IHandshakeListener,
    IOpenSSLServerConnectionCreator,
    IProtocol,
    IReactorTime,
    ITransport,
)
from twisted.internet.protocol import ServerFactory
from twisted.internet.ssl import CertificateOptions, TLSVersion
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.config.model import Tls
from gateway.interfaces import Refusal
from gateway.net.wire import Wire

__all__ = ["Layer", "ServerTls", "Unusable"]

_VERSIONS: Mapping[str, TLSVersion] = {
    "TLSv1.2": TLSVersion.TLSv1_2,
    "TLSv1.3": TLSVersion.TLSv1_3,
}
_VERIFY = {
    "none": SSL.VERIFY_NONE,
    "optional": SSL.VERIFY_PEER,
    "required": SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT,
}

_Stamp = tuple[tuple[int, int, int] | None, ...]


class Unusable(Exception):
    """Certificate, key or CA can not be used; the text names the file."""


@implementer(IOpenSSLServerConnectionCreator)
class ServerTls:
    """One listener's TLS.  `check` it every few seconds, `reload` it on SIGHUP.

    New connections get the files as they were at the last good load; old ones keep
    what they have.  Raises `Unusable` if there is no first good load.
    """

    _log = Logger()

    def __init__(
        self,
        listener: str,
        config: Tls,
        clock: IReactorTime,
        *,
        alpn: Sequence[bytes] = (),
    ) -> None:
        self._listener = listener
        self._config = config
        self._alpn = tuple(alpn)
        self._stamp = self._stat()
        self._context = self._load()
        self._allowed = frozenset(name.lower() for name in config.allowed_names)
        self.factory = TLSMemoryBIOFactory(self, False, ServerFactory(), clock)
        # Not the buffering one: servers join their small writes themselves, and its
        # timer for each would cost more than a record.
        self.factory.protocol = TLSMemoryBIOProtocol

    def serverConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """See IOpenSSLServerConnectionCreator."""
        return SSL.Connection(self._context, None)

    def check(self) -> None:
        """Reload if any of the files is another one than it was."""
        if self._stat() != self._stamp:
            self.reload()

    def reload(self) -> None:
        """Read the files again; if they are no good, keep what we have and say so."""
        self._stamp = self._stat()
        try:
            self._context = self._load()
        except Unusable as why:
            self._log.error(
                "{listener}: new certificate not used, the old one stays: {why}",
                listener=self._listener,
                why=str(why),
            )
        else:
            self._log.info(
                "{listener}: certificate reloaded from {path}",
                listener=self._listener,
                path=str(self._config.certificate),
            )

    def principal(self, certificate: x509.Certificate | None) -> str | None:
        """The subject of a client's certificate; None without one.

        Raises `Refusal` if none of its names is allowed.  A client without a
        certificate got here because `client_auth` lets it.
        """
        if certificate is None:
            return None
        subject = certificate.subject.rfc4514_string()
        names = {subject, *_names(certificate)}
        if self._allowed and self._allowed.isdisjoint(name.lower() for name in names):
            raise Refusal(
                f"certificate of {subject[:200]!r} is not an allowed one",
                key="tls.allowed_names",
            )
        return subject

    def _paths(self) -> list[Path]:
        config = self._config
        paths = [config.certificate, config.private_key]
        if config.client_auth != "none" and config.client_ca is not None:
            paths.append(config.client_ca)
        return [Path(path) for path in paths]

    def _stat(self) -> _Stamp:
        return tuple(_identity(path) for path in self._paths())

    def _load(self) -> SSL.Context:
        config = self._config
        least = _VERSIONS[config.minimum_version]
        context = CertificateOptions(raiseMinimumTo=least).getContext()
        context.set_options(SSL.OP_NO_RENEGOTIATION)
        context.set_alpn_select_callback(self._choose)
        certificate, key = str(config.certificate), str(config.private_key)
        _try(certificate, lambda: context.use_certificate_chain_file(certificate))
        _try(key, lambda: context.use_privatekey(_key(key)))
        _try(f"{key} with {certificate}", context.check_privatekey)
        if config.client_auth != "none":
            authority = str(config.client_ca)
            _try(authority, lambda: context.load_verify_locations(authority))
            _try(authority, lambda: context.load_client_ca(authority.encode()))
        context.set_verify(_VERIFY[config.client_auth])
        return context

    def _choose(self, _: SSL.Connection, offered: list[bytes]) -> Any:
        """ALPN: ours if offered; a client that offers none of ours is let in."""
        for each in self._alpn:
            if each in offered:
                return each
        return SSL.NO_OVERLAPPING_PROTOCOLS


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _key(path: str) -> Any:
    """Not left to OpenSSL, which asks the terminal for the pass phrase of a key."""
    return load_pem_private_key(Path(path).read_bytes(), password=None)


def _try(what: str, load: Callable[[], object]) -> None:
    try:
        load()
    except (SSL.Error, OSError, ValueError, TypeError, UnsupportedAlgorithm) as why:
        raise Unusable(f"{what}: {_reason(why)}") from None


def _reason(why: BaseException) -> str:
    """OpenSSL's words instead of its tuples."""
    if isinstance(why, SSL.Error) and why.args and isinstance(why.args[0], list):
        return ", ".join(each[-1] for each in why.args[0]) or "no reason given"
    text = why.strerror if isinstance(why, OSError) else str(why)
    return text or type(why).__name__


def _names(certificate: x509.Certificate) -> list[str]:
    """Common names and alternative names."""
    oid = x509.NameOID.COMMON_NAME
    names = [
        str(each.value) for each in certificate.subject.get_attributes_for_oid(oid)
    ]
    try:
        extension = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (x509.ExtensionNotFound, ValueError):
        return names
    return names + [
        str(each.value)
        for each in extension.value
        if isinstance(each.value, str) or isinstance(each, x509.IPAddress)
    ]


class _Below:
    """The transport that Twisted's TLS protocol sees.

    Closing is left to the connection, which does it with FIN and lingers; so all that
    `loseConnection` does is to note that TLS is through.
    """

    def __init__(self, wire: Wire) -> None:
        self.write = wire.write
        self.abortConnection = wire.abortConnection
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
class Layer:
    """One connection's TLS: sealed bytes in by `feed`, plain ones in by `write`."""

    def __init__(self, tls: ServerTls, wire: Wire) -> None:
        self.established = False
        """The handshake is done, the peer's certificate known."""
        self.failure: str | None = None
        """Why the handshake failed, once `stop` was called."""
        self._tls = tls
        self._plain: list[bytes] = []
        self._below = _Below(wire)
        self._above = tls.factory.protocol(tls.factory, self)
        self._above.makeConnection(cast(ITransport, self._below))

    @property
    def over(self) -> bool:
        """The peer said goodbye, or the handshake failed: close."""
        return self._below.over

    def feed(self, data: bytes) -> bytes:
        """What *data* holds for us, in one piece."""
        self._above.dataReceived(data)
        plain = self._plain
        if not plain:
            return b""
        self._plain = []
        return plain[0] if len(plain) == 1 else b"".join(plain)

    def write(self, data: bytes) -> None:
        """Seal and send."""
        self._above.write(data)

    def close(self) -> None:
        """Say goodbye; the wire is not closed."""
        if self.established and not self.over:
            self._above.loseConnection()

    def stop(self, reason: Failure) -> None:
        """The wire is gone."""
        self._above.connectionLost(reason)

    def principal(self) -> str | None:
        """See `ServerTls.principal`."""
        certificate = self._above.getPeerCertificate()
        if certificate is None:
            return None
        return self._tls.principal(certificate.to_cryptography())

    @property
    def version(self) -> str:
        """`TLSv1.3`."""
        return str(self._above.getHandle().get_protocol_version_name())

    # What Twisted's TLS protocol tells the protocol above it

    def makeConnection(self, transport: object) -> None:
        """See IProtocol."""

    def connectionMade(self) -> None:
        """See IProtocol."""

    def handshakeCompleted(self) -> None:
        """See IHandshakeListener."""
        self.established = True

    def dataReceived(self, data: bytes) -> None:
        """See IProtocol."""
        self._plain.append(data)

    def connectionLost(self, reason: Failure) -> None:
        """See IProtocol."""
        if isinstance(reason.value, SSL.Error):
            self.failure = _reason(reason.value)
