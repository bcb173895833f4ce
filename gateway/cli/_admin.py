"""The admin port of a running gateway, as commands read it: an answer, or a stream."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway import default_config
from gateway.cli._config import add_config
from gateway.sdk.command import WrongUse, failure, secret_in

if TYPE_CHECKING:
    from gateway.config.model import Admin

_SECONDS = 10.0
"""Longer than the daemon takes for any answer, and the pause between two states."""
_RENEWED_SECONDS, _LOOK_SECONDS = 10.0, 0.2
"""How long a certificate may be in its file before the gateway shows it, twice what it needs;
and the pause between two looks."""
_DEFAULT = "127.0.0.1:8080"
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - what to connect to, not to bind


class Unreachable(Exception):
    """No answer, or not the one that was asked for; the text says why."""


class AdminPort:
    """One gateway's.  Every call opens a connection; threads may share it."""

    def __init__(
        self, address: str, token: str | None = None, tls: _Tls | None = None
    ) -> None:
        """*address* is `HOST:PORT` or `unix:PATH`; with *tls* it is spoken there."""
        self.address = address if tls is None else f"https://{address}"
        self.token = token
        self._where = address
        self._tls = tls

    def status(self) -> dict[str, Any]:
        """The answer of `/api/status`.  Raises `Unreachable`."""
        with self._get("/api/status") as answer:
            try:
                found = _object(answer)
            except (ValueError, OSError, http.client.HTTPException) as why:
                raise Unreachable(f"no status: {failure(why)}") from None
        if "node" not in found:
            raise Unreachable("what answers there is no gateway")
        return found

    def feed(self) -> Iterator[tuple[str, Any]]:
        """Kind and data of each event.  Raises `Unreachable`, also when the stream ends."""
        with self._get("/api/feed") as answer:
            kind = ""
            try:
                for line in answer:
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    if name == "event":
                        kind = value
                    elif name == "data":
                        yield kind, json.loads(value)
            except (ValueError, OSError, http.client.HTTPException) as why:
                raise Unreachable(f"it answers no more: {failure(why)}") from None
        raise Unreachable("it closed the connection")

    def ask(
        self, path: str, post: Any = None, seconds: float = _SECONDS
    ) -> tuple[int, dict[str, Any]]:
        """Status and answer, whatever status it is; *post*: to be posted as JSON.

        An answer may take so many *seconds*.  Raises `Unreachable`.
        """
        with self._request(path, post, seconds) as answer:
            try:
                return answer.status, _object(answer)
            except (ValueError, OSError, http.client.HTTPException) as why:
                raise Unreachable(
                    f"{answer.status}, no answer: {failure(why)}"
                ) from None

    def _request(
        self, path: str, post: Any = None, seconds: float = _SECONDS
    ) -> http.client.HTTPResponse:
        headers = (
            {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        )
        body = None
        if post is not None:
            body = json.dumps(post)
            headers["Content-Type"] = "application/json"
        connection = _Connection(self._where, seconds, self._tls)
        try:
            _connect(connection)
            connection.request("GET" if body is None else "POST", path, body, headers)
            return connection.getresponse()
        except (OSError, ValueError, http.client.HTTPException) as why:
            connection.close()  # ValueError: a token that no header can have
            raise Unreachable(failure(why).lower()) from None

    def _get(self, path: str) -> http.client.HTTPResponse:
        answer = self._request(path)
        if answer.status == http.client.OK:
            return answer
        said = ""
        with answer, contextlib.suppress(OSError, http.client.HTTPException):
            said = answer.read(500).decode(errors="replace").strip().rstrip(".")
        hint = "; say --token-file" if answer.status == http.client.UNAUTHORIZED else ""
        raise Unreachable(f"{answer.status} {said}{hint}")


def _object(answer: http.client.HTTPResponse) -> dict[str, Any]:
    found = json.load(answer)
    if not isinstance(found, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - what json raises, too
    return found


def _connect(connection: http.client.HTTPConnection) -> None:
    """A gateway whose certificate was just renewed may need a moment to have read it."""
    until = time.monotonic() + _RENEWED_SECONDS
    while True:
        try:
            connection.connect()
        except _Another:
            if time.monotonic() >= until:
                raise
            time.sleep(_LOOK_SECONDS)
        else:
            return


class _Another(OSError): ...


class _Tls:
    """How we know the gateway, and it us."""

    def __init__(self, context: ssl.SSLContext, shows: bytes | None = None) -> None:
        """*shows* is a certificate that is enough, whatever its issuer and its name."""
        self._context = context
        self._shows = shows
        if shows is not None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE

    def over(self, plain: socket.socket, host: str) -> ssl.SSLSocket:
        """Shake hands.  Raises OSError."""
        made = self._context.wrap_socket(plain, server_hostname=host)
        if self._shows not in (None, made.getpeercert(binary_form=True)):
            made.close()
            raise _Another("it has another certificate than admin.tls.certificate")
        return made


class _Connection(http.client.HTTPConnection):
    """HTTP to `HOST:PORT` or `unix:PATH`, and maybe over TLS."""

    def __init__(self, address: str, seconds: float, tls: _Tls | None) -> None:
        kind, _, rest = address.partition(":")
        self._path = rest if kind == "unix" else None
        self._tls = tls
        host, _, port = (
            ("localhost", "", "80") if self._path else address.rpartition(":")
        )
        super().__init__(host.strip("[]"), int(port), timeout=seconds)

    def connect(self) -> None:
        if self._path is None:
            super().connect()
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        if self._tls is not None:
            self.sock = self._tls.over(self.sock, self.host)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--config` and `--address`: which gateway's admin port."""
    where = parser.add_mutually_exclusive_group()
    add_config(
        where,
        "its configuration, which has admin.listen and admin.token",
        ", if one is there",
    )
    where.add_argument(
        "--address", metavar="HOST:PORT",
        help="its admin port: HOST:PORT, https://HOST:PORT or unix:PATH "
        f"(default without a file: {_DEFAULT})",
    )  # fmt: skip
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="has what admin.token asks for"
    )
    add_certificates(parser)


def add_certificates(parser: argparse.ArgumentParser, default: Any = None) -> None:
    add = partial(parser.add_argument, type=Path, metavar="PEM", default=default)
    add(
        "--ca",
        help="who signed its certificate (default: whom this machine trusts; with its "
        "configuration, the certificate there)",
    )  # fmt: skip
    add("--cert", help="our certificate, if it wants one")
    add("--key", help="the private key of --cert")


def admin_port(args: argparse.Namespace) -> AdminPort:
    """The one that the arguments name.  Raises `WrongUse`, `config.Invalid`."""
    token = token_in(args.token_file)
    file = _file(args)
    if file is not None:
        from gateway import config

        return port_of(file, config.load(file).admin, args, token)
    return port_at(args.address or _DEFAULT, token, args)


def all_ports(args: argparse.Namespace) -> list[AdminPort]:
    """The admin port and those of its `admin.peers`.  Raises `WrongUse`, `config.Invalid`."""
    own = admin_port(args)
    file = _file(args)
    if file is None:
        return [own]
    from gateway import config

    admin = config.load(file).admin
    given = {"ca": args.ca or admin.peers_ca, "cert": args.cert, "key": args.key}
    if args.cert is None and args.key is None:
        given |= {"cert": admin.peers_certificate, "key": admin.peers_private_key}
    args = argparse.Namespace(**{**vars(args), **given})
    addresses = (one.removeprefix("http://") for one in admin.peers)
    return [own, *(port_at(_with_port(one), own.token, args) for one in addresses)]


def _with_port(address: str) -> str:
    """Http's own, if it names none."""
    if address.startswith("unix:") or _has_port(address.removeprefix("https://")):
        return address
    return f"{address}:{443 if address.startswith('https://') else 80}"


def _file(args: argparse.Namespace) -> str | None:
    """The configuration that the arguments mean; None: an address."""
    found: str | None = args.config
    if found is None and args.address is None and Path(default_config()).is_file():
        return default_config()
    return found


def token_in(file: Path | None) -> str | None:
    """The token in the file of `--token-file`.  Raises `WrongUse`."""
    return None if file is None else secret_in(file, "--token-file")


def port_at(
    address: str, token: str | None, certificates: argparse.Namespace
) -> AdminPort:
    """The one at `HOST:PORT`, `https://HOST:PORT` or `unix:PATH`.  Raises `WrongUse`."""
    where = address.removeprefix("https://")
    if not where.startswith("unix:/") and not _has_port(where):
        raise WrongUse(f"not HOST:PORT, https://HOST:PORT, nor unix:PATH: {address!r}")
    return AdminPort(
        where, token, None if where == address else _Tls(_context(certificates))
    )


def _context(given: argparse.Namespace) -> ssl.SSLContext:
    """The TLS context from the options of `add_certificates`.  Raises `WrongUse`."""
    if given.key is not None and given.cert is None:
        raise WrongUse("--key needs --cert")
    try:
        context = ssl.create_default_context(cafile=given.ca)
        if given.cert is not None:
            context.load_cert_chain(given.cert, given.key)
    except OSError as why:
        files = " ".join(str(one) for one in (given.ca, given.cert, given.key) if one)
        raise WrongUse(
            f"no certificate, or not with its key: {files}: {failure(why)}"
        ) from None
    return context


def _has_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 65536


def port_of(
    file: str | Path,
    admin: Admin,
    certificates: argparse.Namespace,
    token: str | None = None,
) -> AdminPort:
    """The admin port that *file* configures; *token* goes before its own.  Raises `WrongUse`."""
    from gateway.sdk.endpoint import Tcp, Unix

    if token is None and admin.token is not None:
        token = admin.token.get_secret_value()
    tls = None
    if admin.tls is not None:
        own = None if certificates.ca else _first_in(admin.tls.certificate)
        tls = _Tls(_context(certificates), own)
    match admin.listen:
        case Unix(path):
            return AdminPort(f"unix:{path}", token, tls)
        case Tcp(host, port) if port:
            name = "127.0.0.1" if host in _EVERYWHERE else host
            at = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
            return AdminPort(at, token, tls)
    raise WrongUse(f"{file}: admin.listen is {admin.listen}; say --address")


def _first_in(file: Path) -> bytes:
    """The certificate that a gateway with this file shows.  Raises `WrongUse`."""
    try:
        found = re.search(
            f"{ssl.PEM_HEADER}.*?{ssl.PEM_FOOTER}", file.read_text(), re.DOTALL
        )
        return ssl.PEM_cert_to_DER_cert(found[0] if found else "")
    except (OSError, ValueError) as why:
        raise WrongUse(
            f"admin.tls.certificate: {file}: {failure(why)}; say --ca"
        ) from None
