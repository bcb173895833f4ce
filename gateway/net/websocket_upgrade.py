"""WebSocket upgrade, server side, without I/O: the HTTP request and its response.

wsproto parses the request (docs/adr/0003-websocket.md), from a head of limited size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wsproto import ConnectionType
from wsproto.events import AcceptConnection, Request
from wsproto.handshake import H11Handshake
from wsproto.utilities import RemoteProtocolError

from gateway.net.detect import http_response
from gateway.sdk.interfaces import Refusal

_MAX_HEAD_BYTES = 8192


class Upgrade(NamedTuple):
    """The request was a WebSocket's and was granted."""

    response: bytes
    """The response to send before any frame."""
    subprotocol: str | None
    rest: bytes
    """The bytes behind the request."""


class UpgradeParser:
    """Feed it any slicing of a connection's first bytes until the request is whole.

    *origins* are the web pages that may connect, `*` means any.  A client that is no
    browser sends no Origin and is accepted.
    """

    def __init__(
        self, path: str, origins: Sequence[str] = (), subprotocols: Sequence[str] = ()
    ) -> None:
        self._path = path
        self._origins = [origin.rstrip("/").lower() for origin in origins]
        self._subprotocols = subprotocols
        self._head = b""

    def feed(self, data: bytes) -> Upgrade | None:
        """The request's outcome, or None if it needs more.

        Raises `Refusal` whose reply is an HTTP response.
        """
        searched = max(0, len(self._head) - 3)
        self._head += data
        end = self._head.find(b"\r\n\r\n", searched)
        if end > _MAX_HEAD_BYTES or (end < 0 and len(self._head) > _MAX_HEAD_BYTES):
            raise _http_refusal(
                "431 Request Header Fields Too Large",
                f"HTTP request head of more than {_MAX_HEAD_BYTES} bytes",
            )
        if end < 0:
            return None
        head, rest = self._head[: end + 4], self._head[end + 4 :]
        handshake = H11Handshake(ConnectionType.SERVER)
        try:
            handshake.receive_data(head)
            [request] = handshake.events()
        except (RemoteProtocolError, ValueError) as why:
            raise _not_an_upgrade(head, str(why)) from None
        if not isinstance(request, Request):
            raise _not_an_upgrade(head, "no WebSocket request")
        self._check(request)
        chosen = next(
            (s for s in self._subprotocols if s in request.subprotocols), None
        )
        return Upgrade(handshake.send(AcceptConnection(chosen)), chosen, rest)

    def _check(self, request: Request) -> None:
        path = request.target.partition("?")[0]
        if path != self._path:
            raise _http_refusal(
                "404 Not Found",
                f"WebSocket path {path[:200]!r} is not {self._path!r}",
                key="websocket.path",
            )
        for name, value in request.extra_headers:
            if name == b"origin" and not self._origin_allowed(value.decode("latin-1")):
                raise _http_refusal(
                    "403 Forbidden",
                    f"WebSocket from a page of {value[:200]!r}",
                    key="websocket.origins",
                )

    def _origin_allowed(self, origin: str) -> bool:
        return "*" in self._origins or origin.rstrip("/").lower() in self._origins


def _http_refusal(
    status: str, rule: str, *headers: str, key: str | None = None
) -> Refusal:
    return Refusal(rule, key=key, reply=http_response(status, rule + ".", *headers))


def _not_an_upgrade(head: bytes, why: str) -> Refusal:
    if b"\nupgrade:" in head.lower():
        return _http_refusal(
            "400 Bad Request",
            f"bad WebSocket request: {why[:200]}",
            "Sec-WebSocket-Version: 13",
        )
    return _http_refusal(
        "426 Upgrade Required",
        "HTTP request without upgrade on a WebSocket port",
        "Upgrade: websocket",
    )
