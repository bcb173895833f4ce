"""Pomelo in one daemon: its listeners, the clients that pushes reach, the outboxes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from twisted.internet.defer import gatherResults

from gateway.protocols.pomelo.admin import PAGES, everywhere
from gateway.protocols.pomelo.auth import Unavailable
from gateway.protocols.pomelo.listener import Pomelo
from gateway.protocols.pomelo.lobby.lobby import Lobby
from gateway.protocols.pomelo.lobby.taken import Taken
from gateway.protocols.pomelo.options import Options
from gateway.protocols.pomelo.options import Outbox as OutboxOptions
from gateway.protocols.pomelo.protobuf import Unusable as UnusableDefinitions
from gateway.protocols.pomelo.push.folder import Folder
from gateway.protocols.pomelo.push.outbox import Outbox
from gateway.protocols.pomelo.push.page import page, parse
from gateway.protocols.pomelo.push.pushed import PushedNames
from gateway.protocols.pomelo.push.row import change, kick
from gateway.protocols.pomelo.registry import Registry
from gateway.protocols.pomelo.statistics import Figures, statistics
from gateway.sdk.protocol import Context, Port, Service, Statistics, Unusable

if TYPE_CHECKING:
    from gateway.sdk.protocol import Get, Listener, Post

_MiB = 2**20


class PomeloService(Service):
    """Shared by all Pomelo listeners."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.registry = Registry()
        """The clients of all listeners."""
        self.lobby = Lobby(context.node, self.registry, context.reactor)
        """Carries out here, and on other gateways, what is asked for."""
        self._taken = Taken(
            context.node, self.lobby.run, self.registry, context.reactor
        )
        if why := self._open_lobby():
            raise Unusable(why)
        self._servers: list[Pomelo] = []
        """The servers of all listeners; after a reload, also older ones that have clients."""
        self._retired = Figures()
        """The figures of servers that have ended."""
        self._outboxes: list[Outbox] = []
        known: dict[Path, OutboxOptions] = {}
        for listener in context.listeners:
            outbox: OutboxOptions | None = listener.options.outbox
            if outbox is None:
                continue
            path = (context.data_dir / outbox.directory).resolve()
            if why := _conflict(path, outbox, known):
                raise Unusable(f"listener {listener.name}: options.outbox: {why}")
            if path not in known:
                known[path] = outbox
                self._open_outbox(path, outbox)

    def _open_lobby(self) -> str | None:
        """Call the gateways that the listeners name; why that can not be."""
        options = (cast(Options, one.options) for one in self._context.listeners)
        wanted = next((one.lobby for one in options if one.lobby is not None), None)
        try:
            self.lobby.configure(wanted)
        except ValueError as why:
            return str(why)
        return None

    def _open_outbox(self, path: Path, options: OutboxOptions) -> None:
        context, disk = self._context, self._context.disk
        pushed = PushedNames(
            path / ".pushed",
            options.remember,
            options.remember_files,
            disk,
            context.reactor.seconds,
        )
        folder = Folder(
            path,
            pushed,
            disk,
            retention=options.retention,
            file_bytes=options.file_bytes,
        )
        folder.prepare()
        self._outboxes.append(
            Outbox(folder, self.lobby, context.journal, context.reactor)
        )

    def ports(self, listener: Listener[Options]) -> Iterator[Port]:
        """TCP and WebSocket on one port."""
        context = self._context
        try:
            accept = Pomelo(
                listener,
                context.journal,
                context.reactor,
                self.registry,
                self.lobby.change,
            )
        except (UnusableDefinitions, Unavailable) as why:
            raise Unusable(str(why)) from None
        accept.name = listener.name
        self._servers.append(accept)
        # Pushes stop at push_bytes; being cut off is for those who read nothing at all.
        unread_bytes = 8 * listener.options.push_bytes + 16 * _MiB
        yield Port(accept=accept, mixed=True, text=True, unread_bytes=unread_bytes)

    def start(self) -> None:
        """Push what is in the outboxes."""
        for outbox in self._outboxes:
            outbox.start()

    async def stop(self) -> None:
        """Finish the files that are being pushed, of all outboxes at once."""
        await gatherResults([outbox.stop() for outbox in self._outboxes])

    def retired(self, port: Port) -> None:
        """End a server whose last client is gone; its figures stay."""
        server = cast(Pomelo, port.accept)
        self._servers.remove(server)
        self.registry.judges.remove(server.handshaker.judge)
        server.close()
        self._retired = Figures.of([server], self._retired)

    def reload(self) -> Iterator[str]:
        """Read definitions and groups again, for new connections; configure the lobby."""
        if why := self._open_lobby():
            yield f"{why}; the lobby stays as it was"
        newest = {one.name: one for one in self._servers}
        for server in newest.values():
            if why := server.reload():
                yield f"listener {server.name}: {why}; the old ones stay"

    def close(self) -> None:
        """Store that the last sessions have closed; call no other gateway any more."""
        self.lobby.close()
        for server in self._servers:
            server.close()

    def gets(self) -> Mapping[str, Get]:
        """The pages about connected clients."""
        return {f"/api/{name}": everywhere(name, self.lobby) for name in PAGES}

    def posts(self) -> Mapping[str, Post]:
        """Pushes and kicks by HTTP, and what other gateways pass on."""
        return {
            "/api/push": page(self.lobby, parse),
            "/api/kick": page(self.lobby, kick),
            "/api/group": page(self.lobby, change),
            "/api/lobby": self._taken.page,
        }

    def statistics(self) -> Iterator[Statistics]:
        yield statistics(
            self.registry,
            Figures.of(self._servers, self._retired),
            [one.hook for one in self._servers if one.hook is not None],
            {service for one in self._servers for service in one.services.values()},
            self._outboxes,
            self.lobby,
            self._taken,
        )


def _conflict(
    path: Path, outbox: OutboxOptions, known: Mapping[Path, OutboxOptions]
) -> str | None:
    """Why there can not be this outbox beside those that are known.

    The configuration says the same of what it can see: not of symbolic links.
    """
    for other, settings in known.items():
        if other == path and not outbox.agrees(settings):
            return f"another listener has {outbox.directory} with other settings"
        if other in path.parents or path in other.parents:
            return (
                f"{outbox.directory} overlaps with {settings.directory}, another "
                "listener's: files would be taken by both"
            )
    return None
