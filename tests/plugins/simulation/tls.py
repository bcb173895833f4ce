"""TLS of the simulation: certificates, and a client that says which one it was shown.

OpenSSL draws at random what no seed can choose.  So that it changes no length, keys are
Ed25519, and certificates have the same names, serial number and dates.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any

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

__all__ = ["NAMES", "client_factory", "pair"]

NAMES = ("a", "b", "c")
"""Of all certificates that there are."""


@functools.cache
def pair(name: str) -> tuple[bytes, bytes]:
    """A certificate of this name, and its key, in PEM."""
    key = ed25519.Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2049, 1, 1, tzinfo=dt.UTC))
        .sign(key, None)
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(pem), secret


@functools.cache
def _context() -> SSL.Context:
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_verify(SSL.VERIFY_PEER, _look)
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

    def clientConnectionForTLS(self, protocol: object) -> SSL.Connection:
        """See `IOpenSSLClientConnectionCreator`."""
        connection = SSL.Connection(_context(), None)
        connection.set_app_data(protocol)
        connection.set_connect_state()
        return connection


class _Factory(TLSMemoryBIOFactory):
    def __init__(self, *given: Any, shown: Callable[[str], None]) -> None:
        super().__init__(*given)
        self.shown = shown


def client_factory(
    factory: IProtocolFactory, clock: IReactorTime, shown: Callable[[str], None]
) -> TLSMemoryBIOFactory:
    """*factory*'s protocols in TLS; *shown* is told whose certificate the server has."""
    return _Factory(_Creator(), True, factory, clock, shown=shown)
