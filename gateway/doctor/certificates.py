"""Looks at certificates: can they be read, are they valid, do keys belong to them?

It tells from when until when they are, and for which names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from gateway.config import Config
from gateway.config.listener import Tls
from gateway.config.model import Forward
from gateway.config.revocation import crls_in, first_end
from gateway.doctor.look import Look, fail, ok, warn

SOON = timedelta(days=30)
"""A certificate that is valid for less than that is told."""
_CRL_SOON = timedelta(days=7)

_RENEW = "renew it; the daemon reads a changed file by itself"
_NEW_CRL = "put its authority's new one there; the daemon reads it by itself"
_GROUP_READS, _OTHERS_READ = 0o040, 0o004


def examine(config: Config, now: datetime | None = None) -> Iterator[Look]:
    found = [(listener.name, listener.tls) for listener in config.listeners]
    for name, tls in [*found, ("admin", config.admin.tls)]:
        if tls is not None:
            what = f"certificate of {name}"
            yield from _looks(what, _of_listener(what, tls, now or datetime.now(UTC)))
    if (hub := config.forward) is not None:
        what = "certificate of forward"
        yield from _looks(what, _of_forward(what, hub, now or datetime.now(UTC)))


def _looks(what: str, found: Iterator[Look]) -> Iterator[Look]:
    try:
        yield from found
    except _Unusable as why:
        yield fail(
            what, str(why), "put a PEM file there that the daemon's user can read"
        )


def _of_listener(what: str, tls: Tls, now: datetime) -> Iterator[Look]:
    chain = _read(tls.certificate)
    yield from _pair(what, chain, tls.certificate, tls.private_key, now)
    yield _names(what, chain[0])
    if tls.client_auth != "none" and tls.client_ca is not None:
        for one in _read(tls.client_ca):
            yield _valid(f"{what}, client_ca", one, now, tls.client_ca)
        for path in tls.crl_files:
            yield _crl(f"{what}, client_crl", path, now)


def _of_forward(what: str, hub: Forward, now: datetime) -> Iterator[Look]:
    if hub.certificate is not None:
        chain = _read(hub.certificate)
        key = hub.private_key or hub.certificate
        yield from _pair(what, chain, hub.certificate, key, now)
    if hub.ca is not None:
        for one in _read(hub.ca):
            yield _valid(f"{what}, ca", one, now, hub.ca)


def _pair(
    what: str,
    chain: Sequence[x509.Certificate],
    certificate: Path,
    key: Path,
    now: datetime,
) -> Iterator[Look]:
    yield _key(what, certificate, key, chain[0])
    for number, one in enumerate(chain):
        role = what if number == 0 else f"{what}, intermediate {number}"
        yield _valid(role, one, now, certificate)


class _Unusable(Exception):
    """A file that can not be read as what it should be."""


def _read(path: Path) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as why:
        raise _Unusable(f"{path}: {why.strerror}") from None
    except (ValueError, UnsupportedAlgorithm) as why:
        raise _Unusable(f"{path}: no certificate in PEM: {why}") from None
    return found


def _key(what: str, of: Path, path: Path, certificate: x509.Certificate) -> Look:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
        file = path.stat()
    except OSError as why:
        raise _Unusable(f"{path}: {why.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm) as why:
        raise _Unusable(f"{path}: no key in PEM without a pass phrase: {why}") from None
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if key.public_key().public_bytes(*form) != certificate.public_key().public_bytes(
        *form
    ):
        return fail(
            f"{what}, key",
            f"{path} is not the key of {of}",
            "put the two of one issue there; the certificate comes before intermediates",
        )
    # The daemon reads a key of root's as one of its group: so packages and Kubernetes have it.
    is_roots = file.st_uid == 0
    if file.st_mode & (_OTHERS_READ if is_roots else _OTHERS_READ | _GROUP_READS):
        detail = f"{path} can be read by others (mode {file.st_mode & 0o777:o})"
        group = (
            "chgrp it to the daemon's group, and chmod 640" if is_roots else "chmod 600"
        )
        return warn(f"{what}, key", detail, f"{group} {path}")
    return ok(f"{what}, key", f"{path} belongs to it")


def _valid(what: str, certificate: x509.Certificate, now: datetime, path: Path) -> Look:
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < first:
        detail = f"{path} is valid from {first:%Y-%m-%d %H:%M} UTC on"
        return fail(what, detail, "wait, or look at this machine's clock")
    return _until(what, path, last, now, SOON, _RENEW)


def _crl(what: str, path: Path, now: datetime) -> Look:
    try:
        end = first_end(crls_in(path))
    except OSError as why:
        raise _Unusable(f"{path}: {why.strerror}") from None
    except ValueError as why:
        raise _Unusable(f"{path}: {why}") from None
    if end is None:
        return ok(what, f"{path} does not expire")
    return _until(what, path, end, now, _CRL_SOON, _NEW_CRL)


def _until(
    what: str, path: Path, end: datetime, now: datetime, soon: timedelta, advice: str
) -> Look:
    until = f"valid until {end:%Y-%m-%d %H:%M} UTC"
    if end <= now:
        return fail(what, f"{path} has expired: {until}", advice)
    if end - now < soon:
        return warn(what, f"{path} is {until}, {(end - now).days} days", advice)
    return ok(what, until)


def _names(what: str, certificate: x509.Certificate) -> Look:
    names: Sequence[str] = ()
    try:
        found = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        names = [str(one.value) for one in found.value]
    except (x509.ExtensionNotFound, ValueError):
        pass
    if names:
        return ok(f"{what}, names", f"clients may call it {', '.join(names[:8])}")
    return warn(
        f"{what}, names",
        "it has no alternative names, and clients look at nothing else",
        "have it issued with the names and addresses by which clients connect",
    )
