"""Where to listen: `tcp:PORT`, `tcp:HOST:PORT`, `unix:PATH` or `systemd:NAME`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Endpoint", "Systemd", "Tcp", "Unix", "conflict", "parse_endpoint"]

_FORMS = "tcp:PORT, tcp:HOST:PORT, tcp:[IPV6]:PORT, unix:PATH or systemd:NAME"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*")
_FILE_DESCRIPTOR_NAME = re.compile(r"[!-9;-~]{1,255}")  # sd_listen_fds: no colon
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_SUN_PATH_BYTES = 107  # Linux, unix(7)


@dataclass(frozen=True, slots=True)
class Tcp:
    """A TCP port."""

    host: str
    """An address or a host name; empty for every IPv4 address, `::` for all of both."""
    port: int
    """0 for any free port: `/api/status` tells which."""

    @property
    def local(self) -> bool:
        """Only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def __str__(self) -> str:
        if not self.host:
            return f"tcp:{self.port}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp:{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Unix:
    """A stream socket in the file system."""

    path: Path

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class Systemd:
    """A listening socket that systemd passes, by its `FileDescriptorName=`."""

    name: str

    def __str__(self) -> str:
        return f"systemd:{self.name}"


Endpoint = Tcp | Unix | Systemd


def parse_endpoint(value: object, folder: Path = Path()) -> Endpoint:
    """Read one; relative paths are below *folder*.  ValueError says what is allowed."""
    if isinstance(value, str):
        kind, _, rest = value.partition(":")
        if kind == "tcp":
            return _parse_tcp(value, rest)
        if kind == "unix" and rest:
            return _parse_unix(value, folder / rest)
        if kind == "systemd" and _FILE_DESCRIPTOR_NAME.fullmatch(rest):
            return Systemd(rest)
    raise ValueError(f"must be {_FORMS}, not {value!r}")


def _parse_tcp(value: str, rest: str) -> Tcp:
    host, _, port = rest.rpartition(":")
    if not (_PORT.fullmatch(port) and int(port) <= 65535):
        raise ValueError(
            f"must end in a port from 0 to 65535, not {value!r} ({_FORMS})"
        )
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        known = _is_address(host, version=6)
    else:
        known = not host or _is_address(host, version=4) or _is_name(host)
    if not known or rest.startswith(":"):
        raise ValueError(f"no host or address in {value!r} ({_FORMS})")
    return Tcp(host, int(port))


def _is_address(host: str, *, version: int) -> bool:
    try:
        return ipaddress.ip_address(host).version == version
    except ValueError:
        return False


def _is_name(host: str) -> bool:
    digits_only = host.replace(".", "").isdigit()  # a mistyped address
    return len(host) <= 253 and not digits_only and bool(_HOST.fullmatch(host))


def _parse_unix(value: str, path: Path) -> Unix:
    if "\0" in value:
        raise ValueError(f"must not contain NUL: {value!r}")
    if len(bytes(path)) > _SUN_PATH_BYTES:
        raise ValueError(
            f"the path of a unix socket has at most {_SUN_PATH_BYTES} bytes, "
            f"this one has {len(bytes(path))}: {value!r}"
        )
    return Unix(path)


def conflict(one: Endpoint, other: Endpoint) -> bool:
    """Whether the two can not be listened on at the same time."""
    if not (isinstance(one, Tcp) and isinstance(other, Tcp)):
        return one == other
    if one.port != other.port or not one.port:
        return False
    return one.host == other.host or _covers(one, other) or _covers(other, one)


def _covers(wide: Tcp, narrow: Tcp) -> bool:
    """Nothing at all and `0.0.0.0` are every IPv4 address, `::` is simply every."""
    if wide.host in ("", "0.0.0.0"):  # noqa: S104 - compared, not bound
        return ":" not in narrow.host
    return wide.host == "::"
