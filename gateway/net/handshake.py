"""Connection set-up: PROXY header, TLS, protocol detection, WebSocket upgrade, in order.

    socket -> PROXY header -> TLS -> protocol detection -> WebSocket -> Server.received

Each step is a method that takes the next bytes.  `_on_socket` is the current step for
what the socket delivers, `_on_plain` for what is left when TLS is taken off (without TLS
they are the same).  A step that is done makes the next one current and hands it the rest.
They are plain functions, not bound methods: ten thousand idle connections are not to
be ten thousand reference cycles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from gateway.event import Origin
from gateway.net.detect import (
    Expected,
    ForeignProtocol,
    detect,
    mismatch,
    undecided,
)
from gateway.net.proxy import ProxyHeaderParser
from gateway.net.tls_connection import TlsConnection
from gateway.net.transport import NO_TRANSPORT, Transport, address_text
from gateway.net.websocket_frames import FrameDecoder
from gateway.net.websocket_upgrade import UpgradeParser
from gateway.sdk.interfaces import Refusal, Server

if TYPE_CHECKING:
    from gateway.net.listen import Listener

__all__ = ["CALLBACK_ERRORS", "LAYERED_READ_BYTES", "READ_BYTES", "Handshake"]

_T = TypeVar("_T")

READ_BYTES = 1 << 18
"""Of one read, once bytes go to the server as they come; and of unsent output, above which
a peer counts as not reading."""
LAYERED_READ_BYTES = 1 << 15
"""Of one read before that, and through TLS or WebSocket: their records and frames cost
much, however little is in them, and are taken before a turn can count anything."""
_BARE_BYTES = 1 << 16
"""Of TLS without data in it, in a row; a record has at most 16 KiB."""

CALLBACK_ERRORS = (Exception, SystemExit)
"""What a protocol's code may raise that costs its connection, and not the daemon."""


