"""Pomelo in one daemon: its listeners, the clients that pushes reach, the outboxes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gateway.protocols.pomelo.admin import (
    change_groups_page,
    groups_page,
    kick_page,
    sessions_page,
)
from gateway.protocols.pomelo.answering import OUTCOMES as ANSWERS
from gateway.protocols.pomelo.auth import Unavailable
from gateway.protocols.pomelo.figures import Figures
from gateway.protocols.pomelo.hook import OUTCOMES
from gateway.protocols.pomelo.listener import Pomelo
from gateway.protocols.pomelo.options import Options
from gateway.protocols.pomelo.options import Outbox as OutboxOptions
from gateway.protocols.pomelo.push.folder import Folder
from gateway.protocols.pomelo.push.outbox import Outbox
from gateway.protocols.pomelo.push.page import page
from gateway.protocols.pomelo.push.pushed import PushedNames
from gateway.protocols.pomelo.registry import Registry
from gateway.protocols.pomelo.routes import Unusable as UnusableDefinitions
from gateway.sdk.protocol import (
    Context,
    Port,
    Service,
    Settings,
    Statistic,
    Statistics,
    Unusable,
)

if TYPE_CHECKING:
    from gateway.config.listener import Listener
    from gateway.sdk.protocol import Get, Post

__all__ = ["PomeloService"]

_MiB = 2**20


class PomeloService(Service):
    """Shared by all Pomelo listeners."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.registry = Registry()
        """The clients of all listeners."""
        self._servers: list[Pomelo] = []
        """Of all listeners; after a reload, those of older settings that have clients."""
        self._retired = Figures()
        """Of servers that are there no more."""
        self._outboxes: list[Outbox] = []
        known: dict[Path, OutboxOptions] = {}
        for listener in context.listeners:
            assert isinstance(listener.options, Options)
            if (outbox := listener.options.outbox) is None:
                continue
            path = (context.data_dir / outbox.directory).resolve()
            if why := _conflict(path, outbox, known):
                raise Unusable(f"listener {listener.name}: options.outbox: {why}")
            if path not in known:
                known[path] = outbox
                self._open_outbox(path, outbox)

    def _open_outbox(self, path: Path, options: OutboxOptions) -> None:
        context, disk = self._context, self._context.disk
        pushed = PushedNames(
            path / ".pushed", options.remember, options.remember_files, disk
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
            Outbox(folder, self.registry, context.journal, context.reactor)
        )

    def ports(self, listener: Listener) -> Iterator[Port]:
        """TCP and WebSocket on one port."""
        settings = cast(Settings[Options], listener)
        context = self._context
        try:
            accept = Pomelo(settings, context.journal, context.reactor, self.registry)
        except (UnusableDefinitions, Unavailable) as why:
            raise Unusable(str(why)) from None
        accept.name = listener.name
        self._servers.append(accept)
        # Pushes stop at push_bytes; being cut off is for those who read nothing at all.
        unread_bytes = 8 * settings.options.push_bytes + 16 * _MiB
        yield Port(accept=accept, mixed=True, text=True, unread_bytes=unread_bytes)

    def start(self) -> None:
        """Push what is in the outboxes."""
        for outbox in self._outboxes:
            outbox.start()

    async def stop(self) -> None:
        """Finish the files that are being pushed."""
        for outbox in self._outboxes:
            await outbox.stop()

    def retired(self, port: Port) -> None:
        """Its last client is gone; its figures stay."""
        server = cast(Pomelo, port.accept)
        self._servers.remove(server)
        self.registry.judges.remove(server.handshaker.judge)
        server.close()
        self._retired = Figures.of([server], self._retired)

    def reload(self) -> Iterator[str]:
        """Read dictionaries and protobuf definitions again, for whoever comes."""
        newest = {one.name: one for one in self._servers}
        for server in newest.values():
            if why := server.reload():
                yield f"listener {server.name}: definitions: {why}; the old ones stay"

    def close(self) -> None:
        """Store that the last sessions have closed."""
        for server in self._servers:
            server.close()

    def gets(self) -> Mapping[str, Get]:
        """Who is connected."""
        return {
            "/api/sessions": sessions_page(self.registry),
            "/api/groups": groups_page(self.registry),
        }

    def posts(self) -> Mapping[str, Post]:
        """Pushes and kicks by HTTP."""
        return {
            "/api/push": page(self.registry, self._context.reactor),
            "/api/kick": kick_page(self.registry),
            "/api/group": change_groups_page(self.registry),
        }

    def statistics(self) -> Iterator[Statistics]:
        """What became of all pushes, wherever they came from."""
        rows = sum(one.rows for one in self._outboxes)
        refused = sum(one.refused for one in self._outboxes)
        expired = sum(one.expired for one in self._outboxes)
        outcomes = self.registry.outcomes
        hooks = [one.hook for one in self._servers if one.hook is not None]
        services = {s for one in self._servers for s in one.services.values()}
        folders = [one.folder for one in self._outboxes]
        figures = Figures.of(self._servers, self._retired)
        files = {
            "pushed": sum(one.files for one in self._outboxes),
            "set_aside": sum(one.folder.set_aside for one in self._outboxes),
            "repeated": sum(one.folder.repeated for one in self._outboxes),
        }
        yield Statistics(
            "pushes",
            "Pomelo, pushes",
            [
                Statistic(
                    "clients",
                    "Clients that pushes can reach now.",
                    len(self.registry),
                    "gateway_push_clients",
                    card="clients that can be reached",
                ),
                Statistic(
                    "groups",
                    "Groups that somebody is in.",
                    len(self.registry.groups),
                    "gateway_pomelo_groups",
                    card="groups",
                ),
                Statistic(
                    "group_members",
                    "Clients in groups, each counted in each of them.",
                    self.registry.groups.memberships,
                    "gateway_pomelo_group_members",
                ),
                Statistic.outcomes(
                    "authentications",
                    "Handshakes that the authentication hook decided about.",
                    {name: figures.authentications[name] for name in OUTCOMES},
                    "gateway_pomelo_authentications_total",
                ),
                Statistic(
                    "authenticating",
                    "Clients that the authentication hook is being asked about.",
                    sum(one.waiting for one in hooks),
                    "gateway_pomelo_authenticating",
                ),
                Statistic(
                    "too_many",
                    "Messages that were refused, being more than a client may send.",
                    dict(figures.too_many),
                    "gateway_pomelo_messages_over_rate_total",
                    label="listener",
                    counter=True,
                ),
                Statistic(
                    "kicked",
                    "Clients that were kicked for that.",
                    dict(figures.kicked),
                    "gateway_pomelo_kicks_over_rate_total",
                    label="listener",
                    counter=True,
                ),
                Statistic(
                    "turned_away",
                    "Handshakes refused, being more than an address may begin sessions.",
                    dict(figures.turned_away),
                    "gateway_pomelo_sessions_over_rate_total",
                    label="listener",
                    counter=True,
                ),
                Statistic.outcomes(
                    "backend_answers",
                    "Requests that backends were to answer.",
                    {name: figures.answers[name] for name in ANSWERS},
                    "gateway_pomelo_backend_answers_total",
                ),
                Statistic(
                    "backend_seconds",
                    "What the answers of backends took, all together.",
                    figures.answer_seconds,
                    "gateway_pomelo_backend_seconds_total",
                    counter=True,
                ),
                Statistic(
                    "backend_waiting",
                    "Requests that backends have not answered yet.",
                    sum(one.waiting for one in services),
                    "gateway_pomelo_backend_waiting",
                ),
                Statistic.outcomes(
                    "pushes",
                    "Pushed messages sent, dropped; pushes for nobody, refused, expired.",
                    dict(outcomes),
                    "gateway_pushes_total",
                    card="pushes",
                ),
                Statistic.outcomes(
                    "outbox_files",
                    "Files of the outbox: pushed, set aside, or pushed before.",
                    files,
                    "gateway_outbox_files_total",
                    card="outbox files",
                ),
                Statistic.outcomes(
                    "outbox_rows",
                    "Rows of the files that were pushed; no pushes; too late.",
                    {
                        "pushed": rows - refused - expired,
                        "refused": refused,
                        "expired": expired,
                    },
                    "gateway_outbox_rows_total",
                ),
                Statistic(
                    "outbox_remembered",
                    "Names of files that are not pushed again.",
                    sum(one.folder.remembered for one in self._outboxes),
                    "gateway_outbox_remembered_files",
                ),
            ],
            troubles=[
                *(one.trouble for one in hooks if one.trouble),
                *(one.trouble for one in services if one.trouble),
                *(one.trouble for one in folders if one.trouble),
            ],
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
