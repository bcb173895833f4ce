"""Pomelo: the protocol of game and mobile clients, with requests, notifies and pushes.

`protocol` is the plug-in.  docs/pomelo.md says what is accepted, what is refused, and
which clients are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gateway.sdk.protocol import Context, Protocol, Sender, Service, tcp

if TYPE_CHECKING:
    from gateway.event import Decode
    from gateway.protocols.pomelo.options import Options
    from gateway.sdk.protocol import Configuration, Listener
    from gateway.sdk.section import Place, Section

__all__ = ["protocol"]


class _Pomelo(Protocol):
    name = "pomelo"
    websocket = True  # half of its clients are, and do not say so
    limits: ClassVar = {"message_bytes": "1MiB"}  # no game sends more

    def options(self) -> type[Section]:
        from gateway.protocols.pomelo.options import Options

        return Options

    def misfits(
        self, listeners: Mapping[int, Listener[Options]]
    ) -> Iterator[tuple[Place, str]]:
        from gateway.protocols.pomelo.options import misfits

        return misfits(listeners)

    def starter(self, host: str) -> Mapping[str, Any]:
        return {"name": "game", "listen": tcp(host, 3010)}

    def cautions(self, config: Configuration) -> Iterator[str]:
        from gateway.protocols.pomelo.options import Options, mute_routes

        for listener in config.listeners:
            options = listener.options
            lobby = options.lobby if isinstance(options, Options) else None
            if lobby is not None and (plain := lobby.in_the_open):
                yield (
                    f"{listener.name}: options.lobby.token goes over the network unencrypted "
                    f"to {', '.join(plain)}; https:// or unix: keeps it secret"
                )
            if listener.protocol == self.name and (mute := mute_routes(listener)):
                yield (
                    f"{listener.name}: options.server_protos: the responses of "
                    f"{', '.join(map(repr, mute))} can not say code: once their requests "
                    "are stored they are answered empty, and who sends one that can not "
                    "be stored is kicked; options.backends can answer them"
                )

    def decoder(self, options: Sequence[object]) -> Decode:
        from gateway.protocols.pomelo.events import decode

        return decode

    def service(self, context: Context) -> Service:
        from gateway.protocols.pomelo.service import PomeloService

        return PomeloService(context)

    def sender(self) -> Sender:
        from gateway.protocols.pomelo.send_command import SENDER

        return SENDER


protocol = _Pomelo()
