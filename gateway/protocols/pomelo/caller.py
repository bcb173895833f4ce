"""The client's side of the protocol: what to send, and what the server says.

    caller = Caller({"uid": "alice"})
    send(caller.hello())
    for said in caller.received(data): …      # Opened, Answer, Pushed, Kicked
    send(caller.outgoing())                   # acknowledgement, heartbeats

Bodies are JSON texts; where the server defined a route in protobuf, they are translated
on their way.  Time comes as `beat`, to be called when the interval is over.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.interfaces import Refusal
from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.protobuf import Schema, Undecodable, Unusable

__all__ = ["Answer", "Caller", "Kicked", "Opened", "Pushed", "Said", "Unexpected"]

_MOST_ID = 0xFFFFFFFF
_HEARTBEAT = wire.package(wire.HEARTBEAT)

#: What comes of reading a handshake, or definitions, of another shape than expected.
_NOT_POMELO = (
    Refusal, ValueError, KeyError, TypeError, AttributeError, RecursionError,
    msgspec.DecodeError,
)  # fmt: skip


class Unexpected(Exception):
    """The server does not speak Pomelo, or does not want us."""


@dataclass(slots=True)
class Opened:
    """The handshake is done; `heartbeat` is in seconds, 0 for none."""

    heartbeat: int
    user: Any


@dataclass(slots=True)
class Answer:
    """A response."""

    id: int
    body: bytes


@dataclass(slots=True)
class Pushed:
    """A push."""

    route: str
    body: bytes


@dataclass(slots=True)
class Kicked:
    """The server is about to hang up."""

    reason: str


Said = Opened | Answer | Pushed | Kicked


class Caller:
    """One connection of a client."""

    def __init__(
        self,
        user: Mapping[str, Any] | None = None,
        *,
        sys: Mapping[str, Any] | None = None,
    ) -> None:
        """*sys* replaces what the client says about itself."""
        self._hello = {
            "sys": sys or {"type": "gateway", "version": "1"},
            "user": user or {},
        }
        self._packages = wire.Packages(wire.MOST_BYTES, wire.MOST_BYTES)
        self._codes: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._requests: Schema | None = None
        self._answers: Schema | None = None
        self._routes: dict[int, str] = {}  # of requests that are not answered
        self._last = 0
        self._heartbeat = 0
        self._outgoing: list[bytes] = []
        self.opened = False

    @property
    def waiting(self) -> int:
        """How many requests are not answered."""
        return len(self._routes)

    # What to send

    def hello(self) -> bytes:
        """The handshake."""
        return wire.package(wire.HANDSHAKE, wire.ascii_json(self._hello))

    def request(self, route: str, body: bytes) -> tuple[int, bytes]:
        """A request's id, which is free until it is answered, and its package."""
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
        """A notify's package."""
        return wire.notify(self._codes.get(route, route), self._encode(route, body))

    def outgoing(self) -> bytes:
        """What `received` wants sent, each package once."""
        packages, self._outgoing = self._outgoing, []
        return b"".join(packages)

    def beat(self) -> bytes:
        """A heartbeat."""
        return _HEARTBEAT

    def _encode(self, route: str, body: bytes) -> bytes:
        if self._requests is None or route not in self._requests:
            return body
        return self._requests.encode(route, msgspec.json.decode(body))

    # What arrives

    def received(self, data: bytes) -> Iterator[Said]:
        """Take any slicing of the stream.  Raises `Unexpected`."""
        self._packages.feed(data)
        try:
            while (package := self._packages.next()) is not None:
                if package.kind == wire.DATA:
                    said = self._message(wire.message(package.body))
                    if said is not None:
                        yield said
                elif package.kind == wire.HANDSHAKE:
                    yield self._open(package.body)
                elif package.kind == wire.KICK:
                    yield Kicked(_reason(package.body))
        except _NOT_POMELO as why:
            raise Unexpected(str(why) or type(why).__name__) from None

    def _open(self, body: bytes) -> Opened:
        told = msgspec.json.decode(body)
        if told.get("code") != 200:
            raise Unexpected(f"handshake refused: {told.get('msg', told.get('code'))}")
        sys = told.get("sys") or {}
        self._codes = dict(sys.get("dict") or {})
        self._names = {code: name for name, code in self._codes.items()}
        protos = sys.get("protos")
        if protos:
            try:
                self._requests = Schema(protos["client"])
                self._answers = Schema(protos["server"])
            except Unusable as why:
                raise Unexpected(f"protos: {why}") from None
        self._heartbeat = int(sys.get("heartbeat") or 0)
        self._outgoing.append(wire.package(wire.ACK))
        self.opened = True
        return Opened(self._heartbeat, told.get("user"))

    def _message(self, message: wire.Message) -> Said | None:
        if message.route is None:
            route = self._routes.pop(message.id, None)
            if route is None:
                return None
            return Answer(message.id, self._decode(route, message.body))
        route = (
            self._names[message.route]
            if isinstance(message.route, int)
            else wire.text(message.route)
        )
        return Pushed(route, self._decode(route, message.body))

    def _decode(self, route: str, body: bytes) -> bytes:
        if self._answers is None or route not in self._answers:
            return body
        try:
            return msgspec.json.encode(self._answers.decode(route, body))
        except Undecodable as why:
            raise Unexpected(f"{route}: {why}") from None


def _reason(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["reason"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return body.decode(errors="replace")
