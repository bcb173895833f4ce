"""Lumberjack, versions 1 and 2: what Beats, logstash-forwarder and their kin speak.

`protocol` is the plug-in.  docs/lumberjack.md says what is accepted, what is refused and
what becomes of events that are not fine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from gateway.protocol import Context, Port, Protocol, Sender, Service, Settings

if TYPE_CHECKING:
    from gateway.config.model import Listener
    from gateway.config.section import Section
    from gateway.event import Decode
    from gateway.protocols.lumberjack.options import Options

__all__ = ["protocol"]


class _Lumberjack(Protocol):
    name = "lumberjack"

    def options(self) -> type[Section]:
        from gateway.protocols.lumberjack.options import Options

        return Options

    def decoder(self, options: Sequence[object]) -> Decode:
        from gateway.protocols.lumberjack.events import decode

        return decode

    def service(self, context: Context) -> Service:
        return _Service(context)

    def sender(self) -> Sender:
        from gateway.protocols.lumberjack.send_command import SENDER

        return SENDER


class _Service(Service):
    def __init__(self, context: Context) -> None:
        self._context = context

    def ports(self, listener: Listener) -> Iterator[Port]:
        from gateway.protocols.lumberjack.server import accept

        context = self._context
        settings = cast("Settings[Options]", listener)
        yield Port(accept=accept(settings, context.journal, context.reactor))


protocol = _Lumberjack()
