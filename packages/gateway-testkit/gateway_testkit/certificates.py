"""A certificate authority for tests of real TLS and the demo; valid for one day."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["Authority", "Pair"]


class Pair(NamedTuple):
    """PEM files."""

    certificate: Path
    key: Path

    def write(
        self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        """Write both; the key is for its owner alone, and not encrypted."""
        self.certificate.write_bytes(_pem(certificate))
        self.key.touch(mode=0o600)
        self.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )


class Authority:
    """Signs certificates; its own is the file `ca`.  That is signed by itself, or by *above*."""

    def __init__(
        self, home: Path, name: str = "authority", above: Authority | None = None
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = home / f"{name}.pem"
        (above or self).certify(self.ca, self._name, self._key.public_key())

    def certify(
        self, file: Path, name: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> None:
        """Write a certificate for an authority of that name."""
        draft = self._draft(name, key, authority=True).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        file.write_bytes(_pem(draft.sign(self._key, hashes.SHA256())))

    def issue(
        self,
        name: str,
        file: str | None = None,
        *,
        subject: x509.Name | None = None,
        dns: Sequence[str] = (),
        valid: dt.timedelta = dt.timedelta(days=1),
    ) -> Pair:
        """A certificate for *name*, valid for a server on this machine too.

        In files of that name, or of *file*.  *subject* is used instead of *name*; *dns*
        are further alternative names.  *valid*: for so long from now; negative: it has
        expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [
            x509.IPAddress(ip_address("127.0.0.1")),
            *(x509.DNSName(each) for each in ("localhost", *dns)),
        ]
        draft = (
            self._draft(subject or _named(name), key.public_key(), valid)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.BasicConstraints(ca=False, path_length=None), critical=True
            )
        )
        stem = file or name
        pair = Pair(self._home / f"{stem}.pem", self._home / f"{stem}.key")
        pair.write(draft.sign(self._key, hashes.SHA256()), key)
        return pair

    def revoke(
        self, *revoked: Path, valid: dt.timedelta = dt.timedelta(days=1)
    ) -> bytes:
        """The CRL, in PEM, with these certificates; *valid* as in `issue`."""
        now = dt.datetime.now(dt.UTC)
        draft = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now - dt.timedelta(hours=1))
            .next_update(now + valid)
        )
        for path in revoked:
            [found] = x509.load_pem_x509_certificates(path.read_bytes())
            draft = draft.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(found.serial_number)
                .revocation_date(now)
                .build()
            )
        return draft.sign(self._key, hashes.SHA256()).public_bytes(
            serialization.Encoding.PEM
        )

    def _draft(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        valid: dt.timedelta = dt.timedelta(days=1),
        *,
        authority: bool = False,
    ) -> x509.CertificateBuilder:
        """A certificate with the extensions that strict verifiers (Python 3.13) insist on."""
        now = dt.datetime.now(dt.UTC)
        ours = self._key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + valid)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ours), critical=False
            )
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=authority,
                    crl_sign=authority,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
