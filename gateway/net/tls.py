"""One listener's TLS: certificates, reloaded when their files change, and client names.

Twisted's own ways fall short in three places, each kept by a test.  Its `tls:` endpoint
serves the first certificate for ever.  Its ALPN callback kills every client that offers
only protocols we do not list (`h2`).  And it has no deadline for the handshake (that is
`connection`'s).  What remains is its memory-BIO protocol, on a context of our own.

A client that comes again may bring a ticket for the session that it had, and is spared the
costly part of the handshake.  A ticket has the client's certificate, whose authority was
asked when it was given.  So tickets are good for one listener and one load of its files,
and for a short time.  Their keys are the context's, and OpenSSL never changes those.  So a
new context is made every few hours, and when a CRL ends: OpenSSL looks certificates up in
those only in the whole handshake.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from attrs import define
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator, IReactorTime
from twisted.internet.protocol import ServerFactory
from twisted.internet.ssl import CertificateOptions, TLSVersion
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from zope.interface import implementer

from gateway.config.listener import Tls
from gateway.config.revocation import CrlEnd, CrlList, crls_in, first_end, has_crl
from gateway.sdk.interfaces import Refusal
from gateway.sdk.outgoing import end_of, error_text

_VERSIONS: Mapping[str, TLSVersion] = {
    "TLSv1.2": TLSVersion.TLSv1_2,
    "TLSv1.3": TLSVersion.TLSv1_3,
}
_VERIFY = {
    "none": SSL.VERIFY_NONE,
    "optional": SSL.VERIFY_PEER,
    "required": SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT,
}

#: OpenSSL's codes, X509_V_ERR_….
_NO_CRL = 3
_CRL_EXPIRED = 12
_UNVERIFIED: Mapping[int, str] = {
    _NO_CRL: "is of an authority that has no CRL in tls.client_crl",
    8: "is of an authority whose CRL in tls.client_crl is signed by another",
    **dict.fromkeys((2, 18, 19, 20, 21), "is signed by no authority of tls.client_ca"),
    9: "is not valid yet",
    10: "has expired",
    11: "is of an authority whose CRL in tls.client_crl is not valid yet",
    _CRL_EXPIRED: "is of an authority whose CRL in tls.client_crl has expired",
    23: "is revoked",
    26: "is not for TLS clients",
}

_TICKET_SECONDS = 2 * 3600
"""A session may be resumed for so long."""
_KEYS_SECONDS = 4 * 3600.0
"""Tickets are made with the same keys for so long."""

_CRL_CHECK = crypto.X509StoreFlags.CRL_CHECK | crypto.X509StoreFlags.CRL_CHECK_ALL

_LABEL = re.compile(r"[\w-]+", re.ASCII)
"""The text that `*` stands for: part of a host's name, not of a subject or a mail address."""

_T = TypeVar("_T")
_UNUSABLE = (
    *(SSL.Error, crypto.Error, UnsupportedAlgorithm),
    *(OSError, ValueError, TypeError),
)
_Stamp = tuple[tuple[int, int, int] | None, ...]


class UnusableCertificate(Exception):
    """Certificate, key or CA can not be used; the text names the file."""


