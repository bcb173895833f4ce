"""The way of a connection's first bytes, up to its protocol's server.

    socket -> PROXY header -> TLS -> wrong language? -> WebSocket -> Server.received

Each step is a method that takes the next bytes; `_take` is the current one for what
the socket delivers, `_open` for what is left when TLS is taken off (without TLS they
are the same).  A step that is done makes the next one current and hands it the rest.
They are plain functions, not bound methods: ten thousand idle connections are not to
be ten thousand reference cycles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.event import Origin
from gateway.interfaces import Refusal, Server
from gateway.net.proxy import ProxyHeader
from gateway.net.recognise import HTTP2, Language, Port, recognise, undecided, wrong
from gateway.net.tls import Layer
from gateway.net.websocket import Frames, Upgrade
from gateway.net.wire import NO_WIRE, Wire, joined

if TYPE_CHECKING:
    from gateway.net.listen import Listener

__all__ = ["Approach"]


class Approach(ABC):
    """The steps; `connection.Link` is what takes them."""

    __slots__ = (
        "_closing", "_deadline", "_frames", "_head", "_listener", "_open", "_server",
        "_step", "_take", "_tls", "_wire", "counted", "host", "origin",
    )  # fmt: skip

    def __init__(self, listener: Listener, host: str, peer: str) -> None:
        self.host = host
        """Whom complaints and `connections_per_peer` are about."""
        self.counted = False
        """Whether it is in the listener's crowd yet."""
        self.origin = Origin(
            listener.protocol, listener.name, listener.next_session(), peer
        )
        self._listener = listener
        self._wire: Wire = NO_WIRE
        self._server: Server | None = None
        self._tls: Layer | None = None
        self._frames: Frames | None = None
        self._step: ProxyHeader | Upgrade | None = None
        self._head = b""
        self._take: Callable[[Approach, bytes], None] = _drop
        self._open: Callable[[Approach, bytes], None] = _drop
        self._closing = False
        self._deadline: float | None = None
        """Of the handshake, later of the farewell."""

    @abstractmethod
    def refuse(self, why: Refusal) -> None:
        """See `interfaces.Connection`."""

    @abstractmethod
    def _serve(self) -> None:
        """Make the server: whoever connected is known."""

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Write, through TLS but not as a WebSocket message."""

    @abstractmethod
    def _reject(self, why: Refusal, kind: str) -> None:
        """Refuse below the server, where the reply is already in the peer's terms."""

    @abstractmethod
    def _end(self) -> None:
        """FIN after what is written."""

    def _start(self) -> None:
        listener = self._listener
        expects_header = listener.expects_header(self.host)
        if expects_header or listener.tls or listener.websocket:
            self._deadline = listener.clock.seconds() + listener.limits.handshake
        if expects_header:
            self._step = ProxyHeader()
            self._take = Approach._take_header
        else:
            self._peer_known()

    def _take_header(self, data: bytes) -> None:
        assert isinstance(self._step, ProxyHeader)
        try:
            announced = self._step.feed(data)
        except Refusal as why:
            self._reject(why, "proxy")
            return
        if announced is None:
            return
        if announced.peer is not None:
            self.origin.attributes = {"proxy": self.origin.peer}
            self.origin.peer = joined(*announced.peer)
            self.host = announced.peer[0]
        if not self._listener.introduced(self):
            self._end()
            return
        self._step = None
        self._peer_known()
        if announced.rest:
            self._take(self, announced.rest)

    def _peer_known(self) -> None:
        if self._listener.tls is not None:
            self._take = Approach._take_hello
        else:
            self._clear()

    def _take_hello(self, data: bytes) -> None:
        tls = self._listener.tls
        assert tls is not None
        if data[0] != 0x16:
            self._wrong(recognise(data), data, sealed=True)
            return
        self._tls = Layer(tls, self._wire)
        self._take = Approach._take_tls_handshake
        self._take(self, data)

    def _take_tls_handshake(self, data: bytes) -> None:
        assert self._tls is not None
        plain = self._tls.feed(data)
        if self._tls.established:
            try:
                self.origin.principal = self._tls.principal()
            except Refusal as why:
                self._reject(why, "tls")
                return
            self.origin.attributes = {
                **self.origin.attributes,
                "tls": self._tls.version,
            }
            self._take = Approach._take_tls
            self._clear()
        self._unsealed(plain)

    def _take_tls(self, data: bytes) -> None:
        assert self._tls is not None
        self._unsealed(self._tls.feed(data))

    def _unsealed(self, plain: bytes) -> None:
        if plain:
            self._open(self, plain)
        if self._tls is not None and self._tls.over:
            self._end()

    def _clear(self) -> None:
        """From here on the bytes are the application's, or say that they are not."""
        self._now(Approach._take_first)
        if self._listener.websocket is None:
            self._serve()

    def _now(self, step: Callable[[Approach, bytes], None]) -> None:
        self._open = step
        if self._tls is None:
            self._take = step

    def _take_first(self, data: bytes) -> None:
        head = self._head + data
        if undecided(head):
            self._head = head
            return
        self._head = b""
        listener = self._listener
        language = recognise(head)
        if listener.http2 and head.startswith(HTTP2):
            language = None
        if language is Language.HTTP and listener.websocket is not None:
            self._step = listener.upgrade()
            if self._deadline is None:
                self._deadline = listener.clock.seconds() + listener.limits.handshake
            self._now(Approach._take_request)
        elif language is not None or listener.upgrades:
            self._wrong(language, head, sealed=False)
            return
        else:
            if self._server is None:
                self._serve()
            self._now(Approach._take_data)
        if not self._closing:
            self._open(self, head)

    def _take_request(self, data: bytes) -> None:
        assert isinstance(self._step, Upgrade)
        try:
            upgraded = self._step.feed(data)
        except Refusal as why:
            self._reject(why, "websocket")
            return
        if upgraded is None:
            return
        self._step = None
        if upgraded.subprotocol is not None:
            self.origin.attributes = {
                **self.origin.attributes,
                "subprotocol": upgraded.subprotocol,
            }
        self._send(upgraded.answer)
        self._frames = Frames(
            self._listener.limits.message_bytes, text=self._listener.text
        )
        self._now(Approach._take_frames)
        self._serve()
        if upgraded.rest and not self._closing:
            self._open(self, upgraded.rest)

    def _take_frames(self, data: bytes) -> None:
        frames = self._frames
        assert frames is not None
        try:
            payload = frames.feed(data)
        except Refusal as why:
            self._reject(why, "websocket")
            return
        if output := frames.output():
            self._send(output)
        if payload:
            self._take_data(payload)
        if frames.closed:
            self._end()

    def _take_data(self, data: bytes) -> None:
        assert self._server is not None
        try:
            self._server.received(data)
        except Refusal as why:
            self.refuse(why)

    def _deafen(self) -> None:
        """Drop whatever comes from now on: it comes too late."""
        self._take = self._open = _drop

    def _wrong(self, language: Language | None, head: bytes, *, sealed: bool) -> None:
        listener = self._listener
        port = Port(listener.protocol, sealed, listener.upgrades, listener.proxied)
        self._reject(wrong(language, head, port), "language")


def _drop(link: Approach, data: bytes) -> None:
    """The step after the last."""
