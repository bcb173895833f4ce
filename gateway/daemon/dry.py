"""A dry start: builds every listener's service as the daemon does, and binds nothing.

`gateway check` and `--check-config` try it, so that what would end the daemon's start ends
theirs.  What the services make on disk they make in a directory of no account, which is
gone afterwards: a daemon that runs on the same `data_dir` notices nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, maybeDeferred, succeed

from gateway import config, plugins
from gateway.config.problems import Problem
from gateway.daemon.protocols import Broken, Protocols
from gateway.event import Decode, Stored
from gateway.feeds.live import Live, Tap
from gateway.feeds.replay import Replay
from gateway.net.tls import ServerTls, UnusableCertificate
from gateway.sdk.protocol import Context, Unusable
from gateway.store.directories import Directories
from gateway.store.finder import Finder
from gateway.store.hub.arrivals import Arrivals
from gateway.store.system.disk import RealDisk

if TYPE_CHECKING:
    from gateway.event import Batch, Origin
    from gateway.sdk.interfaces import Told
    from gateway.sdk.publisher import Publisher


class _Journal:
    """Where nothing is stored, as nothing comes."""

    full = False
    why_full: str | None = None

    def when_room(self) -> Deferred[None]:
        return succeed(None)

    def over_share(self, origin: Origin) -> bool:
        return False

    def when_share(self, origin: Origin) -> Deferred[None]:
        return succeed(None)

    def reserve(self, change: int) -> bool:
        return True

    def submit(self, batch: Batch) -> Deferred[Stored]:
        return Deferred()

    def submit_for(self, told: Told, batch: Batch) -> None: ...

    def withdraw(self, batch: Batch) -> bool:
        return True


def try_start(loaded: config.Config, file: Path) -> None:
    """Raise `config.Invalid` with all that would keep the daemon from starting so."""
    with tempfile.TemporaryDirectory(prefix="gateway-check-") as scratch:
        if found := list(_problems(loaded, Path(scratch))):
            raise config.Invalid(str(file), found)


def _problems(loaded: config.Config, scratch: Path) -> Iterator[Problem]:
    from twisted.internet import reactor

    directories = Directories.under(scratch)
    for path in (
        directories.journal_of(loaded.node),
        directories.spool,
        directories.archive,
    ):
        path.mkdir(parents=True)
    protocols = Protocols(plugins.installed(), loaded.listeners, lambda _: None)

    def start() -> None:
        decoders = protocols.decoders()
        arrivals = Arrivals(loaded.node, directories, RealDisk(), lambda _: None)
        lend = _lender(loaded.node, directories, decoders, reactor, arrivals)
        protocols.open((), lend)

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


def _lender(
    node: str,
    directories: Directories,
    decoders: dict[str, Decode],
    reactor: Any,
    arrivals: Arrivals,
) -> Callable[[str, list[config.Listener]], Context]:
    live = Live(
        node,
        decoders,
        durable_lsn=lambda: 0,
        in_thread=maybeDeferred,
        clock=reactor,
    )
    feeds: dict[str, Publisher] = {
        "tap": Tap(live),
        "events": Replay(live, directories, in_thread=maybeDeferred),
    }

    def lend(protocol: str, listeners: list[config.Listener]) -> Context:
        return Context(
            node=node,
            listeners=listeners,
            journal=_Journal(),
            reactor=reactor,
            decode=decoders[protocol],
            feeds=feeds,
            data_dir=directories.root,
            disk=RealDisk(),
            files=Finder(directories, node, retained=True),
            address=lambda name: "127.0.0.1:1",
            arrivals=arrivals,
        )

    return lend


def _why(do: Callable[[], object]) -> str | None:
    """Why that can not be done, as the daemon would say; None: it is done."""
    try:
        do()
    except UnusableCertificate as why:
        return f"tls: {why}"
    except (Broken, OSError, Unusable) as why:
        return str(why)
    return None
