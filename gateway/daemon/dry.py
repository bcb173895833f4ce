"""A dry start: builds every listener's service as the daemon does, and binds nothing.

`gateway check` and `--check-config` try it, so that what would end the daemon's start ends
theirs.  What the services make on disk they make in a directory of no account, which is
gone afterwards: a daemon that runs on the same `data_dir` notices nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway import config, plugins
from gateway.config.problems import Problem
from gateway.daemon.protocols import Broken, Protocols
from gateway.net.tls import ServerTls, UnusableCertificate
from gateway.sdk.protocol import Context, Unusable
from gateway.testing.plugins import lend


def try_start(loaded: config.Config, file: Path) -> None:
    """Raise `config.Invalid` with all that would keep the daemon from starting so."""
    with tempfile.TemporaryDirectory(prefix="gateway-check-") as scratch:
        if found := list(_problems(loaded, Path(scratch))):
            raise config.Invalid(str(file), found)


def _problems(loaded: config.Config, scratch: Path) -> Iterator[Problem]:
    from twisted.internet import reactor

    installed = plugins.installed()
    protocols = Protocols(installed, loaded.listeners, lambda _: None)

    def lent(name: str, listeners: list[config.Listener]) -> Context:
        protocol = installed.protocols[name]
        return lend(protocol, scratch, listeners, node=loaded.node, reactor=reactor)

    def start() -> None:
        protocols.decoders()
        protocols.open((), lent)

    if why := _why(start):
        yield Problem(("listeners",), why)
        return
    for number, listener in enumerate(loaded.listeners):

        def open_ports(listener: config.Listener = listener) -> None:
            for port in protocols.ports(listener):
                if listener.tls is not None:
                    ServerTls(listener.name, listener.tls, reactor, alpn=port.alpn)

        if why := _why(open_ports):
            yield Problem(("listeners", number), why)

    def admin() -> None:
        if loaded.admin.tls is not None:
            ServerTls("admin", loaded.admin.tls, reactor)

    if why := _why(admin):
        yield Problem(("admin",), why)
    for pages in (protocols.gets, protocols.posts):
        if why := _why(pages):
            yield Problem(("listeners",), why)
    protocols.close()


def _why(do: Callable[[], object]) -> str | None:
    """Why that can not be done, as the daemon would say; None: it is done."""
    try:
        do()
    except UnusableCertificate as why:
        return f"tls: {why}"
    except (Broken, OSError, Unusable) as why:
        return str(why)
    return None
