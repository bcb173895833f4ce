"""Syslog over TCP and TLS, as a plug-in for gateway: `protocol` is it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.sdk.protocol import Context, Protocol, Service, SinglePort, tcp

if TYPE_CHECKING:
    from gateway.event import Decode
    from gateway.sdk.section import Section

__all__ = ["protocol"]


class Syslog(Protocol):
    """Imports what it needs when it is asked: every command imports this module."""

    name = "syslog"
    # A sender may be silent for long, and loses what it writes into a closed connection.
    limits = {"idle": "30d", "message_bytes": "1MiB"}

    def options(self) -> type[Section]:
        from gateway_syslog.options import Options

        return Options

    def starter(self, host: str) -> Mapping[str, Any]:
        return {"name": "syslog", "listen": tcp(host, 6514)}

    def decoder(self, options: Sequence[object]) -> Decode:
        from gateway_syslog.messages import decode

        return decode

    def service(self, context: Context) -> Service:
        from gateway.sdk.batches import BatchListener
        from gateway_syslog.session import Session

        accept = partial(BatchListener, session=Session)
        return SinglePort(context, accept, acknowledges=False)


protocol = Syslog()
