"""CRLs of a listener's `tls.client_crl`: reads their files, and tells when they end.

A certificate revocation list (CRL, RFC 5280) has the serial numbers of the certificates
that an authority has revoked, and the time of the next list, a few days later.  OpenSSL
looks client certificates up in it, in the handshake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

_BEGIN = b"-----BEGIN X509 CRL-----"
_PEM = re.compile(_BEGIN + rb".+?-----END X509 CRL-----", re.DOTALL)
_FOR_EVER = datetime.max.replace(tzinfo=UTC)

CrlList = list[x509.CertificateRevocationList]


class CrlEnd(NamedTuple):
    """The end of a CRL: of several authorities' newest ones, the first."""

    at: datetime
    """UTC."""
    refuses: bool
    """Client certificates of that authority are refused from then on."""


def has_crl(pem: bytes) -> bool:
    return _BEGIN in pem


def crls_in(path: Path) -> CrlList:
    """All those in a file of PEM.  Raises OSError, and ValueError if there is none."""
    found = _PEM.findall(path.read_bytes())
    if not found:
        raise ValueError("no CRL in PEM (openssl crl -inform DER makes one of DER)")
    try:
        return [x509.load_pem_x509_crl(each) for each in found]
    except (ValueError, UnsupportedAlgorithm) as why:
        raise ValueError(f"a CRL that can not be read: {why}") from None


def first_end(crls: Iterable[x509.CertificateRevocationList]) -> datetime | None:
    """When the first of several authorities needs a new one; None if none ever does."""
    ends: dict[bytes, datetime] = {}
    for crl in crls:
        issuer, end = crl.issuer.public_bytes(), crl.next_update_utc or _FOR_EVER
        ends[issuer] = max(end, ends.get(issuer, end))
    first = min(ends.values(), default=_FOR_EVER)
    return None if first is _FOR_EVER else first