@implementer(IOpenSSLServerConnectionCreator)
@define(eq=False, slots=False)
class ServerTls:
    """Makes the TLS of one listener's connections.

    `check` it every few seconds, `reload` it on SIGHUP.  New connections get the files
    as they were at the last good load; old ones keep what they have.  Raises
    `UnusableCertificate` if there is no first good load.
    """

    _log = Logger()

    _listener: str
    _settings: Tls
    _clock: IReactorTime
    _alpn: Sequence[bytes] = ()

    def __attrs_post_init__(self) -> None:
        self._stamp = self._stat()
        self._context = self._load()
        allowed = self._settings.allowed_names
        self._allowed = frozenset(name.lower() for name in allowed)
        self._domains = {each[1:] for each in self._allowed if each[0] == "*"}
        self.factory = TLSMemoryBIOFactory(self, False, ServerFactory(), self._clock)
        # Not the buffering one: servers join their small writes themselves, and its
        # timer for each would cost more than a record.
        self.factory.protocol = TLSMemoryBIOProtocol

    def serverConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        return SSL.Connection(self._context, None)

    def check(self) -> None:
        """Reload if any of the files changed; take new keys for tickets now and then."""
        if self._stat() != self._stamp:
            self.reload()
        elif self._clock.seconds() >= self._load_again_at:
            with contextlib.suppress(UnusableCertificate):  # `reload` has said so
                self._context = self._load()

    def reload(self) -> str | None:
        """Read the files again; if they can not be used, log it and keep what we have.

        Returns why they can not.
        """
        self._stamp = self._stat()
        try:
            self._context = self._load()
        except UnusableCertificate as why:
            self._log.error(
                "{listener}: new certificate not used, the old one stays: {why}",
                listener=self._listener,
                why=str(why),
            )
            return f"listener {self._listener}: tls: {why}; the old certificate stays"
        self._log.info(
            "{listener}: certificate reloaded from {path}",
            listener=self._listener,
            path=str(self._settings.certificate),
        )
        return None

    def principal(self, certificate: x509.Certificate | None) -> str | None:
        """The subject of a client's certificate; None without one.

        Raises `Refusal` if none of its names is allowed, or if it has expired since the
        session began that is resumed.  A client without a certificate got here because
        `client_auth` lets it.
        """
        if certificate is None:
            return None
        subject = certificate.subject.rfc4514_string()
        now = datetime.fromtimestamp(self._clock.seconds(), UTC)
        if certificate.not_valid_after_utc < now:
            raise Refusal(f"client certificate {subject[:200]!r} has expired")
        if self._allowed:
            self._allow(certificate.subject, _alternative_names(certificate))
        return subject

    def allow(self, client: x509.Name | None) -> None:
        """Raise `Refusal` unless a balancer's client may come in, whose TLS ends there.

        *client*: in the certificate that it has shown.
        """
        if client is not None:
            if self._allowed:
                self._allow(client)
        elif self._settings.client_auth == "required":
            raise Refusal(
                "no client certificate at its balancer", key="tls.client_auth"
            )

    def _allow(self, subject: x509.Name, others: Iterable[str] = ()) -> None:
        common = subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        whole = subject.rfc4514_string()
        names = (whole, *(str(each.value) for each in common), *others)
        if not any(self._is_allowed(name.lower()) for name in names):
            raise Refusal(
                f"certificate of {whole[:200]!r} is not an allowed one",
                key="tls.allowed_names",
            )

    def _is_allowed(self, name: str) -> bool:
        label, dot, domain = name.partition(".")
        is_below = dot + domain in self._domains and _LABEL.fullmatch(label)
        return name in self._allowed or bool(is_below)

    def _paths(self) -> list[Path]:
        settings = self._settings
        paths = [settings.certificate, settings.private_key]
        if settings.client_auth != "none" and settings.client_ca is not None:
            paths += [settings.client_ca, *settings.crl_files]
        return paths

    def _stat(self) -> _Stamp:
        return tuple(_identity(path) for path in self._paths())

    def _load(self) -> SSL.Context:
        settings = self._settings
        least = _VERSIONS[settings.minimum_version]
        # Twisted gives each context an id of its own, which its sessions are bound to.
        options = CertificateOptions(raiseMinimumTo=least, enableSessionTickets=True)
        context = options.getContext()
        context.set_timeout(_TICKET_SECONDS)
        context.set_options(SSL.OP_NO_RENEGOTIATION)
        context.set_alpn_select_callback(self._choose)
        certificate, key = str(settings.certificate), str(settings.private_key)
        _try(certificate, lambda: context.use_certificate_chain_file(certificate))
        _try(key, lambda: context.use_privatekey(_key(key)))
        _try(f"{key} with {certificate}", context.check_privatekey)
        if settings.client_auth != "none":
            authority = str(settings.client_ca)
            _try(authority, lambda: context.load_verify_locations(authority))
            _try(authority, lambda: context.load_client_ca(authority.encode()))
            if has_crl(_try(authority, Path(authority).read_bytes)):
                why = "has a CRL, which is looked at in tls.client_crl only"
                raise UnusableCertificate(f"client_ca: {authority}: {why}")
        crls = self._load_crls(context)
        context.set_verify(_VERIFY[settings.client_auth], self._verified)
        self.ends = end_of(Path(certificate))
        """When it does; UTC.  None if that can not be read."""
        refuses = settings.client_crl_expired == "refuse"
        crl_end, now = first_end(crls), self._clock.seconds()
        self.crl_end = CrlEnd(crl_end, refuses) if crl_end is not None else None
        """None: without CRLs, or if they never end."""
        self._load_again_at = now + _KEYS_SECONDS
        if crl_end is not None and now < crl_end.timestamp():
            self._load_again_at = min(self._load_again_at, crl_end.timestamp())
        return context

    def _load_crls(self, context: SSL.Context) -> CrlList:
        """Have OpenSSL look certificates up in those that there are."""
        found: CrlList = []
        if self._settings.client_auth == "none":
            return found
        for path in self._settings.crl_files:
            what, store = f"client_crl: {path}", context.get_cert_store()
            assert store is not None
            for each in _try(what, partial(crls_in, path)):
                _try(what, partial(store.add_crl, each))
                found.append(each)
            store.set_flags(_CRL_CHECK)
        return found

    def _verified(
        self, connection: SSL.Connection, found: Any, error: int, depth: int, good: int
    ) -> bool:
        """Whether a certificate is good enough: that of an authority may have no CRL."""
        if error == _NO_CRL and depth > 0:
            return True
        if error == _CRL_EXPIRED and self._settings.client_crl_expired == "accept":
            return True
        return _note_why(connection, found, error, depth, good)

    def _choose(self, _: SSL.Connection, offered: list[bytes]) -> Any:
        """ALPN: ours if offered; a client that offers none of ours is accepted."""
        for each in self._alpn:
            if each in offered:
                return each
        return SSL.NO_OVERLAPPING_PROTOCOLS


def _note_why(
    connection: SSL.Connection, certificate: Any, error: int, depth: int, good: int
) -> bool:
    """Leave word on the connection why OpenSSL does not take a certificate."""
    if not good:
        try:
            subject = certificate.to_cryptography().subject.rfc4514_string()[:200]
        except Exception as odd:  # a stranger has made it: it may be anything
            subject = f"unreadable: {error_text(odd)[:100]}"
        whose = "client certificate" if depth == 0 else "authority"
        why = _UNVERIFIED.get(error, f"is not valid (OpenSSL's error {error})")
        connection.set_app_data(f"{whose} {subject!r} {why}")
    return bool(good)


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _key(path: str) -> Any:
    """Not left to OpenSSL, which asks the terminal for the pass phrase of a key."""
    return load_pem_private_key(Path(path).read_bytes(), password=None)


def _try(what: str, load: Callable[[], _T]) -> _T:
    try:
        return load()
    except _UNUSABLE as why:
        raise UnusableCertificate(f"{what}: {error_text(why)}") from None


def _alternative_names(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (x509.ExtensionNotFound, ValueError):
        return []
    return [
        str(each.value)
        for each in extension.value
        if isinstance(each.value, str) or isinstance(each, x509.IPAddress)
    ]