class Handshake(ABC):
    """The steps; `connection.AcceptedConnection` is what takes them."""

    __slots__ = (
        "_bare", "_closing", "_deadline", "_frames", "_head", "_listener", "_on_plain",
        "_on_socket", "_parser", "_server", "_tls", "_transport", "counted",
        "ended_by", "host", "origin",
    )  # fmt: skip

    def __init__(self, listener: Listener, host: str, peer: str) -> None:
        self.host = host
        """Whom rejections and `connections_per_peer` are about."""
        self.ended_by = ""
        """Why it ends, once that is known: `peer`, `stopping`, a reason of rejections."""
        self.counted = False
        """Whether the listener counts it for `connections_per_peer`."""
        self.origin = Origin(
            listener.protocol, listener.name, listener.next_session(), peer
        )
        self._listener = listener
        self._transport: Transport = NO_TRANSPORT
        self._server: Server | None = None
        self._tls: TlsConnection | None = None
        self._frames: FrameDecoder | None = None
        self._parser: ProxyHeaderParser | UpgradeParser | None = None
        self._bare = 0
        """Bytes of TLS since the last that had data in it."""
        self._head = b""
        """Bytes held back until detection is decided."""
        self._on_socket: Callable[[Handshake, bytes], None] = _discard
        self._on_plain: Callable[[Handshake, bytes], None] = _discard
        self._closing = False
        self._deadline: float | None = None
        """When set-up must be done; once closing, when the peer's FIN must be there."""

    @abstractmethod
    def refuse(self, why: Refusal) -> None:
        """See `interfaces.Connection`."""

    @abstractmethod
    def _serve(self) -> None:
        """Make the server, once the peer is known."""

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Write, through TLS but not as a WebSocket message."""

    @abstractmethod
    def _reject(self, why: Refusal, reason: str) -> None:
        """Refuse below the server, where the reply is already in the peer's terms."""

    @abstractmethod
    def _raised(self, what: str, error: BaseException) -> None:
        """End this connection, because *what* raised *error*."""

    @abstractmethod
    def _end(self) -> None:
        """FIN after what is written."""

    @abstractmethod
    def arrived(self, data: bytes) -> None:
        """Bytes of the protocol's: deliver them, or keep them until the server goes on."""

    @abstractmethod
    def _peer_ended(self) -> None:
        """The peer said in TLS or WebSocket that nothing more comes."""

    def _start(self) -> None:
        listener = self._listener
        expects_header = listener.admission.expects_header(self.host)
        if expects_header or listener.tls or listener.websocket:
            self._deadline = listener.clock.seconds() + listener.limits.handshake
        if expects_header:
            self._parser = ProxyHeaderParser()
            self._on_socket = Handshake._read_proxy_header
        else:
            self._peer_known()

    def _parsed(
        self, feed: Callable[[bytes], _T | None], data: bytes, reason: str
    ) -> _T | None:
        """What a parser found; None if it needs more, or was sent what it rejects."""
        try:
            return feed(data)
        except Refusal as why:
            self._reject(why, reason)
            return None

    def _read_proxy_header(self, data: bytes) -> None:
        assert isinstance(self._parser, ProxyHeaderParser)
        header = self._parsed(self._parser.feed, data, "proxy")
        if header is None:
            return
        if header.peer is not None:
            self.origin.attributes = {"proxy": self.origin.peer}
            self.origin.peer = address_text(*header.peer)
            self.host = header.peer[0]
        if not self._listener.admit_real_peer(self):
            self._end()
            return
        self._parser = None
        self._peer_known()
        if header.rest:
            self._on_socket(self, header.rest)

    def _peer_known(self) -> None:
        if self._listener.tls is not None:
            self._on_socket = Handshake._read_client_hello
        else:
            self._begin_plain()

    def _read_client_hello(self, data: bytes) -> None:
        tls = self._listener.tls
        assert tls is not None
        if data[0] != 0x16:
            self._mismatch(detect(data), data, tls=True)
            return
        self._tls = TlsConnection(tls, self._transport)
        self._on_socket = Handshake._read_tls_handshake
        self._on_socket(self, data)

    def _read_tls_handshake(self, data: bytes) -> None:
        assert self._tls is not None
        plain = self._tls.feed(data)
        if self._tls.established:
            try:
                self.origin.principal = self._tls.principal()
            except Refusal as why:
                self._reject(why, "tls")
                return
            self._add_attribute("tls", self._tls.version)
            self._on_socket = Handshake._read_tls
            self._begin_plain()
        self._decrypted(plain)

    def _read_tls(self, data: bytes) -> None:
        assert self._tls is not None
        plain = self._tls.feed(data)
        self._bare = 0 if plain else self._bare + len(data)
        if self._bare > _BARE_BYTES:
            rule = "TLS without data: new keys again and again, or empty records"
            self._reject(Refusal(rule, limit=f"{_BARE_BYTES} bytes"), "tls")
        else:
            self._decrypted(plain)

    def _decrypted(self, plain: bytes) -> None:
        if plain:
            self._on_plain(self, plain)
        if self._tls is not None and self._tls.over:
            self._peer_ended()

    def _begin_plain(self) -> None:
        """From here on the bytes are the application's, or belong to another protocol."""
        self._next(Handshake._detect)
        if self._listener.websocket is None:
            self._serve()

    def _next(self, step: Callable[[Handshake, bytes], None]) -> None:
        self._on_plain = step
        if self._tls is None:
            self._on_socket = step
            self._transport.read_bytes = self._read_bytes

    @property
    def _read_bytes(self) -> int:
        """How much to read at once."""
        return READ_BYTES if self._on_socket is _pass_on else LAYERED_READ_BYTES

    def _detect(self, data: bytes) -> None:
        head = self._head + data
        listener = self._listener
        if undecided(head, listener.prefixes):
            self._head = head
            return
        self._head = b""
        found = detect(head, listener.prefixes)
        if found is ForeignProtocol.HTTP and listener.websocket is not None:
            self._parser = listener.upgrade_parser()
            if self._deadline is None:
                self._deadline = listener.clock.seconds() + listener.limits.handshake
            self._next(Handshake._read_upgrade)
        elif found is not None or listener.upgrades:
            self._mismatch(found, head, tls=False)
        else:
            self._next(_pass_on)
            if self._server is None:
                self._serve()
        if not self._closing:
            self._on_plain(self, head)

    def _read_upgrade(self, data: bytes) -> None:
        assert isinstance(self._parser, UpgradeParser)
        upgrade = self._parsed(self._parser.feed, data, "websocket")
        if upgrade is None:
            return
        self._parser = None
        if upgrade.subprotocol is not None:
            self._add_attribute("subprotocol", upgrade.subprotocol)
        self._send(upgrade.response)
        self._frames = FrameDecoder(
            self._listener.limits.message_bytes, text=self._listener.text
        )
        self._next(Handshake._read_frames)
        self._serve()
        if upgrade.rest and not self._closing:
            self._on_plain(self, upgrade.rest)

    def _read_frames(self, data: bytes) -> None:
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
            self.arrived(payload)
        if frames.closed:
            self._peer_ended()

    def _deliver(self, data: bytes) -> None:
        try:
            assert self._server is not None, "accept() returned None"
            self._server.received(data)
        except CALLBACK_ERRORS as error:
            self._raised("received()", error)

    def _add_attribute(self, name: str, value: str) -> None:
        """One more attribute of every event."""
        self.origin.attributes = {**self.origin.attributes, name: value}

    def _discard_input(self) -> None:
        """Drop whatever comes from now on: it comes too late."""
        self._on_socket = self._on_plain = _discard

    def _mismatch(
        self, found: ForeignProtocol | None, head: bytes, *, tls: bool
    ) -> None:
        listener = self._listener
        expected = Expected(listener.protocol, tls, listener.upgrades, listener.proxied)
        self._reject(mismatch(found, head, expected), "language")


def _pass_on(connection: Handshake, data: bytes) -> None:
    """The last step: all is set up."""
    connection.arrived(data)


def _discard(connection: Handshake, data: bytes) -> None:
    """The step of a connection that is over."""
