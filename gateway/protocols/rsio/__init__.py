"""Reactive Streams IO (RS.io), version 0: the protocol's plug-in, server and client.

`protocol` is the plug-in; `client` subscribes and publishes, on Twisted and on asyncio.
docs/rsio-v0.md is the protocol, byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gateway.protocols.rsio.figures import SENDERS
from gateway.sdk.protocol import (
    Command,
    Context,
    Port,
    Protocol,
    Sender,
    Service,
    Statistics,
    tcp,
)

if TYPE_CHECKING:
    from gateway.event import Decode
    from gateway.protocols.rsio.options import Options
    from gateway.sdk.protocol import Configuration, Listener
    from gateway.sdk.section import Section

__all__ = ["protocol"]


class _Rsio(Protocol):
    name = "rsio"
    ages = True
    remembers = True

    def options(self) -> type[Section]:
        from gateway.protocols.rsio.options import Options

        return Options

    def starter(self, host: str) -> Mapping[str, Any]:
        # Who may connect may watch all events: not for strangers.
        published = ["tap", "events"] if host else []
        options = {"publish": published}
        return {"name": "reactive", "listen": tcp(host, 7400), "options": options}

    def decoder(self, options: Sequence[object]) -> Decode:
        from gateway.protocols.rsio.events import decode

        return decode

    def describe(self, options: Options) -> Iterator[str]:
        if options.publish:
            yield f"publishes {' and '.join(options.publish)}"

    def cautions(self, config: Configuration) -> Iterator[str]:
        from gateway.protocols.rsio.options import names, unproved_names

        for listener in config.listeners:
            if listener.protocol != self.name:
                continue
            if listener.reuse_port and names(listener):
                yield (
                    f"{listener.name}: RS.io senders with a name go on where they were "
                    "only with the gateway that knows them; behind a shared port "
                    "(reuse_port) they may meet another one, which then stores twice what "
                    "they send again"
                )
            if unproved_names(listener):
                yield (
                    f"{listener.name}: without tokens, whoever may connect can say the "
                    "name of an RS.io sender, which is then refused for good (E412); "
                    "set options.tokens"
                )

    def service(self, context: Context) -> Service:
        return _Service(context)

    def sender(self) -> Sender:
        from gateway.protocols.rsio.send_command import SENDER

        return SENDER

    def commands(self) -> Mapping[str, Command]:
        return {
            "tap": Command(
                "gateway.protocols.rsio.commands.tap",
                "show a gateway's events, live or from an lsn on",
            ),
            "rsio-check": Command(
                "gateway.protocols.rsio.commands.check",
                "test an implementation of RS.io",
                package="rsio-check",
            ),
        }


class _Service(Service):
    """The service of all listeners: it counts the stored elements of named senders."""

    def __init__(self, context: Context) -> None:
        from gateway.protocols.rsio.offsets import Offsets

        self._context = context
        self.memory = self._offsets = Offsets()

    def ports(self, listener: Listener[Options]) -> Iterator[Port]:
        from gateway.protocols.rsio.messages import ALPN, CONTENT_TYPE, SUBPROTOCOL
        from gateway.protocols.rsio.server import RsioListener
        from gateway.sdk.publisher import Publishers

        context = self._context
        feeds = {str(name): context.feeds[name] for name in listener.options.publish}
        yield Port(
            accept=RsioListener(
                listener,
                context.journal,
                context.reactor,
                Publishers(feeds),
                self._offsets,
            ),
            alpn=[ALPN],
            subprotocols=[SUBPROTOCOL],
            http2=CONTENT_TYPE,
            mixed=True,
        )

    def statistics(self) -> Iterator[Statistics]:
        offsets = self._offsets
        yield SENDERS.of(
            {
                "names": offsets.names,
                "fenced": offsets.fenced,
                "forgotten": offsets.forgotten,
            }
        )


protocol = _Rsio()
