"""Opens the listening socket that `listen` names: TCP, unix or systemd's.

Twisted's endpoint strings are not used: they listen with a backlog of 50, make unix
sockets that everybody may write to, and their service logs a failure and goes on.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from twisted.internet.address import UNIXAddress
from twisted.internet.endpoints import AdoptedStreamServerEndpoint, serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.internet.tcp import Port as SocketPort
from twisted.internet.tcp import makeBinding

from gateway import config
from gateway.net.sends import Sends
from gateway.net.transport import address_text
from gateway.net.twisted_internals import UnixPort, adopt_unix_port
from gateway.sdk.endpoint import Systemd, Tcp, Unix

_BACKLOG = 1024
_ACCEPTED_AT_ONCE = 32
"""More wait in the kernel, so that others are served before them."""
_HANDED_BACKLOG = 4096
"""The backlog of systemd's sockets: connections wait there while the daemon starts again."""
_KEEPALIVE_SECONDS = 60
_TIMEOUT_SECONDS = 60
_UNSENT_BYTES = 1 << 17
"""More than that waits in our memory, where we see that a peer does not read."""

_TUNING = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_SECONDS),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TIMEOUT_SECONDS * 1000),
    (socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES),
)


class CannotListen(Exception):
    """A port can not be opened; the text names listener, address and reason."""


class Bound(NamedTuple):
    """An open port."""

    port: IListeningPort
    address: str
    """`127.0.0.1:40123`, `[::1]:40123` or `unix:/run/gateway.sock`."""
    flush: Callable[[], None]
    """Sends what its connections have written, before the reactor's turn ends."""


def bind(reactor: Any, settings: config.Listener, factory: IProtocolFactory) -> Bound:
    """Listen where *settings* say.  Raises `CannotListen`."""
    try:
        match settings.listen:
            case Tcp() as tcp:
                port = _tcp(reactor, tcp, factory, reuse_port=settings.reuse_port)
            case Unix(path):
                port = _unix(reactor, path, factory)
            case Systemd(name):
                port = _systemd(reactor, name, factory)
        _tune(port)
        if settings.reuse_port:
            _not_yet(port)
        sends = Sends(reactor)
        sends.serve(port)
        if isinstance(port, SocketPort):  # one of a unix socket is, too
            most = (settings.limits.connections + 1) // 2
            _accept_few(port, min(most, _ACCEPTED_AT_ONCE))
    except (CannotListenError, OSError, ValueError) as why:
        cause = why.socketError if isinstance(why, CannotListenError) else why
        reason = getattr(cause, "strerror", None) or str(cause)
        raise CannotListen(
            f"listener {settings.name}: {settings.listen}: {reason}"
        ) from why
    return Bound(port, _address(port), sends.flush)


def _accept_few(port: SocketPort, most: int) -> None:
    """Twisted's own number grows by twenty in each turn in which that many come."""
    accept = port.doRead

    def accept_few() -> None:
        port.numberAccepts = min(port.numberAccepts, most)
        accept()

    port.doRead = accept_few  # type: ignore[method-assign]


def listen(port: IListeningPort, settings: config.Listener) -> None:
    """Let connections come to an open port, if they do not yet."""
    if settings.reuse_port:
        with _same(port) as bound:
            bound.listen(_BACKLOG)


def share(port: IListeningPort, settings: config.Listener) -> None:
    """Let other processes of this user listen on an open port as well, or no more.

    Those that do already go on.
    """
    if isinstance(settings.listen, Tcp):
        with _same(port) as listening:
            wanted = int(settings.reuse_port)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, wanted)


def _tcp(
    reactor: Any, where: Tcp, factory: IProtocolFactory, *, reuse_port: bool
) -> IListeningPort:
    host = where.host
    binding = makeBinding(host, where.port, reuseAddress=True, reusePort=reuse_port)
    port = reactor.listenTCP(binding, factory, backlog=_BACKLOG, interface=host)
    return cast(IListeningPort, port)


def _not_yet(port: IListeningPort) -> None:
    """Keep the address, and let no connections come: they would wait here for a start that
    may take long, while who shares the port could take them.
    """
    with _same(port) as listening:
        listening.shutdown(socket.SHUT_RD)  # Linux: listens no more, and stays bound


def _unix(reactor: Any, path: Path, factory: IProtocolFactory) -> IListeningPort:
    _remove_stale(path)
    before = os.umask(0o117)
    try:
        port = UnixPort(os.fsencode(path), factory, _BACKLOG, 0o660, reactor)
        port.startListening()
    finally:
        os.umask(before)
    return cast(IListeningPort, port)


def _remove_stale(path: Path) -> None:
    """Remove a socket that a dead process left; ValueError if it is not that."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise ValueError("is there already and is no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
            else:
                raise ValueError("somebody listens there already")


def _systemd(reactor: Any, name: str, factory: IProtocolFactory) -> IListeningPort:
    try:
        # Twisted reads the environment once, when imported; only this asks it again.
        endpoint = serverFromString(reactor, f"systemd:domain=INET:name={name}")
    except KeyError:
        raise ValueError(f"no socket named {name!r} was handed over") from None
    assert isinstance(endpoint, AdoptedStreamServerEndpoint)
    with socket.socket(fileno=os.dup(endpoint.fileno)) as handed:
        handed.setblocking(False)
        if handed.family == socket.AF_UNIX:
            port = adopt_unix_port(reactor, endpoint.fileno, factory)
        else:
            port = reactor.adoptStreamPort(endpoint.fileno, handed.family, factory)
        handed.listen(_HANDED_BACKLOG)  # Twisted has made it 50
    return cast(IListeningPort, port)


def _tune(port: IListeningPort) -> None:
    """Set on the listening socket what every accepted one inherits."""
    with _same(port) as listening:
        if listening.family == socket.AF_UNIX:
            return
        for level, option, value in _TUNING:
            listening.setsockopt(level, option, value)


def _same(port: IListeningPort) -> socket.socket:
    descriptor: int = port.fileno()  # type: ignore[attr-defined]
    return socket.socket(fileno=os.dup(descriptor))


def _address(port: IListeningPort) -> str:
    address: Any = port.getHost()
    if isinstance(address, UNIXAddress):
        return f"unix:{os.fsdecode(address.name or b'')}"
    return address_text(address.host, address.port)
