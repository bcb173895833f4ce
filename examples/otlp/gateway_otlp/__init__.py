"""OpenTelemetry's logs (OTLP/HTTP, JSON and protobuf), as a plug-in for gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.sdk.protocol import Context, Protocol, Service, SinglePort, tcp

if TYPE_CHECKING:
    from gateway.event import Decode
    from gateway.sdk.section import Section

__all__ = ["protocol"]


class Otlp(Protocol):
    """Imports what it needs when it is asked: every command imports this module."""

    name = "otlp"
    spoken_by = ("opentelemetry", "otel-collector")
    limits = {"message_bytes": "16MiB", "inflated_bytes": "64MiB"}
    ages = True

    def options(self) -> type[Section]:
        from gateway.sdk.http_server import HttpOptions

        return HttpOptions

    def starter(self, host: str) -> Mapping[str, Any]:
        return {"name": "otlp", "listen": tcp(host, 4318)}

    def decoder(self, options: Sequence[object]) -> Decode:
        from gateway_otlp.records import decode

        return decode

    def service(self, context: Context) -> Service:
        from gateway.sdk.http_server import METHODS, HttpListener
        from gateway_otlp.session import Session

        accept = partial(HttpListener, session=Session)
        return SinglePort(context, accept, prefixes=METHODS, websocket=False)


protocol = Otlp()
