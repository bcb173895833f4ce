"""Lumberjack v1 and v2: the protocol of Beats and of logstash-forwarder.

`protocol` is the plug-in.  docs/lumberjack.md says what is accepted, what is refused,
and which events have a flaw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gateway.protocol import Context, Protocol, Sender, Service, SinglePort, tcp

if TYPE_CHECKING:
    from gateway.config.section import Section
    from gateway.event import Decode

__all__ = ["protocol"]


class _Lumberjack(Protocol):
    name = "lumberjack"

    def options(self) -> type[Section]:
        from gateway.protocols.lumberjack.options import Options

        return Options

    def starter(self, host: str) -> Mapping[str, Any]:
        return {"name": "beats", "listen": tcp(host, 5044)}

    def decoder(self, options: Sequence[object]) -> Decode:
        from gateway.protocols.lumberjack.events import decode

        return decode

    def service(self, context: Context) -> Service:
        from gateway.protocols.lumberjack.server import accept

        return SinglePort(context, accept)

    def sender(self) -> Sender:
        from gateway.protocols.lumberjack.send_command import SENDER

        return SENDER


protocol = _Lumberjack()
