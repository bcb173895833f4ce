"""Pravega's segment store and controller, for its published clients, and a writer.

`protocol` is the plug-in.  The segment store speaks wire version 17 and the 2016 draft
of the protocol; `controller` has the gRPC service.  docs/pravega.md says what is
accepted, refused, and stored where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.sdk.protocol import Command, Context, Protocol, Sender, Service, tcp

if TYPE_CHECKING:
    from gateway.event import Decode
    from gateway.protocols.pravega.options import Options
    from gateway.sdk.protocol import Configuration, Listener
    from gateway.sdk.section import Place, Section

__all__ = ["protocol"]


class _Pravega(Protocol):
    name = "pravega"
    remembers = True

    def options(self) -> type[Section]:
        from gateway.protocols.pravega.options import Options

        return Options

    def misfits(
        self, listeners: Mapping[int, Listener[Options]]
    ) -> Iterator[tuple[Place, str]]:
        from gateway.protocols.pravega.options import misfits

        return misfits(listeners)

    def starter(self, host: str) -> Mapping[str, Any]:
        options = {"controller": tcp(host, 9090)}
        return {"name": "streams", "listen": tcp(host, 12345), "options": options}

    def decoder(self, options: Sequence[Options]) -> Decode:
        from gateway.protocols.pravega.framing import NONE, ByStream
        from gateway.protocols.pravega.options import Options
        from gateway.protocols.pravega.records import OCTETS, decode

        asked = options[0] if options else Options()
        return partial(
            decode,
            content_type=ByStream(asked.content_type, OCTETS),
            framing=ByStream(asked.framing, NONE),
        )

    def cautions(self, config: Configuration) -> Iterator[str]:
        if config.spool.after == "delete":
            yield (
                "spool.after: delete takes files away before Pravega's readers have read "
                "them: streams lose what is in the tables; use archive"
            )

        ours = [one for one in config.listeners if one.protocol == self.name]
        from gateway.protocols.pravega.options import nameless

        if nameless(ours):
            yield (
                "options.access of Pravega has rules, and no client can prove a name: set "
                "options.users, options.tokens, or tls.client_auth: required"
            )

    def describe(self, options: Options) -> Iterator[str]:
        from gateway.protocols.pravega.controller.access import in_sentences

        if options.controller:
            yield f"controller on {options.controller}"
        yield from in_sentences(options.access)

    def service(self, context: Context) -> Service:
        from gateway.protocols.pravega.service import PravegaService

        return PravegaService(context)

    def commands(self) -> Mapping[str, Command]:
        return {
            "pravega": Command(
                "gateway.protocols.pravega.commands.pravega",
                "where a Pravega stream was at a time",
            ),
        }

    def sender(self) -> Sender:
        from gateway.protocols.pravega.send_command import SENDER

        return SENDER


protocol = _Pravega()
