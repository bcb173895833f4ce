"""Clients of a listener in memory that speak TLS: who gets in, and who comes again."""

import ssl
from typing import Any

import pytest
from cryptography import x509

__all__ = ["TEST", "VERSIONS", "WEB_1", "admitted", "resumed"]

TEST = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "Test")])
WEB_1 = x509.Name([*TEST, x509.NameAttribute(x509.NameOID.COMMON_NAME, "web-1")])
VERSIONS = pytest.mark.parametrize(
    "newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
)


def resumed(net: Any, client: Any) -> Any:
    """The same client again; whether it was spared a handshake is `tls.session_reused`."""
    again = client.again(net.peer())
    again.shake_hands()
    return again


def admitted(net: Any, client: Any) -> bool:
    """Whether the handshake and everything after it went well."""
    try:
        client.shake_hands()
        client.send(b"x")
    except (ssl.SSLError, AssertionError):
        return False
    return bool(net.servers and net.server.data)
