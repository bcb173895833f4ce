"""Elasticsearch's `_bulk`, for what writes to Elasticsearch, as a plug-in for gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.sdk.protocol import Context, Protocol, Service, SinglePort, tcp

if TYPE_CHECKING:
    from gateway.event import Decode
    from gateway.sdk.section import Section

__all__ = ["protocol"]


class Bulk(Protocol):
    """Imports what it needs when it is asked: every command imports this module."""

    name = "bulk"
    spoken_by = ("elasticsearch", "opensearch")
    limits = {"message_bytes": "16MiB", "inflated_bytes": "64MiB"}
    ages = True

    def options(self) -> type[Section]:
        from gateway.sdk.http_server import HttpOptions

        return HttpOptions

    def starter(self, host: str) -> Mapping[str, Any]:
        return {"name": "bulk", "listen": tcp(host, 9200)}

    def decoder(self, options: Sequence[object]) -> Decode:
        from gateway_bulk.documents import decode

        return decode

    def service(self, context: Context) -> Service:
        from gateway.sdk.http_server import METHODS, HttpListener
        from gateway_bulk.session import MOST_ANSWER_BYTES, Session

        accept = partial(HttpListener, session=Session)
        port = {"websocket": False, "unread_bytes": MOST_ANSWER_BYTES}
        return SinglePort(context, accept, prefixes=METHODS, **port)


protocol = Bulk()
