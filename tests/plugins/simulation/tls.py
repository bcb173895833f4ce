"""TLS of the simulation: certificates, and a client that says which one it was shown, and
may show one of its own.

OpenSSL draws at random what no seed can choose.  So that it changes no length, keys are
Ed25519, and certificates have the same names, serial number and dates.
"""

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from OpenSSL import SSL
from twisted.internet.interfaces import (
    IOpenSSLClientConnectionCreator,
    IProtocolFactory,
    IReactorTime,
)
from twisted.protocols.tls import TLSMemoryBIOFactory
from zope.interface import implementer

__all__ = [
    "ALLOWED", "AUTHORITY", "NAMES", "WRONG", "authority", "client_factory", "pair",
]  # fmt: skip

NAMES = ("a", "b", "c")
"""Of all certificates of gateways that there are."""
AUTHORITY = "authority"
"""Signs those of clients."""
_FORGER = "forgers"
"""Would like to."""
ALLOWED = "shipper"
"""The client that may send."""
WRONG = ("another", "strange", None)
"""Those that may not: not allowed, signed by the forger, without a certificate."""


class _Issued(NamedTuple):
    certificate: x509.Certificate
    key: ed25519.Ed25519PrivateKey


@functools.cache
def _issued(name: str, issuer: str) -> _Issued:
    """Whoever signs for itself signs for others, too."""
    key = ed25519.Ed25519PrivateKey.generate()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2049, 1, 1, tzinfo=dt.UTC))
    )
    if name in (AUTHORITY, _FORGER):
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = certificate.add_extension(constraints, critical=True)
    signer = key if name == issuer else _issued(issuer, issuer).key
    return _Issued(certificate.sign(signer, None), key)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


@functools.cache
def pair(name: str) -> tuple[bytes, bytes]:
    """A gateway's certificate of this name, and its key, in PEM."""
    certificate, key = _issued(name, name)
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(pem), secret


@functools.cache
def authority() -> bytes:
    """The certificate of whom clients' are to be signed by, in PEM."""
    certificate = _issued(AUTHORITY, AUTHORITY).certificate
    return certificate.public_bytes(serialization.Encoding.PEM)


@functools.cache
def _context(client: str | None) -> SSL.Context:
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_verify(SSL.VERIFY_PEER, _look)
    if client is not None:
        signer = _FORGER if client == "strange" else AUTHORITY
        certificate, key = _issued(client, signer)
        context.use_certificate(certificate)
        context.use_privatekey(key)
    return context


def _look(
    connection: SSL.Connection, certificate: Any, error: int, depth: int, good: int
) -> bool:
    """Whoever signed it."""
    names = certificate.to_cryptography().subject
    [name] = names.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    connection.get_app_data().factory.shown(name.value)
    return True


@implementer(IOpenSSLClientConnectionCreator)
class _Creator:
    """Makes the client's end of one connection."""

    def __init__(self, client: str | None) -> None:
        self._client = client

    def clientConnectionForTLS(self, protocol: object) -> SSL.Connection:
        """See `IOpenSSLClientConnectionCreator`."""
        connection = SSL.Connection(_context(self._client), None)
        connection.set_app_data(protocol)
        connection.set_connect_state()
        return connection


class _Factory(TLSMemoryBIOFactory):
    def __init__(self, *given: Any, shown: Callable[[str], None]) -> None:
        super().__init__(*given)
        self.shown = shown


def client_factory(
    factory: IProtocolFactory,
    clock: IReactorTime,
    shown: Callable[[str], None],
    client: str | None,
) -> TLSMemoryBIOFactory:
    """*factory*'s protocols in TLS; *shown* is told whose certificate the server has, and
    the server sees that of *client*.
    """
    return _Factory(_Creator(client), True, factory, clock, shown=shown)
