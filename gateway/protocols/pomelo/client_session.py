"""The client's side of a Pomelo connection, without I/O: what to send, what arrived.

    session = ClientSession({"uid": "alice"})
    send(session.handshake())
    for each in session.received(data): …     # HandshakeDone, Response, Push, Kicked
    send(session.outgoing())                  # the handshake's acknowledgement

Bodies are JSON texts; for routes that the server defined in protobuf they are encoded
and decoded here.  The caller sends `heartbeat()` when the interval is over.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.protobuf import Schema, Undecodable, Unusable
from gateway.protocols.pomelo.text import ascii_json, text
from gateway.sdk.interfaces import Refusal

_MOST_ID = 0xFFFFFFFF
_HEARTBEAT = wire.package(wire.HEARTBEAT)
_SYS = {"type": "gateway", "version": "1"}

#: What is raised by reading a handshake, or definitions, of an unexpected shape.
_NOT_POMELO = (
    Refusal, ValueError, KeyError, TypeError, AttributeError, RecursionError,
    msgspec.DecodeError,
)  # fmt: skip


class Unexpected(Exception):
    """The server does not speak Pomelo, or refused the handshake; str() says why."""


class HandshakeDone(Struct):
    """The handshake is done; `heartbeat` is in seconds, 0 for none."""

    heartbeat: int


class Response(Struct):
    id: int
    """The id of its request."""
    body: bytes


class Push(Struct):
    route: str
    body: bytes


class Kicked(Struct):
    """The server is about to close the connection."""

    reason: str


Incoming = HandshakeDone | Response | Push | Kicked


class ClientSession:
    """One connection, from the client's side."""

    def __init__(self, user: Mapping[str, Any] | None = None) -> None:
        """*user* is sent in the handshake."""
        self._handshake = {"sys": _SYS, "user": user or {}}
        self._packages = wire.Packages(wire.MOST_BYTES, wire.MOST_BYTES)
        self._codes: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._requests: Schema | None = None
        self._responses: Schema | None = None
        self._routes: dict[int, str] = {}  # by id, of requests that are not answered
        self._last = 0
        self._outgoing: list[bytes] = []
        self.opened = False

    # What to send

    def handshake(self) -> bytes:
        return wire.package(wire.HANDSHAKE, ascii_json(self._handshake))

    def request(self, route: str, body: bytes) -> tuple[int, bytes]:
        number = self._last
        while True:
            number = number % _MOST_ID + 1
            if number not in self._routes:
                break
        self._last = number
        package = wire.request(
            number, self._codes.get(route, route), self._encode(route, body)
        )
        self._routes[number] = route
        return number, package

    def notify(self, route: str, body: bytes) -> bytes:
        return wire.notify(self._codes.get(route, route), self._encode(route, body))

    def outgoing(self) -> bytes:
        """Packages that `received` has to send in return; each is returned once."""
        packages, self._outgoing = self._outgoing, []
        return b"".join(packages)

    def heartbeat(self) -> bytes:
        return _HEARTBEAT

    def _encode(self, route: str, body: bytes) -> bytes:
        if self._requests is None or route not in self._requests:
            return body
        return self._requests.encode(route, msgspec.json.decode(body))

    # What arrives

    def received(self, data: bytes) -> Iterator[Incoming]:
        """Take bytes of the stream, in any slicing.  Raises `Unexpected`."""
        self._packages.feed(data)
        try:
            while (package := self._packages.next()) is not None:
                if package.kind == wire.DATA:
                    message = self._message(wire.message(package.body))
                    if message is not None:
                        yield message
                elif package.kind == wire.HANDSHAKE:
                    yield self._open(package.body)
                elif package.kind == wire.KICK:
                    yield Kicked(_reason(package.body))
        except _NOT_POMELO as why:
            raise Unexpected(str(why) or type(why).__name__) from None

    def _open(self, body: bytes) -> HandshakeDone:
        reply = msgspec.json.decode(body)
        if reply.get("code") != 200:
            raise Unexpected(
                f"handshake refused: {reply.get('msg', reply.get('code'))}"
            )
        sys = reply.get("sys") or {}
        self._codes = dict(sys.get("dict") or {})
        self._names = {code: name for name, code in self._codes.items()}
        protos = sys.get("protos")
        if protos:
            try:
                self._requests = Schema(protos["client"])
                self._responses = Schema(protos["server"])
            except Unusable as why:
                raise Unexpected(f"protos: {why}") from None
        heartbeat = int(sys.get("heartbeat") or 0)
        self._outgoing.append(wire.package(wire.ACK))
        self.opened = True
        return HandshakeDone(heartbeat)

    def _message(self, message: wire.Message) -> Response | Push | None:
        if message.route is None:
            route = self._routes.pop(message.id, None)
            if route is None:
                return None
            return Response(message.id, self._decode(route, message.body))
        route = (
            self._names[message.route]
            if isinstance(message.route, int)
            else text(message.route)
        )
        return Push(route, self._decode(route, message.body))

    def _decode(self, route: str, body: bytes) -> bytes:
        if self._responses is None or route not in self._responses:
            return body
        try:
            return msgspec.json.encode(self._responses.decode(route, body))
        except Undecodable as why:
            raise Unexpected(f"{route}: {why}") from None


def _reason(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["reason"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return body.decode(errors="replace")
