"""The admin port of a running gateway, as commands read it: an answer, or a stream."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.cli._data_dir import DEFAULT_CONFIG
from gateway.sdk.command import WrongUse

if TYPE_CHECKING:
    from gateway.config.model import Admin

__all__ = [
    "AdminPort",
    "Unreachable",
    "add_arguments",
    "admin_port",
    "port_at",
    "port_of",
    "token_in",
]

_SECONDS = 10.0
"""Longer than the daemon takes for any answer, and the pause between two states."""
_DEFAULT = "127.0.0.1:8080"
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - what to connect to, not to bind


class Unreachable(Exception):
    """Nobody answers, or not with what was asked for; the text says why."""


class AdminPort:
    """One gateway's.  Every call opens a connection; threads may share it."""

    def __init__(self, address: str, token: str | None = None) -> None:
        """*address* is `HOST:PORT` or `unix:PATH`."""
        self.address = address
        self._token = token

    def status(self) -> dict[str, Any]:
        """What `/api/status` says.  Raises `Unreachable`."""
        with self._get("/api/status") as answer:
            try:
                found = _object(answer)
            except (ValueError, OSError, http.client.HTTPException) as why:
                raise Unreachable(f"no status: {why}") from None
        if "node" not in found:
            raise Unreachable("what answers there is no gateway")
        return found

    def feed(self) -> Iterator[tuple[str, Any]]:
        """The kind and the data of each event, as long as there are any.

        Raises `Unreachable`, also when the stream ends.
        """
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
                raise Unreachable(f"it answers no more: {why}") from None
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
                raise Unreachable(f"{answer.status}, no answer: {why}") from None

    def _request(
        self, path: str, post: Any = None, seconds: float = _SECONDS
    ) -> http.client.HTTPResponse:
        headers = (
            {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        )
        body = None
        if post is not None:
            body = json.dumps(post)
            headers["Content-Type"] = "application/json"
        connection = _connection(self.address, seconds)
        try:
            connection.request("GET" if body is None else "POST", path, body, headers)
            return connection.getresponse()
        except (OSError, ValueError, http.client.HTTPException) as why:
            connection.close()  # ValueError: a token that no header can have
            text = getattr(why, "strerror", None) or str(why) or type(why).__name__
            raise Unreachable(text.lower()) from None

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


def _connection(address: str, seconds: float) -> http.client.HTTPConnection:
    if address.startswith("unix:"):
        return _UnixConnection(address.removeprefix("unix:"), seconds)
    host, _, port = address.rpartition(":")
    return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=seconds)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        """See `http.client.HTTPConnection`."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which gateway: by its configuration, or by the address of its admin port."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--config", metavar="FILE",
        help=f"its configuration, which has admin.listen and admin.token (default: "
        f"{DEFAULT_CONFIG}, if it is there)",
    )  # fmt: skip
    where.add_argument(
        "--address", metavar="HOST:PORT",
        help=f"its admin port, or unix:PATH (default without a file: {_DEFAULT})",
    )  # fmt: skip
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="has what admin.token asks for"
    )


def admin_port(args: argparse.Namespace) -> AdminPort:
    """The one that the arguments name.  Raises `WrongUse`, `config.Invalid`."""
    token = token_in(args.token_file)
    file = args.config
    if file is None and args.address is None and Path(DEFAULT_CONFIG).is_file():
        file = DEFAULT_CONFIG
    if file is not None:
        return _configured(file, token)
    return port_at(args.address or _DEFAULT, token)


def token_in(file: Path | None) -> str | None:
    """What `--token-file` says.  Raises `WrongUse`."""
    if file is None:
        return None
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as why:
        raise WrongUse(f"--token-file {file}: {why}") from None


def port_at(address: str, token: str | None) -> AdminPort:
    """The one at `HOST:PORT` or `unix:PATH`.  Raises `WrongUse`."""
    if not address.startswith("unix:/") and not _has_port(address):
        raise WrongUse(f"not HOST:PORT, nor unix:PATH: {address!r}")
    return AdminPort(address, token)


def _has_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 65536


def _configured(file: str, token: str | None) -> AdminPort:
    from gateway import config

    return port_of(file, config.load(file).admin, token)


def port_of(file: str | Path, admin: Admin, token: str | None = None) -> AdminPort:
    """As *file* configures it; another *token* goes before.  Raises `WrongUse`."""
    from gateway.sdk.endpoint import Tcp, Unix

    if token is None and admin.token is not None:
        token = admin.token.get_secret_value()
    match admin.listen:
        case Unix(path):
            return AdminPort(f"unix:{path}", token)
        case Tcp(host, port) if port:
            name = "127.0.0.1" if host in _EVERYWHERE else host
            return AdminPort(
                f"[{name}]:{port}" if ":" in name else f"{name}:{port}", token
            )
    raise WrongUse(f"{file}: admin.listen is {admin.listen}; say --address")
