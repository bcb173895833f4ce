"""Looks at the addresses to listen on: is each free, or taken by this very gateway?

Listening sockets are read from `/proc/net`, and a free port is bound for a moment.  No
connection is made to a running daemon.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gateway.config import Config
from gateway.config.model import values
from gateway.config.problems import spell
from gateway.doctor.look import Look, fail, ok
from gateway.sdk.endpoint import Endpoint, Systemd, Tcp, Unix
from gateway.sdk.section import Place
from gateway.store.readers.lake import INTERNAL
from gateway.store.system.lock import is_locked

_PID = re.compile(r"pid (\d+)")
_LISTENS = "0A"


def _holder(directory: Path) -> str | None:
    """The process that has a directory, as its lock file says it, if one has."""
    try:
        if not is_locked(directory):
            return None
        said = (directory / "lock").read_text("utf-8", "replace")[:200].strip()
    except OSError:
        return None
    return said or "another process"


def examine(config: Config) -> Iterator[Look]:
    holder = _holder(config.data_dir)
    if holder is None:
        yield ok("daemon", f"none runs on {config.data_dir}")
    else:
        yield ok(
            "daemon", f"{holder} runs on {config.data_dir}; what it has is not touched"
        )
    for place, _, value in values(config):
        match value:
            case Tcp() | Unix() | Systemd():
                shared, of_job = _is_shared(config, place), place[0] == "spark"
                if of_job and not config.spool.has_job:
                    continue
                its = _holder(config.data_dir / "lake" / INTERNAL) if of_job else holder
                look = _look(f"{spell(place)} {value}", value, its, shared=shared)
                if of_job and look.state == "fail":  # the job goes on without
                    look = replace(look, state="warn")
                yield look


def _is_shared(config: Config, place: Place) -> bool:
    match place:
        case ("listeners", int(index), *_):
            return config.listeners[index].reuse_port
    return False


def _look(what: str, listen: Endpoint, holder: str | None, *, shared: bool) -> Look:
    match listen:
        case Tcp(_, 0):
            return ok(what, "any free port is taken")
        case Tcp():
            return _tcp(what, listen, holder, shared=shared)
        case Unix(path):
            return _unix(what, path, holder)
        case Systemd():
            return ok(what, "systemd hands it over at the start")


def _tcp(what: str, listen: Tcp, holder: str | None, *, shared: bool) -> Look:
    # As the daemon binds it: names and no host at all are IPv4, `::` is both.
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    host = listen.host or "0.0.0.0"  # noqa: S104 - what the daemon does
    try:
        found = socket.getaddrinfo(host, listen.port, family, socket.SOCK_STREAM)
    except socket.gaierror as why:
        advice = "use an address of this machine, or a name that has one"
        return fail(what, f"{listen.host}: {why.strerror}", advice)
    try:
        with socket.socket(family) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            trial.bind(found[0][4])
    except OSError as why:
        if why.errno == errno.EADDRINUSE:
            return _taken(what, _tcp_sockets(listen.port), holder)
        return fail(what, why.strerror or str(why), _advice(why.errno))
    if shared and (there := len(_tcp_sockets(listen.port))):
        return ok(what, f"free to share; listening there now: {there}")
    return ok(what, "free")


def _advice(number: int | None) -> str:
    if number == errno.EACCES:
        return (
            "ports below 1024 need CAP_NET_BIND_SERVICE (AmbientCapabilities= in the unit),"
            " or take a higher one"
        )
    if number == errno.EADDRNOTAVAIL:
        return "this machine has no such address; `ip address` lists those it has"
    return "choose another address"


def _unix(what: str, path: Path, holder: str | None) -> Look:
    parent = path.parent
    if not parent.is_dir():
        advice = "make it (RuntimeDirectory= in the unit)"
        return fail(what, f"there is no directory {parent}", advice)
    if not os.access(parent, os.W_OK | os.X_OK):
        return fail(
            what, f"{parent} can not be written", "chown it to the daemon's user"
        )
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return fail(
                what, f"{path} is there and is no socket", "remove or rename it"
            )
    except FileNotFoundError:
        return ok(what, "free")
    sockets = _unix_sockets(path)
    if not sockets:
        return ok(
            what, "free; a process that is gone left its socket, which is replaced"
        )
    return _taken(what, sockets, holder)


def _taken(what: str, sockets: set[str], holder: str | None) -> Look:
    """The look at a port in use by our daemon or another program; *sockets* are inodes."""
    elsewhere = "stop what has it (`ss -ltnp` says who), or choose another address"
    if holder is None:
        return fail(what, "another program listens there", elsewhere)
    its = _sockets_of(holder)
    if its is None:
        return ok(what, f"taken; {holder} runs, and it is taken for its own")
    if its & sockets:
        return ok(what, f"taken by {holder}")
    return fail(what, f"another program than {holder} listens there", elsewhere)


def _tcp_sockets(port: int) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                local, state, inode = fields[1], fields[3], fields[9]
                if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
                    found.add(inode)
    return found


def _unix_sockets(path: Path) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
            fields = line.split(maxsplit=7)
            if len(fields) == 8 and fields[7] == str(path):
                found.add(fields[6])
    return found


def _sockets_of(holder: str) -> set[str] | None:
    """Inodes of a process's sockets; None if they can not be told."""
    match = _PID.search(holder)
    if match is None:
        return None
    found = set()
    try:
        for one in Path("/proc", match[1], "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                target = str(one.readlink())
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    except OSError:
        return None
    return found
