"""Lumberjack v1 and v2: the protocol of Beats and of logstash-forwarder.

`protocol` is the plug-in.  docs/lumberjack.md says what is accepted, what is refused,
and which events have a flaw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.protocols.lumberjack.figures import WINDOWS
from gateway.sdk.protocol import (
    Context,
    Protocol,
    Sender,
    Service,
    SinglePort,
    Statistics,
    tcp,
)

if TYPE_CHECKING:
    from gateway.event import Decode
    from gateway.sdk.protocol import Configuration
    from gateway.sdk.section import Section

__all__ = ["protocol"]


class _Lumberjack(Protocol):
    name = "lumberjack"
    spoken_by = ("beats", "elastic-agent", "filebeat", "logstash", "winlogbeat")
    ages = True

    def options(self) -> type[Section]:
        from gateway.protocols.lumberjack.options import Options

        return Options

    def starter(self, host: str) -> Mapping[str, Any]:
        return {"name": "beats", "listen": tcp(host, 5044)}

    def cautions(self, config: Configuration) -> Iterator[str]:
        from gateway.protocols.lumberjack.options import short_of_memory
        from gateway.sdk.units import format_size

        for listener in config.listeners:
            if listener.protocol != self.name:
                continue
            if least := short_of_memory(listener, config.journal.memory_bytes):
                yield (
                    f"{listener.name}: a compressed frame of options.compressed_bytes is "
                    f"in memory whole: set journal.memory_bytes to {format_size(least)} "
                    "at least, or its writer is cut off, and sends it again for ever"
                )

    def decoder(self, options: Sequence[object]) -> Decode:
        from gateway.protocols.lumberjack.events import decode

        return decode

    def service(self, context: Context) -> Service:
        return _Service(context)

    def sender(self) -> Sender:
        from gateway.protocols.lumberjack.send_command import SENDER

        return SENDER


class _Service(SinglePort):
    """The service of all listeners, and the figures that they count."""

    def __init__(self, context: Context) -> None:
        from gateway.protocols.lumberjack.server import Lumberjack
        from gateway.protocols.lumberjack.session import Figures

        self._figures = Figures()
        super().__init__(context, partial(Lumberjack, figures=self._figures))

    def statistics(self) -> Iterator[Statistics]:
        """The figures of windows that were not stored whole."""
        figures = self._figures
        yield WINDOWS.of({"parts": figures.parts, "cut_events": figures.cut_events})


protocol = _Lumberjack()
